"""The body of a flag is a promise to readers: described by a schema, kept stable by golden files."""

import json
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest

from tidemark import layout
from tidemark.environment import repository_folder
from tidemark.index import IndexRecord
from tidemark.inspect.verify import verify_day
from tidemark.ledger.records import Gap, HourRecord, Positions, ShardPosition, Shift, Timeline, Window
from tidemark.lineage import Cursor
from tidemark.manifest import FileKind, Manifest, ManifestFile, ManifestShard
from tidemark.names import HOUR_MS, Hour, Shard, hours_of_day
from tidemark.publish.flag import build_day_flag, build_hour_flag, dump_flag
from tidemark.storage import open_storage

SEVEN = Hour.parse("2026-11-15T07")
PUBLISHED_MS = SEVEN.end_ms + 6 * 60_000
GOLDEN = Path(__file__).parents[1] / "golden"
SCHEMA = json.loads((repository_folder() / "docs" / "flag.schema.json").read_text())
SOURCE = "2026-11-15/07/_incoming/20261115T0700-0001-0-000.bm"
TARGET = "2026-11-15/07/2026-11-15T07-0001-000.bm"
GAP = Gap(
    shard="0001-1",
    start=40,
    end=97,
    since_ms=SEVEN.start_ms,
    until_ms=SEVEN.end_ms,
    accepted="the broker's disk broke",
)

TIMELINES = {1: Timeline(cluster="main", topic="clicks", topic_id="id", switched_ms=0)}


def positions() -> Positions:
    proven = ShardPosition(start=0, next=120, watermark_ms=SEVEN.end_ms, digest="00ff", completed=False)
    done = ShardPosition(start=0, next=97, watermark_ms=SEVEN.start_ms, digest=None, completed=True)
    found = Positions(start_ms=SEVEN.start_ms - HOUR_MS, first_ms=SEVEN.start_ms - HOUR_MS)
    return found.with_shards({Shard(1, 0): proven, Shard(1, 1): done})


def manifest() -> Manifest:
    shift = Shift(
        id="20261115T0700",
        number=2,
        start_ms=SEVEN.start_ms,
        end_ms=SEVEN.end_ms,
        planned_ms=SEVEN.end_ms + 300_000,
        timelines_version=1,
        window=Window(past_ms=0, future_ms=SEVEN.end_ms),
        timestamp="kafka",
        compression="small",
        ranges={},
    )
    row = ManifestShard(
        start=100, end=120, records=20, lines=17, skewed=1, bad=1, tombstones=1, holes=0, cursor=Cursor(1, 119)
    )
    file = ManifestFile(
        path=SOURCE,
        kind=FileKind.LINES,
        hour=str(SEVEN),
        shard="0001-0",
        lines=17,
        late=2,
        bytes=1234,
        digest="ab" * 32,
        first_offset=100,
        last_offset=119,
        min_ms=SEVEN.start_ms,
        max_ms=SEVEN.end_ms - 1,
    )
    return Manifest(
        writer="tidemark",
        stream="clicks",
        shift=shift,
        timelines={"0001": TIMELINES[1]},
        positions=positions(),
        shards={"0001-0": row},
        gaps=(),
        files=(file,),
    )


def hour_flag(hour: Hour = SEVEN, *, is_empty: bool = False) -> dict[str, Any]:
    piece = IndexRecord(
        srcFile=SOURCE,
        destFile=TARGET,
        srcFileStartOffset=300,
        srcFileEndOffset=1234,
        destFileStartOffset=290,
        destFileEndOffset=1224,
        ArchiveTimestamp=PUBLISHED_MS,
        shard="0001-0",
        first_offset=100,
        last_offset=119,
        min_ms=SEVEN.start_ms,
        max_ms=SEVEN.end_ms - 1,
        lines=17,
        crc=7,
        destBytes=1224,
        destDigest="cd" * 32,
    )
    return build_hour_flag(
        stream="clicks",
        hour=hour,
        record=HourRecord() if is_empty else HourRecord(gaps=(GAP,), unflagged=(2,), archives=1),
        positions=positions(),
        added=() if is_empty else (manifest(),),
        index=() if is_empty else (piece,),
        previous=None,
        published_ms=PUBLISHED_MS,
        timelines=TIMELINES,
    )


def day_flag() -> dict[str, Any]:
    hours = {hour: hour_flag(hour, is_empty=hour != SEVEN) for hour in hours_of_day(SEVEN.day)}
    return build_day_flag(stream="clicks", day=SEVEN.day, revision=1, hours=hours, published_ms=PUBLISHED_MS)


@pytest.mark.parametrize(("name", "flag"), [("flag-hour.json", hour_flag()), ("flag-day.json", day_flag())])
def test_a_flag_has_the_bytes_of_its_golden_file(name: str, flag: dict[str, Any]) -> None:
    assert dump_flag(flag) == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("flag", [hour_flag(), hour_flag(is_empty=True), day_flag()])
def test_a_flag_is_what_its_schema_says(flag: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(flag)


def test_cursors_are_in_every_flag_since_format_2_and_flags_without_them_are_still_flags() -> None:
    flag = hour_flag()
    for row in flag["shards"].values():
        del row["cursor"]
    with pytest.raises(jsonschema.ValidationError, match="'cursor' is a required property"):
        jsonschema.Draft202012Validator(SCHEMA["$defs"]["hour"] | {"$defs": SCHEMA["$defs"]}).validate(flag)
    jsonschema.Draft202012Validator(SCHEMA).validate({**flag, "format": 1})


@pytest.mark.parametrize("lost", ["stream", "files", "shards", "gaps"])
def test_a_flag_without_one_of_its_fields_is_not(lost: str) -> None:
    flag = hour_flag()
    del flag[lost]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(flag)


@pytest.mark.parametrize("more", [0, 1])
def test_a_day_agrees_with_the_flags_of_its_hours_or_not(tmp_path: Path, more: int) -> None:
    storage = open_storage(tmp_path.as_uri(), no_connection)
    for hour in hours_of_day(SEVEN.day):
        storage.create(layout.hour_flag(hour, 1), dump_flag(hour_flag(hour, is_empty=hour != SEVEN)))
    flag = day_flag()
    flag["counts"]["lines"] += more
    found = {finding.text: finding.agrees for finding in verify_day(flag, storage)}
    assert found == {
        f"its hours have 17 lines, it counts {17 + more}": not more,
        "its hours have 2 late, it counts 2": True,
        "its hours have 1 skewed, it counts 1": True,
        "its hours have 1 bad, it counts 1": True,
    }


def no_connection(conn_id: str) -> NoReturn:
    raise AssertionError(f"a local folder needs no {conn_id}")
