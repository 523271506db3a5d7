"""jobs/consume.py as a process of its own, which dies, stops or waits at a failpoint."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from tests.waiting import wait_until

from tidemark.config import Stream
from tidemark.environment import repository_folder
from tidemark.failpoints import Failpoint
from tidemark.names import Interval, Task, moment
from tidemark.stack import Stack
from tidemark.stack.processes import plain_environment

WITHIN_S = 600.0


class ConsumeJob:
    """Use as a context manager: whatever is left of the process and its JVM at the end is killed."""

    def __init__(
        self,
        stack: Stack,
        stream: Stream,
        interval: Interval,
        task: Task,
        folder: Path,
        failpoints: Mapping[Failpoint, str],
        master: str = "local[2]",
    ) -> None:
        folder.mkdir(parents=True)
        self._log = folder / "log"
        self._witness = folder / "witness"
        streams = folder / "streams.yaml"
        streams.write_text(json.dumps({"streams": {stream.name: _settings_of(stream)}}))
        armed = {
            "TIDEMARK_FAILPOINT": ",".join(f"{name}={act}" for name, act in failpoints.items()),
            "TIDEMARK_FAILPOINT_WITNESS": str(self._witness),
        }
        # The workers of a cluster do not have the driver's environment.
        for_executors = " ".join(f"--conf spark.executorEnv.{name}={value}" for name, value in armed.items())
        environment = {
            **plain_environment(),
            **stack.environment(),
            "PYSPARK_SUBMIT_ARGS": f"--master {master} {for_executors} pyspark-shell",
            "TIDEMARK_STREAMS": str(streams),
            **armed,
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                _command(stream, interval, task),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def reached(self) -> list[str]:
        """The armed failpoints that were reached, in order."""
        return self._witness.read_text().split() if self._witness.exists() else []

    def wait(self) -> int:
        return self.process.wait(WITHIN_S)

    def wait_until_reached(self, failpoint: Failpoint) -> None:
        wait_until(lambda: failpoint in self.reached or self.process.poll() is not None, failpoint, within_s=WITHIN_S)
        assert failpoint in self.reached, self.log

    def wait_until_stopped(self, failpoint: Failpoint) -> None:
        self.wait_until_reached(failpoint)
        status = psutil.Process(self.process.pid).status
        wait_until(lambda: status() == psutil.STATUS_STOPPED, f"{failpoint} stops the job")

    def go_on(self) -> None:
        """Wake a job that stopped, release one that waits."""
        self.let_go()
        self.process.send_signal(signal.SIGCONT)

    def let_go(self) -> None:
        """Release whatever waits at a failpoint now."""
        self._witness.unlink(missing_ok=True)


def _command(stream: Stream, interval: Interval, task: Task) -> list[str]:
    return [
        sys.executable,
        str(repository_folder() / "jobs" / "consume.py"),
        *("--stream", stream.name),
        *("--start", moment(interval.start_ms).isoformat()),
        *("--end", moment(interval.end_ms).isoformat()),
        *("--task", task.name),
        *("--attempt", str(task.attempt)),
    ]


def _settings_of(stream: Stream) -> dict[str, str]:
    return {name: str(getattr(stream, name)) for name in ("cluster", "topic", "root", "owner", "compression")}
