"""Find a Java that runs the stack; install a missing one where the system allows it without asking."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark.environment import inherited_environment
from tidemark.errors import TidemarkError

WANTED_VERSION = 17
PACKAGE = "openjdk-17-jre-headless"
INSTALL_COMMAND = f"apt-get install -y {PACKAGE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    home: Path
    version: int

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def find_java(on_step: Callable[[str], None]) -> Java:
    found = list(_installed(inherited_environment()))
    if not found and _may_install():
        on_step(f"java: none found, installing {PACKAGE}")
        _install()
        found = list(_installed(inherited_environment()))
    return choose_java(found)


def choose_java(found: list[Java]) -> Java:
    """The first that is new enough."""
    for java in found:
        if java.version >= WANTED_VERSION:
            return java
    seen = ", ".join(f"Java {java.version} in {java.home}" for java in found) or "none in JAVA_HOME or PATH"
    raise TidemarkError(
        f"Cannot run the stack: Java {WANTED_VERSION} or newer is wanted, found {seen}; "
        f"install it (Debian, Ubuntu: sudo {INSTALL_COMMAND}) or set JAVA_HOME"
    )


def parse_version(text: str) -> int | None:
    """The feature release that `java -version` tells: 8 of "1.8.0_402", 17 of "17.0.15", 21 of "21-ea"."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def parse_home(text: str) -> Path | None:
    match = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    return Path(match[1].strip()) if match else None


def _installed(environment: Mapping[str, str]) -> Iterator[Java]:
    for program in _candidates(environment):
        java = _ask(program)
        if java:
            yield java


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)


def _ask(program: Path) -> Java | None:
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    version, home = parse_version(answer.stderr), parse_home(answer.stderr)
    return Java(home=home, version=version) if version and home else None


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get", path=_path()) is not None


def _install() -> None:
    for command in ("apt-get update", INSTALL_COMMAND):
        done = subprocess.run(
            command.split(),
            env=inherited_environment() | {"DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise TidemarkError(
                f"Cannot install Java {WANTED_VERSION}: `{command}` ended with {done.returncode} ({reason}); "
                f"run it by hand, or set JAVA_HOME"
            )


def _path() -> str:
    return inherited_environment().get("PATH", os.defpath)
