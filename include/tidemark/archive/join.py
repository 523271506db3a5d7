"""Runs inside a Spark task: copy Avro blocks into a target and read the target back."""

import hashlib
import zlib
from dataclasses import dataclass

from tidemark.archive.plan import HEADER_BYTES, Piece, Target
from tidemark.boom.format import MARKER_SIZE, BoomBlock, header_of, marker_of
from tidemark.errors import CorruptFile
from tidemark.index import IndexRecord
from tidemark.names import Hour
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOrder:
    """One target of one hour, for one task. The task's own folder is below `folder`."""

    hour: Hour
    target: Target
    timestamp_ms: int
    storage: Storage
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    hour: Hour
    target: Target
    temporary: str
    records: tuple[IndexRecord, ...]


def join_target(order: JoinOrder, attempt: int) -> Joined:
    """Copy the blocks as they are, without unpacking; only the sync marker changes."""
    temporary = f"{order.folder}/{attempt}/{order.target.path}"
    digest = hashlib.sha256()
    crcs: list[int] = []
    with order.storage.open_write(temporary) as sink:
        header = header_of(order.target.path)
        sink.write(header)
        digest.update(header)
        for piece in order.target.pieces:
            crc = 0
            with order.storage.open_read(piece.source, piece.blocks[0].start, piece.blocks[-1].end) as source:
                for block in piece.blocks:
                    body = _checked(piece.source, block, source.read(block.end - block.start))
                    copied = body + marker_of(order.target.path)
                    sink.write(copied)
                    digest.update(copied)
                    crc = zlib.crc32(body, crc)
            crcs.append(crc)
    records = tuple(
        _record(order, piece, crc, digest.hexdigest()) for piece, crc in zip(order.target.pieces, crcs, strict=True)
    )
    return Joined(hour=order.hour, target=order.target, temporary=temporary, records=records)


def verify_target(order: JoinOrder) -> None:
    """Read every piece back under its final name; raise CorruptFile where one is not what the plan says."""
    path = order.target.path
    with order.storage.open_read(path) as target:
        if target.read(HEADER_BYTES) != header_of(path):
            raise CorruptFile(f"Cannot verify {path}: its header is not the one that was written")
        for piece in order.target.pieces:
            for block in piece.blocks:
                _checked(path, block, target.read(block.end - block.start))
        if target.read(1):
            raise CorruptFile(f"Cannot verify {path}: it goes on after byte {order.target.size}")


def _checked(path: str, block: BoomBlock, data: bytes) -> bytes:
    body = data[:-MARKER_SIZE]
    if len(data) != block.end - block.start or zlib.crc32(body) != block.crc or data[-MARKER_SIZE:] != marker_of(path):
        raise CorruptFile(
            f"Cannot copy {path}: the block written as bytes [{block.start}, {block.end}) is not what it was"
        )
    return body


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
    )
