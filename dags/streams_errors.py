"""Shows what is wrong in streams.yaml as an import error in the UI, while dags/streams.py loads the sound streams.

Airflow reads a file of the DAG folder only when it contains both these words.
"""

from tidemark.config import load_streams
from tidemark.environment import streams_file
from tidemark.errors import WrongUse

_errors = load_streams(streams_file()).errors
if _errors:
    raise WrongUse("; ".join(_errors))
