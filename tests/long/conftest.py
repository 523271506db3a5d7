from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.armed import armed_with

from tidemark.failpoints import Failpoint
from tidemark.stack import Stack


@pytest.fixture(scope="module")
def steps() -> tuple[Failpoint, ...]:
    """Each of them kills once; a file of tests may override it."""
    return ()


@pytest.fixture(scope="module")
def own_stack(folder: Path, steps: tuple[Failpoint, ...]) -> Iterator[Stack]:
    """With Airflow, for the streams of a file of tests alone, which writes them into its `folder`."""
    with armed_with(steps, folder) as stack:
        yield stack
