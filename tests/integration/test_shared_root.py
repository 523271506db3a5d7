"""Two streams that got past the check of their configuration with one root: neither harms what the other committed."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from tests.pipeline import FIRST, TASK, Pipeline, build, expected_lines, records
from tests.services import connections_of, unique, visible_lines, walk

from tidemark.drive.rebuild import rebuild_stream
from tidemark.errors import WrongUse
from tidemark.ledger.records import ShiftState
from tidemark.stack import Stack


@pytest.mark.parametrize("topics", ["one topic", "two topics"])
def test_a_commit_leaves_alone_what_another_stream_committed_under_the_same_names(
    stack: Stack, spark: SparkSession, topics: str
) -> None:
    first = build(stack, spark, "hdfs", "/shared", partitions=1)
    other = build(stack, spark, "hdfs", "/shared", partitions=1)
    first.topic.send(records(FIRST, 20, partitions=1))
    other.topic.send(records(FIRST, 30, partitions=1))
    topic = first.topic if topics == "one topic" else other.topic
    settings = {"name": unique("second"), "topic": topic.name}
    second = replace(first, stream=first.stream.model_copy(update=settings), topic=topic)
    first.plan(FIRST)
    shift = second.plan(FIRST)
    first.consume(FIRST)
    committed = {path: first.storage.read(path) for path, _ in walk(first.storage)}

    for _ in range(2):
        with pytest.raises(WrongUse, match=rf"{second.stream.name}/{shift}: .* is of the stream {first.stream.name}"):
            second.consume(FIRST)
        assert _committed(first) == committed
    assert _state(second, shift) is ShiftState.PENDING
    first.archive()
    assert first.publish() == [f"{FIRST} 1"]
    assert sorted(visible_lines(first.storage)) == expected_lines(first.topic)


def test_a_ledger_is_not_rebuilt_from_what_another_stream_wrote(stack: Stack, spark: SparkSession) -> None:
    first = build(stack, spark, "hdfs", "/shared", partitions=1)
    first.consume(FIRST)
    stranger = first.stream.model_copy(update={"name": unique("stranger")})
    with pytest.raises(WrongUse, match=rf"Cannot rebuild {stranger.name}: .* is of the stream {first.stream.name}"):
        rebuild_stream(stranger, connections_of(stack), TASK)


def _committed(pipeline: Pipeline) -> dict[str, bytes]:
    return {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage) if not path.startswith("_tmp/")}


def _state(pipeline: Pipeline, shift: str) -> ShiftState | None:
    node = pipeline.ledger(lambda ledger: ledger.shift(shift))
    return node.value.state if node else None
