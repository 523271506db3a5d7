"""Plan, backfill and commit as pure functions, attacked with random logs, crashes, expiry and growth."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from tidemark.config import Stream
from tidemark.consume.advance import Advanced, advance, hours_touched
from tidemark.errors import DataLoss
from tidemark.kafka import Offsets
from tidemark.ledger.records import Gap, HeldEnd, Positions, Proof, ShardPosition, Shift, ShiftRange, Window
from tidemark.names import HOUR_MS, Hour, Interval, Shard
from tidemark.plan.backfill import is_backfill, plan_backfill
from tidemark.plan.planner import PlannedWork, plan_ranges, share_out

SEVEN = Hour.parse("2026-11-15T07")
ZERO = Shard(1, 0)


def shift_of(found: dict[Shard, ShiftRange], end_ms: int = SEVEN.end_ms) -> Shift:
    return Shift(
        id="20261115T0700",
        number=1,
        start_ms=SEVEN.start_ms,
        end_ms=end_ms,
        planned_ms=end_ms,
        timelines_version=1,
        window=Window(past_ms=0, future_ms=end_ms),
        timestamp="kafka",
        compression="small",
        ranges=Shift.columns(found),
    )


def positions(next_offset: int, watermark_ms: int = SEVEN.start_ms) -> Positions:
    position = ShardPosition(start=0, next=next_offset, watermark_ms=watermark_ms, digest="old")
    return Positions(start_ms=SEVEN.start_ms, first_ms=SEVEN.start_ms).with_shards({ZERO: position})


def test_a_proven_range_moves_next_and_watermark() -> None:
    found = ShiftRange(lost_from=5, start=5, end=9, proof=Proof.END_OFFSET)
    after = advance(positions(5), shift_of({ZERO: found}), {ZERO: "new"}).positions.shards[ZERO]
    assert (after.next, after.watermark_ms, after.digest) == (9, SEVEN.end_ms, "new")


def test_a_range_without_proof_moves_next_alone() -> None:
    for proof in (Proof.CUT, Proof.UNSTABLE):
        found = ShiftRange(lost_from=5, start=5, end=9, proof=proof)
        after = advance(positions(5), shift_of({ZERO: found}), {}).positions.shards[ZERO]
        assert (after.next, after.watermark_ms) == (9, SEVEN.start_ms)


def test_an_end_that_a_transaction_held_proves_its_watermark_once_that_much_is_committed() -> None:
    unstable = ShiftRange(lost_from=5, start=5, end=7, proof=Proof.UNSTABLE, held_end=9)
    first = advance(positions(5), shift_of({ZERO: unstable}), {}).positions
    assert first.held == (HeldEnd(shard="0001-0", end=9, until_ms=SEVEN.end_ms),)
    nearly = ShiftRange(lost_from=7, start=7, end=8, proof=Proof.UNSTABLE, held_end=20)
    second = advance(first, shift_of({ZERO: nearly}, SEVEN.end_ms + HOUR_MS), {}).positions
    assert (second.shards[ZERO].watermark_ms, second.held) == (SEVEN.start_ms, first.held)
    enough = ShiftRange(lost_from=8, start=8, end=9, proof=Proof.UNSTABLE, held_end=30)
    third = advance(second, shift_of({ZERO: enough}, SEVEN.end_ms + 2 * HOUR_MS), {}).positions
    assert third.shards[ZERO].watermark_ms == SEVEN.end_ms
    assert third.held == (HeldEnd(shard="0001-0", end=30, until_ms=SEVEN.end_ms + 2 * HOUR_MS),)
    proven = ShiftRange(lost_from=9, start=9, end=40, proof=Proof.END_OFFSET)
    last = advance(third, shift_of({ZERO: proven}, SEVEN.end_ms + 3 * HOUR_MS), {}).positions
    assert (last.shards[ZERO].watermark_ms, last.held) == (SEVEN.end_ms + 3 * HOUR_MS, ())


def test_a_gap_is_not_closed_by_an_end_that_was_asked_before_it() -> None:
    unstable = ShiftRange(lost_from=5, start=5, end=7, proof=Proof.UNSTABLE, held_end=9)
    held = advance(positions(5), shift_of({ZERO: unstable}), {}).positions
    lost = ShiftRange(lost_from=7, start=12, end=14, proof=Proof.UNSTABLE, held_end=20)
    after = advance(held, shift_of({ZERO: lost}, SEVEN.end_ms + HOUR_MS), {})
    assert after.positions.shards[ZERO].watermark_ms == SEVEN.start_ms
    assert after.positions.held == (HeldEnd(shard="0001-0", end=20, until_ms=SEVEN.end_ms + HOUR_MS),)


def test_an_empty_range_keeps_the_digest_of_the_record_before_it() -> None:
    found = ShiftRange(lost_from=5, start=5, end=5, proof=Proof.END_OFFSET)
    assert advance(positions(5), shift_of({ZERO: found}), {}).positions.shards[ZERO].digest == "old"


def test_a_gap_holds_the_hours_from_the_watermark_before_it_to_the_time_at_which_it_was_found() -> None:
    for proof in (Proof.END_OFFSET, Proof.UNSTABLE, Proof.CUT):
        lost = ShiftRange(lost_from=5, start=8, end=9, proof=proof)
        shift = replace(shift_of({ZERO: lost}), planned_ms=SEVEN.end_ms + HOUR_MS + 1)
        advanced = advance(positions(5), shift, {})
        assert advanced.gaps == (
            Gap(shard="0001-0", start=5, end=8, since_ms=SEVEN.start_ms, until_ms=SEVEN.end_ms + HOUR_MS + 1),
        )
        assert [str(hour)[-2:] for hour in hours_touched(advanced.gaps[0])] == ["07", "08", "09"]
        assert advanced.positions.gaps == ()


def test_a_gap_reaches_up_to_the_last_answer_of_kafka_where_that_took_longer_than_planning() -> None:
    lost = ShiftRange(lost_from=5, start=8, end=9, proof=Proof.END_OFFSET)
    (gap,) = advance(positions(5), replace(shift_of({ZERO: lost}), asked_ms=SEVEN.end_ms + 1), {}).gaps
    assert gap.until_ms == SEVEN.end_ms + 1


def test_a_gap_that_an_old_record_left_open_ends_at_the_next_shift() -> None:
    waiting = Gap(shard="0001-0", start=2, end=5, since_ms=SEVEN.start_ms)
    before = replace(positions(5), gaps=(waiting,))
    found = ShiftRange(lost_from=5, start=5, end=5, proof=Proof.UNSTABLE)
    advanced = advance(before, shift_of({ZERO: found}), {})
    assert advanced.gaps == (replace(waiting, until_ms=SEVEN.end_ms),)
    assert advanced.positions.gaps == ()


def consume(before: Positions, hour: Hour, planned_ms: int, offsets: Offsets, reset: str) -> Advanced:
    """The shift of one hour, planned then and committed."""
    settings = {"name": "s", "cluster": "c", "topic": "t", "root": "hdfs:///s", "owner": "o", "offset_reset": reset}
    work = plan_ranges(
        stream=Stream.model_validate(settings),
        interval=Interval(hour.start_ms, hour.end_ms),
        planned_ms=planned_ms,
        positions=before,
        offsets={ZERO: offsets},
    )
    shift = replace(shift_of(dict(work.ranges), hour.end_ms), planned_ms=planned_ms)
    return advance(work.positions, shift, {})


def held_by(gaps: tuple[Gap, ...]) -> list[str]:
    return [str(hour) for gap in gaps for hour in hours_touched(gap)]


def test_what_latest_skips_holds_the_hour_in_which_it_was_skipped() -> None:
    eight = Hour(SEVEN.end_ms)
    first = consume(Positions(), SEVEN, SEVEN.end_ms + 300_000, Offsets(begin=0, stable=100, end=100), "latest")
    # The offsets from 100 on had expired at 09:40, and with them all up to 1000 is skipped.
    skipped = consume(
        first.positions, eight, eight.end_ms + 2_400_000, Offsets(begin=150, stable=1000, end=1000), "latest"
    )
    assert held_by(skipped.gaps) == ["2026-11-15T08", "2026-11-15T09"]


def test_a_gap_of_a_stream_that_was_down_holds_every_hour_that_its_old_runs_prove_later() -> None:
    now_ms = SEVEN.start_ms + 30 * HOUR_MS
    first = consume(Positions(), SEVEN, SEVEN.end_ms + 300_000, Offsets(begin=0, stable=100, end=100), "earliest")
    offsets = Offsets(begin=500, stable=1000, end=1000)
    after = consume(first.positions, Hour(SEVEN.end_ms), now_ms, offsets, "earliest")
    held = held_by(after.gaps)
    later = [Hour(SEVEN.start_ms + n * HOUR_MS) for n in range(2, 30)]
    for hour in later:
        after = consume(after.positions, hour, now_ms, offsets, "earliest")
        assert after.gaps == ()
        assert str(hour) in held


@given(st.dictionaries(st.integers(0, 20).map(lambda p: Shard(1, p)), st.integers(0, 1000)), st.integers(1, 5000))
def test_a_budget_is_shared_without_waste_and_leaves_nobody_out(lags: dict[Shard, int], budget: int) -> None:
    shares = share_out(lags, budget)
    assert all(min(1, lags[shard]) <= shares[shard] <= lags[shard] for shard in lags)
    assert sum(shares.values()) <= max(budget, len(lags))
    if sum(lags.values()) <= budget:
        assert shares == lags


@dataclass
class Log:
    """One partition: what was ever written, what expired, where a transaction hangs."""

    begin: int = 0
    times: list[int] = field(default_factory=list)
    hanging: int = 0
    covered: list[tuple[int, int]] = field(default_factory=list)
    backfilled: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.times)

    def offset_at(self, time_ms: int) -> int:
        return next((offset for offset in range(self.begin, self.end) if self.times[offset] >= time_ms), self.end)

    def offsets(self) -> Offsets:
        return Offsets(begin=self.begin, stable=max(self.begin, self.end - self.hanging), end=self.end)


steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "expire", "hang", "settle", "grow", "plan", "crash", "backfill"]),
        st.integers(0, 3),
        st.integers(0, 40),
    ),
    max_size=60,
)


class World:
    """Kafka's logs and our positions, with one commit after the other."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.logs = {ZERO: Log(), Shard(1, 1): Log()}
        self.positions = Positions()
        self.hour = SEVEN
        self.done: set[Hour] = set()
        self.open: PlannedWork | None = None

    def change_log(self, act: str, log: Log, amount: int) -> None:
        match act:
            case "write":
                # Producers' times, up to three hours behind.
                log.times += [self.hour.start_ms - (n + amount) % 4 * HOUR_MS for n in range(amount)]
            case "expire":
                log.begin = min(log.end - log.hanging, log.begin + amount)
            case "hang":
                log.hanging = min(amount, log.end - log.begin)
            case "settle":
                log.hanging = 0
            case "grow":
                self.logs[Shard(1, len(self.logs))] = Log()

    def plan(self) -> bool:
        """Whether a shift is open now: the frozen one of an earlier crash as it was, while Kafka has its start."""
        if self.open and all(self.logs[shard].begin <= found.start for shard, found in self.open.ranges.items()):
            return True
        try:
            self.open = plan_ranges(
                stream=self.stream,
                interval=Interval(self.hour.start_ms, self.hour.end_ms),
                planned_ms=self.hour.end_ms + 400_000,
                positions=self.positions,
                offsets={shard: found.offsets() for shard, found in self.logs.items()},
            )
        except DataLoss:
            assert self.stream.offset_reset == "fail"
            return False
        for shard, found in self.open.ranges.items():
            assert found.proof is not Proof.END_OFFSET or found.end == self.logs[shard].end
            assert [found.start, *(high for _, high in found.splits)] == [
                *(low for low, _ in found.splits),
                found.end,
            ]
        self.positions = self.open.positions
        return True

    def backfill(self, hours_back: int) -> None:
        """One hour before the first that was planned, unless it has its shift already; what is open comes first."""
        if self.open and self.plan():
            self.commit()
        if self.positions.first_ms is None or self.open:
            return
        hour = Hour(self.positions.first_ms - hours_back * HOUR_MS)
        interval = Interval(hour.start_ms, hour.end_ms)
        if hour in self.done or not is_backfill(interval, self.positions):
            return
        try:
            work = plan_backfill(
                stream=self.stream,
                interval=interval,
                positions=self.positions,
                offsets={shard: found.offsets() for shard, found in self.logs.items()},
                begins={shard: found.offset_at(hour.start_ms) for shard, found in self.logs.items()},
                ends={shard: found.offset_at(hour.end_ms) for shard, found in self.logs.items()},
                append_time=False,
            )
        except DataLoss:
            assert self.stream.offset_reset == "fail"
            return
        shift = replace(shift_of(dict(work.ranges)), start_ms=hour.start_ms, by_record_time=work.by_record_time)
        after = advance(self.positions, shift, {}).positions
        assert after.shards == self.positions.shards
        for shard, found in work.ranges.items():
            self.logs[shard].backfilled += range(found.start, found.end)
        self.positions = after
        self.done.add(hour)

    def commit(self) -> None:
        assert self.open is not None
        before = self.positions
        after = advance(before, shift_of(dict(self.open.ranges), self.hour.end_ms), {}).positions
        for shard, found in self.open.ranges.items():
            self.logs[shard].covered.append((found.lost_from, found.end))
            assert after.shards[shard].next >= before.shards[shard].next
            assert after.shards[shard].watermark_ms >= before.shards[shard].watermark_ms
        self.positions, self.hour, self.open = after, Hour(self.hour.end_ms), None


@given(
    steps, st.sampled_from(["earliest", "latest"]), st.sampled_from(["fail", "earliest", "latest"]), st.integers(1, 50)
)
def test_committed_ranges_and_gaps_tile_every_log_whatever_happens(
    acts: list[tuple[str, int, int]], start: str, offset_reset: str, max_records: int
) -> None:
    settings = {"name": "s", "cluster": "c", "topic": "t", "root": "hdfs:///s", "owner": "o", "start": start}
    world = World(Stream.model_validate({**settings, "offset_reset": offset_reset, "max_records": max_records}))
    for act, partition, amount in acts:
        if act == "backfill":
            world.backfill(1 + amount % 4)
        world.change_log(act, world.logs[sorted(world.logs)[partition % len(world.logs)]], amount)
        # After a crash the plan is stored, its commit never came.
        if act in ("plan", "crash") and world.plan() and act == "plan":
            world.commit()
    for shard, position in world.positions.shards.items():
        reached = position.start
        for low, high in world.logs[shard].covered:
            assert low == reached
            reached = high
        assert reached == position.next
        backfilled = world.logs[shard].backfilled
        assert len(set(backfilled)) == len(backfilled)
        assert all(offset < position.start for offset in backfilled)
