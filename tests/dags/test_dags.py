from pathlib import Path
from typing import Any

from tests.dags.conftest import parse_dags

BY_ASSETS = {"example_hourly", "example_daily", "example_join"}
HEAVY = {"pyspark", "confluent_kafka", "kazoo", "hdfs", "pyarrow", "numpy", "pandas", "fastavro"}


def test_the_dag_folder_is_parsed_without_an_error(dags: Any) -> None:
    assert dags["errors"] == {}
    streams = {f"{kind}_{stream}" for kind in ("ingest", "ready") for stream in ("clicks", "payments")}
    assert set(dags["dags"]) == streams | {"example_count_lines", *BY_ASSETS}


def test_parsing_imports_nothing_heavy(dags: Any) -> None:
    assert HEAVY & set(dags["imported"]) == set()


def test_every_task_has_an_owner_retries_and_a_timeout(dags: Any) -> None:
    for dag_id, dag in dags["dags"].items():
        for task_id, task in dag["tasks"].items():
            assert task["owner"] not in ("", "airflow"), f"{dag_id}.{task_id}"
            assert task["retries"] > 0, f"{dag_id}.{task_id}"
            assert task["timeout"], f"{dag_id}.{task_id}"


def test_a_stream_goes_from_plan_to_publish(dags: Any) -> None:
    tasks = dags["dags"]["ingest_clicks"]["tasks"]
    assert {name: task["downstream"] for name, task in tasks.items()} == {
        "plan": ["consume"],
        "consume": ["archive"],
        "archive": ["publish"],
        "publish": ["announce", "complete"],
        "announce": [],
        "complete": [],
    }
    assert tasks["consume"]["spark"]
    assert tasks["archive"]["spark"]


def test_spark_jobs_and_only_they_take_a_slot_of_their_pool(dags: Any) -> None:
    for dag_id, dag in dags["dags"].items():
        for task_id, task in dag["tasks"].items():
            assert task["pool"] == ("tidemark_spark" if task["spark"] else "default_pool"), f"{dag_id}.{task_id}"


def test_runs_have_a_data_interval_and_do_not_wait_for_one_another(dags: Any) -> None:
    for dag_id, dag in dags["dags"].items():
        by_assets = dag_id in BY_ASSETS
        assert dag["timetable"] == ("PartitionedAssetTimetable" if by_assets else "CronDataIntervalTimetable")
        assert dag["max_active_runs"] > 1
        assert dag["catchup"] is False


def test_the_assets_of_a_stream_are_what_its_flags_send_events_for(dags: Any) -> None:
    announce = dags["dags"]["ingest_payments"]["tasks"]["announce"]
    assert announce["outlets"] == ["tidemark://payments/hour", "tidemark://payments/day"]
    assert dags["dags"]["example_join"]["assets"] == ["tidemark://clicks/hour", "tidemark://payments/hour"]
    assert dags["dags"]["example_daily"]["assets"] == ["tidemark://clicks/day"]


def test_a_stream_is_waited_for_in_time_only_when_it_says_how_long_that_is(airflow_home: Path, tmp_path: Path) -> None:
    streams = tmp_path / "streams.yaml"
    settings = "cluster: main, topic: t, owner: web, root: hdfs://"
    streams.write_text(
        f"streams:\n  prompt: {{{settings}/prompt, ready_within: 20m}}\n  patient: {{{settings}/patient}}\n", "utf-8"
    )
    found = parse_dags(airflow_home, streams)["dags"]
    assert set(found["ready_prompt"]["tasks"]) == {"hour", "day", "on_time"}
    assert set(found["ready_patient"]["tasks"]) == {"hour", "day"}


def test_a_bad_stream_is_an_import_error_and_the_others_still_load(airflow_home: Path, tmp_path: Path) -> None:
    streams = tmp_path / "streams.yaml"
    streams.write_text(
        "streams:\n"
        "  good: {cluster: main, topic: t, root: 'hdfs:///t', owner: web}\n"
        "  bad: {cluster: main, topic: t, root: 's3://t', owner: web}\n",
        "utf-8",
    )
    found = parse_dags(airflow_home, streams)
    assert set(found["dags"]) == {"ingest_good", "ready_good"}
    assert list(found["errors"]) == ["streams_errors.py"]
    assert f"{streams}: stream bad: field root: found 's3://t'" in found["errors"]["streams_errors.py"]


def test_a_stream_runs_as_often_as_it_asks_for_and_one_that_retains_removes_what_is_older(
    airflow_home: Path, tmp_path: Path
) -> None:
    streams = tmp_path / "streams.yaml"
    quick = "cluster: main, topic: t, root: 'hdfs:///t', owner: web, every: 15m, retain: 30d"
    streams.write_text(f"streams: {{quick: {{{quick}}}}}", "utf-8")
    found = parse_dags(airflow_home, streams)
    assert found["errors"] == {}
    assert set(found["dags"]) == {"ingest_quick", "ready_quick", "retain_quick"}
    assert found["dags"]["ingest_quick"]["cron"] == "*/15 * * * *"
    assert found["dags"]["ready_quick"]["cron"] == "0 * * * *"
    tasks = found["dags"]["retain_quick"]["tasks"]
    assert {name: task["downstream"] for name, task in tasks.items()} == {"list": ["remove"], "remove": []}
