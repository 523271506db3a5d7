"""The readiness board, a page of the Airflow UI."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_Message = MutableMapping[str, Any]


async def board(
    scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
) -> None:
    """An ASGI application. Every task of Airflow imports its plugins: only the server, when asked, loads this one."""
    from tidemark_airflow.board.app import app

    await app(scope, receive, send)
