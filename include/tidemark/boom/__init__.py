"""Boom files: Avro containers of log lines, as KaBoom writes and hadoop-logdriver reads them.

Reading them with Spark is in `tidemark.boom.spark`, which alone imports pyspark.
"""

from tidemark.boom.escape import escape, escape_array, unescape, unescape_array
from tidemark.boom.format import Compression
from tidemark.boom.reader import BoomHeader, BoomLine, BoomReader, RawBlock, read_blocks, read_lines
from tidemark.boom.verify import Verification, verify
from tidemark.boom.writer import BoomBlock, BoomSummary, BoomWriter

__all__ = [
    "BoomBlock",
    "BoomHeader",
    "BoomLine",
    "BoomReader",
    "BoomSummary",
    "BoomWriter",
    "Compression",
    "RawBlock",
    "Verification",
    "escape",
    "escape_array",
    "read_blocks",
    "read_lines",
    "unescape",
    "unescape_array",
    "verify",
]
