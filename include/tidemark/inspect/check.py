"""Whether somebody should look: the question of a probe, asked of ZooKeeper alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.config import Stream
from tidemark.inspect.board import Board, Calendar
from tidemark.names import Hour


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCheck:
    """`held`: hours that should be ready and are not, however old, the oldest first."""

    stream: str
    was_planned: bool
    held: tuple[Hour, ...]
    newest_ready: Hour | None

    @property
    def is_well(self) -> bool:
        return self.was_planned and not self.held

    def line(self) -> str:
        newest = f"newest ready hour {self.newest_ready or 'none'}"
        if not self.was_planned:
            return f"{self.stream}: nothing was ever planned: is its DAG paused, or Airflow down?"
        if not self.held:
            return f"{self.stream}: well, {newest}"
        return (
            f"{self.stream}: hours that should be ready and are not: {len(self.held)}, the first {self.held[0]}, "
            f"{newest}; ask `tidemark why {self.stream} {self.held[0]}`"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "well": self.is_well,
            "planned": self.was_planned,
            "held": [str(hour) for hour in self.held],
            "newest_ready": str(self.newest_ready) if self.newest_ready else None,
        }


def check_streams(board: Board, streams: Sequence[Stream], now_ms: int) -> list[StreamCheck]:
    return [_check(calendar) for calendar in board.standing(streams, now_ms)]


def _check(calendar: Calendar) -> StreamCheck:
    return StreamCheck(
        stream=calendar.stream,
        was_planned=calendar.watermark_ms is not None,
        held=tuple(calendar.held()),
        newest_ready=calendar.newest_ready,
    )
