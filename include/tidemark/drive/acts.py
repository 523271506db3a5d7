"""What an operator changes: move a shard forward, accept the gaps of an hour, switch and retire timelines."""

import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from tidemark import layout
from tidemark.config import Stream
from tidemark.drive.consume import finish_shift
from tidemark.drive.services import Services, clusters, now_ms, services
from tidemark.environment import Connections
from tidemark.errors import WrongUse
from tidemark.failpoints import reach
from tidemark.inspect.workers import view_workers
from tidemark.ledger.eviction import evict as free
from tidemark.ledger.eviction import holding_of
from tidemark.ledger.lease import LeaseTaken, StreamLease, read_lease
from tidemark.ledger.records import Acceptance, Retirement, Shift, ShiftRecord, ShiftState
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Hour, Shard, Task
from tidemark.plan.act import accept_gaps
from tidemark.plan.move import Mover, Outlook
from tidemark.plan.switch import Switcher, SwitchOutlook, retire_timeline
from tidemark.work import discard_epochs

LEASE_WAIT_S = 60.0
STABLE_S = 30.0


def look_at_move(stream: Stream, shard: Shard, offset: int, connections: Connections) -> Outlook:
    with open_session(connections) as client:
        return _mover(stream, StreamLedger(client, stream.name), connections).look(shard, offset)


def move_shard(stream: Stream, shard: Shard, offset: int, connections: Connections, task: Task) -> str:
    """Return the id of the committed act."""

    def freeze(around: Services, lease: StreamLease) -> Shift:
        mover = _mover(stream, around.ledger, connections)
        return mover.freeze(mover.look(shard, offset), lease, max(now_ms(), around.server_ms()))

    return _commit_act(stream, connections, task, freeze)


def accept_hour(stream: Stream, hour: Hour, reason: str, connections: Connections, task: Task) -> str:
    """Return the id of the committed act. The next publish writes the hour's flag, with gaps and reason in it."""

    def freeze(around: Services, lease: StreamLease) -> Shift:
        gaps = [gap for gap in around.ledger.hour(hour).value.gaps if gap.accepted is None]
        if not gaps:
            raise WrongUse(f"Cannot accept {stream.name}/{hour}: no gap holds it")
        acceptance = Acceptance(hour=str(hour), reason=reason, files=tuple(gap.file for gap in gaps if gap.file))
        return accept_gaps(stream, around.ledger, lease, acceptance, now_ms())

    return _commit_act(stream, connections, task, freeze)


def look_at_switch(stream: Stream, cluster: str, topic: str, connections: Connections) -> SwitchOutlook:
    with open_session(connections) as client:
        return _switcher(stream, StreamLedger(client, stream.name), connections).look(cluster, topic)


def switch_timeline(
    stream: Stream,
    outlook: SwitchOutlook,
    connections: Connections,
    task: Task,
    *,
    latest: Sequence[int] | None = None,
    stable_s: float = STABLE_S,
    evict: bool = False,
    on_step: Callable[[str], None] = lambda _: None,
) -> str:
    """Return the id of the committed act. `latest`: last offsets of the old timeline, else the broker's when they stood
    still for so long. Raise LeaseTaken, with nothing changed, when a job does not give way and is not to be evicted."""

    def freeze(around: Services, lease: StreamLease) -> Shift:
        on_step(f"lock: the lease is taken; barrier: with epoch {lease.epoch} nobody else can commit")
        switcher = _switcher(stream, around.ledger, connections)
        switcher.check_unchanged(outlook)
        reach("switch.after_lock")
        if latest is not None:
            ends = switcher.given_ends(outlook, latest)
        else:
            ends = switcher.stable_ends(outlook, stable_s, sleep=time.sleep, monotonic=time.monotonic)
        on_step(f"snapshot: the last offsets of timeline {outlook.order} are {[end - 1 for end in ends]}")
        reach("switch.after_snapshot")
        shift = switcher.freeze(outlook, ends, lease, max(now_ms(), around.server_ms()))
        following, version = outlook.order + 1, shift.timelines_version
        on_step(f"switched: timeline {outlook.order} is closed, {following} open, version {version}")
        for worker in view_workers(around.client):
            found = worker.versions.get(stream.name, version)
            if found < version:
                on_step(f"{worker.name} ({worker.task}) still has version {found}: it cannot commit")
        return shift

    return _commit_act(stream, connections, task, freeze, evict=evict)


def retire(stream: Stream, retirement: Retirement, connections: Connections, task: Task) -> str:
    """Return the id of the committed act: no plan asks for the timeline any more."""

    def freeze(around: Services, lease: StreamLease) -> Shift:
        return retire_timeline(stream, around.ledger, lease, retirement, max(now_ms(), around.server_ms()))

    return _commit_act(stream, connections, task, freeze)


def _commit_act(
    stream: Stream,
    connections: Connections,
    task: Task,
    freeze: Callable[[Services, StreamLease], Shift],
    *,
    evict: bool = False,
) -> str:
    """A shift that is being committed, or another operator's act, is finished first; a planned shift gives way."""
    with services(stream, connections, task) as around, _take(around, evict=evict) as lease:
        opened = around.ledger.head().value.open
        node = around.ledger.shift(opened) if opened else None
        if opened and node and (node.value.state is ShiftState.PENDING or _is_act(node.value)):
            finish_shift(around, lease, opened, _refuse_spark)
        act = freeze(around, lease)
        if opened:
            discard_epochs(around.storage(), layout.work_of_shift(opened), up_to=lease.epoch)
        finish_shift(around, lease, act.id, _refuse_spark)
        return act.id


def _take(around: Services, *, evict: bool) -> StreamLease:
    """Ask whoever holds the lease to finish his shift and wait for a bounded time, then take it from him or give up."""
    lease = around.lease()
    with around.ledger.asking_for_lease(around.worker.name):
        try:
            return lease.take(wait_s=LEASE_WAIT_S)
        except LeaseTaken:
            held = read_lease(around.client, around.stream.name)
            if not evict or held.owner is None:
                raise
            free(around.client, held.owner, holding_of(around.stream.name, held))
            return lease.take(wait_s=LEASE_WAIT_S)


def _is_act(record: ShiftRecord) -> bool:
    return record.shift is not None and record.shift.is_act


def _mover(stream: Stream, ledger: StreamLedger, connections: Connections) -> Mover:
    return Mover(stream=stream, ledger=ledger, kafka=clusters(connections))


def _switcher(stream: Stream, ledger: StreamLedger, connections: Connections) -> Switcher:
    return Switcher(stream=stream, ledger=ledger, kafka=clusters(connections))


def _refuse_spark() -> NoReturn:
    raise AssertionError("neither the end of a commit nor an operator's act reads records")
