"""Where a committed block can be read now: from its target if that exists, else from the file that its shift wrote."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby, islice
from typing import BinaryIO

from tidemark import layout
from tidemark.boom.format import BoomBlock, header_of
from tidemark.boom.reader import BoomReader
from tidemark.index import IndexRecord, read_index, read_segment
from tidemark.ledger.stream import StreamLedger
from tidemark.manifest import Manifest, ManifestFile, list_manifests, manifests_of, read_blocks
from tidemark.names import Hour
from tidemark.storage import Storage

_HEADER_BYTES = len(header_of(""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Bytes [start, end) of `path`, and how many blocks of them to skip; `block` as the shift's directory has it."""

    source: str
    shard: str
    block: BoomBlock
    path: str
    header: int
    start: int
    end: int
    skip: int = 0


@dataclass(frozen=True, slots=True)
class PlacedLine:
    time_ms: int
    offset: int
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HourIndex:
    """What the segments that are there at this moment say of an hour, and the targets that are there."""

    pieces: tuple[IndexRecord, ...] = ()
    targets: frozenset[str] = frozenset()

    @classmethod
    def read(cls, storage: Storage, ledger: StreamLedger, hour: Hour) -> "HourIndex":
        archives = ledger.hour(hour).value.archives
        coming = read_segment(storage, hour, archives + 1)
        voided = {void.void for void in coming.voids} if coming else set()
        found = [*read_index(storage, hour, archives), *(coming.pieces if coming else ())]
        return cls(
            pieces=tuple(piece for piece in found if piece.destFile not in voided),
            targets=frozenset(status.path for status in storage.list(layout.hour_folder(hour))),
        )

    def place(self, file: ManifestFile, block: BoomBlock, blocks: Sequence[BoomBlock]) -> Place:
        """`blocks` are all of the file."""
        piece = next((found for found in self.pieces if _holds(found, file.path, block)), None)
        if piece is None or piece.destFile not in self.targets:
            return Place(
                source=file.path,
                shard=file.shard,
                block=block,
                path=file.path,
                header=blocks[0].start,
                start=block.start,
                end=block.end,
            )
        start, end, skip = piece.destFileStartOffset, piece.destFileEndOffset, 0
        if piece.rewritten:
            skip = sum(1 for found in blocks if piece.srcFileStartOffset <= found.start < block.start)
        else:
            start += block.start - piece.srcFileStartOffset
            end = start + block.end - block.start
        return Place(
            source=file.path,
            shard=file.shard,
            block=block,
            path=piece.destFile,
            header=_HEADER_BYTES,
            start=start,
            end=end,
            skip=skip,
        )


def places_of_hour(storage: Storage, ledger: StreamLedger, hour: Hour) -> list[Place]:
    """Every block of the hour, in the order of the files that it is in."""
    index = HourIndex.read(storage, ledger, hour)
    shifts = {layout.shift_of_boom(piece.srcFile) for piece in index.pieces}
    known = [number for number, path in list_manifests(storage).items() if layout.shift_of_manifest(path) in shifts]
    numbers = sorted({*known, *ledger.hour(hour).value.dirty})
    places = [place for manifest in manifests_of(storage, numbers) for place in _places(storage, manifest, hour, index)]
    return sorted(places, key=lambda place: (place.path, place.start, place.skip))


def read_place(storage: Storage, place: Place) -> list[PlacedLine]:
    """The header and this block are all that is read."""
    data = storage.read(place.path, 0, place.header) + storage.read(place.path, place.start, place.end)
    return list(_lines(BoomReader(BytesIO(data), place.path), place.skip, [place.block]))


def read_places(storage: Storage, places: Iterable[Place]) -> Iterator[tuple[Place, list[PlacedLine]]]:
    """The same for many; blocks that stand behind one another are read as one stream."""
    for run in _runs(places):
        first, last = run[0], run[-1]
        if first.skip or len(run) == 1:
            for place in run:
                yield place, read_place(storage, place)
            continue
        header = storage.read(first.path, 0, first.header)
        with storage.open_read(first.path, first.start, last.end) as stream:
            reader = BoomReader(_Behind(header, stream), first.path)
            for place in run:
                yield place, list(_lines(reader, 0, [place.block]))


def _holds(piece: IndexRecord, path: str, block: BoomBlock) -> bool:
    return piece.srcFile == path and piece.srcFileStartOffset <= block.start < piece.srcFileEndOffset


def _places(storage: Storage, manifest: Manifest, hour: Hour, index: HourIndex) -> Iterator[Place]:
    files = {file.path: file for file in manifest.files_of(str(hour))}
    known = (found for found in read_blocks(storage, manifest.shift) if found[0] in files)
    for path, group in groupby(known, key=lambda found: found[0]):
        blocks = [block for _, block in group]
        for block in blocks:
            yield index.place(files[path], block, blocks)


def _runs(places: Iterable[Place]) -> Iterator[list[Place]]:
    run: list[Place] = []
    for place in places:
        if run and (place.path != run[-1].path or place.start != run[-1].end or place.skip):
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _lines(reader: BoomReader, skip: int, wanted: Sequence[BoomBlock]) -> Iterator[PlacedLine]:
    for known, block in zip(wanted, islice(reader.blocks(), skip, skip + len(wanted)), strict=True):
        offsets = (offset for first, end in known.runs for offset in range(first, end))
        for log_block in reader.decode(block):
            for ms, message in zip(log_block.milliseconds, log_block.messages, strict=True):
                yield PlacedLine(log_block.second * 1000 + ms, next(offsets), message)


class _Behind:
    """A stream with a header before it."""

    def __init__(self, header: bytes, stream: BinaryIO) -> None:
        self._header = header
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        data, self._header = self._header, b""
        return data or self._stream.read(size)
