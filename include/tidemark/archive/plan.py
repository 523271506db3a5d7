"""Which bytes of which source go where: values in, values out. Pieces fall on Avro blocks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemark import layout
from tidemark.boom.format import BoomBlock, header_of
from tidemark.index import IndexRecord
from tidemark.names import Hour

HEADER_BYTES = len(header_of(""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`copies`: the blocks as they stand in `copy`, a rewritten form of a source of another schema or codec."""

    path: str
    shard: str
    blocks: tuple[BoomBlock, ...]
    copy: str | None = None
    copies: tuple[BoomBlock, ...] = ()

    @property
    def order(self) -> tuple[int, str]:
        return (min(block.min_ms for block in self.blocks), self.path)

    @property
    def pairs(self) -> list[tuple[BoomBlock, BoomBlock]]:
        """Each block of the source, and what of it is copied."""
        return list(zip(self.blocks, self.copies or self.blocks, strict=True))

    def without(self, pieces: Sequence[IndexRecord]) -> "Source":
        """What is left of the source when these pieces are archived."""
        held = [(piece.srcFileStartOffset, piece.srcFileEndOffset) for piece in pieces if piece.srcFile == self.path]
        left = [pair for pair in self.pairs if not any(low <= pair[0].start < high for low, high in held)]
        return replace(
            self,
            blocks=tuple(block for block, _ in left),
            copies=tuple(copy for _, copy in left) if self.copies else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive blocks of one source, in one target from `start` on; `copies` of `copied_from` is what is written."""

    source: str
    shard: str
    start: int
    blocks: tuple[BoomBlock, ...]
    copied_from: str
    copies: tuple[BoomBlock, ...]

    @property
    def end(self) -> int:
        return self.start + self.copies[-1].end - self.copies[0].start

    @property
    def is_rewritten(self) -> bool:
        return self.copied_from != self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    path: str
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        return self.pieces[-1].end


def plan_targets(hour: Hour, archive: int, sources: Sequence[Source], target_bytes: int) -> tuple[Target, ...]:
    """Sources in order of time; a target ends with the block that reaches its size."""
    return tuple(
        Target(
            path=layout.archived(hour, layout.archived_name(hour, archive, number)),
            pieces=tuple(_pieces(blocks)),
        )
        for number, blocks in enumerate(_fill(sources, target_bytes))
    )


def targets_of_index(pieces: Mapping[str, Sequence[IndexRecord]], sources: Sequence[Source]) -> tuple[Target, ...]:
    """The same from the index: what it says of these targets is to be written again."""
    by_path = {source.path: source for source in sources}
    return tuple(
        Target(
            path=path,
            pieces=tuple(_pieces([block for record in records for block in _blocks_of(record, by_path)])),
        )
        for path, records in pieces.items()
    )


@dataclass(frozen=True, slots=True)
class _Block:
    source: Source = field(compare=False)
    block: BoomBlock
    copy: BoomBlock


def _blocks_of(record: IndexRecord, sources: Mapping[str, Source]) -> list[_Block]:
    source = sources[record.srcFile]
    low, high = record.srcFileStartOffset, record.srcFileEndOffset
    return [_Block(source, block, copy) for block, copy in source.pairs if low <= block.start < high]


def _fill(sources: Sequence[Source], target_bytes: int) -> Iterator[list[_Block]]:
    filled: list[_Block] = []
    size = HEADER_BYTES
    for source in sorted((source for source in sources if source.blocks), key=lambda source: source.order):
        for block, copy in source.pairs:
            filled.append(_Block(source, block, copy))
            size += copy.end - copy.start
            if size >= target_bytes:
                yield filled
                filled, size = [], HEADER_BYTES
    if filled:
        yield filled


def _pieces(blocks: Sequence[_Block]) -> Iterator[Piece]:
    """A piece ends with its source, and where blocks of it are left out that an earlier archive holds."""
    position = HEADER_BYTES
    first = 0
    for index in range(1, len(blocks) + 1):
        if index < len(blocks) and _follows(blocks[index - 1], blocks[index]):
            continue
        piece = _piece(blocks[first:index], position)
        yield piece
        position, first = piece.end, index


def _follows(before: _Block, after: _Block) -> bool:
    return before.source.path == after.source.path and before.block.end == after.block.start


def _piece(blocks: Sequence[_Block], start: int) -> Piece:
    source = blocks[0].source
    return Piece(
        source=source.path,
        shard=source.shard,
        start=start,
        blocks=tuple(found.block for found in blocks),
        copied_from=source.copy or source.path,
        copies=tuple(found.copy for found in blocks),
    )
