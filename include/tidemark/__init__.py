"""Kafka to HDFS, hour by hour, with ready flags that carry their proof."""

__version__ = "0.1.0"
