"""What the stack has to know of a service."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.stack.state import Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the services of one stack run."""

    home: Path
    java_home: Path
    secured: bool
    """Whether Kafka and ZooKeeper ask for a login: SASL_SSL with SCRAM, and digest."""
    services: tuple[str, ...]
    ports: Mapping[str, int]
    secrets: Secrets = field(repr=False)
    extra_environment: Mapping[str, str]


# Runs a command to its end, below the stack's marks; a failure is an error with the end of its log.
RunTool = Callable[[str, list[str]], None]


class Service(ABC):
    name: str
    ports: tuple[str, ...] = ()
    """Names of the ports it listens to; the first is the one that clients use."""
    needs: tuple[str, ...] = ()
    """Services that are prepared and started before it."""
    needs_health = False
    """Whether they must be healthy, too, before it starts."""

    def prepare(self, site: Site, run: RunTool) -> None:
        """Make folders and settings. Done before each start; what is there already stays."""
        del site, run

    @abstractmethod
    def command(self, site: Site) -> list[str]: ...

    @abstractmethod
    def address(self, site: Site) -> str:
        """Where a client or a browser finds it; empty when it has no port."""

    @abstractmethod
    def lacks(self, site: Site, started: float) -> str | None:
        """What is missing until the process that started then can be used; None when nothing is.

        OSError: it does not answer yet.
        """

    def exports(self, site: Site) -> dict[str, str]:
        """The variables with which a client finds it."""
        del site
        return {}


def java_command(
    site: Site, class_path: str, main: str, *arguments: str, memory_mb: int, options: tuple[str, ...] = ()
) -> list[str]:
    return [
        str(site.java_home / "bin" / "java"),
        f"-Xmx{memory_mb}m",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={temporary_folder(site)}",
        *options,
        "-cp",
        class_path,
        main,
        *arguments,
    ]


# For a process that has little to do: compiling less halves the time that it needs to start.
QUICK_START = "-XX:TieredStopAtLevel=1"


def temporary_folder(site: Site) -> Path:
    folder = site.home / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


CONSOLE_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n
"""
