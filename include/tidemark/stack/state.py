"""What the stack remembers below its home: ports, processes, secrets."""

import secrets
from base64 import urlsafe_b64encode
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidemark.errors import TidemarkError
from tidemark.stack.files import write_whole


class ProcessRecord(BaseModel):
    """A pid alone may be another process tomorrow; with the time at which it started it may not."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: float


class Secrets(BaseModel):
    """Made once for each home."""

    model_config = ConfigDict(frozen=True)

    admin_password: str = Field(default_factory=lambda: secrets.token_urlsafe(12))
    jwt_secret: str = Field(default_factory=lambda: secrets.token_urlsafe(48))
    session_key: str = Field(default_factory=lambda: secrets.token_urlsafe(48))
    kafka_password: str = Field(default_factory=lambda: secrets.token_urlsafe(24))
    zookeeper_password: str = Field(default_factory=lambda: secrets.token_urlsafe(24))
    fernet_key: str = Field(default_factory=lambda: urlsafe_b64encode(secrets.token_bytes(32)).decode())


class State(BaseModel):
    format: int = 1
    java_home: Path = Path()
    secured: bool = False
    services: list[str] = []
    ports: dict[str, int] = {}
    processes: dict[str, ProcessRecord] = {}
    extra_environment: dict[str, str] = {}
    secrets: Secrets = Field(default_factory=Secrets, repr=False)


def load_state(home: Path) -> State:
    file = _file(home)
    if not file.exists():
        return State()
    try:
        return State.model_validate_json(file.read_text())
    except ValidationError as error:
        first = error.errors()[0]
        raise TidemarkError(
            f"Cannot read the stack's state {file}: {first['msg']}; delete it, then run `tidemark stack down`"
        ) from error


def save_state(home: Path, state: State) -> None:
    write_whole(_file(home), state.model_dump_json(indent=2) + "\n")


def _file(home: Path) -> Path:
    return home / "state.json"
