"""Asking the services for their health."""

import json
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any

from tidemark.stack.ports import HOST


def get_json(port: int, path: str) -> Any:
    """OSError when there is no good answer."""
    with closing(HTTPConnection(HOST, port, timeout=10)) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except HTTPException as error:
            raise ConnectionError(f"port {port} does not speak HTTP yet ({error!r})") from error
    if answer.status != 200:
        raise ConnectionError(f"port {port} answers {answer.status} {answer.reason}")
    return json.loads(body)
