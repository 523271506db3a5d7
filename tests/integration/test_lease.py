"""Leases and transactions on a real ZooKeeper."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from tests.proxy import Proxy
from tests.services import connections_of, unique
from tests.waiting import wait_until

from tidemark.environment import ZOOKEEPER
from tidemark.errors import CommitFailed, Fenced, ServiceUnreachable
from tidemark.ledger import paths, zookeeper
from tidemark.ledger.lease import (
    LeaseTaken,
    StreamLease,
    WorkerNode,
    announce_work,
    join_workers,
    read_lease,
    touch_worker,
)
from tidemark.ledger.records import Head, HourRecord
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Versioned, open_session
from tidemark.names import Hour
from tidemark.stack import Stack


@pytest.fixture
def ledger(client: KazooClient) -> StreamLedger:
    ledger = StreamLedger(client, f"lease-{uuid4().hex[:8]}")
    ledger.prepare()
    return ledger


def worker(sessions: ExitStack, client: KazooClient, task: str = "consume", attempt: int = 1) -> WorkerNode:
    return sessions.enter_context(join_workers(client, task=task, attempt=attempt))


class FakeTime:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_that_lives_is_not_taken_by_another_task(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    with StreamLease(client, ledger.stream, worker(sessions, client)).take(wait_s=0):
        other = StreamLease(client, ledger.stream, worker(sessions, client, task="other"))
        with pytest.raises(LeaseTaken, match=r"worker-\d+ holds it for consume, try 1, epoch 1"):
            other.take(wait_s=0)


def test_a_released_lease_is_free_and_its_next_epoch_is_higher(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    for wanted in (1, 2, 3):
        with StreamLease(client, ledger.stream, worker(sessions, client, task=f"t{wanted}")).take(wait_s=0) as lease:
            assert lease.epoch == wanted
            assert client.get_children(paths.epochs(ledger.stream)) == [str(wanted)]
            assert read_lease(client, ledger.stream).losses == 0


def test_the_lease_of_a_worker_whose_session_is_gone_is_free(
    stack: Stack, client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    with open_session(connections_of(stack)) as dying:
        node = dying.create(paths.worker("worker-"), b"{}", ephemeral=True, sequence=True, makepath=True)
        dead = WorkerNode(name=node.rsplit("/", 1)[-1], task="consume", attempt=1)
        StreamLease(dying, ledger.stream, dead).take(wait_s=0)
    with StreamLease(client, ledger.stream, worker(sessions, client, task="other")).take(wait_s=0) as lease:
        assert lease.epoch == 2
        assert read_lease(client, ledger.stream).losses == 1


def test_a_later_try_of_the_same_task_takes_the_lease_at_once(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    with (
        StreamLease(client, ledger.stream, worker(sessions, client)).take(wait_s=0) as old,
        StreamLease(client, ledger.stream, worker(sessions, client, attempt=2)).take(wait_s=0) as new,
    ):
        assert new.epoch == 2
        assert read_lease(client, ledger.stream).losses == 1
        with pytest.raises(Fenced):
            old.confirm()


def test_an_earlier_try_does_not_take_the_lease_of_a_later_one(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    earlier = StreamLease(client, ledger.stream, worker(sessions, client, attempt=1))
    with (
        StreamLease(client, ledger.stream, worker(sessions, client, attempt=2)).take(wait_s=0),
        pytest.raises(LeaseTaken),
    ):
        earlier.take(wait_s=0)


def test_a_lease_whose_count_stood_still_for_the_expiry_is_taken_and_not_before(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    # Its renewal comes only after an hour, so that its count stands still.
    StreamLease(client, ledger.stream, worker(sessions, client), renew_every_s=3600).take(wait_s=0)
    clock = FakeTime()
    observer = StreamLease(client, ledger.stream, worker(sessions, client, task="other"), expiry_s=30, monotonic=clock)
    for now in (0.0, 29.0):
        clock.now = now
        with pytest.raises(LeaseTaken):
            observer.take(wait_s=0)
    clock.now = 31.0
    with observer.take(wait_s=0) as lease:
        assert lease.epoch == 2


def wait_for_renewals(client: KazooClient, ledger: StreamLedger, count: int) -> None:
    seen = read_lease(client, ledger.stream).count
    wait_until(lambda: read_lease(client, ledger.stream).count >= seen + count, "the lease is renewed")


def test_renewal_moves_the_count_so_that_a_living_lease_is_never_taken(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    with StreamLease(client, ledger.stream, worker(sessions, client), renew_every_s=0.05).take(wait_s=0) as lease:
        clock = FakeTime()
        observer = StreamLease(client, ledger.stream, worker(sessions, client, task="other"), monotonic=clock)
        for now in (0.0, 29.0, 58.0, 87.0):
            clock.now = now
            with pytest.raises(LeaseTaken):
                observer.take(wait_s=0)
            wait_for_renewals(client, ledger, 2)
        lease.confirm()


def test_renewal_ends_at_the_timeout_of_the_task_and_the_lease_is_lost(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    clock = FakeTime()
    owner = worker(sessions, client)
    orphan = StreamLease(client, ledger.stream, owner, renew_every_s=0.05, renew_for_s=60, monotonic=clock)
    orphan.take(wait_s=0)
    wait_for_renewals(client, ledger, 1)
    orphan.confirm()
    clock.now = 60.0
    with pytest.raises(Fenced, match=r"Cannot go on with .*: its task's time-out of 60 s is over"):
        orphan.ensure_held()
    # It was renewed every 50 ms; this observer takes it only once it stood still for a second.
    observer = StreamLease(client, ledger.stream, worker(sessions, client, task="other"), expiry_s=1)
    with observer.take(wait_s=30) as lease:
        assert lease.epoch == 2
    assert client.exists(paths.worker(owner.name))


def test_a_lease_is_not_taken_after_the_timeout_of_the_task(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    clock = FakeTime()
    late = StreamLease(client, ledger.stream, worker(sessions, client), renew_for_s=60, monotonic=clock)
    clock.now = 61.0
    with pytest.raises(Fenced, match="Cannot take the lease of"):
        late.take(wait_s=0)
    assert read_lease(client, ledger.stream).epoch == 0


def test_a_worker_leaves_at_the_timeout_of_its_task_and_frees_all_that_it_held(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    orphan = sessions.enter_context(join_workers(client, task="consume", attempt=1, leave_after_s=0.2))
    StreamLease(client, ledger.stream, orphan).take(wait_s=0)
    wait_until(lambda: not client.exists(paths.worker(orphan.name)), "the orphan has left")
    with StreamLease(client, ledger.stream, worker(sessions, client, task="other")).take(wait_s=0) as lease:
        assert lease.epoch == 2
    with pytest.raises(Fenced, match=f"{orphan.name} has no node in ZooKeeper any more"):
        touch_worker(client, orphan)


def test_a_worker_shows_its_shards_and_versions_and_keeps_them_when_the_clock_is_read(
    client: KazooClient, sessions: ExitStack
) -> None:
    mine = worker(sessions, client, attempt=2)
    announce_work(client, mine, queues=("clicks/0001-3",), versions={"clicks": 7})
    assert touch_worker(client, mine) > 0
    shown = json.loads(client.get(paths.worker(mine.name))[0])
    assert shown == {
        "format": 1,
        "queues": ["clicks/0001-3"],
        "task": "consume",
        "try": 2,
        "versions": {"clicks": 7},
    }


def test_a_zombie_cannot_commit_after_its_lease_was_taken(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    zombie = StreamLease(client, ledger.stream, worker(sessions, client)).take(wait_s=0)
    transaction = ledger.begin("commit of a zombie")
    zombie.check_in(transaction)
    head = ledger.head()
    transaction.put(paths.head(ledger.stream), Head(number=99), version=head.version)
    with (
        StreamLease(client, ledger.stream, worker(sessions, client, attempt=2)).take(wait_s=0),
        pytest.raises(CommitFailed, match="the state has moved on"),
    ):
        transaction.commit()
    assert ledger.head() == head


def test_a_lease_that_was_lost_and_regained_does_not_revive_the_old_token(
    client: KazooClient, ledger: StreamLedger, sessions: ExitStack
) -> None:
    me, other = worker(sessions, client), worker(sessions, client, task="other")
    mine = StreamLease(client, ledger.stream, me, renew_every_s=3600).take(wait_s=0)
    transaction, head = ledger.begin("commit with the token of before"), ledger.head()
    mine.check_in(transaction)
    transaction.put(paths.head(ledger.stream), Head(number=99), version=head.version)
    clock = FakeTime()
    observer = StreamLease(client, ledger.stream, other, expiry_s=30, monotonic=clock)
    with pytest.raises(LeaseTaken):
        observer.take(wait_s=0)
    clock.now = 31.0
    with observer.take(wait_s=0):
        pass
    with StreamLease(client, ledger.stream, me).take(wait_s=0) as regained:
        assert regained.epoch == 3
        with pytest.raises(Fenced):
            mine.confirm()
        with pytest.raises(CommitFailed, match="the state has moved on"):
            transaction.commit()
        assert ledger.head() == head
        regained.confirm()


def test_a_transaction_that_fails_in_one_place_changes_nothing_anywhere(ledger: StreamLedger) -> None:
    head, positions = ledger.head(), ledger.positions()
    transaction = ledger.begin("half of it")
    transaction.put(paths.head(ledger.stream), Head(number=5), version=head.version)
    transaction.put(paths.positions(ledger.stream), positions.value, version=positions.version + 1)
    with pytest.raises(CommitFailed, match=r"SetData of .*/positions found BadVersionError"):
        transaction.commit()
    assert ledger.head() == head


def test_a_zookeeper_that_is_not_there_is_told_with_its_address(unused_port: int) -> None:
    from tidemark.environment import Connection

    connection = Connection(conn_id="zookeeper_default", host="127.0.0.1", port=unused_port)
    with (
        pytest.raises(ServiceUnreachable, match=f"Cannot reach ZooKeeper at 127.0.0.1:{unused_port}"),
        open_session(lambda _: connection, timeout_s=0.5),
    ):
        pass


@pytest.mark.parametrize("act", ["prepare", "write an hour", "ask for the lease", "join the workers"])
def test_whoever_makes_nodes_while_zookeeper_is_away_gets_an_error_in_time(
    stack: Stack, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = connections_of(stack)(ZOOKEEPER)
    assert direct.host is not None
    assert direct.port is not None
    hour = Hour.parse("2026-11-10T22")
    with Proxy(direct.host, direct.port) as proxy, ExitStack() as opened:
        behind = replace(direct, host="127.0.0.1", port=proxy.port)
        client = opened.enter_context(open_session(lambda _: behind))
        ledger = StreamLedger(client, unique("away"))
        transaction = ledger.begin("write")
        acts: dict[str, Callable[[], object]] = {
            "prepare": ledger.prepare,
            "write an hour": lambda: ledger.put_hour(transaction, hour, Versioned(HourRecord(), -1), HourRecord()),
            "ask for the lease": lambda: opened.enter_context(ledger.asking_for_lease("worker-1")),
            "join the workers": lambda: opened.enter_context(join_workers(client, task="consume", attempt=1)),
        }
        monkeypatch.setattr(zookeeper, "ANSWER_S", 1.0)
        proxy.cut()
        with pytest.raises(ServiceUnreachable, match="no answer for 1 s"):
            acts[act]()
