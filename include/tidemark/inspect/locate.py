"""Find a line by its Kafka offset or its time, and a source by its name, without reading an hour."""

from dataclasses import dataclass

from tidemark import layout
from tidemark.errors import NotFound
from tidemark.index import IndexRecord
from tidemark.inspect.places import HourIndex, Place, PlacedLine, places_of_hour, read_place
from tidemark.ledger.stream import StreamLedger
from tidemark.lineage import Cursor, cursor_of
from tidemark.manifest import FileKind, Manifest, list_manifests, read_blocks, read_manifest
from tidemark.names import Hour, Shard, isoformat
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    place: Place
    line: PlacedLine

    @property
    def cursor(self) -> Cursor:
        return Cursor(Shard.parse(self.place.shard).timeline, self.line.offset)


def locate_offset(storage: Storage, ledger: StreamLedger, shard: Shard, offset: int) -> Located:
    """By the manifest, its block directory, the hour's index and one block. Any name of the line's cursor finds it."""
    cursor = cursor_of(shard, offset, ledger.timelines())
    shard, offset = Shard(cursor.order, shard.partition), cursor.offset
    manifest = _manifest_with(storage, ledger, shard, offset)
    files = {
        file.path: file
        for file in manifest.files
        if file.shard == str(shard)
        and file.first_offset <= offset <= file.last_offset
        and file.kind is not FileKind.BAD
    }
    directory = [(path, block) for path, block in read_blocks(storage, manifest.shift) if path in files]
    for path, block in directory:
        if any(first <= offset < end for first, end in block.runs):
            file = files[path]
            index = HourIndex.read(storage, ledger, Hour.parse(file.hour)) if file.hour else HourIndex()
            place = index.place(file, block, [found for name, found in directory if name == path])
            return Located(place=place, line=next(line for line in read_place(storage, place) if line.offset == offset))
    raise NotFound(
        f"Cannot locate offset {offset} of shard {shard}: shift {manifest.shift.id} read it and found no line there "
        "(a tombstone, a hole, or a record in _bad)"
    )


def locate_time(storage: Storage, ledger: StreamLedger, time_ms: int, shard: Shard | None) -> Located:
    """The first line at or after a time, within its hour."""
    hour = Hour.of(time_ms)
    places = [
        place
        for place in places_of_hour(storage, ledger, hour)
        if place.block.max_ms >= time_ms and (shard is None or place.shard == str(shard))
    ]
    best: Located | None = None
    for place in sorted(places, key=lambda found: found.block.min_ms):
        if best and place.block.min_ms > best.line.time_ms:
            break
        for line in read_place(storage, place):
            if line.time_ms >= time_ms and (best is None or line.time_ms < best.line.time_ms):
                best = Located(place=place, line=line)
    if best is None:
        raise NotFound(f"Cannot locate {isoformat(time_ms)}: {hour} has no line at that time or after it")
    return best


def locate_source(storage: Storage, ledger: StreamLedger, name: str) -> tuple[str, tuple[IndexRecord, ...]]:
    """The path of a file that a shift wrote, and where its pieces are; none of them: it is not archived."""
    shift = layout.shift_of_boom(name)
    for path in list_manifests(storage).values():
        if layout.shift_of_manifest(path) == shift:
            for file in read_manifest(storage, path).files:
                if file.path == name or file.path.endswith(f"/{name}"):
                    hour = Hour.parse(file.hour) if file.hour else None
                    pieces = HourIndex.read(storage, ledger, hour).pieces if hour else ()
                    return file.path, tuple(piece for piece in pieces if piece.srcFile == file.path)
    raise NotFound(f"Cannot locate {name}: no manifest names it")


def _manifest_with(storage: Storage, ledger: StreamLedger, shard: Shard, offset: int) -> Manifest:
    """Ranges of a shard follow one another in the order of the shifts: halve. Backfills lie below its start: look."""
    position, timeline = ledger.positions().value.shards.get(shard), ledger.timelines().get(shard.timeline)
    is_retired = timeline is not None and timeline.retired_ms is not None
    subject = f"Cannot locate offset {offset} of shard {shard}"
    if position is None and not is_retired:
        raise NotFound(f"{subject}: the stream has no such shard")
    paths = [path for _, path in sorted(list_manifests(storage).items())]
    is_older = position is not None and offset < position.start
    manifest = None if is_older else _halve(storage, [*paths], shard, offset)
    # Where a shard began is not known any more once its timeline is retired.
    if manifest is None and (is_older or is_retired):
        manifest = _look_at_all(storage, paths, shard, offset)
    if manifest is None:
        found = f"next is {position.next}" if position else f"timeline {shard.timeline} is retired"
        raise NotFound(f"{subject}: no shift has read it, {found}")
    return manifest


def _look_at_all(storage: Storage, paths: list[str], shard: Shard, offset: int) -> Manifest | None:
    for path in paths:
        manifest = read_manifest(storage, path)
        if manifest.shift.by_record_time and _has(manifest, shard, offset):
            return manifest
    return None


def _halve(storage: Storage, paths: list[str], shard: Shard, offset: int) -> Manifest | None:
    low, high = 0, len(paths)
    while low < high:
        middle = (low + high) // 2
        manifest = read_manifest(storage, paths[middle])
        if manifest.shift.by_record_time:
            # Says nothing of the others: do without it.
            del paths[middle]
            high -= 1
            continue
        if _has(manifest, shard, offset):
            return manifest
        row = manifest.shards.get(str(shard))
        if offset < row.start if row else _had_retired(manifest, shard):
            high = middle
        else:
            low = middle + 1
    return None


def _had_retired(manifest: Manifest, shard: Shard) -> bool:
    timeline = manifest.timelines.get(f"{shard.timeline:04d}")
    return timeline is not None and timeline.retired_ms is not None


def _has(manifest: Manifest, shard: Shard, offset: int) -> bool:
    row = manifest.shards.get(str(shard))
    return row is not None and row.start <= offset < row.end
