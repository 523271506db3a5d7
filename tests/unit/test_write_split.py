from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.consume.results import Split, SplitResult, TaskOrder
from tidemark.consume.write import write_split
from tidemark.ledger.records import Window, parse
from tidemark.manifest import FileKind
from tidemark.names import HOUR_MS, Hour, Shard
from tidemark.storage import FileAttributes
from tidemark.storage.local import LocalStorage

HOUR = Hour.parse("2026-11-10T22")
WINDOW = Window(past_ms=HOUR.start_ms, future_ms=HOUR.end_ms + HOUR_MS)


def write(folder: Path, batches: list[list[int]]) -> SplitResult:
    """Batches of lines with these times."""
    lines = sum(len(times) for times in batches)
    order = TaskOrder(
        shift="20261110T2200",
        planned_ms=HOUR.end_ms,
        window=WINDOW,
        timestamp="kafka",
        compression="fast",
        storage=LocalStorage(root=folder, attributes=FileAttributes()),
        folder="_tmp",
    )
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
    (found,) = write_split(order, split, 1, iter(records))
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
