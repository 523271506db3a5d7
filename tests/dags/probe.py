"""Parses a DAG folder and prints, as JSON, what came of it and which modules it took."""

import json
import sys
from typing import Any

from airflow.dag_processing.dagbag import DagBag
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator


def uris_of(condition: Any) -> list[str]:
    """Of nothing, one asset or several."""
    assets = getattr(condition, "objects", [condition] if condition else [])
    return [asset.uri for asset in assets]


BEFORE = set(sys.modules)
BAG = DagBag(sys.argv[1])

print(
    json.dumps(
        {
            "errors": {path.rsplit("/", 1)[-1]: text.splitlines()[-1] for path, text in BAG.import_errors.items()},
            "imported": sorted({name.partition(".")[0] for name in set(sys.modules) - BEFORE}),
            "dags": {
                dag_id: {
                    "catchup": dag.catchup,
                    "max_active_runs": dag.max_active_runs,
                    "timetable": type(dag.timetable).__name__,
                    "cron": getattr(dag.timetable, "expression", None),
                    "assets": uris_of(dag.timetable.asset_condition),
                    "tasks": {
                        task.task_id: {
                            "owner": task.owner,
                            "retries": task.retries,
                            "timeout": task.execution_timeout.total_seconds() if task.execution_timeout else None,
                            "downstream": sorted(task.downstream_task_ids),
                            "pool": task.pool,
                            "outlets": [asset.uri for asset in task.outlets],
                            "spark": isinstance(task, SparkSubmitOperator),
                        }
                        for task in dag.tasks
                    },
                }
                for dag_id, dag in BAG.dags.items()
            },
        }
    )
)
