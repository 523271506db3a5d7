"""A file that is damaged before it is archived, from the gap to the flag, on real Kafka, HDFS and Spark."""

import json

import jsonschema
import pytest
from pyspark.sql import SparkSession
from tests.pipeline import FIRST, Pipeline, build, expected_lines, records
from tests.services import connections_of, read_json, visible_lines, walk

from tidemark.drive.acts import accept_hour
from tidemark.drive.why import why
from tidemark.environment import repository_folder
from tidemark.names import Task
from tidemark.stack import Stack

SCHEMA = json.loads((repository_folder() / "docs" / "flag.schema.json").read_text())


@pytest.fixture
def pipeline(stack: Stack, spark: SparkSession) -> Pipeline:
    """One of the three files of its hour is damaged; the archiver has found it."""
    pipeline = build(stack, spark, "hdfs", "/damage")
    pipeline.topic.send(records(FIRST, 60))
    pipeline.consume(FIRST)
    path = next(path for path, _ in walk(pipeline.storage) if "-0001-1-" in path)
    data = pipeline.storage.read(path)
    pipeline.storage.delete(path)
    pipeline.storage.create(path, data[:-30] + bytes(30))
    pipeline.archive()
    assert pipeline.publish() == []
    return pipeline


def test_a_rerun_of_its_shift_restores_a_damaged_file_and_the_hour_is_published_whole(pipeline: Pipeline) -> None:
    (reason,) = why(pipeline.stream, FIRST, connections_of(pipeline.stack)).as_json()["reasons"]
    assert "was found damaged or gone; it held offsets 0 to 19 of shard 0001-1" in reason["text"]
    pipeline.consume(FIRST)
    pipeline.archive()
    assert pipeline.publish() == [f"{FIRST} 1"]
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)
    flag = read_json(pipeline.storage, f"{FIRST.day}/22/_READY")
    jsonschema.validate(flag, SCHEMA)
    assert (flag["counts"]["lines"], flag["gaps"]) == (60, [])
    assert len([path for path, _ in walk(pipeline.storage, "_bad")]) == 2


def test_an_hour_that_was_accepted_without_a_file_gets_a_revision_when_it_is_restored(pipeline: Pipeline) -> None:
    task = Task(name="operator", attempt=1)
    accept_hour(pipeline.stream, FIRST, "nobody needs it", connections_of(pipeline.stack), task)
    assert pipeline.publish() == [f"{FIRST} 1"]
    flag = read_json(pipeline.storage, f"{FIRST.day}/22/_READY")
    jsonschema.validate(flag, SCHEMA)
    assert flag["counts"]["lines"] == sum(file["lines"] for file in flag["files"]) == 40
    (gap,) = flag["gaps"]
    assert (gap["file"].rsplit("/", 1)[-1], gap["accepted"]) == ("20261110T2200-0001-1-000.bm", "nobody needs it")

    pipeline.consume(FIRST)
    pipeline.archive()
    assert pipeline.publish() == [f"{FIRST} 2"]
    revised = read_json(pipeline.storage, f"{FIRST.day}/22/_READY.2")
    jsonschema.validate(revised, SCHEMA)
    assert (revised["counts"]["lines"], revised["changes"]["lines"], revised["gaps"]) == (60, 20, [])
    assert revised["files"][0] == flag["files"][0]
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)
