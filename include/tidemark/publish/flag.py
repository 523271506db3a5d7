"""The body of a flag: JSON that proves its hour or day."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tidemark import layout
from tidemark.index import IndexRecord
from tidemark.ledger.records import FORMAT, Gap, HourRecord, Positions, Proof, ShardPosition, Timeline
from tidemark.lineage import Cursor, alarms_of, cursor_of
from tidemark.manifest import Manifest
from tidemark.names import Hour, isoformat
from tidemark.publish.rule import RULE
from tidemark.storage import Storage

Flag = dict[str, Any]
HOUR_FORMAT = 2
"""Format 1 had no cursors."""


def build_hour_flag(
    *,
    stream: str,
    hour: Hour,
    record: HourRecord,
    positions: Positions,
    added: Sequence[Manifest],
    index: Sequence[IndexRecord],
    previous: Flag | None,
    published_ms: int,
    timelines: Mapping[int, Timeline],
) -> Flag:
    """`added` are the manifests of the shifts that the hour got since `previous`; `index` its archive index."""
    before = previous["counts"] if previous else {"lines": 0, "late": 0, "skewed": 0, "bad": 0}
    known = {file["path"] for file in previous["files"]} if previous else set()
    counted = {gap["file"] for gap in previous["gaps"] if "file" in gap} if previous else set()
    files, alarms = _files(index), alarms_of(timelines)
    change = _count(added, [piece for piece in index if piece.destFile not in known], counted)
    change["lines"] = sum(file["lines"] for file in files) - before["lines"]
    by_shard: dict[str, list[IndexRecord]] = {}
    for piece in index:
        by_shard.setdefault(piece.shard, []).append(piece)
    return {
        "format": HOUR_FORMAT,
        "stream": stream,
        "hour": str(hour),
        "start": isoformat(hour.start_ms),
        "end": isoformat(hour.end_ms),
        "revision": record.revision + 1,
        "published": isoformat(published_ms),
        "rule": RULE,
        "empty": not files,
        "counts": {name: before[name] + change[name] for name in before},
        "shards": {
            str(shard): _shard(
                _proof(hour, row, positions),
                row,
                cursor_of(shard, row.next - 1, timelines),
                by_shard.get(str(shard), ()),
            )
            for shard, row in sorted(positions.shards.items())
        },
        "files": files,
        "gaps": [_gap(gap) for gap in record.gaps],
        **({"alarms": list(alarms)} if alarms else {}),
        "changes": {
            "shifts": [manifest.shift.id for manifest in added],
            "files": [file["path"] for file in files if file["path"] not in known],
            **change,
        },
    }


def build_day_flag(*, stream: str, day: str, revision: int, hours: Mapping[Hour, Flag], published_ms: int) -> Flag:
    return {
        "format": FORMAT,
        "stream": stream,
        "day": day,
        "revision": revision,
        "published": isoformat(published_ms),
        "rule": "all 24 UTC hours of the day are ready",
        "empty": all(flag["empty"] for flag in hours.values()),
        "counts": {
            name: sum(flag["counts"][name] for flag in hours.values()) for name in ("lines", "late", "skewed", "bad")
        },
        "hours": {
            str(hour): {
                "revision": flag["revision"],
                "flag": layout.hour_flag(hour, flag["revision"]),
                "lines": flag["counts"]["lines"],
            }
            for hour, flag in sorted(hours.items())
        },
    }


def dump_flag(flag: Flag) -> bytes:
    return (json.dumps(flag, indent=1) + "\n").encode()


def read_hour_flag(storage: Storage, hour: Hour, revision: int) -> Flag:
    flag: Flag = json.loads(storage.read(layout.hour_flag(hour, revision)))
    return flag


def read_day_flag(storage: Storage, day: str, revision: int) -> Flag:
    flag: Flag = json.loads(storage.read(layout.day_flag(day, revision)))
    return flag


def _count(manifests: Iterable[Manifest], new: Sequence[IndexRecord], counted: set[str]) -> dict[str, int]:
    """Skewed and bad lines have no hour: they are those of the shifts that this flag adds.

    `counted` are files without which the last flag was accepted: of their shifts it has all else.
    """
    counts = {"lines": 0, "late": 0, "skewed": 0, "bad": 0}
    sources = {piece.srcFile for piece in new}
    for manifest in manifests:
        counts["late"] += sum(file.late for file in manifest.files if file.path in sources)
        if counted.isdisjoint(file.path for file in manifest.files):
            found = manifest.counts()
            counts["skewed"] += found.skewed
            counts["bad"] += found.bad
    return counts


def _gap(gap: Gap) -> dict[str, Any]:
    """`file` only where the gap is one, `more` only where it stands for others: most are one range that Kafka lost."""
    return {name: value for name, value in asdict(gap).items() if name not in ("file", "shift", "more") or value}


def _files(index: Iterable[IndexRecord]) -> list[dict[str, Any]]:
    files: dict[str, dict[str, Any]] = {}
    for record in index:
        file = files.setdefault(
            record.destFile,
            {
                "path": record.destFile,
                "lines": 0,
                "bytes": record.destBytes,
                "digest": record.destDigest,
            },
        )
        file["lines"] += record.lines
    return list(files.values())


def _proof(hour: Hour, position: ShardPosition, positions: Positions) -> str:
    if positions.start_hour and hour < positions.start_hour:
        return Proof.RECORD_TIME
    return "completed" if position.completed else Proof.END_OFFSET


def _shard(proof: str, position: ShardPosition, cursor: Cursor, pieces: Sequence[IndexRecord]) -> dict[str, Any]:
    return {
        "proof": proof,
        "watermark": isoformat(position.watermark_ms),
        "next": position.next,
        "cursor": list(cursor),
        "lines": sum(piece.lines for piece in pieces),
        "first_offset": min((piece.first_offset for piece in pieces), default=None),
        "last_offset": max((piece.last_offset for piece in pieces), default=None),
        "min_time": _time(min((piece.min_ms for piece in pieces), default=None)),
        "max_time": _time(max((piece.max_ms for piece in pieces), default=None)),
    }


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else isoformat(time_ms)
