"""Start, recognise and end the stack's processes.

Every process carries the stack's home and its service's name in its environment, and hands both on to its
children: a task of Airflow or a Spark driver is found by them even when its parents are gone, and no process
of another stack ever is.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tidemark.environment import inherited_environment
from tidemark.stack.state import ProcessRecord

HOME_MARK = "TIDEMARK_STACK"
SERVICE_MARK = "TIDEMARK_STACK_SERVICE"
# The system's idea of when it was booted, on which start times are based, may move a little.
START_TOLERANCE_SECONDS = 2.0
POLL_SECONDS = 0.05
KILL_SECONDS = 5.0
# Python complains of a child that is forgotten while it runs.
_children: list[subprocess.Popen[bytes]] = []

# Settings of another installation that would leak into ours.
FOREIGN_PREFIXES = (
    "AIRFLOW_",
    "HADOOP_",
    "HDFS_",
    "KAFKA_",
    "PYSPARK_",
    "SPARK_",
    "JAVA_TOOL_OPTIONS",
    "CLASSPATH",
)


def plain_environment() -> dict[str, str]:
    """What a process of the stack inherits."""
    return {key: value for key, value in inherited_environment().items() if not key.startswith(FOREIGN_PREFIXES)}


def spawn(
    command: Sequence[str], *, home: Path, service: str, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """In a session of its own, so that the terminal's Ctrl-C does not reach it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            cwd=home,
            # setproctitle would otherwise write the title over the environment that /proc shows.
            env={**environment, HOME_MARK: str(home), SERVICE_MARK: service, "SPT_NOENV": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children.append(child)
    return child


def record_of(child: subprocess.Popen[bytes]) -> ProcessRecord:
    return ProcessRecord(pid=child.pid, started=psutil.Process(child.pid).create_time())


def find_running(record: ProcessRecord) -> psutil.Process | None:
    """The recorded process itself; not one that got its pid, not one that ended and waits for its parent."""
    try:
        process = psutil.Process(record.pid)
        is_same = abs(process.create_time() - record.started) < START_TOLERANCE_SECONDS
        return process if is_same and _is_alive(process) else None
    except psutil.NoSuchProcess:
        return None


def marked_processes(home: Path, service: str | None = None) -> list[psutil.Process]:
    """All processes of the stack, or of one service: never this process or one that it runs in."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for process in _marked(home, service) if process.pid not in own]


def service_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(SERVICE_MARK)
    except psutil.Error:
        return None


def _marked(home: Path, service: str | None) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        if environment.get(HOME_MARK) == str(home) and service in (None, environment.get(SERVICE_MARK)):
            yield process


def end_marked(home: Path, service: str | None = None, *, patience_seconds: float) -> bool:
    """Ask the processes to end, wait, then kill until none is left, children made meanwhile included.

    False: there was none.
    """
    asked = marked_processes(home, service)
    if patience_seconds:
        _signal(asked, psutil.Process.terminate)
        _wait_until_gone(asked, patience_seconds)
    while remaining := marked_processes(home, service):
        _signal(remaining, psutil.Process.kill)
        _wait_until_gone(remaining, KILL_SECONDS)
    return bool(asked)


def _wait_until_gone(processes: Sequence[psutil.Process], seconds: float) -> None:
    """A zombie is gone: it may stay one for long where process 1 is slow to take it off the list."""
    deadline = time.monotonic() + seconds
    while any(_is_alive(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for child in _children:
        child.poll()


def _is_alive(process: psutil.Process) -> bool:
    """The first thread of a killed JVM is a zombie while others still hold its ports."""
    try:
        return process.is_running() and (process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False


def _signal(processes: Sequence[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            send(process)


def memory_of(processes: Sequence[psutil.Process]) -> int:
    """In bytes; pages shared by several processes count once."""
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total
