"""The archiver's side of an hour: claim it, freeze the plan, finish it. Spark does the copying in between."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kazoo.client import KazooClient

from tidemark import layout
from tidemark.archive.join import Joined, JoinOrder
from tidemark.archive.plan import Source, plan_targets
from tidemark.boom.format import BoomBlock
from tidemark.errors import AlreadyExists, CommitFailed, DataLoss, Fenced
from tidemark.index import IndexRecord, dump_index
from tidemark.ledger import paths
from tidemark.ledger.lease import WorkerNode
from tidemark.ledger.records import ArchivePlan, HourRecord, HourState, LeaseRecord
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Versioned
from tidemark.manifest import Manifest, manifests_of, read_blocks
from tidemark.names import Hour
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedHour:
    hour: Hour
    plan: ArchivePlan
    epoch: int
    orders: tuple[JoinOrder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HourArchiver:
    ledger: StreamLedger
    storage: Storage
    client: KazooClient
    worker: WorkerNode

    def waiting(self) -> list[Hour]:
        """Hours below the lowest watermark with committed lines that no archive holds yet."""
        lowest = self.ledger.positions().value.lowest_watermark_ms
        if lowest is None:
            return []
        return [
            hour
            for hour, node in self.ledger.hours().items()
            if hour.end_ms <= lowest and (node.value.dirty or node.value.archiving)
        ]

    def claim(self, hour: Hour, now_ms: int) -> ClaimedHour | None:
        """Take the hour's lease and freeze its plan, or find the one an earlier run froze. None: somebody has it."""
        node = self.ledger.hour(hour)
        if not self._is_free(node.value.lease):
            return None
        plan = node.value.archiving or ArchivePlan(
            number=node.value.archives + 1, shifts=node.value.dirty, timestamp_ms=now_ms
        )
        epoch = (node.value.lease.epoch if node.value.lease else 0) + 1
        lease = LeaseRecord(owner=self.worker.name, task=self.worker.task, attempt=self.worker.attempt, epoch=epoch)
        claimed = replace(node.value, archiving=plan, lease=lease)
        try:
            self.ledger.save_hour("claim", hour, node, claimed)
        except CommitFailed:
            return None
        return ClaimedHour(hour=hour, plan=plan, epoch=epoch, orders=self._orders(hour, plan, epoch))

    def finish(self, claimed: ClaimedHour, joined: Sequence[Joined]) -> None:
        """Index first, then the data becomes visible; `verify` and `release` follow."""
        records = [record for target in joined for record in target.records]
        self._write_index(claimed, records)
        for target in joined:
            self._check_claim(claimed)
            try:
                self.storage.rename(target.temporary, target.target.path)
            except AlreadyExists:
                # An earlier run came this far; the reading back that follows decides whether it is whole.
                self.storage.delete(target.temporary)

    def release(self, claimed: ClaimedHour) -> None:
        """From here readers take the archive; the sources go last."""
        while True:
            node = self._check_claim(claimed)
            taken = set(claimed.plan.shifts)
            archived = replace(
                node.value,
                state=HourState.ARCHIVED if node.value.state is HourState.OPEN else node.value.state,
                dirty=tuple(number for number in node.value.dirty if number not in taken),
                unflagged=(*node.value.unflagged, *claimed.plan.shifts),
                archives=claimed.plan.number,
                archiving=None,
                lease=replace(node.value.lease, owner=None) if node.value.lease else None,
            )
            try:
                self.ledger.save_hour("archive", claimed.hour, node, archived)
                break
            except CommitFailed:
                continue
        for path in sorted({piece.source for order in claimed.orders for piece in order.target.pieces}):
            self.storage.delete(path)
        self.storage.delete(layout.work_of_archive(claimed.hour, claimed.plan.number), recursive=True)

    def _is_free(self, lease: LeaseRecord | None) -> bool:
        if lease is None or lease.owner is None or lease.owner == self.worker.name:
            return True
        if lease.task == self.worker.task and lease.attempt < self.worker.attempt:
            return True
        return not self.client.exists(paths.worker(lease.owner))

    def _check_claim(self, claimed: ClaimedHour) -> Versioned[HourRecord]:
        node = self.ledger.hour(claimed.hour)
        lease = node.value.lease
        if lease is None or (lease.owner, lease.epoch) != (self.worker.name, claimed.epoch):
            raise Fenced(f"Cannot archive {claimed.hour}: the hour was taken by {lease.owner if lease else 'nobody'}")
        return node

    def _orders(self, hour: Hour, plan: ArchivePlan, epoch: int) -> tuple[JoinOrder, ...]:
        manifests = manifests_of(self.storage, plan.shifts)
        sources = [source for manifest in manifests for source in self._sources(manifest, hour)]
        folder = f"{layout.work_of_archive(hour, plan.number)}/{epoch}"
        return tuple(
            JoinOrder(hour=hour, target=target, timestamp_ms=plan.timestamp_ms, storage=self.storage, folder=folder)
            for target in plan_targets(hour, plan.number, sources)
        )

    def _sources(self, manifest: Manifest, hour: Hour) -> Iterable[Source]:
        blocks: dict[str, list[BoomBlock]] = {}
        for path, block in read_blocks(self.storage, manifest.shift):
            blocks.setdefault(path, []).append(block)
        for file in manifest.files_of(str(hour)):
            yield Source(path=file.path, shard=file.shard, blocks=tuple(blocks[file.path]))

    def _write_index(self, claimed: ClaimedHour, records: Sequence[IndexRecord]) -> None:
        path = layout.index_segment(claimed.hour, claimed.plan.number)
        data = dump_index(records)
        try:
            self.storage.create(path, data)
        except AlreadyExists:
            if self.storage.read(path) != data:
                raise DataLoss(f"Cannot archive {claimed.hour}: {path} exists with another content") from None
