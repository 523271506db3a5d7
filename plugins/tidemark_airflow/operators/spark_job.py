"""Submit one of the entry points in jobs/."""

from typing import Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context

from tidemark.config import Stream
from tidemark.environment import repository_folder
from tidemark_airflow.connections import exported_connections
from tidemark_airflow.tasks import ATTEMPT, TASK


class SparkNeeded(Exception):
    """There is work that only Spark can do."""


def refuse_spark() -> NoReturn:
    raise SparkNeeded


class SparkJobOperator(SparkSubmitOperator):
    """Hands the stream's connections on through the environment, together with who asks."""

    def __init__(self, *, stream: Stream, job: str, arguments: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(
            application=str(repository_folder() / "jobs" / f"{job}.py"),
            application_args=["--stream", stream.name, *arguments, "--task", TASK, "--attempt", ATTEMPT],
            name=f"tidemark {job} {stream.name}",
            **kwargs,
        )
        self.stream = stream

    def execute(self, context: Context) -> None:
        # Without this connection the provider would quietly submit to YARN.
        BaseHook.get_connection(self._conn_id)
        self.env_vars = {**(self.env_vars or {}), **exported_connections(self.stream)}
        super().execute(context)
