"""`tidemark verify`: count again what a flag says."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.inspect.verify import Finding


def verify(
    stream: Annotated[str, typer.Argument()],
    subject: Annotated[str, typer.Argument(metavar="HOUR|DAY", help="UTC: 2026-11-15T07 or 2026-11-15.")],
) -> None:
    """Read the files of an hour or a day again and compare them with the flag, and with Kafka while it has the records.

    Exit code 0 when everything that could be compared agrees, 1 when not. Changes nothing.
    """
    from tidemark.config import load_stream
    from tidemark.drive.services import clusters
    from tidemark.inspect.verify import verify_day, verify_files, verify_records
    from tidemark.ledger.stream import StreamLedger
    from tidemark.ledger.zookeeper import open_session
    from tidemark.names import Day, Hour, hours_of_day, parse_subject
    from tidemark.publish.ask import ready_revision
    from tidemark.publish.flag import read_day_flag, read_hour_flag
    from tidemark.storage import open_storage

    configured = load_stream(streams_file(), stream)
    wanted = parse_subject(subject)
    hours = (wanted,) if isinstance(wanted, Hour) else hours_of_day(str(wanted))
    with open_session(connection_from_environment) as client:
        revisions = {hour: ready_revision(client, stream, hour) for hour in hours}
        day_revision = ready_revision(client, stream, wanted) if isinstance(wanted, Day) else 0
        timelines = StreamLedger(client, stream).timelines()
    lacking = [str(hour) for hour, revision in revisions.items() if not revision]
    if lacking:
        raise TidemarkError(f"Cannot verify {stream}/{wanted}: {', '.join(lacking)} not ready; ask `tidemark why`")
    storage = open_storage(configured.root, connection_from_environment)
    kafka = clusters(connection_from_environment)
    agrees = True
    if day_revision:
        day = read_day_flag(storage, str(wanted), day_revision)
        revisions = {Hour.parse(hour): row["revision"] for hour, row in day["hours"].items()}
        typer.echo(f"{stream}/{wanted}, revision {day_revision}")
        agrees = _tell(verify_day(day, storage))
    for hour, revision in revisions.items():
        flag = read_hour_flag(storage, hour, revision)
        typer.echo(f"{stream}/{hour}, revision {revision}")
        agrees &= _tell((*verify_files(flag, storage), *verify_records(configured, flag, timelines, kafka)))
    raise typer.Exit(0 if agrees else 1)


def _tell(findings: "Iterable[Finding]") -> bool:
    """Whether everything agrees that could be compared."""
    agrees = True
    for finding in findings:
        mark = {True: "ok", False: "DIFFERS", None: "-"}[finding.agrees]
        typer.echo(f"  {mark:8}{finding.subject}: {finding.text}")
        agrees = agrees and finding.agrees is not False
    return agrees
