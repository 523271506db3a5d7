"""Secrets that can be found again: a stack whose services ask for them, and where they turned up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from kazoo.client import KazooClient

from tidemark.stack.state import Secrets, State, save_state

# What quoting gets wrong somewhere stands around a middle that no quoting changes.
AWKWARD = "{}'\" \\;%:$x"


class Canaries:
    def __init__(self) -> None:
        self.kafka, self.zookeeper, self.webhdfs = (f"canary{uuid4().hex}" for _ in range(3))

    def seed(self, home: Path) -> None:
        """The secrets of a stack that is to be made there."""
        secrets = Secrets(kafka_password=AWKWARD.format(self.kafka), zookeeper_password=AWKWARD.format(self.zookeeper))
        save_state(home, State(secrets=secrets))

    def found_in(self, text: str | bytes) -> set[str]:
        data = text.encode() if isinstance(text, str) else text
        return {name for name in ("kafka", "zookeeper", "webhdfs") if getattr(self, name).encode() in data}

    def files_below(self, *folders: Path) -> set[str]:
        """The names of files that hold one. Kafka's indexes, megabytes of nothing, are left out."""
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        kept = (path for path in files if path.suffix not in (".index", ".timeindex"))
        return {path.name for path in kept if self.found_in(_content(path))}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


class ProcessList:
    """Every command line that any process had meanwhile, as anybody on the machine can see it."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(path.read_bytes())
                except OSError:
                    continue


def walk_nodes(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from walk_nodes(client, f"{path.rstrip('/')}/{name}")
