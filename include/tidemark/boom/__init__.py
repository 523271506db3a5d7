"""Boom files: Avro containers of log lines, as KaBoom writes and hadoop-logdriver reads them.

Reading them with Spark is in `tidemark.boom.spark`, which alone imports pyspark.
"""
