"""`tidemark verify`: count again what a flag says."""

from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import typer

from tidemark.cli.output import print_json
from tidemark.cli.progress import Bar, progress
from tidemark.cli.words import AsJson, HourOrDay, StreamName
from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.config import Stream
    from tidemark.inspect.verify import Finding
    from tidemark.names import Day, Hour

_MARKS = {True: "ok", False: "DIFFERS", None: "-"}


@dataclass(frozen=True, slots=True)
class _Verified:
    subject: "Hour | Day"
    revision: int
    findings: "list[Finding]"

    @property
    def agrees(self) -> bool:
        return all(finding.agrees is not False for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        findings = [asdict(finding) for finding in self.findings]
        return {"subject": str(self.subject), "revision": self.revision, "agrees": self.agrees, "findings": findings}


def verify(stream: StreamName, subject: HourOrDay, as_json: AsJson = False) -> None:
    """Count an hour or a day again: files against flag and Kafka.

    Against Kafka while it has the records. Changes nothing. Exit code 0 when everything that could be compared agrees,
    1 when not.
    """
    from tidemark.config import load_stream
    from tidemark.names import parse_subject

    configured, wanted = load_stream(streams_file(), stream), parse_subject(subject)
    with progress(f"Verifying {stream}/{wanted}") as bar:
        verified = _verify(configured, wanted, bar)
    if as_json:
        print_json([found.as_json() for found in verified])
    else:
        for found in verified:
            typer.echo(f"{stream}/{found.subject}, revision {found.revision}")
            for finding in found.findings:
                typer.echo(f"  {_MARKS[finding.agrees]:8}{finding.subject}: {finding.text}")
    raise typer.Exit(0 if all(found.agrees for found in verified) else 1)


def _verify(stream: "Stream", wanted: "Hour | Day", bar: Bar) -> list[_Verified]:
    from tidemark.drive.services import clusters
    from tidemark.inspect.verify import verify_day, verify_files, verify_records
    from tidemark.ledger.stream import StreamLedger
    from tidemark.ledger.zookeeper import open_session
    from tidemark.names import Day, Hour, hours_of_day
    from tidemark.publish.ask import ready_revision
    from tidemark.publish.flag import read_day_flag, read_hour_flag
    from tidemark.storage import open_storage

    hours = (wanted,) if isinstance(wanted, Hour) else hours_of_day(str(wanted))
    with open_session(connection_from_environment) as client:
        revisions = {hour: ready_revision(client, stream.name, hour) for hour in hours}
        day_revision = ready_revision(client, stream.name, wanted) if isinstance(wanted, Day) else 0
        timelines = StreamLedger(client, stream.name).timelines()
    lacking = [str(hour) for hour, revision in revisions.items() if not revision]
    if lacking:
        raise TidemarkError(f"Cannot verify {stream.name}/{wanted}: {', '.join(lacking)} not ready; ask `tidemark why`")
    storage, kafka = open_storage(stream.root, connection_from_environment), clusters(connection_from_environment)
    verified = []
    if day_revision:
        day = read_day_flag(storage, str(wanted), day_revision)
        verified.append(_Verified(wanted, day_revision, list(verify_day(day, storage))))
        revisions = {Hour.parse(hour): row["revision"] for hour, row in day["hours"].items()}
    flags = {hour: read_hour_flag(storage, hour, revision) for hour, revision in revisions.items()}
    total = sum(len(flag["files"]) + 1 + len(flag["shards"]) for flag in flags.values())
    for hour, flag in flags.items():
        findings = []
        for finding in chain(verify_files(flag, storage), verify_records(stream, flag, timelines, kafka)):
            findings.append(finding)
            bar.advance(total)
        verified.append(_Verified(hour, revisions[hour], findings))
    return verified
