"""Committed shifts without Kafka and Spark, on a real ZooKeeper: what the archiver finds, and an independent reader."""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from tests.services import connections_of, unique

from tidemark import layout
from tidemark.archive.here import Here
from tidemark.archive.hours import HourArchiver
from tidemark.boom.format import BoomBlock, header_of
from tidemark.boom.writer import BoomWriter
from tidemark.config import Stream
from tidemark.drive.archive import _archiver
from tidemark.ledger import paths
from tidemark.ledger.records import (
    Head,
    HourRecord,
    Positions,
    ShardPosition,
    Shift,
    ShiftRecord,
    ShiftState,
    Window,
    dump,
)
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.manifest import FileKind, Manifest, ManifestFile, dump_blocks, list_manifests
from tidemark.names import HOUR_MS, Hour, Shard, Task
from tidemark.stack import Stack
from tidemark.storage import Storage, open_storage

HOUR = Hour.parse("2026-11-10T22")
TASK = Task(name="archive", attempt=1)

Line = tuple[int, bytes]
Blocks = Sequence[Sequence[Line]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoomFile:
    data: bytes
    blocks: tuple[BoomBlock, ...]


def boom_file(name: str, blocks: Blocks, first_offset: int = 0) -> BoomFile:
    """A file of ours with exactly these Avro blocks."""
    data, found, offset = header_of(name), [], first_offset
    for lines in blocks:
        sink = io.BytesIO()
        writer = BoomWriter(sink, name=name, create_time_ms=5, compression="fast")
        writer.write(
            pa.array([time for time, _ in lines], pa.int64()),
            pa.array([message for _, message in lines], pa.binary()),
            pa.array(range(offset, offset + len(lines)), pa.int64()),
        )
        (block,) = writer.close().blocks
        moved = len(data) - block.start
        data += sink.getvalue()[block.start :]
        found.append(replace(block, start=block.start + moved, end=block.end + moved))
        offset += len(lines)
    return BoomFile(data=data, blocks=tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    stack: Stack
    stream: Stream
    storage: Storage

    def commit(self, number: int, files: Mapping[str, BoomFile], hour: Hour = HOUR) -> list[str]:
        """What a shift leaves that wrote these files, by shard; the paths of the files."""
        shift = _shift(number)
        entries, blocks, written = [], [], []
        for index, (shard, file) in enumerate(files.items()):
            path = self.path(number, shard, index, hour)
            self.storage.create(path, file.data)
            written.append(path)
            blocks += [(path, block) for block in file.blocks]
            entries.append(_entry(path, shard, file, hour))
        self.storage.create(layout.blocks(number, shift.id), dump_blocks(blocks))
        manifest = Manifest(
            writer="test",
            stream=self.stream.name,
            shift=shift,
            timelines={},
            positions=_positions(hour),
            shards={},
            gaps=(),
            files=tuple(entries),
        )
        self.storage.create(layout.manifest(number, shift.id), dump(manifest))
        with self.ledger() as ledger:
            ledger.prepare()
            self._put(ledger, paths.head(self.stream.name), Head(number=number))
            self._put(ledger, paths.positions(self.stream.name), _positions(hour))
            record = ShiftRecord(number=number, state=ShiftState.COMMITTED, manifest=layout.manifest(number, shift.id))
            ledger.client.create(paths.shift(self.stream.name, shift.id), dump(record))
            ledger.add_dirty(hour, number)
        return written

    def path(self, number: int, shard: str, index: int = 0, hour: Hour = HOUR) -> str:
        return layout.incoming(hour, layout.boom_name(_shift(number).id, Shard.parse(shard), index))

    def boom(self, number: int, blocks: Blocks, shard: str = "0001-0", index: int = 0, first: int = 0) -> BoomFile:
        return boom_file(self.path(number, shard, index), blocks, first)

    @contextmanager
    def ledger(self) -> Iterator[StreamLedger]:
        with open_session(connections_of(self.stack)) as client:
            yield StreamLedger(client, self.stream.name)

    @contextmanager
    def archiver(self, task: Task = TASK) -> Iterator[HourArchiver]:
        with _archiver(self.stream, connections_of(self.stack), task) as (_, archiver):
            yield archiver

    def archive(self, task: Task = TASK) -> list[Hour]:
        """As a job does it, but in this process. The hours that it worked on."""
        with self.archiver(task) as archiver:
            return [hour for hour in archiver.waiting() if archiver.archive(hour, Here())]

    def record(self, hour: Hour = HOUR) -> HourRecord:
        with self.ledger() as ledger:
            return ledger.hour(hour).value

    def files(self) -> dict[str, bytes]:
        return {path: self.storage.read(path) for path in sorted(_walk(self.storage, ""))}

    def visible(self, hour: Hour = HOUR) -> list[str]:
        listed = self.storage.list(layout.hour_folder(hour))
        return [status.path for status in listed if not status.is_folder and status.path.endswith(".bm")]

    def index(self, hour: Hour = HOUR) -> list[dict[str, Any]]:
        """The records that no later segment voids, by the segments that are there."""
        segments = [status.path for status in self.storage.list(f"{hour.day}/_index") if f"/{hour.hh}-" in status.path]
        rows = [json.loads(line) for path in segments for line in self.storage.read(path).splitlines()]
        voided = {row["void"] for row in rows if "void" in row}
        return [row for row in rows if "void" not in row and row["destFile"] not in voided]

    def readable(self, hour: Hour = HOUR) -> list[Line]:
        """Every line of every committed manifest, by the reading rule alone: target if it exists, else source."""
        index = self.index(hour)
        lines: list[Line] = []
        for path in list_manifests(self.storage).values():
            for file in json.loads(self.storage.read(path))["files"]:
                pieces = [row for row in index if row["srcFile"] == file["path"]]
                if file["hour"] == str(hour):
                    lines += [line for row in pieces for line in self._lines_of_piece(row)]
                    lines += [] if pieces else decode(self.storage.read(file["path"]))
        return sorted(lines)

    def _lines_of_piece(self, row: dict[str, Any]) -> list[Line]:
        """The header of a file plus an indexed range of it is a boom file."""
        kind = "dest" if self.storage.status(row["destFile"]) else "src"
        data = self.storage.read(row[f"{kind}File"])
        start, end = row[f"{kind}FileStartOffset"], row[f"{kind}FileEndOffset"]
        return decode(data[: len(header_of(""))] + data[start:end])

    def _put(self, ledger: StreamLedger, path: str, record: object) -> None:
        ledger.client.set(path, dump(record))


def new_rig(stack: Stack, root: str, **settings: object) -> Rig:
    name = unique("archive")
    stream = Stream.model_validate(
        {"name": name, "cluster": "main", "topic": name, "root": f"{root}/{name}", "owner": "test", **settings}
    )
    return Rig(stack=stack, stream=stream, storage=open_storage(stream.root, connections_of(stack)))


def lines(count: int, start: int = 0, hour: Hour = HOUR, size: int = 20) -> list[Line]:
    """Numbered lines, a second apart."""
    return [
        (hour.start_ms + (number % 3600) * 1000 + number % 7, f"{number:0{size}d}".encode())
        for number in range(start, start + count)
    ]


def cut(found: Sequence[Line], size: int) -> list[Sequence[Line]]:
    return [found[start : start + size] for start in range(0, len(found), size)]


def decode(data: bytes) -> list[Line]:
    blocks: Any = fastavro.reader(io.BytesIO(data))
    return [
        (block["second"] * 1000 + line["ms"], line["message"].encode())
        for block in blocks
        for line in block["logLines"]
    ]


def streams_file(rig: Rig, folder: Path) -> Path:
    """The stream as the command line and jobs find it."""
    settings: dict[str, Any] = {"cluster": "main", "topic": rig.stream.topic, "root": rig.stream.root, "owner": "test"}
    archive = {"target_size": f"{rig.stream.archive.target_size // 1000}kB"}
    if rig.stream.retain:
        settings |= {"retain": "1d", "skew": {"past": "12h"}}
    file = folder / f"{rig.stream.name}.yaml"
    file.write_text(json.dumps({"streams": {rig.stream.name: {**settings, "archive": archive}}}))
    return file


def _walk(storage: Storage, folder: str) -> Iterator[str]:
    for status in storage.list(folder):
        if status.is_folder:
            yield from _walk(storage, status.path)
        else:
            yield status.path


def _shift(number: int) -> Shift:
    start = HOUR.start_ms + number * HOUR_MS
    return Shift(
        id=f"20261110T{number:04d}",
        number=number,
        start_ms=start,
        end_ms=start + HOUR_MS,
        planned_ms=start + HOUR_MS,
        timelines_version=1,
        window=Window(past_ms=0, future_ms=start + HOUR_MS),
        timestamp="kafka",
        compression="fast",
        ranges={},
    )


def _positions(hour: Hour) -> Positions:
    position = ShardPosition(start=0, next=1, watermark_ms=hour.end_ms, digest=None)
    return Positions(start_ms=hour.start_ms, first_ms=hour.start_ms).with_shards({Shard(1, 0): position})


def _entry(path: str, shard: str, file: BoomFile, hour: Hour) -> ManifestFile:
    return ManifestFile(
        path=path,
        kind=FileKind.LINES,
        hour=str(hour),
        shard=shard,
        lines=sum(block.lines for block in file.blocks),
        late=0,
        bytes=len(file.data),
        digest=hashlib.sha256(file.data).hexdigest(),
        first_offset=min(block.runs[0][0] for block in file.blocks),
        last_offset=max(block.runs[-1][1] for block in file.blocks) - 1,
        min_ms=min(block.min_ms for block in file.blocks),
        max_ms=max(block.max_ms for block in file.blocks),
    )
