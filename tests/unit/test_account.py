from dataclasses import replace

import pytest

from tidemark.consume.commit import account
from tidemark.consume.results import SplitResult, WrittenFile
from tidemark.errors import DataLoss
from tidemark.ledger.records import Proof, ShiftRange
from tidemark.manifest import FileKind

RANGE = ShiftRange(lost_from=0, start=0, end=20, points=(10,), proof=Proof.END_OFFSET)


def file(kind: FileKind, lines: int) -> WrittenFile:
    return WrittenFile(
        path="a.bm",
        folder="_tmp",
        kind=kind,
        hour=None,
        lines=lines,
        bytes=1,
        digest="",
        first_offset=0,
        last_offset=0,
        min_ms=0,
        max_ms=0,
        blocks=(),
    )


def result(index: int, records: int = 10, lines: int = 10) -> SplitResult:
    return SplitResult(
        shard="0001-0",
        index=index,
        records=records,
        tombstones=0,
        first_offset=0,
        last_offset=0,
        last_digest="",
        files=(file(FileKind.LINES, lines),),
    )


def test_lines_skewed_bad_tombstones_and_holes_make_up_the_range() -> None:
    mixed = replace(
        result(1, records=9),
        tombstones=2,
        files=(file(FileKind.LINES, 4), file(FileKind.SKEWED, 2), file(FileKind.BAD, 1)),
    )
    row = account("clicks/0001-0", RANGE, [result(0), mixed])
    assert (row.records, row.lines, row.skewed, row.bad, row.tombstones, row.holes) == (19, 14, 2, 1, 2, 1)


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([], r"the splits \[\] were read, wanted each of 2 once"),
        ([result(0)], r"the splits \[0\] were read, wanted each of 2 once"),
        ([result(0), result(0)], r"the splits \[0, 0\] were read, wanted each of 2 once"),
        ([result(0), result(1), result(2)], r"the splits \[0, 1, 2\] were read, wanted each of 2 once"),
        ([result(0), result(1, lines=9)], r"20 records were read from \[0, 20\), 19 accounted for"),
        ([result(0), result(1, lines=11)], r"20 records were read from \[0, 20\), 21 accounted for"),
        ([result(0), result(1, records=11, lines=11)], r"21 records were read from \[0, 20\), 21 accounted for"),
    ],
)
def test_what_is_not_accounted_for_is_never_committed(results: list[SplitResult], told: str) -> None:
    with pytest.raises(DataLoss, match=rf"Cannot commit clicks/0001-0: {told}"):
        account("clicks/0001-0", RANGE, results)
