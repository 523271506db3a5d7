"""Submit one of the entry points in jobs/."""

from datetime import UTC, datetime
from typing import Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context

from tidemark.config import Stream
from tidemark.environment import handing_on, repository_folder
from tidemark_airflow.connections import exported_connections
from tidemark_airflow.pool import POOL
from tidemark_airflow.tasks import ATTEMPT, TASK


class SparkNeeded(Exception):
    """There is work that only Spark can do."""


def refuse_spark() -> NoReturn:
    raise SparkNeeded


class SparkJobOperator(SparkSubmitOperator):
    """Hands the stream's connections on through the environment of spark-submit, and who asks and for how long.

    A driver that is not its child (deploy mode cluster) finds its connections in the environment that it has there.
    Takes a slot of the pool for Spark jobs.
    """

    def __init__(
        self, *, stream: Stream, job: str, arguments: tuple[str, ...] = (), pool: str = POOL, **kwargs: Any
    ) -> None:
        super().__init__(
            pool=pool,
            application=str(repository_folder() / "jobs" / f"{job}.py"),
            application_args=["--stream", stream.name, *arguments, "--task", TASK, "--attempt", ATTEMPT],
            name=f"tidemark {job} {stream.name}",
            **kwargs,
        )
        self.stream = stream

    def execute(self, context: Context) -> None:
        # Without this connection the provider would quietly submit to YARN.
        BaseHook.get_connection(self._conn_id)
        self.application_args = [*(self.application_args or []), *self._timeout(context)]
        # Not in `env_vars`, which the provider writes on the command line for YARN and Kubernetes (ADR 32).
        with handing_on(exported_connections(self.stream)):
            super().execute(context)

    def _timeout(self, context: Context) -> list[str]:
        """What is left of the task's time: a driver that outlives it, an orphan, must not hold the lease."""
        if self.execution_timeout is None:
            return []
        passed = datetime.now(UTC) - context["ti"].start_date
        return ["--timeout-s", f"{max(1.0, (self.execution_timeout - passed).total_seconds()):.0f}"]
