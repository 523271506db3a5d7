"""The documents as a test sees them: pages, their links, and the commands that they tell people to type."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
# In the order in which a reader of the tutorial comes to them: each finds what the ones before have left.
PAGES_WITH_COMMANDS = (
    "tutorial.md",
    "how-to/backfill.md",
    "how-to/late-data.md",
    "how-to/damaged-file.md",
    "how-to/replay.md",
    "how-to/move-to-another-cluster.md",
    "how-to/losing-zookeeper.md",
    "how-to/scaling-out.md",
    "how-to/upgrading.md",
)

_BLOCK = re.compile(r"(?:<!-- ends with (?P<code>\d) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)\s]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page; `ends_with` is the exit code that the page promises."""

    page: str
    line: int
    kind: str
    text: str
    ends_with: int

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def needs_docker(self) -> bool:
        return "docker " in self.text


def pages() -> list[Path]:
    return [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in _BLOCK.finditer(text):
        yield Block(
            page=str(page.relative_to(REPOSITORY)),
            line=text.count("\n", 0, match.start()) + 1,
            kind=match["kind"],
            text=match["text"],
            ends_with=int(match["code"] or 0),
        )


def links_of(page: Path) -> Iterator[str]:
    for match in _LINK.finditer(page.read_text("utf-8")):
        yield match["target"]
