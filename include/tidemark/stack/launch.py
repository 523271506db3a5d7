"""Start services side by side, each as soon as those it needs are there."""

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tidemark.errors import ServiceUnreachable, TidemarkError
from tidemark.stack.files import end_of
from tidemark.stack.processes import find_running, record_of, spawn
from tidemark.stack.service import Service, Site
from tidemark.stack.state import ProcessRecord

HEALTH_TIMEOUT_SECONDS = 180.0
POLL_SECONDS = 0.25


class Launch:
    """The first service that fails ends the waiting of all; what was started keeps running."""

    def __init__(
        self,
        *,
        site: Site,
        environment: Mapping[str, str],
        log_file: Callable[[str], Path],
        remember: Callable[[str, ProcessRecord], None],
        on_step: Callable[[str], None],
    ) -> None:
        self._site = site
        self._environment = environment
        self._log_file = log_file
        self._remember = remember
        self._on_step = on_step
        self._begin = time.monotonic()
        self._failed = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._started: dict[str, threading.Event] = {}
        self._healthy: dict[str, threading.Event] = {}

    def run(self, services: Sequence[Service], running: Mapping[str, ProcessRecord]) -> None:
        """Returns when all are healthy: those that run already, too."""
        self._started = {service.name: threading.Event() for service in services}
        self._healthy = {service.name: threading.Event() for service in services}
        with ThreadPoolExecutor(max_workers=len(services)) as threads:
            try:
                futures = [threads.submit(self._bring_up, service, running.get(service.name)) for service in services]
                for future in as_completed(futures):
                    future.result()
            finally:
                self._failed.set()

    def _bring_up(self, service: Service, record: ProcessRecord | None) -> None:
        current = record or self._prepare_and_start(service)
        self._started[service.name].set()
        self._wait_until_healthy(service, current)
        self._healthy[service.name].set()
        seconds = time.monotonic() - self._begin
        outcome = "runs already" if record else f"healthy after {seconds:.1f} s"
        self._on_step(", ".join(filter(None, (f"{service.name}: {outcome}", service.address(self._site)))))

    def _prepare_and_start(self, service: Service) -> ProcessRecord:
        needed = self._healthy if service.needs_health else self._started
        for name in service.needs:
            self._wait_for(needed.get(name))
        service.prepare(self._site, self._run_tool)
        return self._start(service)

    def _start(self, service: Service) -> ProcessRecord:
        record = record_of(self._spawn(service.name, service.command(self._site)))
        with self._one_at_a_time:
            self._remember(service.name, record)
        return record

    def _run_tool(self, name: str, command: list[str]) -> None:
        tool = self._spawn(name, command)
        while tool.poll() is None:
            self._pause()
        if tool.returncode:
            raise TidemarkError(
                f"Cannot prepare the stack: {name} ended with {tool.returncode}; {self._end_of_log(name)}"
            )

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        return spawn(
            command,
            home=self._site.home,
            service=name,
            environment=self._environment,
            log=self._log_file(name),
        )

    def _wait_for(self, event: threading.Event | None) -> None:
        """None: it belongs to a service that was not asked for this time, and runs."""
        while event and not event.is_set():
            self._pause()

    def _wait_until_healthy(self, service: Service, record: ProcessRecord) -> None:
        deadline = time.monotonic() + HEALTH_TIMEOUT_SECONDS
        while missing := self._ask(service, record):
            if not find_running(record):
                raise TidemarkError(
                    f"Cannot start {service.name}: its process has ended; {self._end_of_log(service.name)}"
                )
            if time.monotonic() > deadline:
                raise ServiceUnreachable(
                    f"Cannot start {service.name}: it lacks {missing} after {HEALTH_TIMEOUT_SECONDS:.0f} s; "
                    f"{self._end_of_log(service.name)}"
                )
            self._pause()

    def _ask(self, service: Service, record: ProcessRecord) -> str | None:
        try:
            return service.lacks(self._site, record.started)
        except OSError as error:
            return f"an answer ({error})"

    def _pause(self) -> None:
        if self._failed.wait(POLL_SECONDS):
            raise TidemarkError("Given up: another service has failed")

    def _end_of_log(self, name: str) -> str:
        log = self._log_file(name)
        return f"its log {log} ends with:\n{end_of(log)}"
