"""The four tasks of a stream's hourly DAG."""

from tidemark_airflow.operators.plan import PlanOperator
from tidemark_airflow.operators.publish import PublishOperator
from tidemark_airflow.operators.spark_job import SparkJobOperator

__all__ = ["PlanOperator", "PublishOperator", "SparkJobOperator"]
