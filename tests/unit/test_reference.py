"""docs/reference says what the code says."""

import pytest
from tests.reference.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_the_code_has_it(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "make it anew: python -m tests.reference"
