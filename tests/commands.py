"""The commands as a shell runs them."""

import subprocess
import sys
from collections.abc import Mapping


def tidemark(
    *arguments: str,
    environment: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    within_s: float | None = None,
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", "from tidemark.cli.main import main; main()", *arguments],
        env={"TERM": "dumb", **environment},
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=within_s,
    )


def airflow_command(*arguments: str, environment: Mapping[str, str]) -> str:
    """What it prints. Again where Airflow on SQLite lost the race of two writers."""
    for _ in range(5):
        done = subprocess.run(["airflow", *arguments], env=environment, capture_output=True, text=True, check=False)
        if "database is locked" not in done.stdout + done.stderr:
            break
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
