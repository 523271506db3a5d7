"""A log line as commands print it, and take it back."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Final

_TIME: Final = re.compile(rb"-?[0-9]{1,18}")


def line_as_text(time_ms: int, message: bytes) -> bytes:
    return b"%d\t%b\n" % (time_ms, message)


def line_as_json(time_ms: int, message: bytes, more: Mapping[str, object] | None = None) -> bytes:
    """A message that is not UTF-8 is `message_base64`."""
    value: dict[str, object] = {"epoch_ms": time_ms}
    try:
        value["message"] = message.decode()
    except UnicodeDecodeError:
        value["message_base64"] = base64.b64encode(message).decode()
    return json.dumps({**value, **(more or {})}, ensure_ascii=False).encode() + b"\n"


def line_from_text(raw: bytes) -> tuple[int, bytes]:
    """Raises ValueError with what is wanted."""
    time_text, tab, message = raw.removesuffix(b"\n").partition(b"\t")
    if not tab or not _TIME.fullmatch(time_text):
        raise ValueError("epoch_ms<TAB>message")
    return int(time_text), message


def line_from_json(raw: bytes) -> tuple[int, bytes]:
    """Raises ValueError with what is wanted. Whatever else the object has is left out."""
    try:
        value = json.loads(raw)
        time_text = b"%d" % value["epoch_ms"] if type(value["epoch_ms"]) is int else b""
        is_text = "message" in value
        message = value["message"].encode() if is_text else base64.b64decode(value["message_base64"], validate=True)
    except (ValueError, TypeError, KeyError, AttributeError):
        time_text = b""
    if not _TIME.fullmatch(time_text):
        raise ValueError('an object {"epoch_ms": 0, "message": "…"} or with "message_base64"')
    return int(time_text), message
