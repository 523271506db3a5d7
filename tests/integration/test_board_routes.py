"""The readiness board through Airflow's own server: who may see what, and what there is to see."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.board import FIRST, FOURTH, MARKUP, SECOND, THIRD, begin_run, fill
from tests.pipeline import interval_of
from tests.rights import NARROW, THEIRS, token_of

from tidemark.config import load_stream
from tidemark.demo.airflow import AirflowClient
from tidemark.environment import repository_folder
from tidemark.names import HOUR_MS, Hour
from tidemark.stack import Stack

OTHERS = "young"
OF_A_STREAM = ("calendar?days=92", "flags?days=92", "timelines", "offsets", f"hours/{FIRST}")
OF_ALL = ("", "files/board.js", "files/board.css", "api/streams", "api/workers")
Get = Callable[..., requests.Response]


@pytest.fixture(scope="module")
def server(airflow_stack: Stack, streams_file: Path) -> Stack:
    login = airflow_stack.login()
    airflow = AirflowClient(login.address, login.user, login.password, airflow_stack.environment())
    airflow.wait_for_dags((f"ingest_{THEIRS}", f"ingest_{OTHERS}"))
    fill(load_stream(streams_file, THEIRS), airflow_stack)
    return airflow_stack


def get_as(server: Stack, user: str | None) -> Get:
    headers = {"Authorization": f"Bearer {token_of(server, user)}"} if user else {}
    address = f"{server.login().address}/readiness/"
    return lambda path: requests.get(address + path, headers=headers, timeout=60)


@pytest.fixture
def narrow(server: Stack) -> Get:
    return get_as(server, NARROW)


@pytest.mark.parametrize("path", [*OF_ALL, *(f"api/streams/{THEIRS}/{rest}" for rest in OF_A_STREAM)])
def test_who_is_not_logged_in_sees_nothing(server: Stack, path: str) -> None:
    assert get_as(server, None)(path).status_code == 401


def test_a_stream_is_seen_by_who_may_see_its_dag_and_by_nobody_else(server: Stack, narrow: Get) -> None:
    admin = get_as(server, "admin")
    for rest in OF_A_STREAM:
        assert narrow(f"api/streams/{THEIRS}/{rest}").status_code == 200, rest
        assert narrow(f"api/streams/{OTHERS}/{rest}").status_code == 403, rest
        # Nor is it told whether a stream exists.
        assert narrow(f"api/streams/none/{rest}").status_code == 403, rest
        assert admin(f"api/streams/none/{rest}").status_code == 404, rest
    assert [row["stream"] for row in narrow("api/streams").json()["streams"]] == [THEIRS]
    assert {row["stream"] for row in admin("api/streams").json()["streams"]} >= {THEIRS, OTHERS}
    assert {row["stream"] for row in narrow("api/workers").json()["leases"]} == {THEIRS}


def test_every_route_is_one_that_these_tests_ask_for() -> None:
    text = (repository_folder() / "plugins" / "tidemark_airflow" / "board" / "app.py").read_text()
    asked = len({"", "files/{name}", "api/streams", "api/workers"}) + len(OF_A_STREAM)
    assert text.count("@app.get(") == asked
    assert not any(f"@app.{method}(" in text for method in ("post", "put", "patch", "delete"))


@pytest.mark.parametrize("path", ["docs", "redoc", "openapi.json", "files/app.py", "files/..%2fapp.py"])
def test_nothing_else_is_served(server: Stack, path: str) -> None:
    assert get_as(server, "admin")(path).status_code == 404


@pytest.mark.parametrize(
    "name", ["%2e%2e", "a%2fb", "..%2f..", "%00", "%0a", "%EF%BC%8E%EF%BC%8E", "a" * 5000, "%7B%7Bx%7D%7D"]
)
def test_a_name_that_is_none_is_refused_whoever_asks(server: Stack, name: str) -> None:
    for user, refused in (("admin", {400, 404}), (NARROW, {400, 404}), (None, {401, 404})):
        assert get_as(server, user)(f"api/streams/{name}/calendar").status_code in refused


def test_the_page_takes_nothing_from_another_host(narrow: Get) -> None:
    for path in OF_ALL[:3]:
        answer = narrow(path)
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "//" not in answer.text.replace("http://www.w3.org/2000/svg", "").replace("// ", "")


def test_the_calendar_shows_an_empty_hour_a_gap_and_a_blocked_one(narrow: Get) -> None:
    answer = narrow(f"api/streams/{THEIRS}/calendar?days=92").json()
    days = {row["day"]: row for row in answer["days"]}
    cells = {
        hour: (days[hour.day]["states"][int(hour.hh)], days[hour.day]["revisions"][int(hour.hh)])
        for hour in (Hour(FIRST.start_ms - HOUR_MS), FIRST, SECOND, THIRD, FOURTH)
    }
    assert list(cells.values()) == [("before", 0), ("empty", 1), ("gap", 1), ("gap", 0), ("blocked", 0)]
    assert answer["newest_ready"] == str(SECOND)
    assert answer["watermark_ms"] == SECOND.end_ms


def test_an_hour_is_explained_in_the_words_of_why_with_its_flag(narrow: Get) -> None:
    ready = narrow(f"api/streams/{THEIRS}/hours/{SECOND}").json()
    assert ready["text"][0] == f"{THEIRS}/{SECOND}: ready, revision 1"
    assert ready["flag"]["gaps"][0]["accepted"] == MARKUP
    (revision,) = ready["revisions"]
    assert (revision["revision"], revision["lines"], revision["added"]) == (1, 0, 0)
    assert revision["published"] == ready["flag"]["published"]
    assert ready["runs"] == []
    held = narrow(f"api/streams/{THEIRS}/hours/{THIRD}").json()
    assert {reason["cause"] for reason in held["reasons"]} == {"gap", "lagging"}
    blocked = narrow(f"api/streams/{THEIRS}/hours/{FOURTH}").json()
    assert {reason["cause"] for reason in blocked["reasons"]} == {"lagging"}
    wrong = narrow(f"api/streams/{THEIRS}/hours/yesterday")
    assert (wrong.status_code, "wanted UTC" in wrong.json()["detail"]) == (400, True)


def test_an_hour_names_its_run_and_which_of_its_tasks_have_a_log(server: Stack, narrow: Get) -> None:
    run = begin_run(server, f"ingest_{THEIRS}", FIRST)
    (found,) = narrow(f"api/streams/{THEIRS}/hours/{FIRST}").json()["runs"]
    tasks = found.pop("tasks")
    assert found == {"dag": f"ingest_{THEIRS}", "run": run, "state": "queued"}
    assert tasks == [
        {"task": "plan", "map_index": -1, "state": "success", "try": 1},
        # The address of a mapped task's log names which one it is.
        {"task": "announce", "map_index": 0, "state": "running", "try": 1},
    ]


def test_what_airflow_knows_of_an_hour_that_is_not_ready_the_server_asks_itself(server: Stack, narrow: Get) -> None:
    dag = f"ingest_{THEIRS}"
    paused = f"the DAG {dag} is paused: nothing is scheduled until it is not (airflow dags unpause {dag})"
    answer = narrow(f"api/streams/{THEIRS}/hours/{FOURTH}").json()
    assert answer["notes"][-2] == paused
    assert answer["notes"][-1].startswith(f"Airflow never scheduled a run of {dag} for this hour; ")
    run = begin_run(server, dag, FOURTH)
    answer = narrow(f"api/streams/{THEIRS}/hours/{FOURTH}").json()
    assert answer["notes"][-3:] == [paused, f"the run {run} is queued", "its task announce is running, try 1"]


def test_facts_of_flags_and_offsets_are_those_of_the_command_line(narrow: Get) -> None:
    facts = narrow(f"api/streams/{THEIRS}/flags?days=92").json()
    assert [(row["hour"], row["lines"], row["delay_ms"] > 0) for row in facts] == [
        (str(FIRST), 0, True),
        (str(SECOND), 0, True),
    ]
    offsets: dict[str, Any] = narrow(f"api/streams/{THEIRS}/offsets").json()
    assert offsets["lag"] == 1
    assert [(row["shard"], row["next"]) for row in offsets["shards"]] == [("0001-0", 0), ("0001-1", 5)]
    assert offsets["open"] == interval_of(THIRD).shift


def test_the_graph_of_timelines_names_the_shards_of_each_and_their_parents(narrow: Get) -> None:
    (timeline,) = narrow(f"api/streams/{THEIRS}/timelines").json()
    assert (timeline["order"], timeline["cluster"], timeline["topic"], timeline["state"]) == (1, "main", "seen", "open")
    assert [(row["shard"], row["parents"], row["next"]) for row in timeline["shards"]] == [
        ("0001-0", [], 0),
        ("0001-1", [], 5),
    ]
