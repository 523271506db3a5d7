"""Who holds what, and taking it from him: on a real ZooKeeper, by the library and by the command."""

import json
import os
import pty
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.commands import tidemark
from tests.services import unique
from tests.waiting import wait_until

from tidemark.errors import CommitFailed, Fenced
from tidemark.ledger import paths
from tidemark.ledger.eviction import Holding, evict, find_holdings
from tidemark.ledger.lease import StreamLease, WorkerNode, announce_work, join_workers, read_lease
from tidemark.ledger.records import Head, LeaseRecord
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Versioned
from tidemark.names import Hour
from tidemark.stack import Stack

HOUR = Hour.parse("2026-11-15T07")


@pytest.fixture
def ledger(client: KazooClient) -> StreamLedger:
    ledger = StreamLedger(client, unique("evict"))
    ledger.prepare()
    return ledger


@pytest.fixture
def worker(client: KazooClient, ledger: StreamLedger, sessions: ExitStack) -> WorkerNode:
    return sessions.enter_context(join_workers(client, task="ingest/consume", attempt=2, queues=(ledger.stream,)))


@pytest.fixture
def lease(client: KazooClient, ledger: StreamLedger, worker: WorkerNode, sessions: ExitStack) -> StreamLease:
    """Renewed twenty times a second, so that whoever frees it has to win against its renewal."""
    taken = StreamLease(client, ledger.stream, worker, renew_every_s=0.05).take(wait_s=0)
    return sessions.enter_context(taken)


def evict_all(client: KazooClient, worker: WorkerNode) -> list[Holding]:
    holdings = find_holdings(client, worker.name)
    return [holding for holding in holdings if evict(client, worker.name, holding)]


def epochs(client: KazooClient, ledger: StreamLedger) -> list[str]:
    found: list[str] = client.get_children(paths.epochs(ledger.stream))
    return found


def test_an_evicted_job_cannot_commit_although_nobody_took_its_lease(
    client: KazooClient, ledger: StreamLedger, worker: WorkerNode, lease: StreamLease
) -> None:
    head = ledger.head()
    transaction = ledger.begin("commit of an evicted job")
    lease.check_in(transaction)
    transaction.put(paths.head(ledger.stream), Head(number=99), version=head.version)
    assert [str(holding) for holding in evict_all(client, worker)] == [ledger.stream]
    with pytest.raises(CommitFailed, match="the state has moved on"):
        transaction.commit()
    assert ledger.head() == head
    with pytest.raises(Fenced, match="freed by an operator"):
        lease.confirm()


def test_an_evicted_lease_has_no_owner_and_the_next_epoch(
    client: KazooClient, ledger: StreamLedger, worker: WorkerNode, lease: StreamLease, sessions: ExitStack
) -> None:
    assert lease.epoch == 1
    evict_all(client, worker)
    freed = read_lease(client, ledger.stream)
    assert (freed.owner, freed.epoch, freed.losses) == (None, 2, 1)
    assert epochs(client, ledger) == ["2"]
    other = sessions.enter_context(join_workers(client, task="other", attempt=1))
    with StreamLease(client, ledger.stream, other).take(wait_s=0) as taken:
        assert taken.epoch == 3
        assert epochs(client, ledger) == ["3"]
        assert read_lease(client, ledger.stream).losses == 1


def test_an_evicted_job_learns_of_it_by_its_next_renewal_and_gives_nothing_back(
    client: KazooClient, ledger: StreamLedger, worker: WorkerNode, lease: StreamLease
) -> None:
    evict_all(client, worker)

    def is_fenced() -> bool:
        try:
            lease.ensure_held()
        except Fenced:
            return True
        return False

    wait_until(is_fenced, "the evicted job knows")
    freed = read_lease(client, ledger.stream)
    lease.release()
    assert read_lease(client, ledger.stream) == freed


def test_a_lease_that_somebody_else_took_meanwhile_is_left_alone(
    client: KazooClient, ledger: StreamLedger, worker: WorkerNode, lease: StreamLease, sessions: ExitStack
) -> None:
    (holding,) = find_holdings(client, worker.name)
    lease.release()
    other = sessions.enter_context(join_workers(client, task="other", attempt=1))
    with StreamLease(client, ledger.stream, other).take(wait_s=0) as taken:
        assert not evict(client, worker.name, holding)
        taken.confirm()


def test_the_hours_that_a_worker_archives_are_freed_and_nothing_else_of_them_changes(
    client: KazooClient, ledger: StreamLedger, worker: WorkerNode
) -> None:
    node = ledger.hour(HOUR)
    held = replace(node.value, dirty=(1, 2), lease=LeaseRecord(owner=worker.name, task="archive", attempt=1, epoch=4))
    ledger.save_hour("claim", HOUR, node, held)
    assert [str(holding) for holding in evict_all(client, worker)] == [f"{ledger.stream}/{HOUR}"]
    freed = replace(held, lease=LeaseRecord(owner=None, task="archive", attempt=1, epoch=5))
    assert ledger.hour(HOUR) == Versioned(freed, 1)


# The command


def shown_workers(stack: Stack) -> Any:
    done = tidemark("workers", "--json", environment=stack.environment())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_workers_shows_who_holds_what_since_when(
    stack: Stack, client: KazooClient, ledger: StreamLedger, worker: WorkerNode, lease: StreamLease
) -> None:
    announce_work(client, worker, queues=(f"{ledger.stream}/0001-3",), versions={ledger.stream: 7})
    shown = shown_workers(stack)
    (mine,) = [found for found in shown["workers"] if found["name"] == worker.name]
    assert mine["since"].startswith("20")
    assert mine | {"since": ""} == {
        "name": worker.name,
        "task": "ingest/consume",
        "try": 2,
        "queues": [f"{ledger.stream}/0001-3"],
        "versions": {ledger.stream: 7},
        "since": "",
    }
    (held,) = [found for found in shown["leases"] if found["stream"] == ledger.stream]
    assert (held["owner"], held["task"], held["try"]) == (worker.name, "ingest/consume", 2)
    assert (held["epoch"], held["held"]) == (lease.epoch, True)
    assert held["since"] <= held["renewed"]


def test_workers_is_a_table_for_people(stack: Stack, ledger: StreamLedger, worker: WorkerNode) -> None:
    done = tidemark("workers", environment={**stack.environment(), "COLUMNS": "300"})
    assert done.returncode == 0, done.stderr
    assert worker.name in done.stdout
    assert "free, epoch 0" in next(line for line in done.stdout.splitlines() if ledger.stream in line.split()[:1])


def test_evict_says_what_it_does_and_does_it(
    stack: Stack, client: KazooClient, ledger: StreamLedger, worker: WorkerNode, lease: StreamLease
) -> None:
    del lease
    done = tidemark("workers", "evict", worker.name, "--yes", environment=stack.environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{worker.name} loses, and cannot commit any more:",
        f"  {ledger.stream}: ingest/consume, try 2, epoch 1",
        f"{ledger.stream}: freed",
    ]
    assert read_lease(client, ledger.stream).owner is None


def test_evict_without_a_terminal_wants_yes_and_changes_nothing(
    stack: Stack, client: KazooClient, ledger: StreamLedger, worker: WorkerNode, lease: StreamLease
) -> None:
    done = tidemark("workers", "evict", worker.name, environment=stack.environment())
    assert done.returncode == 2
    assert done.stderr.startswith("tidemark: Cannot go on without an answer")
    lease.confirm()
    assert read_lease(client, ledger.stream).owner == worker.name


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_evict_asks_on_a_terminal(
    stack: Stack,
    client: KazooClient,
    ledger: StreamLedger,
    worker: WorkerNode,
    lease: StreamLease,
    answer: bytes,
    code: int,
) -> None:
    del lease
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = tidemark("workers", "evict", worker.name, environment=stack.environment(), stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code, done.stderr
    assert "Evict it? [y/N]" in done.stderr
    assert (read_lease(client, ledger.stream).owner is None) == (code == 0)


def test_a_worker_that_holds_nothing_is_told(stack: Stack, worker: WorkerNode) -> None:
    done = tidemark("workers", "evict", worker.name, "--yes", environment=stack.environment())
    assert (done.returncode, done.stdout) == (0, f"{worker.name} holds no lease: nothing to do.\n")


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("worker-9999999999", 1, "there is no such worker, and it holds nothing"),
        ("../worker", 2, "wanted a worker's name such as worker-0000000101"),
    ],
)
def test_a_worker_that_cannot_be_evicted_is_one_line(stack: Stack, name: str, code: int, told: str) -> None:
    done = tidemark("workers", "evict", name, "--yes", environment=stack.environment())
    assert done.returncode == code
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
