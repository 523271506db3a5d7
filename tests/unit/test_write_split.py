import hashlib
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.consume.results import Split, SplitResult, TaskOrder
from tidemark.consume.write import SplitWriter, write_split
from tidemark.ledger.records import Window, parse
from tidemark.manifest import FileKind
from tidemark.names import HOUR_MS, Hour, Shard
from tidemark.storage import FileAttributes
from tidemark.storage.local import LocalStorage

HOUR = Hour.parse("2026-11-10T22")
WINDOW = Window(past_ms=HOUR.start_ms, future_ms=HOUR.end_ms + HOUR_MS)


def order_in(folder: Path) -> TaskOrder:
    return TaskOrder(
        shift="20261110T2200",
        planned_ms=HOUR.end_ms,
        window=WINDOW,
        timestamp="kafka",
        compression="fast",
        storage=LocalStorage(root=folder, attributes=FileAttributes()),
        folder="_tmp",
    )


def write(folder: Path, batches: list[list[int]]) -> SplitResult:
    """Batches of lines with these times."""
    lines = sum(len(times) for times in batches)
    split = Split(shard=Shard(1, 0), index=0, order=0, start=0, end=lines)
    first, records = 0, []
    for times in batches:
        columns = {
            "offset": pa.array(range(first, first + len(times)), pa.int64()),
            "timestamp": pa.array(times, pa.int64()),
            "value": pa.array([b"line"] * len(times), pa.binary()),
        }
        records.append(pa.RecordBatch.from_pydict(columns))
        first += len(times)
    (found,) = write_split(order_in(folder), split, 1, iter(records))
    return parse(SplitResult, found.column("result")[0].as_py().encode())


@pytest.mark.parametrize(
    ("times", "kind", "hour"),
    [
        ([HOUR.start_ms, HOUR.end_ms - 1], FileKind.LINES, "2026-11-10T22"),
        ([HOUR.end_ms, HOUR.end_ms + HOUR_MS - 1], FileKind.LINES, "2026-11-10T23"),
        ([HOUR.start_ms - 1], FileKind.SKEWED, None),
        ([HOUR.end_ms + HOUR_MS], FileKind.SKEWED, None),
        ([-1], FileKind.BAD, None),
    ],
)
def test_a_batch_of_one_hour_goes_to_its_file(tmp_path: Path, times: list[int], kind: FileKind, hour: str) -> None:
    (file,) = write(tmp_path, [times]).files
    assert (file.kind, file.hour, file.lines) == (kind, hour, len(times))


def test_how_lines_are_cut_into_batches_changes_no_byte(tmp_path: Path) -> None:
    times = [HOUR.start_ms - 1, HOUR.start_ms, HOUR.end_ms - 1, HOUR.end_ms, HOUR.start_ms + 5, HOUR.end_ms + 7, -1]
    at_once = write(tmp_path / "at once", [times])
    one_by_one = write(tmp_path / "one by one", [[time] for time in times])
    assert one_by_one == at_once
    assert at_once.records == sum(file.lines for file in at_once.files) == len(times)


def test_how_lines_are_cut_into_batches_changes_no_byte_where_files_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.consume.write._HELD_BYTES", 100)
    times = [HOUR.start_ms + number % 7 * (HOUR_MS // 3) - 5 for number in range(60)]
    at_once = write(tmp_path / "at once", [times])
    assert write(tmp_path / "one by one", [[time] for time in times]) == at_once
    assert write(tmp_path / "by 9", [times[first : first + 9] for first in range(0, 60, 9)]) == at_once
    # Four lines of 28 bytes fill what is held; whoever has some of them ends a block then.
    assert all(1 <= block.lines <= 4 for file in at_once.files for block in file.blocks)
    assert at_once.records == sum(file.lines for file in at_once.files) == len(times)


MEMORY_PROGRAM = """
import json, resource, sys
from contextlib import ExitStack
from pathlib import Path
import numpy as np, pyarrow as pa
from tidemark.consume.results import Split, TaskOrder
from tidemark.consume.write import SplitWriter
from tidemark.ledger.records import Window
from tidemark.names import HOUR_MS, Shard
from tidemark.storage import FileAttributes
from tidemark.storage.local import LocalStorage

HOURS, BATCHES, LINES = 168, 300, 1000
order = TaskOrder(
    shift="20261110T2200", planned_ms=HOURS * HOUR_MS, window=Window(past_ms=0, future_ms=HOURS * HOUR_MS),
    timestamp="kafka", compression="fast", folder="_tmp",
    storage=LocalStorage(root=Path(sys.argv[1]), attributes=FileAttributes()),
)
split = Split(shard=Shard(1, 0), index=0, order=0, start=0, end=BATCHES * LINES)
line = pa.array([bytes(range(128)) * 8] * LINES, pa.binary())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with ExitStack() as stack:
    writer = SplitWriter(order, 1, split, stack)
    for first in range(0, BATCHES * LINES, LINES):
        offsets = np.arange(first, first + LINES)
        columns = {"offset": offsets, "timestamp": offsets % HOURS * HOUR_MS, "value": line}
        writer.write(pa.RecordBatch.from_pydict(columns))
    result = writer.close()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"files": len(result.files), "grown_mb": (after - before) / 1024}))
"""


def test_memory_does_not_grow_with_the_number_of_hours_of_a_split(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY_PROGRAM, str(tmp_path)], check=True, capture_output=True)
    found = json.loads(done.stdout)
    assert found["files"] == 168
    assert found["grown_mb"] < 350


def test_records_that_cannot_be_lines_are_written_as_they_come_and_not_kept_in_memory(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(100), pa.int64()),
            "timestamp": pa.array([-1] * 100, pa.int64()),
            "value": pa.array([b"x" * 1000] * 100, pa.binary()),
        }
    )
    with ExitStack() as stack:
        split = Split(shard=Shard(1, 0), index=0, order=0, start=0, end=100)
        SplitWriter(order_in(tmp_path), 1, split, stack).write(batch)
        assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) > 100 * 1000


def test_a_file_of_bad_records_says_what_it_holds(tmp_path: Path) -> None:
    (_, file) = write(tmp_path, [[HOUR.start_ms, -1], [-7, HOUR.start_ms], [-9]]).files
    data = (tmp_path / file.temporary).read_bytes()
    assert [(row["offset"], row["timestamp"]) for row in map(json.loads, data.splitlines())] == [
        (1, -1),
        (2, -7),
        (4, -9),
    ]
    assert (file.lines, file.first_offset, file.last_offset) == (3, 1, 4)
    assert (file.bytes, file.digest) == (len(data), hashlib.sha256(data).hexdigest())
