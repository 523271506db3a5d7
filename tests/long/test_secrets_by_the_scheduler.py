"""An hour by Airflow's scheduler on a Spark cluster, with logins everywhere: no secret is seen."""

from functools import partial
from pathlib import Path

from tests.armed import write_streams
from tests.canaries import Canaries, ProcessList
from tests.integration.test_airflow import all_succeeded, client_of, last_hours
from tests.services import KafkaTopic, Sent, connections_of, visible_lines
from tests.waiting import wait_until

from tidemark.config import load_stream
from tidemark.demo.run import DAGS_PAUSED
from tidemark.stack import DEFAULT_SERVICES, SPARK_CLUSTER, Stack
from tidemark.storage import open_storage


def test_an_hour_by_the_scheduler_on_a_spark_cluster_shows_no_secret(tmp_path: Path) -> None:
    canaries, processes, home = Canaries(), ProcessList(), tmp_path / "stack"
    canaries.seed(home)
    write_streams(tmp_path, ("secured",))
    environment = {"TIDEMARK_STREAMS": str(tmp_path / "streams.yaml"), **DAGS_PAUSED}
    stack = Stack(home)
    (hour,) = last_hours(1)
    sent = [Sent(partition=n % 4, time_ms=hour.start_ms + n, value=f"line {n}".encode()) for n in range(400)]
    try:
        with processes.watched():
            stack.up((*DEFAULT_SERVICES, *SPARK_CLUSTER), secured=True, extra_environment=environment)
            KafkaTopic(stack, "secured", 4).send(sent)
            airflow = client_of(stack)
            airflow.wait_for_dags(("ingest_secured",))
            airflow.backfill("ingest_secured", [hour])
            airflow.unpause("ingest_secured")
            wait_until(partial(all_succeeded, airflow, "ingest_secured", [hour]), f"{hour} is done", within_s=900)
        root = load_stream(tmp_path / "streams.yaml", "secured").root
        assert sorted(visible_lines(open_storage(root, connections_of(stack)))) == [
            (record.time_ms, record.value) for record in sent
        ]
    finally:
        stack.down()
    assert any(b"CoarseGrainedExecutorBackend" in line for line in processes.seen)
    assert [line for line in processes.seen if canaries.found_in(line)] == []
    assert canaries.files_below(home) == {"server.properties", "state.json"}
