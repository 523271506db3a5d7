"""The shifts of a stream: the last ones have a node in ZooKeeper, older ones their manifest alone."""

from tidemark import layout
from tidemark.drive.services import Services
from tidemark.ledger.records import ShiftRecord, ShiftState
from tidemark.logs import logger
from tidemark.manifest import list_manifests, read_manifest

KEPT = 1000


def find_shift(around: Services, shift: str) -> ShiftRecord | None:
    node = around.ledger.shift(shift)
    if node or around.ledger.head().value.number <= KEPT:
        return node.value if node else None
    storage = around.storage()
    for number, path in list_manifests(storage).items():
        if layout.shift_of_manifest(path) == shift:
            found = read_manifest(storage, path).shift
            return ShiftRecord(number=number, state=ShiftState.COMMITTED, cut=found.is_cut, manifest=path)
    return None


def prune_shifts(around: Services) -> None:
    """Call it while holding the lease. Now and then: a listing of all manifests is not for every commit."""
    newest = around.ledger.head().value.number
    if newest <= KEPT or newest % (KEPT // 10):
        return
    old = [path for number, path in list_manifests(around.storage()).items() if number <= newest - KEPT]
    for path in old:
        around.ledger.forget_shift(layout.shift_of_manifest(path))
    logger(__name__, stream=around.stream.name).info("pruned shifts", extra={"kept": KEPT})
