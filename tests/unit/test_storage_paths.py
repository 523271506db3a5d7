import pickle
import posixpath
import unicodedata

import pytest
from hdfs import HdfsError
from hypothesis import given
from hypothesis import strategies as st

from tidemark.environment import Connection
from tidemark.errors import NotFound, TidemarkError, WrongUse
from tidemark.storage import FileAttributes, open_storage
from tidemark.storage.paths import check_folder, check_path, part_beside, split_root
from tidemark.storage.webhdfs_calls import meaning_of


def looks_like_a_way_out(name: str) -> bool:
    """Also to a system that makes one of characters that look alike."""
    alike = unicodedata.normalize("NFKC", name)
    return alike in (".", "..") or "/" in alike


NAMES = st.text(
    st.characters(exclude_characters="/:", exclude_categories=("Cc", "Cs")), min_size=1, max_size=60
).filter(lambda name: not looks_like_a_way_out(name))
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)


def connect(conn_id: str) -> Connection:
    return Connection(conn_id=conn_id, host="namenode", port=9870, login="tide", password="secret")


def connect_with(**extra: object) -> Connection:
    return Connection(conn_id="webhdfs_default", host="namenode", extra=extra)


@given(PATHS)
def test_a_path_of_plain_names_is_taken_as_it_is(path: str) -> None:
    assert check_path(path) == path


@given(st.text())
def test_no_path_that_is_taken_leaves_the_root(path: str) -> None:
    try:
        check_path(path)
    except WrongUse:
        return
    for read in (path, unicodedata.normalize("NFKC", path)):
        assert posixpath.normpath(f"/root/{read}") == f"/root/{read}"


BAD = ["..", ".", "", "a\nb", "a\x00", "a:b", "\ud800", "x" * 256, "é" * 128]
BAD += ["．．", "‥", "․․", "a／b", "℅"]


@given(PATHS, st.sampled_from(BAD), PATHS)
def test_one_bad_part_refuses_the_whole_path(before: str, bad: str, after: str) -> None:
    with pytest.raises(WrongUse):
        check_path(f"{before}/{bad}/{after}")


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/..", "."])
def test_a_path_that_is_not_relative_and_plain_is_refused(path: str) -> None:
    with pytest.raises(WrongUse, match="wanted a relative path"):
        check_path(path)


def test_only_where_a_folder_is_meant_the_root_has_a_name() -> None:
    assert check_folder("") == ""


@given(PATHS)
def test_a_part_is_hidden_and_lies_in_the_folder_of_its_file(path: str) -> None:
    part = part_beside(path)
    assert check_path(part) == part
    assert posixpath.dirname(part) == posixpath.dirname(path)
    assert posixpath.basename(part).startswith("_")
    assert part != part_beside(path)


@given(st.sampled_from(["hdfs", "file"]), PATHS, st.sampled_from(["", "/"]))
def test_a_root_names_its_file_system_and_folder(scheme: str, path: str, ending: str) -> None:
    assert split_root(f"{scheme}:///{path}{ending}") == (scheme, f"/{path}")


@pytest.mark.parametrize(
    "root",
    [
        "",
        "/data",
        "data",
        "hdfs:/data",
        "hdfs://host/data",
        "hdfs:///",
        "s3:///data",
        "file:///a/../b",
        "HDFS:///a",
    ],
)
def test_another_root_is_refused_with_what_was_found_and_wanted(root: str) -> None:
    with pytest.raises(WrongUse) as refusal:
        open_storage(root, connect)
    assert repr(root) in str(refusal.value)
    assert "wanted hdfs:///folder or file:///folder" in str(refusal.value)


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (connect_with(), "webhdfs://namenode:9870/data/a b%.bm"),
        (connect_with(namenode="hdfs://namenode:8020"), "hdfs://namenode:8020/data/a b%.bm"),
    ],
)
def test_spark_reads_by_the_namenode_when_the_connection_has_one(connection: Connection, expected: str) -> None:
    assert open_storage("hdfs:///data", lambda _: connection).uri("a b%.bm") == expected


def test_a_connection_without_a_host_is_refused() -> None:
    with pytest.raises(WrongUse, match="webhdfs_default: found no host"):
        open_storage("hdfs:///data", lambda conn_id: Connection(conn_id=conn_id))


def test_retry_seconds_must_be_a_number() -> None:
    with pytest.raises(WrongUse, match="found retry_seconds 'long', wanted a number"):
        open_storage("hdfs:///data", lambda _: connect_with(retry_seconds="long"))


@pytest.mark.parametrize("root", ["hdfs:///data", "file:///data"])
def test_a_storage_travels_by_pickle_and_shows_no_password(root: str) -> None:
    storage = open_storage(root, connect, FileAttributes(mode=0o640))
    travelled = pickle.loads(pickle.dumps(storage))
    assert repr(travelled) == repr(storage)
    assert travelled.uri("a") == storage.uri("a")
    assert "secret" not in repr(storage)


@pytest.mark.parametrize("attributes", [{"mode": 0o1000}, {"mode": -1}, {"replication": 0}])
def test_attributes_that_no_file_can_have_are_refused(attributes: dict[str, int]) -> None:
    with pytest.raises(WrongUse):
        FileAttributes(**attributes)  # type: ignore[arg-type]


def test_an_answer_of_hdfs_is_told_in_one_line() -> None:
    refusal = HdfsError("File /x\n\tat org.apache…", exception="FileNotFoundException")
    error = meaning_of(refusal, "read /x at http://nn:9870")
    assert type(error) is NotFound
    assert str(error) == "Cannot read /x at http://nn:9870: File /x (FileNotFoundException)"


def test_an_answer_that_nobody_knows_is_an_error_that_stops() -> None:
    assert type(meaning_of(HdfsError("<html>\n"), "read /x")) is TidemarkError
