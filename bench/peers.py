"""What others would write for the same: a plain Spark job to Avro, and the usual one to Parquet. Both into HDFS."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, collect_list, date_format, struct, unix_millis


def read_topic(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
        .select("timestamp", col("value").cast("string").alias("message"))
    )


def write_avro(records: DataFrame, folder: str) -> None:
    """One record a second with its lines, as in a boom file; deflate, level 6."""
    time = unix_millis("timestamp")
    line = struct((time % 1000).alias("ms"), "message")
    (
        records.groupBy((time / 1000).cast("long").alias("second"))
        .agg(collect_list(line).alias("logLines"))
        .write.format("avro")
        .option("compression", "deflate")
        .save(folder)
    )


def write_parquet(records: DataFrame, folder: str) -> None:
    """No checkpoint and no proof."""
    (
        records.withColumn("hour", date_format("timestamp", "yyyy-MM-dd-HH"))
        .write.partitionBy("hour")
        .option("compression", "zstd")
        .parquet(folder)
    )
