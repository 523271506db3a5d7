"""200 streams in one ledger: a switch of one of them is nobody else's business."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.faults import nodes_below
from tests.pipeline import FIRST, TASK, interval_of
from tests.services import KafkaTopic, connections_of, unique
from tests.switching import OPERATOR

from tidemark.config import Stream
from tidemark.drive.acts import look_at_switch, switch_timeline
from tidemark.drive.plan import plan_interval
from tidemark.environment import Connections
from tidemark.ledger import paths
from tidemark.ledger.records import Head, ShiftState
from tidemark.ledger.stream import StreamLedger
from tidemark.stack import Stack

STREAMS = 200


@pytest.fixture
def streams(stack: Stack, tmp_path: Path) -> list[Stream]:
    """All of one topic."""
    name = unique("many")
    KafkaTopic(stack, name, 2)
    return [
        Stream(name=f"{name}-{n}", cluster="main", topic=name, root=f"{tmp_path.as_uri()}/{n}", owner="test")
        for n in range(STREAMS)
    ]


def plan(streams: list[Stream], connections: Connections) -> None:
    with ThreadPoolExecutor(8) as pool:
        for planned in [pool.submit(plan_interval, s, interval_of(FIRST), connections, TASK) for s in streams]:
            planned.result()


def nodes_of(client: KazooClient, stream: Stream) -> Mapping[str, tuple[bytes, int]]:
    """With the transaction that last wrote each: a node that was written again with the same bytes is told, too."""
    folder = paths.stream(stream.name)
    return {path: (data, client.exists(f"{folder}{path}").mzxid) for path, data in nodes_below(client, folder)}


def test_a_switch_of_one_of_200_streams_touches_no_other_and_the_others_plan_while_it_runs(
    stack: Stack, streams: list[Stream], client: KazooClient, sessions: ExitStack
) -> None:
    connections = connections_of(stack)
    moving, resting, starting = streams[0], streams[1 : STREAMS // 2], streams[STREAMS // 2 :]
    plan([moving, *resting], connections)
    before = {stream.name: nodes_of(client, stream) for stream in resting}
    target = KafkaTopic(stack, unique("target"), 3)
    outlook = look_at_switch(moving, "main", target.name, connections)
    is_locked, others_are_done = threading.Event(), threading.Event()

    def hold(step: str) -> None:
        if step.startswith("lock"):
            is_locked.set()
            others_are_done.wait(300)

    def switch() -> str:
        return switch_timeline(moving, outlook, connections, OPERATOR, stable_s=0.0, on_step=hold)

    switching = sessions.enter_context(ThreadPoolExecutor(1)).submit(switch)
    try:
        assert is_locked.wait(300)
        plan(starting, connections)
        assert not switching.done()
    finally:
        others_are_done.set()
    assert switching.result(300) == "switch-00000001"

    assert sorted(StreamLedger(client, moving.name).timelines()) == [1, 2]
    assert {stream.name: nodes_of(client, stream) for stream in resting} == before
    for stream in starting:
        ledger = StreamLedger(client, stream.name)
        assert ledger.head().value == Head(number=1, open="20261110T2200", epoch=1)
        shift = ledger.shift("20261110T2200")
        assert shift
        assert (shift.value.state, ledger.timelines_version().value.version) == (ShiftState.PLANNED, 1)
        assert [found.topic for found in ledger.timelines().values()] == [stream.topic]
