"""Asking the services for their health."""

from typing import Any

import requests


def get_json(url: str) -> Any:
    """OSError when there is no good answer. A proxy that the environment names is not asked for 127.0.0.1."""
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(url, timeout=10)
        answer.raise_for_status()
        return answer.json()
