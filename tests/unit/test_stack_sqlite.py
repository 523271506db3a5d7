import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tidemark.stack.sqlite import CONNECT_ARGS

UNCHANGED: Mapping[str, Any] = {}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "airflow.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE runs (id)")
    return path


@pytest.fixture
def other(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        yield connection


def write_below_a_savepoint(database: Path, arguments: Mapping[str, Any], other: sqlite3.Connection) -> str:
    """What becomes of the other's write, which comes between this one's reading and writing."""
    with closing(sqlite3.connect(database, **arguments)) as connection:
        cursor = connection.cursor()
        cursor.execute("SAVEPOINT one")
        cursor.execute("SELECT * FROM runs").fetchall()
        try:
            other.execute("INSERT INTO runs VALUES (1)")
            found = "it wrote"
        except sqlite3.OperationalError as error:
            found = str(error)
        cursor.execute("INSERT INTO runs VALUES (2)")
        cursor.execute("RELEASE SAVEPOINT one")
        connection.commit()
        return found


def test_who_reads_and_writes_below_a_savepoint_makes_others_wait_instead_of_failing(
    database: Path, other: sqlite3.Connection
) -> None:
    assert write_below_a_savepoint(database, CONNECT_ARGS, other) == "database is locked"
    assert other.execute("SELECT id FROM runs").fetchall() == [(2,)]


def test_by_itself_sqlite_fails_whoever_read_first(database: Path, other: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        write_below_a_savepoint(database, UNCHANGED, other)
