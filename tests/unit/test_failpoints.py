import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration import test_archive_faults, test_faults, test_publish_faults, test_timelines

from tidemark.environment import repository_folder
from tidemark.errors import WrongUse
from tidemark.failpoints import FAILPOINTS, parse_failpoints, reach


def test_every_failpoint_is_reached_somewhere_and_none_that_is_not_registered() -> None:
    sources = (repository_folder() / "include" / "tidemark").rglob("*.py")
    reached = [name for source in sources for name in re.findall(r'\breach\("([^"]+)"\)', source.read_text("utf-8"))]
    assert sorted(reached) == sorted(FAILPOINTS)


def test_every_failpoint_is_killed_on_real_services_by_a_test_of_make_test() -> None:
    killed = {
        name
        for module in (test_faults, test_archive_faults, test_publish_faults, test_timelines)
        for test in vars(module).values()
        for mark in getattr(test, "pytestmark", ())
        if mark.name == "parametrize" and mark.args[0] in ("failpoint", "step")
        for name in mark.args[1]
    }
    assert killed == set(FAILPOINTS)


def test_a_failpoint_that_is_not_armed_does_nothing() -> None:
    reach("commit.after_pending")


@pytest.mark.parametrize("setting", ["commit.nowhere=kill", "commit.after_pending=jump", "commit.after_pending"])
def test_a_typo_is_refused_instead_of_arming_nothing(setting: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=f"Cannot arm '{re.escape(setting)}': wanted <failpoint>=kill|stop|wait"):
        parse_failpoints(setting, tmp_path / "witness")


def test_a_failpoint_without_a_witness_is_refused() -> None:
    with pytest.raises(WrongUse, match="TIDEMARK_FAILPOINT_WITNESS names no file"):
        parse_failpoints("commit.after_pending=kill", None)


def test_an_armed_failpoint_bears_witness_and_kills_its_process(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    program = "from tidemark.failpoints import reach; reach('commit.before_manifest'); reach('commit.after_pending')"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"TIDEMARK_FAILPOINT": "commit.after_pending=kill", "TIDEMARK_FAILPOINT_WITNESS": str(witness)},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert witness.read_text() == "commit.after_pending\n"
