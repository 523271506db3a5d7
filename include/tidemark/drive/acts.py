"""What an operator changes: move a shard forward, accept the gaps of an hour."""

from collections.abc import Callable
from typing import NoReturn

from tidemark import layout
from tidemark.config import Stream
from tidemark.drive.consume import finish_shift
from tidemark.drive.services import Services, now_ms, services
from tidemark.environment import Connections
from tidemark.errors import WrongUse
from tidemark.kafka import KafkaCluster
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import Acceptance, Shift, ShiftRecord, ShiftState
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Hour, Shard, Task
from tidemark.plan.act import accept_gaps
from tidemark.plan.move import Mover, Outlook

LEASE_WAIT_S = 60.0


def look_at_move(stream: Stream, shard: Shard, offset: int, connections: Connections) -> Outlook:
    with open_session(connections) as client:
        return _mover(stream, StreamLedger(client, stream.name), connections).look(shard, offset)


def move_shard(stream: Stream, shard: Shard, offset: int, connections: Connections, task: Task) -> str:
    """Return the id of the committed act."""

    def freeze(around: Services, lease: StreamLease) -> Shift:
        mover = _mover(stream, around.ledger, connections)
        return mover.freeze(mover.look(shard, offset), lease, now_ms())

    return _commit_act(stream, connections, task, freeze)


def accept_hour(stream: Stream, hour: Hour, reason: str, connections: Connections, task: Task) -> str:
    """Return the id of the committed act. The next publish writes the hour's flag, with gaps and reason in it."""

    def freeze(around: Services, lease: StreamLease) -> Shift:
        if not any(gap.accepted is None for gap in around.ledger.hour(hour).value.gaps):
            raise WrongUse(f"Cannot accept {stream.name}/{hour}: no gap holds it")
        acceptance = Acceptance(hour=str(hour), reason=reason)
        return accept_gaps(stream, around.ledger, lease, acceptance, now_ms())

    return _commit_act(stream, connections, task, freeze)


def _commit_act(
    stream: Stream, connections: Connections, task: Task, freeze: Callable[[Services, StreamLease], Shift]
) -> str:
    """A shift that is being committed, or another operator's act, is finished first; a planned shift gives way."""
    with services(stream, connections, task) as around, around.lease().take(wait_s=LEASE_WAIT_S) as lease:
        opened = around.ledger.head().value.open
        node = around.ledger.shift(opened) if opened else None
        if opened and node and (node.value.state is ShiftState.PENDING or _is_act(node.value)):
            finish_shift(around, lease, opened, _refuse_spark)
        act = freeze(around, lease)
        if opened:
            around.storage().delete(layout.work_of_shift(opened), recursive=True)
        finish_shift(around, lease, act.id, _refuse_spark)
        return act.id


def _is_act(record: ShiftRecord) -> bool:
    return record.shift is not None and record.shift.is_act


def _mover(stream: Stream, ledger: StreamLedger, connections: Connections) -> Mover:
    return Mover(stream=stream, ledger=ledger, kafka=KafkaCluster(connections(stream.kafka_connection)))


def _refuse_spark() -> NoReturn:
    raise AssertionError("neither the end of a commit nor an operator's act reads records")
