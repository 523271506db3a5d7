"""An operator's act, as the stream's open shift: it reads nothing, and is committed like any other.

A death on the way leaves nothing behind that the next run would not finish, and the act's manifest is among the others
when ZooKeeper is rebuilt.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidemark.config import Stream
from tidemark.errors import TidemarkError
from tidemark.failpoints import reach
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import (
    Acceptance,
    Positions,
    Proof,
    Shift,
    ShiftRange,
    ShiftRecord,
    ShiftState,
    TimelinesVersion,
    Window,
)
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Transaction, Versioned
from tidemark.names import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ActBasis:
    """What was read for an act."""

    number: int
    positions: Versioned[Positions]
    timelines: Versioned[TimelinesVersion]


def open_act(
    stream: Stream,
    ledger: StreamLedger,
    lease: StreamLease,
    freeze: Callable[[ActBasis, Transaction], Shift],
) -> Shift:
    """Store what `freeze` makes, which adds to the transaction what the act itself changes or relies on.

    A shift that is PLANNED gives way: its run plans it again, from here on.
    """
    head = ledger.head()
    opened = ledger.shift(head.value.open) if head.value.open else None
    if opened and opened.value.state is not ShiftState.PLANNED:
        raise TidemarkError(f"Cannot change {stream.name}: {head.value.open} is being committed")
    number = opened.value.number if opened else head.value.number + 1
    transaction = ledger.begin(f"act {number}")
    lease.check_in(transaction)
    if head.value.open:
        transaction.delete(paths.shift(stream.name, head.value.open))
    basis = ActBasis(number=number, positions=ledger.positions(), timelines=ledger.timelines_version())
    shift = freeze(basis, transaction)
    moved = replace(head.value, number=number, open=shift.id, epoch=lease.epoch)
    transaction.put(paths.head(stream.name), moved, version=head.version)
    record = ShiftRecord(number=number, state=ShiftState.PLANNED, shift=shift)
    transaction.put(paths.shift(stream.name, shift.id), record, version=-1)
    reach("act.before_transaction")
    ledger.commit_frozen(transaction, shift)
    reach("act.after_transaction")
    return shift


def act_shift(
    stream: Stream, name: str, basis: ActBasis, planned_ms: int, ranges: dict[Shard, ShiftRange] | None = None
) -> Shift:
    """Nothing of any shard, but for the given ranges."""
    nothing = {
        shard: ShiftRange(lost_from=position.next, start=position.next, end=position.next, proof=Proof.OPERATOR)
        for shard, position in basis.positions.value.shards.items()
    }
    return Shift(
        id=f"{name}-{basis.number:08d}",
        number=basis.number,
        start_ms=planned_ms,
        end_ms=planned_ms,
        planned_ms=planned_ms,
        timelines_version=basis.timelines.value.version,
        window=Window(past_ms=planned_ms, future_ms=planned_ms),
        timestamp=stream.timestamp,
        compression=stream.compression,
        ranges=Shift.columns({**nothing, **(ranges or {})}),
    )


def accept_gaps(
    stream: Stream, ledger: StreamLedger, lease: StreamLease, acceptance: Acceptance, planned_ms: int
) -> Shift:
    def freeze(basis: ActBasis, transaction: Transaction) -> Shift:
        transaction.check(paths.timelines(stream.name), version=basis.timelines.version)
        transaction.check(paths.positions(stream.name), version=basis.positions.version)
        return replace(act_shift(stream, "accept", basis, planned_ms), acceptance=acceptance)

    return open_act(stream, ledger, lease, freeze)
