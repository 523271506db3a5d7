"""Runs inside a Spark task: copy Avro blocks into a target, in the memory of one block, and read a target back."""

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO

from tidemark.archive.plan import HEADER_BYTES, Piece, Source, Target
from tidemark.boom.format import MARKER_SIZE, BoomBlock, header_of, marker_of
from tidemark.boom.reader import BoomReader
from tidemark.boom.rewrite import rewrite_blocks
from tidemark.boom.verify import HashingSource
from tidemark.errors import CorruptFile, NotFound
from tidemark.failpoints import reach
from tidemark.index import IndexRecord
from tidemark.storage import Storage

_LONGEST_HEADER = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOrder:
    """One target, for one task. The task's own folder is below `folder`."""

    target: Target
    timestamp_ms: int
    storage: Storage
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOrder:
    source: Source
    storage: Storage
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOrder:
    """A target under its final name, and what the index says of it."""

    pieces: tuple[IndexRecord, ...]
    storage: Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    target: Target
    temporary: str
    records: tuple[IndexRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Sources that cannot be joined: by path, why. `foreign` ones have another schema or codec and can be rewritten."""

    damaged: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()


def join_target(order: JoinOrder, attempt: int) -> Joined | Refused:
    """Copy the blocks as they are, without unpacking; only the sync marker changes."""
    temporary = f"{order.folder}/{attempt}/{order.target.path}"
    try:
        return _join(order, temporary)
    except (CorruptFile, NotFound):
        refused = _look_at_sources(order)
        if not refused.damaged and not refused.foreign:
            raise
        return refused


def rewrite_source(order: RewriteOrder, attempt: int) -> Source | Refused:
    """Write the source again in our schema and codec, block by block, so that it can be joined with others."""
    source = order.source
    copy = f"{order.folder}/{attempt}/rewritten/{source.path}"
    try:
        with order.storage.open_read(source.path) as foreign, order.storage.open_write(copy) as sink:
            copies = tuple(rewrite_blocks(foreign, source.path, source.blocks, sink))
    except (CorruptFile, NotFound) as error:
        return Refused(damaged={source.path: str(error)})
    return Source(path=source.path, shard=source.shard, blocks=source.blocks, copy=copy, copies=copies)


def fault_of(order: VerifyOrder) -> str | None:
    """Read every piece back; None when the target is byte for byte what the index says."""
    path = order.pieces[0].destFile
    try:
        with order.storage.open_read(path) as file:
            source = HashingSource(file)
            _check_pieces(BoomReader(source, path), order.pieces)
    except (CorruptFile, NotFound) as error:
        return str(error)
    if source.digest.hexdigest() != order.pieces[0].destDigest:
        return f"Cannot verify {path}: found SHA-256 {source.digest.hexdigest()}, wanted {order.pieces[0].destDigest}"
    return None


def _join(order: JoinOrder, temporary: str) -> Joined:
    digest = hashlib.sha256()
    crcs: list[int] = []
    marker = marker_of(order.target.path)
    with order.storage.open_write(temporary) as sink:
        header = header_of(order.target.path)
        sink.write(header)
        digest.update(header)
        for piece in order.target.pieces:
            crc = 0
            for body in _read_piece(order.storage, piece):
                copied = body + marker
                sink.write(copied)
                digest.update(copied)
                crc = zlib.crc32(body, crc)
                reach("archive.task_writing")
            crcs.append(crc)
    records = tuple(
        _record(order, piece, crc, digest.hexdigest()) for piece, crc in zip(order.target.pieces, crcs, strict=True)
    )
    return Joined(target=order.target, temporary=temporary, records=records)


def _read_piece(storage: Storage, piece: Piece) -> Iterator[bytes]:
    """The bodies of its blocks. Where it begins with the source's first block the header is read along and checked."""
    first = piece.copies[0].start
    with storage.open_read(piece.copied_from, 0 if first <= HEADER_BYTES else first, piece.copies[-1].end) as file:
        if first <= HEADER_BYTES and file.read(first) != header_of(piece.source):
            raise CorruptFile(f"Cannot copy {piece.source}: its header is not the one that is written here")
        for block in piece.copies:
            yield _checked(piece.source, block, file.read(block.end - block.start))


def _checked(path: str, block: BoomBlock, data: bytes) -> bytes:
    body = data[:-MARKER_SIZE]
    if len(data) != block.end - block.start or zlib.crc32(body) != block.crc or data[-MARKER_SIZE:] != marker_of(path):
        raise CorruptFile(
            f"Cannot copy {path}: the block written as bytes [{block.start}, {block.end}) is not what it was"
        )
    return body


def _look_at_sources(order: JoinOrder) -> Refused:
    """Something was wrong: look at every source, so that all that is wrong is told at once."""
    damaged: dict[str, str] = {}
    foreign: list[str] = []
    for piece in order.target.pieces:
        try:
            for _ in _read_piece(order.storage, piece):
                pass
        except NotFound:
            damaged[piece.source] = f"Cannot copy {piece.source}: it is gone"
        except CorruptFile as error:
            if _is_foreign(order.storage, piece):
                foreign.append(piece.source)
            else:
                damaged[piece.source] = str(error)
    return Refused(damaged=damaged, foreign=tuple(foreign))


def _is_foreign(storage: Storage, piece: Piece) -> bool:
    head = storage.read(piece.copied_from, 0, _LONGEST_HEADER)
    if head.startswith(header_of(piece.source)):
        return False
    try:
        BoomReader(BytesIO(head), piece.source)
    except CorruptFile:
        return False
    return True


def _check_pieces(reader: BoomReader, pieces: Sequence[IndexRecord]) -> None:
    path, position = pieces[0].destFile, HEADER_BYTES
    if reader.header.marker != marker_of(path) or reader.header.size != HEADER_BYTES:
        raise CorruptFile(f"Cannot verify {path}: its header is not the one that was written")
    blocks = reader.blocks()
    for piece in pieces:
        crc = 0
        if piece.destFileStartOffset != position:
            raise CorruptFile(f"Cannot verify {path}: the index goes on at {piece.destFileStartOffset}, not {position}")
        while position < piece.destFileEndOffset and (block := next(blocks, None)):
            crc, position = zlib.crc32(block.frame, crc), block.end
        if position != piece.destFileEndOffset or crc != piece.crc:
            span = f"[{piece.destFileStartOffset}, {piece.destFileEndOffset})"
            raise CorruptFile(f"Cannot verify {path}: the bytes {span} are not those of {piece.srcFile}")
    if next(blocks, None) or position != pieces[0].destBytes:
        raise CorruptFile(f"Cannot verify {path}: it goes on after byte {position}")


def _record(order: JoinOrder, piece: Piece, crc: int, digest: str) -> IndexRecord:
    return IndexRecord(
        srcFile=piece.source,
        destFile=order.target.path,
        srcFileStartOffset=piece.blocks[0].start,
        srcFileEndOffset=piece.blocks[-1].end,
        destFileStartOffset=piece.start,
        destFileEndOffset=piece.end,
        ArchiveTimestamp=order.timestamp_ms,
        shard=piece.shard,
        first_offset=min(run[0] for block in piece.blocks for run in block.runs),
        last_offset=max(run[1] for block in piece.blocks for run in block.runs) - 1,
        min_ms=min(block.min_ms for block in piece.blocks),
        max_ms=max(block.max_ms for block in piece.blocks),
        lines=sum(block.lines for block in piece.blocks),
        crc=crc,
        destBytes=order.target.size,
        destDigest=digest,
        rewritten=piece.is_rewritten,
    )
