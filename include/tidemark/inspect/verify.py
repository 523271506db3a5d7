"""Count an hour again: its files against its flag, and both against Kafka while Kafka still has the records."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.boom.verify import verify
from tidemark.config import Stream
from tidemark.consume.timestamps import parse_message
from tidemark.errors import NotFound
from tidemark.kafka import KafkaCluster, Record
from tidemark.ledger.records import Timeline
from tidemark.names import Hour, Shard
from tidemark.publish.flag import Flag, read_hour_flag
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`agrees` is None where there was nothing to compare with."""

    subject: str
    agrees: bool | None
    text: str


def verify_day(flag: Flag, storage: Storage) -> Iterator[Finding]:
    """Its counts against those of the hours' flags that it names."""
    hours = [read_hour_flag(storage, Hour.parse(hour), row["revision"]) for hour, row in flag["hours"].items()]
    for name, counted in flag["counts"].items():
        found = sum(hour["counts"][name] for hour in hours)
        yield Finding(
            subject="flag", agrees=found == counted, text=f"its hours have {found} {name}, it counts {counted}"
        )


def verify_files(flag: Flag, storage: Storage) -> Iterator[Finding]:
    for file in flag["files"]:
        yield _verify_file(file, storage)
    listed, counted = sum(file["lines"] for file in flag["files"]), flag["counts"]["lines"]
    yield Finding(subject="flag", agrees=listed == counted, text=f"its files have {listed} lines, it counts {counted}")


def _verify_file(file: dict[str, Any], storage: Storage) -> Finding:
    path = file["path"]
    try:
        with storage.open_read(path) as source:
            found = verify(source, path)
    except NotFound:
        return Finding(subject=path, agrees=False, text="it is gone")
    if found.error:
        return Finding(subject=path, agrees=False, text=found.error)
    agrees = (found.lines, found.bytes, found.digest) == (file["lines"], file["bytes"], file["digest"])
    wanted = "" if agrees else f"; the flag says {file['lines']} lines, {file['bytes']} bytes, {file['digest']}"
    text = f"{found.lines} lines, {found.bytes} bytes, SHA-256 {found.digest}{wanted}"
    return Finding(subject=path, agrees=agrees, text=text)


def verify_records(
    stream: Stream, flag: Flag, timelines: Mapping[int, Timeline], kafka: Callable[[str], KafkaCluster]
) -> Iterator[Finding]:
    """Every record that may hold a line of the hour is read again, up to where the flag was written.

    `kafka` by the cluster's name; a timeline that was retired is not asked any more.
    """
    shards = {Shard.parse(name): row for name, row in flag["shards"].items()}
    for order in sorted({shard.timeline for shard in shards}):
        timeline = timelines[order]
        rows = {shard: row for shard, row in shards.items() if shard.timeline == order}
        if timeline.retired_ms is not None:
            yield Finding(subject=f"timeline {order}", agrees=None, text="it is retired; not compared")
        else:
            yield from _verify_timeline(stream, flag, rows, timeline.topic, kafka(timeline.cluster))


def _verify_timeline(
    stream: Stream, flag: Flag, shards: Mapping[Shard, Any], topic: str, kafka: KafkaCluster
) -> Iterator[Finding]:
    hour = Hour.parse(flag["hour"])
    partitions = [shard.partition for shard in shards]
    begins = kafka.offsets(topic, partitions)
    starts = kafka.offsets_at(topic, partitions, hour.start_ms)
    for shard, row in shards.items():
        begin, start = begins[shard.partition].begin, starts[shard.partition]
        if row["first_offset"] is not None:
            start = min(start, row["first_offset"])
        if begin > 0 and start <= begin:
            yield Finding(
                subject=f"shard {shard}",
                agrees=None,
                text=f"Kafka begins at {begin} and may have lost records of the hour; not compared",
            )
            continue
        records = kafka.read(topic, shard.partition, start, row["next"])
        found = sum(1 for record in records if hour.start_ms <= _time_of(record, stream) < hour.end_ms)
        yield Finding(
            subject=f"shard {shard}",
            agrees=found == row["lines"],
            text=f"Kafka has {found} records of the hour in [{start}, {row['next']}), "
            f"the flag counts {row['lines']} lines",
        )


def _time_of(record: Record, stream: Stream) -> int:
    if stream.timestamp == "kafka" or record.value is None:
        return record.time_ms if record.value is not None else -1
    time_ms, _ = parse_message(record.value, record.time_ms)
    return record.time_ms if time_ms is None else time_ms
