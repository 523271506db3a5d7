"""The embedded stack: ZooKeeper, Kafka, HDFS, Spark and Airflow on one machine, without containers."""

from tidemark.stack.embedded import (
    DATA_SERVICES,
    DEFAULT_SERVICES,
    PORT_NAMES,
    SERVICES,
    SPARK_CLUSTER,
    Login,
    ServiceStatus,
    Stack,
)

__all__ = [
    "DATA_SERVICES",
    "DEFAULT_SERVICES",
    "PORT_NAMES",
    "SERVICES",
    "SPARK_CLUSTER",
    "Login",
    "ServiceStatus",
    "Stack",
]
