"""Another writer's boom file in our schema and codec: block for block, so that what is known of a block stays true."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from zlib import crc32

from tidemark.boom.escape import escape
from tidemark.boom.format import BoomBlock, encode_long, header_of, marker_of
from tidemark.boom.pack import Pack, packer_for
from tidemark.boom.reader import BoomReader, LogBlock, Source
from tidemark.boom.writer import Sink
from tidemark.errors import CorruptFile


def rewrite_blocks(source: Source, name: str, blocks: Sequence[BoomBlock], sink: Sink) -> Iterator[BoomBlock]:
    """Yield each block as it stands in the copy. Sort keys stay; an `eventId` goes, bytes that are no text are escaped.

    Raise CorruptFile unless the source has exactly these blocks.
    """
    reader = BoomReader(source, name)
    found, pack, position = reader.blocks(), None, len(header_of(name))
    sink.write(header_of(name))
    for wanted in blocks:
        block = next(found, None)
        if block is None or (block.start, block.end, block.crc) != (wanted.start, wanted.end, wanted.crc):
            raise CorruptFile(f"Cannot rewrite {name}: the block at byte {wanted.start} is not what it was")
        data = b"".join(_encode(log_block) for log_block in reader.decode(block))
        pack = pack or _packer(data)
        packed = pack(data)
        frame = encode_long(block.records) + encode_long(len(packed)) + packed
        sink.write(frame + marker_of(name))
        end = position + len(frame) + len(marker_of(name))
        yield replace(wanted, start=position, end=end, crc=crc32(frame))
        position = end
    if next(found, None):
        raise CorruptFile(f"Cannot rewrite {name}: it goes on after its {len(blocks)} blocks")


def _packer(data: bytes) -> Pack:
    return packer_for("small", data)


def _encode(block: LogBlock) -> bytes:
    head = [encode_long(number) for number in (block.second, block.create_time, block.block_number)]
    lines = [escape(message) for message in block.messages]
    body = [encode_long(ms) + encode_long(len(line)) + line for ms, line in zip(block.milliseconds, lines, strict=True)]
    return b"".join((*head, *((encode_long(len(body)), *body) if body else ()), encode_long(0)))
