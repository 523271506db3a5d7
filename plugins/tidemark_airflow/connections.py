"""Airflow's connections, in the form that the library takes."""

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk import Connection as AirflowConnection
from airflow.sdk.exceptions import AirflowNotFoundException

from tidemark.config import Stream
from tidemark.environment import WEBHDFS, ZOOKEEPER, Connection, dump_connection, variable_of
from tidemark.errors import WrongUse

if TYPE_CHECKING:
    from airflow.models.connection import Connection as Stored


def connection_from_airflow(conn_id: str) -> Connection:
    try:
        return _convert(conn_id, BaseHook.get_connection(conn_id))
    except AirflowNotFoundException as error:
        raise WrongUse(f"Cannot connect to {conn_id}: Airflow has no connection of this name") from error


def connection_from_server(conn_id: str) -> Connection:
    """In Airflow's server, which has the database where a task has the server."""
    from airflow.models.connection import Connection as Stored

    try:
        return _convert(conn_id, Stored.get_connection_from_secrets(conn_id))
    except AirflowNotFoundException as error:
        raise WrongUse(f"Cannot connect to {conn_id}: Airflow has no such connection") from error


async def connection_from_triggerer(conn_id: str) -> Connection:
    return _convert(conn_id, await BaseHook.aget_connection(conn_id))


def exported_connections(stream: Stream) -> dict[str, str]:
    """What a Spark job of the stream finds in its environment: secrets never stand on a command line."""
    from tidemark.drive.services import kafka_connections_of

    kafka = kafka_connections_of(stream, connection_from_airflow)
    wanted = [*kafka, ZOOKEEPER, *([WEBHDFS] if stream.root.startswith("hdfs:") else [])]
    return {variable_of(conn_id): dump_connection(connection_from_airflow(conn_id)) for conn_id in wanted}


def _convert(conn_id: str, found: "AirflowConnection | Stored") -> Connection:
    return Connection(
        conn_id=conn_id,
        host=found.host,
        port=found.port,
        login=found.login,
        password=found.password,
        extra=found.extra_dejson,
    )
