"""The embedded stack: real services on this machine, everything below one folder."""

import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import TidemarkError, WrongUse
from tidemark.stack import spark
from tidemark.stack.airflow import ADMIN, AIRFLOW_SERVICES
from tidemark.stack.hdfs import DataNode, NameNode
from tidemark.stack.jars import JAR_SETS, resolve_jars
from tidemark.stack.java import find_java
from tidemark.stack.kafka import Kafka
from tidemark.stack.launch import Launch
from tidemark.stack.lock import hold_lock
from tidemark.stack.ports import HOST, claim_ports
from tidemark.stack.processes import (
    end_marked,
    find_running,
    marked_processes,
    memory_of,
    plain_environment,
    service_of,
)
from tidemark.stack.service import Service, Site
from tidemark.stack.spark import SparkMaster, SparkWorker
from tidemark.stack.state import ProcessRecord, State, load_state, save_state
from tidemark.stack.zookeeper import ZooKeeper

# In the order in which they are started; they are ended the other way round.
SERVICES: Mapping[str, Service] = {
    service.name: service
    for service in (
        ZooKeeper(),
        Kafka(),
        NameNode(),
        DataNode(),
        SparkMaster(),
        SparkWorker(1),
        SparkWorker(2),
        *AIRFLOW_SERVICES,
    )
}
DATA_SERVICES = ("zookeeper", "kafka", "namenode", "datanode")
SPARK_CLUSTER = ("spark-master", "spark-worker-1", "spark-worker-2")
DEFAULT_SERVICES = (*DATA_SERVICES, *(service.name for service in AIRFLOW_SERVICES))
PORT_NAMES = tuple(port for service in SERVICES.values() for port in service.ports)

WANTED_FREE_BYTES = 2 * 1024**3
PATIENCE_SECONDS = 10.0

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    name: str
    running: bool
    pid: int | None
    address: str
    log: Path | None
    memory_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    address: str
    user: str
    password: str


def say_nothing(step: str) -> None:
    del step


class Stack:
    """One stack for each home. Everything here may be called again at any time, by any process."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()

    def up(
        self,
        services: Sequence[str] = DEFAULT_SERVICES,
        *,
        ports: Mapping[str, int] | None = None,
        extra_environment: Mapping[str, str] | None = None,
        secured: bool = False,
        on_step: OnStep = say_nothing,
    ) -> None:
        """Start what does not run yet and wait until all of it is healthy.

        Ports, the extra environment (for the services and their clients) and `secured` (whether Kafka and ZooKeeper ask
        for a login; for a new home only) are remembered for the next time. When a service fails, those that this call
        started are ended again.
        """
        wanted = in_order(services)
        require_free_space(self.home, shutil.disk_usage(_existing(self.home)).free)
        java = find_java(on_step)
        resolve_jars(JAR_SETS, java, on_step)
        with self._locked():
            state = load_state(self.home)
            self._end_strays(state, on_step)
            state.java_home = java.home
            state.secured = _is_secured(state, secured, self.home)
            _require_same_ports(state, ports or {})
            if extra_environment is not None:
                _change_environment(state, dict(extra_environment))
            state.services = in_order({*state.services, *wanted})
            self._launch(state, wanted, ports or {}, on_step)

    def start(self, name: str, *, on_step: OnStep = say_nothing) -> None:
        """Start one service of the stack again, on its port and its data, and wait until it is healthy."""
        with self._locked():
            state = load_state(self.home)
            _require_known(state, name)
            self._end_strays(state, on_step)
            self._launch(state, [name], {}, on_step)

    def stop(self, name: str) -> None:
        """End one service and all its children as an operator would."""
        self._end_service(name, PATIENCE_SECONDS)

    def kill(self, name: str) -> None:
        """End one service and all its children as a power cut would."""
        self._end_service(name, 0)

    def down(self, *, on_step: OnStep = say_nothing) -> None:
        """End every process of the stack; data, ports and secrets stay for the next time."""
        with self._locked():
            for name in reversed(list(SERVICES)):
                if end_marked(self.home, name, patience_seconds=PATIENCE_SECONDS):
                    on_step(f"{name}: ended")
            end_marked(self.home, patience_seconds=PATIENCE_SECONDS)
            state = load_state(self.home)
            state.services, state.processes = [], {}
            save_state(self.home, state)

    def status(self) -> list[ServiceStatus]:
        """Of the services that were asked for last; of all when none were."""
        state = load_state(self.home)
        site = self._site(state)
        processes = defaultdict(list)
        for process in marked_processes(self.home):
            processes[service_of(process)].append(process)
        statuses = [
            self._status_of(SERVICES[name], state, site, memory_of(processes[name]))
            for name in state.services or DEFAULT_SERVICES
        ]
        return [*statuses, _status_of_spark(site)]

    def environment(self) -> dict[str, str]:
        """What a client has to set to talk to the stack."""
        state = load_state(self.home)
        if not state.services:
            raise TidemarkError(f"Cannot tell the environment: no stack runs in {self.home}; run `tidemark stack up`")
        return _exports(self._site(state))

    def login(self) -> Login:
        """To Airflow's pages."""
        return Login(
            address=self.environment()["TIDEMARK_UI"],
            user=ADMIN,
            password=load_state(self.home).secrets.admin_password,
        )

    def log_file(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    def _locked(self) -> AbstractContextManager[None]:
        return hold_lock(self.home / "lock")

    def _site(self, state: State) -> Site:
        return Site(
            home=self.home,
            java_home=state.java_home,
            secured=state.secured,
            services=tuple(state.services),
            ports=state.ports,
            secrets=state.secrets,
            extra_environment=state.extra_environment,
        )

    def _launch(self, state: State, wanted: Sequence[str], given: Mapping[str, int], on_step: OnStep) -> None:
        running = _running(state)
        missing = [name for name in wanted if name not in running]
        names = [port for name in missing for port in SERVICES[name].ports]
        # Clients that run already know the ports of the services that do not.
        given = {**state.ports, **given} if running else given
        with claim_ports(names, given, state.ports) as claimed:
            state.ports = {**state.ports, **claimed}
            save_state(self.home, state)
            site = self._site(state)
            spark.write_settings(site)
            launch = Launch(
                site=site,
                environment={**plain_environment(), **_exports(site)},
                log_file=self.log_file,
                remember=lambda name, record: self._remember(state, name, record),
                on_step=on_step,
            )
            try:
                launch.run([SERVICES[name] for name in wanted], running)
            except BaseException:
                self._end_services(state, missing)
                self._end_strays(state, say_nothing)
                raise

    def _remember(self, state: State, name: str, record: ProcessRecord) -> None:
        state.processes[name] = record
        save_state(self.home, state)

    def _end_service(self, name: str, patience_seconds: float) -> None:
        with self._locked():
            state = load_state(self.home)
            _require_known(state, name)
            end_marked(self.home, name, patience_seconds=patience_seconds)
            state.processes.pop(name, None)
            save_state(self.home, state)

    def _end_services(self, state: State, names: Sequence[str]) -> None:
        for name in reversed(names):
            end_marked(self.home, name, patience_seconds=PATIENCE_SECONDS)
            state.processes.pop(name, None)
        save_state(self.home, state)

    def _end_strays(self, state: State, on_step: OnStep) -> None:
        """What a crashed `up` or a crashed service has left: processes whose service does not run."""
        running = _running(state)
        found = {service_of(process) for process in marked_processes(self.home)}
        for name in found - set(running):
            if name and end_marked(self.home, name, patience_seconds=PATIENCE_SECONDS):
                on_step(f"{name}: ended what was left of it")
        state.processes = running

    def _status_of(self, service: Service, state: State, site: Site, memory: int) -> ServiceStatus:
        record = _running(state).get(service.name)
        has_ports = all(port in site.ports for port in service.ports)
        return ServiceStatus(
            name=service.name,
            running=record is not None,
            pid=record.pid if record else None,
            address=service.address(site) if has_ports else "",
            log=self.log_file(service.name),
            memory_mb=round(memory / 1024**2),
        )


def in_order(services: Iterable[str]) -> list[str]:
    """The services and those they need, in the order in which they are started."""
    names = set(services)
    unknown = sorted(names - set(SERVICES))
    if unknown:
        raise WrongUse(f"Cannot start {', '.join(unknown)}: not one of {', '.join(SERVICES)}")
    needed = {need for name in names for need in SERVICES[name].needs}
    return [name for name in SERVICES if name in names | needed]


def require_free_space(home: Path, free: int) -> None:
    if free < WANTED_FREE_BYTES:
        raise TidemarkError(
            f"Cannot start the stack in {home}: {free / 1024**3:.1f} GiB are free there, "
            f"{WANTED_FREE_BYTES / 1024**3:.0f} GiB are wanted; make room, or set TIDEMARK_HOME elsewhere"
        )


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


def _running(state: State) -> dict[str, ProcessRecord]:
    return {name: record for name, record in state.processes.items() if find_running(record)}


def _require_known(state: State, name: str) -> None:
    if name not in state.services:
        raise WrongUse(f"Cannot act on {name}: not one of the stack's services ({', '.join(state.services) or 'none'})")


def _require_same_ports(state: State, ports: Mapping[str, int]) -> None:
    for service in _running(state):
        for name in SERVICES[service].ports:
            if ports.get(name, state.ports[name]) != state.ports[name]:
                raise WrongUse(
                    f"Cannot move {name} to port {ports[name]}: it runs on {state.ports[name]}; "
                    f"run `tidemark stack down` first"
                )


def _is_secured(state: State, wanted: bool, home: Path) -> bool:
    if wanted and state.ports and not state.secured:
        raise WrongUse(f"Cannot secure the stack in {home}: its data is of a stack without logins; wanted a new folder")
    return state.secured or wanted


def _change_environment(state: State, extra: dict[str, str]) -> None:
    is_in_use = any(service.name in _running(state) for service in AIRFLOW_SERVICES)
    if is_in_use and extra != state.extra_environment:
        raise WrongUse("Cannot change the environment of Airflow while it runs; run `tidemark stack down` first")
    state.extra_environment = extra


def _status_of_spark(site: Site) -> ServiceStatus:
    """In local mode there is no process: a job brings its own."""
    return ServiceStatus(name="spark", running=True, pid=None, address=spark.master(site), log=None, memory_mb=0)


def _exports(site: Site) -> dict[str, str]:
    exports = _common_exports(site) | spark.exports(site)
    for name in site.services:
        exports |= SERVICES[name].exports(site)
    return exports | dict(site.extra_environment)


def _common_exports(site: Site) -> dict[str, str]:
    inherited = plain_environment()
    bin_folder = str(Path(sys.executable).parent)
    path = [folder for folder in inherited.get("PATH", "").split(":") if folder and folder != bin_folder]
    no_proxy = inherited.get("NO_PROXY", inherited.get("no_proxy", ""))
    hosts = ",".join(dict.fromkeys([*filter(None, no_proxy.split(",")), HOST, "localhost"]))
    return {
        "PATH": ":".join([bin_folder, *path]),
        "JAVA_HOME": str(site.java_home),
        "TIDEMARK_HOME": str(site.home),
        "NO_PROXY": hosts,
        "no_proxy": hosts,
    }
