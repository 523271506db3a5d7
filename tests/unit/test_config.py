from datetime import timedelta
from pathlib import Path

import pytest

from tidemark.config import load_stream, load_streams
from tidemark.drive.services import attributes_of
from tidemark.environment import repository_folder
from tidemark.errors import WrongUse
from tidemark.storage import FileAttributes

GOOD = "{cluster: main, topic: t, root: 'hdfs:///data/t', owner: web}"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "streams.yaml"
    path.write_text(text, "utf-8")
    return path


def test_the_streams_that_are_shipped_are_sound() -> None:
    loaded = load_streams(repository_folder() / "include" / "config" / "streams.yaml")
    assert loaded.errors == ()
    assert set(loaded.streams) == {"clicks", "payments"}


def test_defaults_are_those_of_the_documents(tmp_path: Path) -> None:
    stream = load_stream(write(tmp_path, f"streams: {{clicks: {GOOD}}}"), "clicks")
    assert stream.grace == timedelta(minutes=5)
    assert stream.skew.past == timedelta(days=7)
    assert (stream.start, stream.timestamp, stream.compression) == ("earliest", "kafka", "small")
    assert stream.kafka_connection == "kafka_main"


def test_files_get_what_the_stream_asks_for(tmp_path: Path) -> None:
    files = '{owner: tide, group: mark, mode: "0640", replication: 2}'
    text = f"streams: {{clicks: {{cluster: main, topic: t, root: 'hdfs:///t', owner: web, files: {files}}}}}"
    stream = load_stream(write(tmp_path, text), "clicks")
    assert attributes_of(stream) == FileAttributes(owner="tide", group="mark", mode=0o640, replication=2)


def test_files_are_left_to_the_file_system_by_default(tmp_path: Path) -> None:
    stream = load_stream(write(tmp_path, f"streams: {{clicks: {GOOD}}}"), "clicks")
    assert attributes_of(stream) == FileAttributes()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("{cluster: main, root: 'hdfs:///x', owner: w}", "field topic: found nothing: Field required"),
        (
            "{cluster: main, topic: t, root: 's3://x', owner: w}",
            "field root: found 's3://x': wanted hdfs:///path or file:///path",
        ),
        ("{cluster: main, topic: t, root: 'hdfs:///a/../b', owner: w}", "without '..'"),
        ("{cluster: main, topic: ../t, root: 'hdfs:///x', owner: w}", "field topic: found '../t'"),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, grace: 5 minutes}",
            "field grace: found '5 minutes': wanted a number and a unit s, m, h or d",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, start: first}",
            "field start: found 'first': wanted earliest, latest or a time with its zone",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, topics: u}",
            "field topics: found 'u': no such field; allowed are archive, cluster, compression",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, max_clock_skew: 10m}",
            "max_clock_skew 0:10:00 must be below grace 0:05:00",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, retain: 7d}",
            "retain 7 days, 0:00:00 must be longer than skew.past 7 days, 0:00:00",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, every: 7m}",
            "every 0:07:00 must be whole minutes of which an hour has a whole number",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, archive: {target_size: 256}}",
            "field archive.target_size: found 256: wanted a number and a unit kB, MB or GB",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, ready_within: 5m}",
            "ready_within 0:05:00 must be above grace 0:05:00",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, files: {mode: 640}}",
            """field files.mode: found 640: wanted octal digits in quotes, such as "0640\"""",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, files: {mode: '1777'}}",
            "field files.mode: found '1777': wanted octal digits",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, files: {replication: 0}}",
            "field files.replication: found 0: Input should be greater than or equal to 1",
        ),
        (
            "{cluster: main, topic: t, root: 'hdfs:///x', owner: w, files: {modes: '0640'}}",
            "field files.modes: found '0640': no such field; allowed are group, mode, owner, replication",
        ),
        ("just text", "found 'just text'; wanted a mapping of settings"),
    ],
)
def test_an_error_names_file_stream_field_value_and_what_is_allowed(
    tmp_path: Path, settings: str, complaint: str
) -> None:
    path = write(tmp_path, f"streams: {{clicks: {settings}}}")
    loaded = load_streams(path)
    assert loaded.streams == {}
    assert len(loaded.errors) == 1
    assert loaded.errors[0].startswith(f"{path}: stream clicks: ")
    assert complaint in loaded.errors[0]


def test_a_bad_stream_leaves_the_others_alone(tmp_path: Path) -> None:
    loaded = load_streams(write(tmp_path, f"streams: {{good: {GOOD}, bad: {{}}, Evil/..: {GOOD}}}"))
    assert set(loaded.streams) == {"good"}
    assert {error.split(": ")[1] for error in loaded.errors} == {"stream bad", "stream Evil/.."}


@pytest.mark.parametrize(
    ("first", "second"), [("hdfs:///a/b", "hdfs:///a/b/"), ("hdfs:///a/b", "hdfs:///a"), ("file:///a", "file:///a/b/c")]
)
def test_streams_whose_roots_are_one_or_lie_in_one_another_are_both_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    others = {"first": first, "beside": "hdfs:///a/c", "longer": "hdfs:///a/bc", "second": second}
    if second == "hdfs:///a":
        del others["beside"], others["longer"]
    rows = "".join(f"  {name}: {{cluster: c, topic: t, root: '{root}', owner: w}}\n" for name, root in others.items())
    loaded = load_streams(write(tmp_path, f"streams:\n{rows}"))
    assert set(loaded.streams) == set(others) - {"first", "second"}
    assert [error.partition(": ")[2] for error in sorted(loaded.errors)] == [
        f"stream {name}: field root: found {root.rstrip('/')!r}: stream {other} has {others[other].rstrip('/')!r}; "
        "wanted a root of its own, neither above nor below another's"
        for name, root, other in (("first", first, "second"), ("second", second, "first"))
    ]


@pytest.mark.parametrize("text", ["", "streams: [", "streams: 7", "\ud800"])
def test_a_file_that_is_no_configuration_is_one_error_and_no_crash(tmp_path: Path, text: str) -> None:
    path = tmp_path / "streams.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    loaded = load_streams(path)
    assert loaded.streams == {}
    assert len(loaded.errors) == 1
    assert str(path) in loaded.errors[0]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    assert "cannot be read" in load_streams(tmp_path / "none.yaml").errors[0]


def test_an_unknown_stream_is_told_with_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path, f"streams: {{clicks: {GOOD}}}")
    with pytest.raises(WrongUse, match=r"Cannot find the stream 'cliks' in .*: it has clicks"):
        load_stream(path, "cliks")


def test_asking_for_a_bad_stream_tells_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = write(tmp_path, f"streams: {{good: {GOOD}, bad: {{cluster: main}}}}")
    with pytest.raises(WrongUse, match="stream bad: field topic"):
        load_stream(path, "bad")
