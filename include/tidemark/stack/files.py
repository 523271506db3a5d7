"""Writing the stack's own small files."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_whole(file: Path, text: str) -> None:
    """Readable by the owner alone, and never seen half written: a crash leaves the old content."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}.", delete=False) as temporary:
        temporary.write(text)
    os.replace(temporary.name, file)


def end_of(log: Path, lines: int = 20) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as handle:
        handle.seek(max(0, log.stat().st_size - 16_384))
        text = handle.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-lines:])
