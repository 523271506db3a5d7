import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tidemark.stack.processes import (
    end_marked,
    find_running,
    marked_processes,
    plain_environment,
    record_of,
    service_of,
    spawn,
)
from tidemark.stack.state import ProcessRecord

Start = Callable[[str, str], "subprocess.Popen[bytes]"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_marked(tmp_path, patience_seconds=0)


@pytest.fixture
def start(home: Path) -> Start:
    """A process of the stack that runs a line of Python, returned when it has printed something."""

    def _start(service: str, code: str) -> "subprocess.Popen[bytes]":
        log = home / f"{service}.log"
        command = [sys.executable, "-c", code]
        child = spawn(command, home=home, service=service, environment=plain_environment(), log=log)
        while not log.read_text():
            assert child.poll() is None
        return child

    return _start


WAIT = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAIT}"
LEAVES_A_CHILD = (
    "import subprocess, sys, os;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True);"
    "print('ready', flush=True)"
)


def test_a_process_is_found_by_its_pid_and_its_start(start: Start) -> None:
    child = start("a", WAIT)
    found = find_running(record_of(child))
    assert found is not None
    assert found.pid == child.pid


def test_a_process_that_got_the_pid_of_another_is_not_taken_for_it() -> None:
    mine = psutil.Process().create_time()
    assert find_running(ProcessRecord(pid=os.getpid(), started=mine - 60)) is None


def test_a_zombie_does_not_run(start: Start) -> None:
    child = start("a", WAIT)
    record = record_of(child)
    psutil.Process(child.pid).kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert find_running(record) is None


def test_a_process_that_ignores_the_wish_to_end_is_killed(home: Path, start: Start) -> None:
    child = start("a", STUBBORN)
    assert end_marked(home, patience_seconds=0.2)
    assert child.poll() == -9


def test_an_orphan_in_a_session_of_its_own_is_ended_as_well(home: Path, start: Start) -> None:
    start("a", LEAVES_A_CHILD).wait()
    (orphan,) = marked_processes(home)
    assert service_of(orphan) == "a"
    assert end_marked(home, "a", patience_seconds=5)
    assert marked_processes(home) == []


def test_ending_one_service_leaves_the_others(home: Path, start: Start) -> None:
    start("a", WAIT)
    other = start("b", WAIT)
    end_marked(home, "a", patience_seconds=5)
    assert [process.pid for process in marked_processes(home)] == [other.pid]


def test_a_stack_whose_home_begins_alike_is_another_one(home: Path, start: Start) -> None:
    child = start("a", WAIT)
    assert not end_marked(home.parent, patience_seconds=0)
    assert not end_marked(home / "a", patience_seconds=0)
    assert child.poll() is None


def test_a_process_of_the_stack_never_ends_itself_or_those_it_runs_in(home: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tidemark.stack.processes import end_marked;"
        "print(end_marked(Path(os.environ['TIDEMARK_STACK']), patience_seconds=0))"
    )
    environment = {**plain_environment(), "TIDEMARK_STACK": str(home)}
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{code}"; echo alive'],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "alive"]


def test_settings_of_another_installation_do_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/other-spark")
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    assert not {"SPARK_HOME", "AIRFLOW__CORE__EXECUTOR"} & set(plain_environment())
