"""Spark as a production job would run it, on this machine: the same settings for every side, warm or cold."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tidemark.environment import repository_folder
from tidemark.stack import Stack
from tidemark.stack.files import write_whole
from tidemark.stack.jars import jar_paths
from tidemark.stack.processes import plain_environment
from tidemark.stack.service import CONSOLE_LOGGING

CORES = 2
MASTER = f"local[{CORES}]"
# Not the embedded stack's own settings, which are for small jobs that start from cold.
_SETTINGS = """\
spark.jars                       {jars}
spark.ui.enabled                 false
spark.ui.showConsoleProgress     false
spark.driver.bindAddress         127.0.0.1
spark.driver.host                127.0.0.1
spark.driver.memory              3g
spark.driver.extraJavaOptions    -XX:+UseParallelGC
spark.sql.shuffle.partitions     4
spark.sql.session.timeZone       UTC
spark.sql.avro.deflate.level     6
spark.hadoop.dfs.replication     1
spark.local.dir                  {folder}/local
spark.sql.warehouse.dir          {folder}/warehouse
"""


def production_environment(stack: Stack) -> dict[str, str]:
    """The stack's environment, with Spark's settings for production in place of its own."""
    folder = stack.home / "bench"
    jars = ",".join(path.as_uri() for path in jar_paths("spark"))
    write_whole(folder / "conf" / "spark-defaults.conf", _SETTINGS.format(jars=jars, folder=folder))
    write_whole(folder / "conf" / "log4j2.properties", CONSOLE_LOGGING.format(level="ERROR"))
    return {
        **plain_environment(),
        **stack.environment(),
        "SPARK_CONF_DIR": str(folder / "conf"),
        # The profile runs code of the bench in the workers.
        "PYTHONPATH": str(repository_folder()),
    }


@contextmanager
def open_spark(environment: Mapping[str, str]) -> Iterator[SparkSession]:
    os.environ.update(environment)
    spark = SparkSession.builder.master(MASTER).appName("bench").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
