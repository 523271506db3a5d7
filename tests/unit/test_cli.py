"""The command as a shell sees it: one line for an error, and its exit code."""

import subprocess
import sys
from pathlib import Path


def tidemark(*arguments: str, home: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", "from tidemark.cli.main import main; main()", *arguments],
        env={"TIDEMARK_HOME": str(home), "PATH": "", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_is_a_map_of_the_whole_with_the_exit_codes(tmp_path: Path) -> None:
    shown = tidemark("--help", home=tmp_path)
    assert shown.returncode == 0
    for word in ("stack", "boom", "offsets", "flags", "why", "check", "verify", "workers", "parse", "demo"):
        assert word in shown.stdout
    assert "Exit codes: 0 yes, 1 no, 2 wrong use, 3 a service is not" in shown.stdout


def test_wrong_use_is_2_and_one_line(tmp_path: Path) -> None:
    found = tidemark("stack", "up", "--port", "kafka=many", home=tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith("tidemark: ")
    assert len(found.stderr.splitlines()) == 1


def test_no_is_1(tmp_path: Path) -> None:
    assert tidemark("stack", "status", home=tmp_path).returncode == 1


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    found = tidemark("--debug", "stack", "up", "--port", "kafka=many", home=tmp_path)
    assert "Traceback" in found.stderr
