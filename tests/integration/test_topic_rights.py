"""A topic that a Kafka user may see but not read: on a broker with SASL_SSL and an authorizer, as a second cluster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclOperation
from pyspark.sql import SparkSession
from tests.clusters import OTHER, TwoClusters
from tests.commands import tidemark
from tests.kafka_users import KafkaUser
from tests.pipeline import FIRST, records
from tests.services import KafkaTopic, unique
from tests.switching import Commands, moving_pipeline, nodes_of, version_of

from tidemark.environment import variable_of
from tidemark.stack import Stack


@pytest.fixture(scope="module")
def clusters(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoClusters]:
    """The shared stack and a second broker that asks who one is, and whether he may."""
    other = Stack(tmp_path_factory.mktemp("guarded-cluster"))
    try:
        other.up(("kafka",), secured=True)
        yield TwoClusters(main=stack, other=other)
    finally:
        other.down()


@pytest.fixture
def user(clusters: TwoClusters) -> KafkaUser:
    return KafkaUser(clusters.other)


@pytest.fixture
def environment(clusters: TwoClusters, user: KafkaUser) -> dict[str, str]:
    return {**clusters.environment(), variable_of(f"kafka_{OTHER}"): user.connection()}


@pytest.fixture(params=[0, 4], ids=["empty", "with records"])
def target(clusters: TwoClusters, user: KafkaUser, request: pytest.FixtureRequest) -> KafkaTopic:
    """Its offsets are told to the user, its records are not."""
    topic = clusters.topic(OTHER, 2)
    topic.send(records(FIRST, 4, 2)[: request.param])
    user.grant(topic.name, AclOperation.DESCRIBE)
    return topic


def refusal_of(topic: KafkaTopic, environment: dict[str, str]) -> str:
    servers = json.loads(environment[variable_of(f"kafka_{OTHER}")])["extra"]["bootstrap.servers"]
    return (
        f"Cannot read {topic.name}: Kafka at {servers} (kafka_{OTHER}) refuses it: Fetch from broker 1 failed: "
        "Broker: Topic authorization failed; wanted the right to read it"
    )


def test_a_switch_to_a_topic_that_may_not_be_read_is_refused_and_nothing_changes(
    clusters: TwoClusters,
    spark: SparkSession,
    user: KafkaUser,
    target: KafkaTopic,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    pipeline = moving_pipeline(clusters, spark)
    pipeline.plan(FIRST)
    commands = Commands(pipeline, environment, tmp_path)
    arguments = ("switch", "--cluster", OTHER, "--topic", target.name, "--stable-for", "1s")
    before = nodes_of(pipeline)
    for last in ("--dry-run", "--yes"):
        done = commands.run(*arguments, last)
        told = f"tidemark: {refusal_of(target, environment)}\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    assert nodes_of(pipeline) == before
    user.grant(target.name, AclOperation.READ)
    done = commands.run(*arguments, "--yes")
    assert done.returncode == 0, done.stderr
    assert version_of(pipeline) == 2


def test_a_topic_that_may_not_be_read_is_wrong_and_the_rest_is_checked(
    user: KafkaUser, target: KafkaTopic, environment: dict[str, str], tmp_path: Path
) -> None:
    settings = {"cluster": OTHER, "topic": target.name, "root": f"file://{tmp_path}/root", "owner": "tests"}
    file = tmp_path / "streams.yaml"
    file.write_text(json.dumps({"streams": {unique("stream"): settings}}))
    around = {**environment, "TIDEMARK_STREAMS": str(file)}

    def check() -> tuple[int, dict[str, tuple[str, str]]]:
        done = tidemark("streams", "check", "--json", environment=around)
        return done.returncode, {row["subject"]: (row["verdict"], row["found"]) for row in json.loads(done.stdout)}

    code, found = check()
    assert (code, found.pop("topic")) == (1, ("wrong", refusal_of(target, environment)))
    assert {subject: verdict for subject, (verdict, _) in found.items()} == dict.fromkeys(
        ("zookeeper", "root", "space", "replication"), "ok"
    )
    user.grant(target.name, AclOperation.READ)
    code, found = check()
    assert (code, found["topic"][0]) == (0, "ok")
    # Who may read a topic need not be told its settings.
    assert found["retention"][0] == "unknown"
