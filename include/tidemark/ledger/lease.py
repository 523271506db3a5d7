"""Workers and the lease of a stream: who may write, proven by an epoch that a commit checks.

A lease is taken by compare-and-set with epoch + 1. `epoch/<n>` exists for the present epoch only and is replaced in
the same transaction, so that a commit which checks for its own epoch fails once somebody else took the lease,
however late the zombie wakes up.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tidemark.errors import CommitFailed, CommitStateUnknown, Fenced, ServiceUnreachable, TidemarkError
from tidemark.failpoints import reach
from tidemark.ledger import paths
from tidemark.ledger.records import LeaseRecord, Worker, dump
from tidemark.ledger.zookeeper import Transaction, Versioned, ask, read, remove

EXPIRY_S = 30.0
_TAKEN = "the lease was taken by another worker, or freed by an operator"


class LeaseTaken(TidemarkError):
    """Somebody else works on the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNode:
    """This process, as others see it: its node vanishes with its session."""

    name: str
    task: str
    attempt: int


@contextmanager
def join_workers(
    client: KazooClient,
    *,
    task: str,
    attempt: int,
    queues: tuple[str, ...] = (),
    leave_after_s: float | None = None,
) -> Iterator[WorkerNode]:
    """The node goes after `leave_after_s` even while the process lives on, and with it all that an orphan holds."""
    record = Worker(queues=queues, task=task, attempt=attempt)
    prefix = paths.worker("worker-")
    # When an answer was lost a second node goes with the session, too, and holds nothing.
    path = ask(client.create_async, prefix, dump(record), ephemeral=True, sequence=True, makepath=True)
    name = path.rsplit("/", 1)[-1]
    over = threading.Event()
    if leave_after_s is not None:
        arguments = (client, path, over, leave_after_s)
        threading.Thread(target=_leave_in_time, args=arguments, name="time-out", daemon=True).start()
    try:
        yield WorkerNode(name=name, task=task, attempt=attempt)
    finally:
        over.set()
        if client.connected:
            remove(client, paths.worker(name))


def announce_work(
    client: KazooClient, worker: WorkerNode, *, queues: tuple[str, ...], versions: Mapping[str, int]
) -> None:
    """Show the others which shards this process holds, and with which versions of the timelines it works."""
    record = Worker(queues=queues, task=worker.task, attempt=worker.attempt, versions=versions)
    try:
        ask(client.set_async, paths.worker(worker.name), dump(record))
    except NoNodeError as error:
        raise _gone(worker) from error


def touch_worker(client: KazooClient, worker: WorkerNode) -> int:
    """Write the node as it is; the time of that by ZooKeeper's clock, in ms."""
    path = paths.worker(worker.name)
    try:
        data, _ = ask(client.get_async, path)
        stat = ask(client.set_async, path, data)
    except NoNodeError as error:
        raise _gone(worker) from error
    return int(stat.mtime)


def _gone(worker: WorkerNode) -> Fenced:
    return Fenced(
        f"Cannot go on with {worker.task}: {worker.name} has no node in ZooKeeper any more; "
        "its session expired, or its task's time-out is over"
    )


def _leave_in_time(client: KazooClient, path: str, over: threading.Event, seconds: float) -> None:
    if over.wait(seconds):
        return
    with suppress(ServiceUnreachable):
        # Without a connection the session expires, and takes the node with it.
        remove(client, path)


class StreamLease:
    """Use as a context manager; `epoch` is what a commit checks, `ensure_held` what a writer asks before it writes.

    After `renew_for_s`, the task's time-out, it is lost and no longer renewed, so that an orphan does not hold it.
    """

    def __init__(
        self,
        client: KazooClient,
        stream: str,
        worker: WorkerNode,
        *,
        expiry_s: float = EXPIRY_S,
        renew_every_s: float | None = None,
        renew_for_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._stream = stream
        self._worker = worker
        self._expiry_s = expiry_s
        self._renew_every_s = expiry_s / 3 if renew_every_s is None else renew_every_s
        self._monotonic = monotonic
        self._renew_for_s = renew_for_s
        self._began = monotonic()
        self._seen: tuple[tuple[int, int], float] | None = None
        self._held: Versioned[LeaseRecord] | None = None
        self._session: int | None = None
        self._lost: str | None = None
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def take(self, *, wait_s: float) -> Self:
        """Wait for the lease at most `wait_s`, then raise LeaseTaken with its holder."""
        deadline = self._monotonic() + wait_s
        while True:
            if self._is_over():
                raise Fenced(f"Cannot take the lease of {self._stream}: {self._over_text()}")
            holder = self._try_take()
            if holder is None:
                return self
            if self._monotonic() >= deadline:
                raise LeaseTaken(
                    f"Cannot take the lease of {self._stream}: {holder.owner} holds it "
                    f"for {holder.task}, try {holder.attempt}, epoch {holder.epoch}; "
                    f"`tidemark workers evict {holder.owner}` frees it"
                )
            self._stop.wait(min(0.5, self._expiry_s / 5))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def epoch(self) -> int:
        self.ensure_held()
        assert self._held is not None
        return self._held.value.epoch

    def ensure_held(self) -> None:
        lost = self._lost or (self._over_text() if self._is_over() else None)
        if lost or self._held is None:
            raise Fenced(f"Cannot go on with {self._stream}: {lost or 'the lease is not held'}")

    def confirm(self) -> None:
        """Ask ZooKeeper, not our memory, whether the epoch is still ours; raise Fenced if not."""
        if not ask(self._client.exists_async, paths.epoch(self._stream, self.epoch)):
            self._lost = _TAKEN
        self.ensure_held()

    def check_in(self, transaction: Transaction) -> None:
        """Make the transaction fail unless this epoch is still the lease's."""
        transaction.check_exists(paths.epoch(self._stream, self.epoch))

    def release(self) -> None:
        """Give the lease back; when that fails, or takes longer than the expiry, it expires."""
        self._stop.set()
        if self._renewer:
            self._renewer.join(self._expiry_s)
        held, self._held = self._held, None
        if held and not self._lost:
            freed = replace(held.value, owner=None)
            reach("lease.before_release")
            try:
                self._check_session()
                self._set(freed, held.version, within_s=self._expiry_s / 3)
            except (KazooException, KazooTimeoutError):
                return
            reach("lease.after_release")

    def _try_take(self) -> LeaseRecord | None:
        """None when the lease is ours now, else its holder."""
        node = read(self._client, paths.lease(self._stream), LeaseRecord)
        if node is None:
            raise TidemarkError(f"Cannot take the lease of {self._stream}: it has no node in ZooKeeper")
        if not self._is_free(node.value):
            return node.value
        mine = LeaseRecord(
            owner=self._worker.name,
            task=self._worker.task,
            attempt=self._worker.attempt,
            epoch=node.value.epoch + 1,
            losses=losses_after(node.value),
        )
        reach("lease.before_take")
        try:
            replace_lease(self._client, self._stream, node, mine, f"take the lease of {self._stream}")
        except CommitFailed:
            return read_lease(self._client, self._stream)
        except CommitStateUnknown:
            if read_lease(self._client, self._stream) != mine:
                raise
        reach("lease.after_take")
        self._held = Versioned(mine, node.version + 1)
        self._session = self._session_now()
        self._renewer = threading.Thread(target=self._renew_until_stopped, name="lease", daemon=True)
        self._renewer.start()
        return None

    def _is_free(self, lease: LeaseRecord) -> bool:
        if lease.owner is None or not ask(self._client.exists_async, paths.worker(lease.owner)):
            return True
        if lease.task == self._worker.task and lease.attempt < self._worker.attempt:
            return True
        return self._stood_still(lease)

    def _stood_still(self, lease: LeaseRecord) -> bool:
        now = self._monotonic()
        key = (lease.epoch, lease.count)
        if self._seen is None or self._seen[0] != key:
            self._seen = (key, now)
        return now - self._seen[1] > self._expiry_s

    def _is_over(self) -> bool:
        return self._renew_for_s is not None and self._monotonic() - self._began >= self._renew_for_s

    def _over_text(self) -> str:
        return f"its task's time-out of {self._renew_for_s:g} s is over"

    def _renew_until_stopped(self) -> None:
        renewed = self._monotonic()
        while not self._stop.wait(self._renew_every_s):
            if self._is_over():
                self._lost = self._over_text()
                return
            try:
                self._renew(within_s=renewed + self._expiry_s * 5 / 6 - self._monotonic())
                renewed = self._monotonic()
            except (BadVersionError, NoNodeError):
                self._lost = _TAKEN
                return
            except (KazooException, KazooTimeoutError) as error:
                if self._monotonic() - renewed > self._expiry_s * 2 / 3:
                    self._lost = f"the lease could not be renewed: {error!r}"
                    return

    def _session_now(self) -> int | None:
        """None while there is no connection."""
        identity = self._client.client_id
        return identity[0] if identity else None

    def _check_session(self) -> None:
        """Another session of ours may meet another lease under the same version, where ZooKeeper was lost and rebuilt:
        then the one that was taken is lost. Without a connection nothing is written either."""
        if self._session_now() not in (None, self._session):
            raise NoNodeError("the session in which the lease was taken is over")

    def _renew(self, within_s: float) -> None:
        assert self._held is not None
        self._check_session()
        renewed = replace(self._held.value, count=self._held.value.count + 1)
        path = paths.lease(self._stream)
        reach("lease.before_renewal")
        try:
            self._held = self._set(renewed, self._held.version, within_s)
        except BadVersionError:
            node = read(self._client, path, LeaseRecord)
            if node is None or node.value != renewed:
                raise
            self._held = node
        reach("lease.after_renewal")

    def _set(self, record: LeaseRecord, version: int, within_s: float) -> Versioned[LeaseRecord]:
        """Without a bound kazoo waits for a connection as long as there is none, and nobody learns of the loss."""
        answer = self._client.set_async(paths.lease(self._stream), dump(record), version)
        return Versioned(record, answer.get(timeout=max(0.0, within_s)).version)


def losses_after(lease: LeaseRecord) -> int:
    """Of whoever replaces it: the dead cannot count."""
    return lease.losses + (lease.owner is not None)


def replace_lease(
    client: KazooClient, stream: str, node: Versioned[LeaseRecord], successor: LeaseRecord, act: str
) -> None:
    """Compare-and-set with a higher epoch: whoever worked with the old one cannot commit from here on."""
    transaction = Transaction(client, act)
    transaction.put(paths.lease(stream), successor, version=node.version)
    if node.value.epoch:
        transaction.delete(paths.epoch(stream, node.value.epoch))
    transaction.create(paths.epoch(stream, successor.epoch))
    transaction.commit()


def read_lease(client: KazooClient, stream: str) -> LeaseRecord:
    node = read(client, paths.lease(stream), LeaseRecord)
    return node.value if node else LeaseRecord()
