"""The command as a shell runs it."""

import subprocess
import sys
from collections.abc import Mapping


def tidemark(
    *arguments: str, environment: Mapping[str, str], stdin: int = subprocess.DEVNULL
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", "from tidemark.cli.main import main; main()", *arguments],
        env={"TERM": "dumb", **environment},
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
