"""The board's routes. They only read, and only for who may see the stream's DAG.

A plugin's application is open to everyone unless it says otherwise: each route here depends on a login, and those of a
stream on the right to its DAG. Names and messages go out as JSON and become text on the page, never markup.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from kazoo.exceptions import KazooException

from tidemark.config import Stream, load_streams
from tidemark.drive.services import now_ms
from tidemark.environment import ZOOKEEPER, streams_file
from tidemark.errors import ServiceUnreachable, TidemarkError
from tidemark.inspect.airflow import notes_of
from tidemark.inspect.board import Board, last_days
from tidemark.inspect.check import check_streams
from tidemark.names import Hour, valid_stream
from tidemark_airflow.board import answers
from tidemark_airflow.board.runs import is_paused, runs_of
from tidemark_airflow.connections import connection_from_server
from tidemark_airflow.triggers.session import shared_client

_FOLDER = Path(__file__).parent / "page"
_FILES = {"board.css": "text/css", "board.js": "text/javascript"}
_STATUS = {1: 409, 2: 400, 3: 503}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Airflow's own routes share the server's threads: when a service hangs, the board must not take them all.
_AT_ONCE = 8
_PATIENCE_S = 2.0
_slots = threading.BoundedSemaphore(_AT_ONCE)

Days = Annotated[int, Query(ge=1, le=92)]

app = FastAPI(
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
    dependencies=[Depends(requires_access_view(AccessView.WEBSITE))],
)


def dag_of(stream: str) -> str:
    return f"ingest_{stream}"


def visible_stream(request: Request, stream: str, user: GetUserDep) -> Stream:
    """The right comes first: who may not see a stream does not learn whether it exists."""
    valid_stream(stream)
    requires_access_dag("GET", param_dag_id=dag_of(stream))(request, user)
    found = load_streams(streams_file()).streams.get(stream)
    if found is None:
        raise HTTPException(404, f"There is no stream {stream!r}")
    return found


def visible_streams(user: GetUserDep) -> list[Stream]:
    allowed = get_auth_manager().get_authorized_dag_ids(user=user)
    return [stream for stream in load_streams(streams_file()).streams.values() if dag_of(stream.name) in allowed]


VisibleStream = Annotated[Stream, Depends(visible_stream)]
VisibleStreams = Annotated[list[Stream], Depends(visible_streams)]


@app.middleware("http")
async def set_headers(request: Request, answer: Any) -> Response:
    response: Response = await answer(request)
    response.headers.update(_HEADERS)
    return response


@app.exception_handler(TidemarkError)
async def tell(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TidemarkError)
    return JSONResponse({"detail": str(error)}, status_code=_STATUS[error.exit_code])


@app.exception_handler(KazooException)
async def tell_of_zookeeper(_: Request, error: Exception) -> JSONResponse:
    """Such as a session without the right to a node: of an open one nobody else says it."""
    return JSONResponse({"detail": f"Cannot ask ZooKeeper: {type(error).__name__}"}, status_code=503)


@contextmanager
def open_board() -> Iterator[Board]:
    """One board for the process, on one session; refuses at once what would have to wait for ZooKeeper."""
    if not _slots.acquire(timeout=_PATIENCE_S):
        raise ServiceUnreachable(f"Cannot look: {_AT_ONCE} questions to the services have no answer yet")
    try:
        client = shared_client(connection_from_server(ZOOKEEPER), wait_s=_PATIENCE_S)
        if not client.connected:
            raise ServiceUnreachable("Cannot look: the connection to ZooKeeper is lost")
        yield _boards.setdefault(id(client), Board(client, connection_from_server))
    finally:
        _slots.release()


_boards: dict[int, Board] = {}


@app.get("/")
def page() -> FileResponse:
    return FileResponse(_FOLDER / "board.html", media_type="text/html")


@app.get("/files/{name}")
def file(name: str) -> FileResponse:
    if name not in _FILES:
        raise HTTPException(404, "There is no such file")
    return FileResponse(_FOLDER / name, media_type=_FILES[name])


@app.get("/api/streams")
def streams(found: VisibleStreams, days: Days = 2) -> Any:
    now = now_ms()
    with open_board() as board:
        calendars, checks = board.calendars(found, last_days(now, days), now), check_streams(board, found, now)
    return {"now_ms": now, "streams": [answers.summary(*both) for both in zip(calendars, checks, strict=True)]}


@app.get("/api/streams/{stream}/calendar")
def calendar(stream: VisibleStream, days: Days = 60) -> Any:
    now = now_ms()
    with open_board() as board:
        (found,), (check,) = board.calendars([stream], last_days(now, days), now), check_streams(board, [stream], now)
    return {"now_ms": now, "topic": stream.topic, "owner": stream.owner, **answers.summary(found, check)}


@app.get("/api/streams/{stream}/flags")
def flags(stream: VisibleStream, days: Days = 7) -> Any:
    with open_board() as board:
        return [answers.facts(found) for found in board.facts(stream, last_days(now_ms(), days))]


@app.get("/api/streams/{stream}/offsets")
def offsets(stream: VisibleStream) -> Any:
    with open_board() as board:
        return answers.offsets(board.offsets(stream))


@app.get("/api/streams/{stream}/timelines")
def timelines(stream: VisibleStream) -> Any:
    """From the ledger alone: the graph is there when Kafka is not."""
    with open_board() as board:
        return [answers.timeline(found) for found in board.timelines(stream)]


@app.get("/api/streams/{stream}/hours/{hour}")
def hour(stream: VisibleStream, hour: str, session: SessionDep) -> Any:
    asked = Hour.parse(hour)
    dag = dag_of(stream.name)
    runs = runs_of(dag, asked, session)
    notes = list(notes_of(dag, asked, is_paused(dag, session), runs))
    with open_board() as board:
        answer = board.why(stream, asked, lambda *_: notes, now_ms())
        revisions = [answers.revision(flag) for flag in board.revisions(stream, asked, answer.revision)]
    return {
        **answer.as_json(),
        "text": answer.lines(stream.name),
        "revisions": revisions,
        "runs": [answers.run(dag, found) for found in runs],
    }


@app.get("/api/workers")
def workers(found: VisibleStreams) -> Any:
    names = {stream.name for stream in found}
    with open_board() as board:
        return answers.workers(*board.workers(), names)
