"""The fields of a log line: every line of a job says which stream, shift, shard or hour it is about."""

import logging
from collections.abc import MutableMapping
from typing import Any

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class FieldLogger(logging.LoggerAdapter[logging.Logger]):
    """Appends its fields to each message: `consumed lines=12 stream=clicks shift=20261115T0700`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        extra = kwargs.pop("extra", {})
        fields = {**extra, **(self.extra or {})}
        return " ".join([str(msg), *(f"{name}={value}" for name, value in fields.items())]), kwargs


def logger(name: str, **fields: object) -> FieldLogger:
    return FieldLogger(logging.getLogger(name), fields)


def configure() -> None:
    """For jobs and the command line; below Airflow its own logging stands."""
    logging.basicConfig(level=logging.INFO, format=_FORMAT)
    for noisy in ("kazoo", "py4j", "hdfs", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
