from tidemark.ledger.records import Gap, HourRecord, Positions, ShardPosition
from tidemark.names import Hour, Shard
from tidemark.publish.rule import reasons_against

SEVEN = Hour.parse("2026-11-15T07")
RECORD = HourRecord()


def positions(*watermarks: int, completed: bool = False) -> Positions:
    shards = {
        Shard(1, number): ShardPosition(start=0, next=42, watermark_ms=mark, digest=None, completed=completed)
        for number, mark in enumerate(watermarks)
    }
    return Positions.of(SEVEN.start_ms, shards)


def test_an_hour_is_ready_when_every_watermark_has_reached_its_end() -> None:
    assert reasons_against(SEVEN, RECORD, positions(SEVEN.end_ms, SEVEN.end_ms + 1)) == ()


def test_a_shard_that_lags_inside_the_hour_holds_it() -> None:
    (reason,) = reasons_against(SEVEN, RECORD, positions(SEVEN.end_ms, SEVEN.end_ms - 1))
    assert reason.startswith("shard 0001-1: everything is consumed up to 2026-11-15T07:59:59.999Z only")
    assert "wanted 2026-11-15T08:00:00Z (next offset 42)" in reason


def test_a_completed_shard_holds_nothing() -> None:
    assert reasons_against(SEVEN, RECORD, positions(0, completed=True)) == ()


def test_committed_lines_that_are_not_archived_hold_the_hour() -> None:
    record = HourRecord(dirty=(11, 12))
    assert reasons_against(SEVEN, record, positions(SEVEN.end_ms)) == (
        "lines of shift number 11, 12 are committed but not archived",
    )


def test_an_hour_before_the_streams_first_is_never_ready() -> None:
    early = Hour.parse("2026-11-15T06")
    assert reasons_against(early, RECORD, positions(SEVEN.end_ms)) == (
        "it lies before the stream's first whole hour, 2026-11-15T07",
    )


def test_a_stream_that_was_never_planned_has_no_ready_hour() -> None:
    assert reasons_against(SEVEN, RECORD, Positions()) == ("nothing was ever planned for the stream",)


def test_a_gap_holds_the_hour_and_names_what_is_lost() -> None:
    gap = Gap(shard="0001-0", start=40, end=97, since_ms=SEVEN.start_ms, until_ms=SEVEN.end_ms)
    assert reasons_against(SEVEN, HourRecord(gaps=(gap,)), positions(SEVEN.end_ms)) == (
        "gap: offsets [40, 97) of shard 0001-0 are lost, and may have held lines of this hour",
    )
