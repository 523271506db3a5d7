"""A log line as commands print it."""

import base64
import json
from collections.abc import Mapping


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
