import errno
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from tests.unit.boom_files import read_boom

from tidemark.cli.boom import write
from tidemark.cli.lines import line_from_json

GOLDEN = Path(__file__).parents[1] / "golden"
TIDEMARK = Path(sys.executable).with_name("tidemark")


def run(*arguments: str | Path, given: bytes = b"", folder: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([TIDEMARK, *arguments], input=given, capture_output=True, check=False, cwd=folder)


def names_of(folder: Path) -> Sequence[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("name", ["kaboom-badbytes", "kaboom-ordered", "logdriver-eventid"])
def test_read_prints_a_golden_file_exactly_as_its_tsv(name: str) -> None:
    done = run("boom", "read", GOLDEN / f"{name}.bm")
    assert (done.returncode, done.stdout) == (0, (GOLDEN / f"{name}.tsv").read_bytes())


@pytest.mark.parametrize("compression", ["small", "fast"])
def test_what_is_written_is_read_back(tmp_path: Path, compression: str) -> None:
    given = b"0\t\n-1500\tbefore 1970\n1399482308123\ta\tb\n7\t\xff\xfe raw\n8\tno newline at the end"
    written = run("boom", "write", "x.bm", "--compression", compression, given=given, folder=tmp_path)
    assert (written.returncode, written.stdout) == (0, b"")
    assert names_of(tmp_path) == ["x.bm"]
    done = run("boom", "read", "x.bm", folder=tmp_path)
    assert done.stdout == given + b"\n"


def test_nothing_given_makes_a_file_without_lines(tmp_path: Path) -> None:
    assert run("boom", "write", "x.bm", folder=tmp_path).returncode == 0
    assert read_boom((tmp_path / "x.bm").read_bytes()) == []


def test_read_as_json_keeps_newlines_and_bytes_that_are_not_text(tmp_path: Path) -> None:
    run("boom", "write", "x.bm", given="5\tGrüße\n6\t".encode() + b"\xff\n", folder=tmp_path)
    done = run("boom", "read", "x.bm", "--json", folder=tmp_path)
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert [row.get("message") for row in rows] == ["Grüße", None]
    assert rows[1]["message_base64"] == "/w=="
    assert [(row["epoch_ms"], row["block_number"], row["index"]) for row in rows] == [(5, 0, 0), (6, 0, 1)]


def test_write_takes_as_json_what_read_prints_as_json(tmp_path: Path) -> None:
    given = b'{"epoch_ms": -5, "message": "two\\nlines \xc3\xbc"}\n{"epoch_ms": 6, "message_base64": "/wo="}'
    written = run("boom", "write", "x.bm", "--json", given=given, folder=tmp_path)
    assert (written.returncode, written.stdout) == (0, b"")
    assert read_boom((tmp_path / "x.bm").read_bytes()) == [(-5, "two\nlines ü".encode()), (6, b"\xff\n")]
    printed = run("boom", "read", "x.bm", "--json", folder=tmp_path).stdout
    run("boom", "write", "again.bm", "--json", given=printed, folder=tmp_path)
    assert run("boom", "read", "again.bm", folder=tmp_path).stdout == b"-5\ttwo\nlines \xc3\xbc\n6\t\xff\n\n"


@pytest.mark.parametrize(
    "bad",
    [
        "no object",
        "5",
        "[]",
        '{"epoch_ms": 1}',
        '{"message": "a"}',
        '{"epoch_ms": "1", "message": "a"}',
        '{"epoch_ms": true, "message": "a"}',
        '{"epoch_ms": 1.5, "message": "a"}',
        '{"epoch_ms": 99999999999999999999, "message": "a"}',
        '{"epoch_ms": 1, "message": null}',
        '{"epoch_ms": 1, "message": "\\ud800"}',
        '{"epoch_ms": 1, "message_base64": "?"}',
    ],
)
def test_json_that_is_no_line_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match=r"an object \{"):
        line_from_json(bad.encode())


def test_bad_json_is_told_with_its_line_and_leaves_no_file(tmp_path: Path) -> None:
    given = b'{"epoch_ms": 1, "message": "a"}\n1\ta\n'
    done = run("boom", "write", "x.bm", "--json", given=given, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(
        "tidemark: Cannot write x.bm: line 2 of the input begins with b'1\\ta'; wanted"
    )
    assert names_of(tmp_path) == []


def test_a_file_system_without_hard_links_takes_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"1\ta\n")))
    write(tmp_path / "x.bm")
    assert names_of(tmp_path) == ["x.bm"]
    assert "1 lines" in capsys.readouterr().err


def test_write_refuses_to_overwrite(tmp_path: Path) -> None:
    (tmp_path / "x.bm").write_bytes(b"mine")
    done = run("boom", "write", "x.bm", given=b"1\ta\n", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr == b"tidemark: Cannot write x.bm: it exists, and is left as it is\n"
    assert (tmp_path / "x.bm").read_bytes() == b"mine"
    assert names_of(tmp_path) == ["x.bm"]


@pytest.mark.parametrize("bad", [b"no tab", b"x\ta", b"\ta", b"1.5\ta", b"99999999999999999999\ta", b""])
def test_bad_input_is_told_with_its_line_and_leaves_no_file(tmp_path: Path, bad: bytes) -> None:
    done = run("boom", "write", "x.bm", given=b"1\ta\n" + bad + b"\n", folder=tmp_path)
    assert done.returncode == 2
    told = done.stderr.decode()
    assert told.startswith("tidemark: Cannot write x.bm: line 2 of the input begins with b'")
    assert told.endswith("wanted epoch_ms<TAB>message\n")
    assert names_of(tmp_path) == []


def test_verify_tells_whole_files_from_damaged_ones(tmp_path: Path) -> None:
    whole = GOLDEN / "kaboom-ordered.bm"
    damaged = tmp_path / "damaged.bm"
    damaged.write_bytes(whole.read_bytes()[:-1])
    assert run("boom", "verify", whole).returncode == 0
    done = run("boom", "verify", whole, damaged)
    assert done.returncode == 1
    first, second, words = done.stdout.decode().splitlines()
    assert first.startswith(f"{whole}: whole: 5000 lines, 1 blocks, 20009 bytes, sha256 ")
    assert second.startswith(f"{damaged}: damaged after 0 lines, 0 blocks")
    assert f"Cannot read {damaged}: at byte 19993: a sync marker is cut" in second
    assert "cannot prove that no block is missing" in words


def test_verify_goes_on_behind_a_file_that_is_not_there(tmp_path: Path) -> None:
    whole = GOLDEN / "kaboom-ordered.bm"
    (tmp_path / "damaged.bm").touch()
    done = run("boom", "verify", "no.bm", "damaged.bm", whole, folder=tmp_path)
    first, second, _ = done.stdout.decode().splitlines()
    assert first.startswith("damaged.bm: damaged after 0 lines")
    assert second.startswith(f"{whole}: whole: ")
    assert (done.returncode, done.stderr) == (2, b"tidemark: Cannot read no.bm: No such file or directory\n")


def test_verify_as_json_says_what_is_not_proven() -> None:
    done = run("boom", "verify", "--json", GOLDEN / "kaboom-ordered.bm")
    found = json.loads(done.stdout)
    assert (found["whole"], found["lines"], found["blocks"], found["error"]) == (True, 5000, 1, None)
    assert "cut off exactly between two blocks" in found["not_proven"]


@pytest.mark.parametrize("command", ["read", "verify"])
def test_a_file_that_is_not_there_is_wrong_use(command: str, tmp_path: Path) -> None:
    done = run("boom", command, "no.bm", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, b"tidemark: Cannot read no.bm: No such file or directory\n")


def test_a_damaged_file_is_an_error_after_its_good_lines(tmp_path: Path) -> None:
    (tmp_path / "x.bm").write_bytes((GOLDEN / "kaboom-ordered.bm").read_bytes() + b"!")
    done = run("boom", "read", "x.bm", folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == (GOLDEN / "kaboom-ordered.tsv").read_bytes()
    assert b"Cannot read x.bm: at byte 20009" in done.stderr


@pytest.mark.parametrize("command", ["boom read {golden}.bm {golden}.bm", "parse < {golden}.tsv"])
def test_a_reader_that_goes_away_is_no_error(command: str) -> None:
    pipe = f"{TIDEMARK} {command.format(golden=GOLDEN / 'kaboom-ordered')} | head -n 1"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == b""


def test_parse_prints_time_and_line() -> None:
    given = b"2014-05-07T17:05:08.123Z host app\n100 bottles of beer\n<34>no ts\n\n1399482308 \xff\nlast"
    done = run("parse", given=given)
    assert done.returncode == 0
    assert done.stdout == (
        b"1399482308123\thost app\n-\t100 bottles of beer\n-\tno ts\n-\t\n1399482308000\t\xff\n-\tlast\n"
    )


def test_parse_answers_each_line_when_it_comes() -> None:
    """As for one who types, or for `tail -f`; half a line waits for its other half."""
    with subprocess.Popen([TIDEMARK, "parse"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as parse:
        assert parse.stdin
        assert parse.stdout
        for given, told in ((b"1399482308 a\n1399482309", b"1399482308000\ta\n"), (b" b\n", b"1399482309000\tb\n")):
            parse.stdin.write(given)
            assert select.select([parse.stdout], [], [], 60)[0], "nothing is told while the input is open"
            assert parse.stdout.read(100) == told


def test_parse_joins_a_line_that_is_longer_than_it_reads_at_once() -> None:
    long = b"x" * 5_000_000
    assert run("parse", given=b"1399482308 " + long + b"\ny\n").stdout == b"1399482308000\t" + long + b"\n-\ty\n"
