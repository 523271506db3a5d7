"""The pool of the Spark jobs, which makes itself: without it Airflow would leave their tasks `scheduled` for ever.

A listener: Airflow's scheduler, triggerer and DAG processor call it as they start. See docs/adr/0008.
"""

from airflow.listeners import hookimpl

POOL = "tidemark_spark"
SLOTS = 4
_DESCRIPTION = "Spark jobs of Tidemark that may run at once"


@hookimpl
def on_starting(component: object) -> None:
    """Make the pool if it is missing; one that is there keeps the size that its operator gave it."""
    # Tasks have no database; only these components are a Job.
    if type(component).__name__ == "Job":
        ensure_pool()


def ensure_pool() -> None:
    from airflow.models.pool import Pool
    from sqlalchemy.exc import IntegrityError

    if Pool.get_pool(POOL) is None:
        try:
            Pool.create_or_update_pool(POOL, slots=SLOTS, description=_DESCRIPTION, include_deferred=False)
        except IntegrityError:
            # Another component, starting at the same time, was first.
            return
