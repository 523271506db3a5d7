import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.environment import repository_folder
from tidemark.errors import WrongUse
from tidemark.failpoints import FAILPOINTS, parse_failpoints, reach


def test_every_failpoint_is_reached_somewhere_and_none_that_is_not_registered() -> None:
    sources = (repository_folder() / "include" / "tidemark").rglob("*.py")
    reached = [name for source in sources for name in re.findall(r'\breach\("([^"]+)"\)', source.read_text("utf-8"))]
    assert sorted(reached) == sorted(FAILPOINTS)


def test_every_failpoint_belongs_to_a_group_that_a_test_of_services_kills_one_by_one() -> None:
    killed_in = {
        "test_faults.py": {"lease", "plan", "consume", "commit", "recover"},
        "test_archive_faults.py": {"archive"},
        "test_publish_faults.py": {"publish", "announce"},
        "test_timelines.py": {"switch", "act"},
    }
    groups = {name.partition(".")[0] for name in FAILPOINTS}
    assert groups == set.union(*killed_in.values())


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
