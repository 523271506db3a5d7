"""Runs inside a Spark task: one split of Kafka records becomes boom files, one for each hour that it touches."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark import layout
from tidemark.boom.escape import offsets_of
from tidemark.boom.writer import BoomWriter
from tidemark.consume.lines import parse_messages
from tidemark.consume.results import Split, SplitResult, TaskOrder, WrittenFile
from tidemark.errors import DataLoss
from tidemark.failpoints import reach
from tidemark.kafka import record_digest
from tidemark.ledger.records import dump
from tidemark.manifest import FileKind
from tidemark.names import HOUR_MS, Hour, Shard
from tidemark.storage.port import Sink

# All files of a split together hold no more than this: each keeps some megabytes until a block is full, and a split
# may touch hundreds of hours.
_HELD_BYTES: Final = 64 << 20
# What a line takes besides its bytes: time, offset, position.
_LINE_BYTES: Final = 24

RESULT_SCHEMA = "result string"
LAST_MS = 253_402_300_800_000
"""The year 10000: hours from there on have no name."""


def write_split(
    order: TaskOrder, split: Split, attempt: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write whole files below the attempt's own folder; yield the split's result, be it that nothing was read."""
    with ExitStack() as stack:
        writer = SplitWriter(order, attempt, split, stack)
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
                reach("consume.task_writing")
        result = writer.close()
    reach("consume.task_wrote_files")
    yield pa.RecordBatch.from_pydict({"result": [dump(result).decode()]})


class SplitWriter:
    def __init__(self, order: TaskOrder, attempt: int, split: Split, stack: ExitStack) -> None:
        self._order = order
        self._split = split
        self._stack = stack
        self._folder = f"{order.folder}/{attempt}"
        self._hours: dict[int, _BoomFile] = {}
        self._skewed: _BoomFile | None = None
        self._bad: _BadFile | None = None
        self._held = 0
        self._records = 0
        self._tombstones = 0
        self._first_offset = -1
        self._last: tuple[int, int, bytes | None] = (-1, 0, None)

    def write(self, batch: pa.RecordBatch) -> None:
        self._count(batch)
        values = batch.column("value")
        if values.null_count:
            present = values.is_valid()
            batch = batch.filter(present)
            self._tombstones += len(values) - batch.num_rows
        for part in self._parts(batch):
            times, messages = self._lines(part)
            self._distribute(times, messages, part.column("offset"), part)

    def close(self) -> SplitResult:
        files = [file.close() for file in (*self._files(), self._bad) if file]
        # Leaving the sinks' contexts completes the files: only then may anybody hear of them.
        self._stack.close()
        return SplitResult(
            shard=str(self._split.shard),
            index=self._split.index,
            records=self._records,
            tombstones=self._tombstones,
            first_offset=self._first_offset,
            last_offset=self._last[0],
            last_digest=record_digest(*self._last),
            files=tuple(files),
        )

    def _count(self, batch: pa.RecordBatch) -> None:
        offsets = batch.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if not self._split.start <= first <= last < self._split.end or first <= self._last[0]:
            raise DataLoss(
                f"Cannot consume {self._split.shard}: found offsets {first} to {last} after {self._last[0]}, "
                f"wanted [{self._split.start}, {self._split.end}) in order"
            )
        if self._first_offset < 0:
            self._first_offset = first
        self._records += batch.num_rows
        self._last = (last, batch.column("timestamp")[-1].as_py(), batch.column("value")[-1].as_py())

    def _parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch, cut where the files are full: behind so many bytes of records, wherever batches begin and end."""
        positions = offsets_of(batch.column("value")).astype(np.int64)
        positions += np.arange(len(positions)) * _LINE_BYTES
        start = 0
        while self._held + positions[-1] - positions[start] >= _HELD_BYTES:
            stop = int(np.searchsorted(positions, positions[start] + _HELD_BYTES - self._held))
            yield batch.slice(start, stop - start)
            for file in self._files():
                file.flush()
            self._held, start = 0, stop
        self._held += int(positions[-1] - positions[start])
        yield batch.slice(start)

    def _files(self) -> list["_BoomFile"]:
        hours = [file for _, file in sorted(self._hours.items())]
        return [*hours, self._skewed] if self._skewed else hours

    def _lines(self, batch: pa.RecordBatch) -> tuple[pa.Int64Array, pa.BinaryArray]:
        if self._order.timestamp == "kafka":
            return batch.column("timestamp"), batch.column("value")
        times, lines, _ = parse_messages(batch.column("value"), batch.column("timestamp"))
        return times, lines

    def _distribute(
        self, times: pa.Int64Array, lines: pa.BinaryArray, offsets: pa.Int64Array, batch: pa.RecordBatch
    ) -> None:
        numbers = times.to_numpy(zero_copy_only=False)
        if not len(numbers):
            return
        hour = self._common_hour(int(numbers.min()), int(numbers.max()))
        if hour is not None:
            self._writer_of(hour).write_all(times, lines, offsets)
            return
        nameless = (numbers < 0) | (numbers >= LAST_MS)
        window = self._order.window
        skewed = ~nameless & ((numbers < window.past_ms) | (numbers >= window.future_ms))
        if nameless.any():
            self._keep_bad(batch.filter(pa.array(nameless)))
        if skewed.any():
            self._skewed = self._skewed or self._open(layout.skewed(self._name), FileKind.SKEWED, None)
            self._skewed.write(times, lines, offsets, skewed)
        hours = np.where(nameless | skewed, -1, numbers // HOUR_MS)
        for number in np.unique(hours[hours >= 0]):
            self._writer_of(int(number)).write(times, lines, offsets, hours == number)

    def _common_hour(self, first_ms: int, last_ms: int) -> int | None:
        """The number of the hour that all lines between these times belong to: true of most batches, and quick."""
        window = self._order.window
        is_named = first_ms >= max(0, window.past_ms) and last_ms < min(LAST_MS, window.future_ms)
        number = first_ms // HOUR_MS
        return number if is_named and last_ms // HOUR_MS == number else None

    def _writer_of(self, number: int) -> "_BoomFile":
        if number not in self._hours:
            hour = Hour(number * HOUR_MS)
            self._hours[number] = self._open(layout.incoming(hour, self._name), FileKind.LINES, str(hour))
        return self._hours[number]

    @property
    def _name(self) -> str:
        return layout.boom_name(self._order.shift, self._split.shard, self._split.index)

    def _open(self, path: str, kind: FileKind, hour: str | None) -> "_BoomFile":
        writer = BoomWriter(
            self._sink(path),
            name=path,
            create_time_ms=self._order.planned_ms + self._split.order,
            compression="fast" if self._order.compression == "fast" else "small",
        )
        return _BoomFile(writer, path, self._folder, kind, hour)

    def _keep_bad(self, records: pa.RecordBatch) -> None:
        if self._bad is None:
            path = layout.bad(layout.bad_name(self._order.shift, self._split.shard, self._split.index))
            self._bad = _BadFile(self._sink(path), path, self._folder, self._split.shard)
        self._bad.write(records)

    def _sink(self, path: str) -> Sink:
        return self._stack.enter_context(self._order.storage.open_write(f"{self._folder}/{path}"))


class _BadFile:
    """A file of records that cannot be lines, under way: a range may hold nothing else, so none is kept in memory."""

    def __init__(self, sink: Sink, path: str, folder: str, shard: Shard) -> None:
        self._sink = sink
        self._path = path
        self._folder = folder
        self._shard = str(shard)
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._lines = 0
        self._first = self._last = -1

    def write(self, records: pa.RecordBatch) -> None:
        rows = records.to_pylist()
        data = "".join(f"{json.dumps(self._told(row))}\n" for row in rows).encode()
        self._sink.write(data)
        self._digest.update(data)
        self._bytes += len(data)
        self._lines += len(rows)
        self._first = rows[0]["offset"] if self._first < 0 else self._first
        self._last = rows[-1]["offset"]

    def _told(self, row: Mapping[str, Any]) -> dict[str, object]:
        return {
            "shard": self._shard,
            "offset": row["offset"],
            "timestamp": row["timestamp"],
            "reason": "its time has no hour between the years 1970 and 9999",
            "value": base64.b64encode(row["value"]).decode(),
        }

    def close(self) -> WrittenFile:
        return WrittenFile(
            path=self._path,
            folder=self._folder,
            kind=FileKind.BAD,
            hour=None,
            lines=self._lines,
            bytes=self._bytes,
            digest=self._digest.hexdigest(),
            first_offset=self._first,
            last_offset=self._last,
            min_ms=0,
            max_ms=0,
            blocks=(),
        )


class _BoomFile:
    """A boom file under way, with what its result will say of it."""

    def __init__(self, writer: BoomWriter, path: str, folder: str, kind: FileKind, hour: str | None) -> None:
        self._writer = writer
        self._path = path
        self._folder = folder
        self._kind = kind
        self._hour = hour

    def write(
        self,
        times: pa.Int64Array,
        lines: pa.BinaryArray,
        offsets: pa.Int64Array,
        mine: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> None:
        if mine.all():
            self.write_all(times, lines, offsets)
            return
        mask = pa.array(mine)
        self.write_all(pc.filter(times, mask), pc.filter(lines, mask), pc.filter(offsets, mask))

    def write_all(self, times: pa.Int64Array, lines: pa.BinaryArray, offsets: pa.Int64Array) -> None:
        self._writer.write(times, lines, offsets)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> WrittenFile:
        summary = self._writer.close()
        # A file is opened for a line that is at hand, so none is empty.
        assert summary.first_offset is not None
        assert summary.last_offset is not None
        assert summary.min_ms is not None
        assert summary.max_ms is not None
        return WrittenFile(
            path=self._path,
            folder=self._folder,
            kind=self._kind,
            hour=self._hour,
            lines=summary.lines,
            bytes=summary.bytes,
            digest=summary.digest,
            first_offset=summary.first_offset,
            last_offset=summary.last_offset,
            min_ms=summary.min_ms,
            max_ms=summary.max_ms,
            blocks=summary.blocks,
        )
