"""What the tasks of a run show when the sweep had to leave something out."""

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tidemark.config import Stream
from tidemark.drive import publish
from tidemark.drive.publish import Swept, Unpublished
from tidemark.publish.announce import Unannounced
from tidemark_airflow.operators import CompleteOperator, PublishOperator

pytestmark = pytest.mark.usefixtures("airflow_home")

STREAM = Stream(name="clicks", cluster="main", topic="clicks", root="file:///tmp/clicks", owner="test")
FLAG = Unannounced(subject="2026-11-15T07", revision=1, published_ms=5, handed=False)
SWEPT = Swept(published=[], unannounced=[FLAG])


class Instance(SimpleNamespace):
    """As much of a task instance as the operators use; `xcoms` is what it pushed."""

    xcoms: dict[str, Any]

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value

    def xcom_pull(self, *, task_ids: str, key: str) -> Any:
        return self.xcoms.get(key) if task_ids == "publish" else None


def context_of(attempt: int) -> Any:
    ids = {"dag_id": "ingest_clicks", "run_id": "run", "task_id": "publish"}
    return {"ti": Instance(**ids, try_number=attempt, max_tries=3, xcoms={})}


def failing(*_: object) -> Swept:
    raise Unpublished("Cannot publish 1 hours or days of clicks: 2026-11-15T06; …", SWEPT)


def test_a_sweep_that_left_something_out_is_tried_again_and_the_last_try_hands_the_others_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish, "publish_stream", failing)
    task = PublishOperator(task_id="publish", stream=STREAM)
    for attempt in (1, 2, 3):
        with pytest.raises(Unpublished):
            task.execute(context_of(attempt))
    last = context_of(4)
    ((flag,),) = task.execute(last)
    assert flag["subject"] == FLAG.subject
    with pytest.raises(AirflowFailException, match="Cannot publish 1 hours or days of clicks: 2026-11-15T06"):
        CompleteOperator(task_id="complete", published_by="publish").execute(last)


def test_a_sweep_that_left_nothing_out_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "publish_stream", lambda *_: SWEPT)
    context = context_of(1)
    PublishOperator(task_id="publish", stream=STREAM).execute(context)
    CompleteOperator(task_id="complete", published_by="publish").execute(context)
