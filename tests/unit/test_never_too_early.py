"""READY(H) never precedes a line of H that was in Kafka before the end of H and the grace: attacked at random."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidemark.config import Stream
from tidemark.consume.advance import advance
from tidemark.kafka import Offsets
from tidemark.ledger.records import HourRecord, Positions, Shift
from tidemark.names import HOUR_MS, Hour, Interval, Shard, duration_ms
from tidemark.plan.planner import plan_ranges
from tidemark.publish.rule import reasons_against

SEVEN = Hour.parse("2026-11-15T07")
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Record:
    time_ms: int
    arrived_ms: int


@dataclass
class World:
    """Two partitions or more, a clock, and runs that may be late, die after planning, or be cut short."""

    stream: Stream
    now_ms: int = SEVEN.start_ms
    logs: list[list[Record]] = field(default_factory=lambda: [[], []])
    hanging: dict[int, list[int]] = field(default_factory=dict)
    positions: Positions = field(default_factory=Positions)
    next_hour: Hour = SEVEN
    ready: set[Hour] = field(default_factory=set)

    @property
    def grace_ms(self) -> int:
        return duration_ms(self.stream.grace)

    def write(self, partition: int, minutes_off: int) -> None:
        """A record whose producer's clock is off, by up to hours."""
        time_ms = max(SEVEN.start_ms, self.now_ms + minutes_off * MINUTE_MS)
        self.logs[partition % len(self.logs)].append(Record(time_ms, self.now_ms))

    def hang(self, partition: int) -> None:
        """From here on nothing of the partition is stable, until the transaction ends and all that began before it."""
        self.hanging.setdefault(partition % len(self.logs), []).append(len(self.logs[partition % len(self.logs)]))

    def end(self, partition: int) -> None:
        """The transaction that began first."""
        self.hanging[partition % len(self.logs)] = self.hanging.get(partition % len(self.logs), [])[1:]

    def run(self, *, commits: bool) -> None:
        interval = Interval(self.next_hour.start_ms, self.next_hour.end_ms)
        if self.now_ms < interval.end_ms + self.grace_ms:
            return
        offsets = {
            Shard(1, number): Offsets(begin=0, stable=min([*self.hanging.get(number, []), len(log)]), end=len(log))
            for number, log in enumerate(self.logs)
        }
        work = plan_ranges(
            stream=self.stream,
            interval=interval,
            planned_ms=self.now_ms,
            positions=self.positions,
            offsets=offsets,
        )
        self.positions = work.positions
        if not commits:
            return
        shift = Shift(
            id=interval.shift,
            number=1,
            start_ms=interval.start_ms,
            end_ms=interval.end_ms,
            planned_ms=self.now_ms,
            timelines_version=1,
            window=work.window,
            timestamp="kafka",
            compression="small",
            ranges=Shift.columns(work.ranges),
        )
        self.positions = advance(self.positions, shift, {}).positions
        if not shift.is_cut:
            self.next_hour = Hour(self.next_hour.end_ms)

    def publish(self) -> None:
        lowest = self.positions.lowest_watermark_ms or SEVEN.start_ms
        for start_ms in range(SEVEN.start_ms, lowest + HOUR_MS, HOUR_MS):
            hour = Hour(start_ms)
            if hour not in self.ready and not reasons_against(hour, HourRecord(), self.positions, self.now_ms):
                self.ready.add(hour)
                self.check(hour)

    def check(self, hour: Hour) -> None:
        for number, log in enumerate(self.logs):
            position = self.positions.shards.get(Shard(1, number))
            # A partition that no plan has seen yet.
            consumed = position.next if position else 0
            for offset, record in enumerate(log):
                was_in_time = record.arrived_ms < hour.end_ms + self.grace_ms
                if hour.start_ms <= record.time_ms < hour.end_ms and was_in_time:
                    assert offset < consumed, f"{hour} is ready without offset {offset} of partition {number}"


acts = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "tick", "tick", "run", "die", "hang", "end", "grow"]),
        st.integers(0, 3),
        st.integers(-120, 120),
    ),
    max_size=80,
)


@given(acts, st.integers(1, 6))
def test_an_hour_is_never_ready_before_a_line_of_it_that_was_there_in_time(
    sequence: list[tuple[str, int, int]], max_records: int
) -> None:
    settings = {"name": "s", "cluster": "c", "topic": "t", "root": "hdfs:///s", "owner": "o"}
    world = World(Stream.model_validate({**settings, "max_records": max_records}))
    for act, partition, amount in sequence:
        match act:
            case "write":
                world.write(partition, amount)
            case "tick":
                world.now_ms += abs(amount) * MINUTE_MS
            case "run":
                world.run(commits=True)
            case "die":
                world.run(commits=False)
            case "hang":
                world.hang(partition)
            case "end":
                world.end(partition)
            case "grow":
                world.logs.append([])
        world.publish()
