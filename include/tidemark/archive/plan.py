"""Which bytes of which source go where: values in, values out. Pieces fall on Avro blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemark import layout
from tidemark.boom.format import BoomBlock, header_of
from tidemark.names import Hour

TARGET_BYTES = 256 * 1024 * 1024
HEADER_BYTES = len(header_of(""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    path: str
    shard: str
    blocks: tuple[BoomBlock, ...]

    @property
    def order(self) -> tuple[int, str]:
        return (min(block.min_ms for block in self.blocks), self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive blocks of one source, in one target from `start` on."""

    source: str
    shard: str
    start: int
    blocks: tuple[BoomBlock, ...]

    @property
    def end(self) -> int:
        return self.start + self.blocks[-1].end - self.blocks[0].start


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    path: str
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        return self.pieces[-1].end


def plan_targets(
    hour: Hour, archive: int, sources: Sequence[Source], target_bytes: int = TARGET_BYTES
) -> tuple[Target, ...]:
    """Sources in order of time; a target ends with the block that reaches its size."""
    return tuple(
        Target(
            path=layout.archived(hour, layout.archived_name(hour, archive, number)),
            pieces=tuple(_pieces(blocks)),
        )
        for number, blocks in enumerate(_fill(sources, target_bytes))
    )


def _fill(sources: Sequence[Source], target_bytes: int) -> Iterator[list[tuple[Source, BoomBlock]]]:
    filled: list[tuple[Source, BoomBlock]] = []
    size = HEADER_BYTES
    for source in sorted(sources, key=lambda source: source.order):
        for block in source.blocks:
            filled.append((source, block))
            size += block.end - block.start
            if size >= target_bytes:
                yield filled
                filled, size = [], HEADER_BYTES
    if filled:
        yield filled


def _pieces(blocks: Sequence[tuple[Source, BoomBlock]]) -> Iterator[Piece]:
    position = HEADER_BYTES
    first = 0
    for index in range(1, len(blocks) + 1):
        if index < len(blocks) and blocks[index][0] is blocks[first][0]:
            continue
        source = blocks[first][0]
        piece = Piece(
            source=source.path,
            shard=source.shard,
            start=position,
            blocks=tuple(block for _, block in blocks[first:index]),
        )
        yield piece
        position, first = piece.end, index
