"""The six tasks of a stream's hourly DAG, and those of its daily retention."""

from tidemark_airflow.operators.announce import AnnounceOperator
from tidemark_airflow.operators.archive import ArchiveOperator
from tidemark_airflow.operators.consume import ConsumeOperator
from tidemark_airflow.operators.plan import PlanOperator
from tidemark_airflow.operators.publish import CompleteOperator, PublishOperator
from tidemark_airflow.operators.retain import ListOldDaysOperator, RemoveOldDaysOperator
from tidemark_airflow.operators.spark_job import SparkJobOperator

__all__ = [
    "AnnounceOperator",
    "ArchiveOperator",
    "CompleteOperator",
    "ConsumeOperator",
    "ListOldDaysOperator",
    "PlanOperator",
    "PublishOperator",
    "RemoveOldDaysOperator",
    "SparkJobOperator",
]
