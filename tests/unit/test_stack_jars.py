import json
from pathlib import Path

import pytest

from tidemark.errors import TidemarkError
from tidemark.stack import jars
from tidemark.stack.jars import artifact_of, jar_paths, without_shipped


@pytest.mark.parametrize(
    ("jar", "artifact"),
    [
        ("lz4-java-1.8.0.jar", "lz4-java"),
        ("kafka_2.13-4.3.1.jar", "kafka_2.13"),
        ("netty-transport-native-epoll-4.1.118.Final-linux-x86_64.jar", "netty-transport-native-epoll"),
        ("log4j-slf4j2-impl-2.24.3.jar", "log4j-slf4j2-impl"),
    ],
)
def test_an_artifact_is_the_name_without_its_version(jar: str, artifact: str) -> None:
    assert artifact_of(jar) == artifact


def test_jars_that_pyspark_ships_are_left_out_whatever_their_version() -> None:
    resolved = [
        "org.apache.hadoop_hadoop-client-api-3.4.0.jar",
        "org.apache.kafka_kafka-clients-3.9.0.jar",
        "org.apache.spark_spark-avro_2.13-4.0.0.jar",
    ]
    assert without_shipped(resolved, ["hadoop-client-api-3.4.1.jar", "RoaringBitmap-1.3.0.jar"]) == resolved[1:]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a set of two jars that was resolved."""
    monkeypatch.setenv("TIDEMARK_CACHE", str(tmp_path))
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    for name in ("a-1.jar", "b-1.jar"):
        (downloads / name).write_bytes(b"PK" + name.encode())
    jars._keep_set("kafka", sorted(downloads.iterdir()))
    return jar_paths("kafka")[0].parent


def test_a_set_that_was_resolved_is_found_without_a_jvm(kept: Path) -> None:
    assert jar_paths("kafka") == [kept / "a-1.jar", kept / "b-1.jar"]
    assert json.loads((kept / "jars.json").read_text()) == {"a-1.jar": 9, "b-1.jar": 9}


def test_a_set_with_a_missing_jar_is_not_taken_for_whole(kept: Path) -> None:
    (kept / "b-1.jar").unlink()
    with pytest.raises(TidemarkError, match="run `tidemark stack jars`"):
        jar_paths("kafka")


def test_a_set_with_a_jar_cut_short_is_not_taken_for_whole(kept: Path) -> None:
    (kept / "b-1.jar").write_bytes(b"PK")
    with pytest.raises(TidemarkError, match="Cannot find the jars of kafka"):
        jar_paths("kafka")


@pytest.mark.usefixtures("kept")
def test_a_set_of_other_versions_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(jars.JAR_SETS, "kafka", ("org.apache.kafka:kafka_2.13:5.0.0",))
    with pytest.raises(TidemarkError):
        jar_paths("kafka")
