"""What the board's routes answer, as JSON."""

from collections.abc import Collection, Sequence
from typing import Any

from tidemark.inspect.airflow import Run
from tidemark.inspect.board import Calendar, FlagFacts
from tidemark.inspect.check import StreamCheck
from tidemark.inspect.offsets import StreamOffsets
from tidemark.inspect.timelines import TimelineView
from tidemark.inspect.workers import LeaseView, WorkerView
from tidemark.publish.flag import Flag


def summary(calendar: Calendar, check: StreamCheck) -> dict[str, Any]:
    """The days that are shown, beside what `tidemark check` says of all."""
    newest = check.newest_ready
    return {
        "stream": calendar.stream,
        "watermark_ms": calendar.watermark_ms,
        "newest_ready": str(newest) if newest else None,
        "held": len(check.held),
        "days": [
            {"day": day, "states": [cell.state for cell in cells], "revisions": [cell.revision for cell in cells]}
            for day, cells in calendar.days.items()
        ],
    }


def facts(found: FlagFacts) -> dict[str, Any]:
    return {
        "hour": str(found.hour),
        "revision": found.revision,
        "lines": found.lines,
        "late": found.late,
        "bytes": found.bytes,
        "delay_ms": found.delay_ms,
    }


def offsets(found: StreamOffsets) -> dict[str, Any]:
    rows = [
        {
            "shard": str(row.shard),
            "next": row.next,
            "end": row.end,
            "lag": row.lag,
            "watermark_ms": row.watermark_ms,
            "completed": row.completed,
        }
        for row in found.shards
    ]
    return {"lag": found.lag, "open": found.open, "number": found.number, "shards": rows}


def timeline(found: TimelineView) -> dict[str, Any]:
    return {
        "order": found.order,
        "cluster": found.timeline.cluster,
        "topic": found.timeline.topic,
        "switched_ms": found.timeline.switched_ms,
        "state": found.state,
        "shards": [
            {
                "shard": str(row.shard),
                "parents": [str(parent) for parent in row.parents],
                "next": row.next,
                "end": row.end,
                "completed": row.completed,
            }
            for row in found.shards
        ],
    }


def revision(flag: Flag) -> dict[str, Any]:
    return {
        "revision": flag["revision"],
        "published": flag["published"],
        "lines": flag["counts"]["lines"],
        "added": flag["changes"]["lines"],
        "shifts": flag["changes"]["shifts"],
    }


def run(dag: str, found: Run) -> dict[str, Any]:
    """Tasks that have not begun are left out: they have no log."""
    return {
        "dag": dag,
        "run": found.id,
        "state": found.state,
        "tasks": [
            {"task": task.id, "map_index": task.map_index, "state": task.state, "try": task.attempt}
            for task in found.tasks
            if task.has_begun
        ],
    }


def workers(found: Sequence[WorkerView], leases: Sequence[LeaseView], visible: Collection[str]) -> dict[str, Any]:
    """Only of streams that may be seen; a worker of several is shown with those of its queues."""
    seen = {worker.name: [queue for queue in worker.queues if _stream_of(queue) in visible] for worker in found}
    return {
        "workers": [
            {
                "name": worker.name,
                "task": worker.task,
                "try": worker.attempt,
                "queues": seen[worker.name],
                "since_ms": worker.since_ms,
            }
            for worker in found
            if seen[worker.name]
        ],
        "leases": [
            {
                "stream": lease.stream,
                "owner": lease.owner,
                "task": lease.task,
                "try": lease.attempt,
                "epoch": lease.epoch,
                "since_ms": lease.since_ms,
                "renewed_ms": lease.renewed_ms,
                "held": lease.is_held,
            }
            for lease in leases
            if lease.stream in visible
        ],
    }


def _stream_of(queue: str) -> str:
    return queue.partition("/")[0]
