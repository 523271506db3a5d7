"""Airflow's SQLite for several writers: a savepoint begins as one.

SQLite begins a transaction that opens with a savepoint as a reader's. When it comes to write, and anybody else has
written since, it fails at once with "database is locked", whatever the time-out: Airflow's backfill, which makes each
run below a savepoint, hardly ever got through a day beside a busy scheduler. Begun as a writer's, it waits its turn.
"""

import sqlite3
from typing import Any

from typing_extensions import override


class _Cursor(sqlite3.Cursor):
    @override
    def execute(self, sql: str, parameters: Any = (), /) -> "_Cursor":
        if sql.startswith("SAVEPOINT ") and not self.connection.in_transaction:
            super().execute("BEGIN IMMEDIATE")
        super().execute(sql, parameters)
        return self


class _Connection(sqlite3.Connection):
    @override
    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)


CONNECT_ARGS = {"factory": _Connection}
"""As Airflow's setting `sql_alchemy_connect_args` names it."""
