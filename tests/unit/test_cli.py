"""The command as a shell sees it: the map, one line for an error, exit codes, quiet ends, terminals and pipes."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.reference.commands import ROOT, leaves
from tests.waiting import wait_until

from tidemark.cli.main import main
from tidemark.cli.map import PANELS

COMMAND = [sys.executable, "-c", "from tidemark.cli.main import main; main()"]
GOLDEN = Path(__file__).parents[1] / "golden" / "kaboom-ordered.bm"
LEAVES = leaves()
NAMES = [" ".join(path) for path in LEAVES]
OF_A_STREAM = [path for path, command in LEAVES.items() if "STREAM" in [one.metavar for one in command.params]]
COLOUR = re.compile(r"\x1b\[(?:3|9)[0-9]")
WITHOUT_JSON = {
    "flags accept",
    "flags replay",
    "offsets set",
    "timeline switch",
    "timeline retire",
    "timeline abandon",
    "workers evict",
    "parse",
    "archive repair",
    "rebuild",
    "stack up",
    "stack down",
    "stack env",
    "demo",
}
ASKING = {
    "flags accept",
    "flags replay",
    "offsets set",
    "timeline switch",
    "timeline retire",
    "timeline abandon",
    "workers evict",
    "archive repair",
    "rebuild",
    "retain",
}


def tidemark(
    *arguments: str, home: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments],
        env={"TIDEMARK_HOME": str(home), "PATH": "", "TERM": "dumb", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def in_a_shell(line: str) -> "subprocess.CompletedProcess[str]":
    command = f"{sys.executable} -c 'from tidemark.cli.main import main; main()' {line}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """In this process: the exit code."""
    monkeypatch.setattr(sys, "argv", ["tidemark", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    return code if isinstance(code, int) else 0


def on_a_terminal(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and all that it shows, where standard output and error are a terminal."""
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        with suppress(OSError):
            while data := os.read(ours, 4096):
                shown.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    done = subprocess.run(command, env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    reader.join(30)
    os.close(ours)
    return done.returncode, shown.decode()


def test_the_map_has_every_command_and_each_in_one_line_of_80_columns(tmp_path: Path) -> None:
    shown = tidemark("--help", home=tmp_path, environment={"COLUMNS": "80"})
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert sorted(ROOT.commands) == sorted(name for names in PANELS.values() for name in names)
    for name in ROOT.commands:
        [line] = [line for line in lines if re.match(rf"  {name}  ", line)]
        assert line.endswith((".", "?"))
    assert "Exit codes: 0 yes, 1 no, 2 wrong use, 3 a service is not reachable." in shown.stdout


@pytest.mark.parametrize("path", LEAVES, ids=NAMES)
def test_every_command_tells_what_it_does_in_one_line_and_explains_all_its_words(path: tuple[str, ...]) -> None:
    command = LEAVES[path]
    assert len(command.help.splitlines()[0]) <= 68
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert parameter.metavar or parameter.is_flag, parameter.name


def test_the_same_word_means_the_same_everywhere() -> None:
    """The words are few; an option that two commands share is told in one way."""
    told: dict[str, set[str]] = {}
    for command in LEAVES.values():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                told.setdefault(parameter.opts[0], set()).add(parameter.help)
    assert {name for name, texts in told.items() if len(texts) > 1} == {"--json"}
    arguments = {one.metavar for command in LEAVES.values() for one in command.params if one.opts[0][0] != "-"}
    words = {"STREAM", "HOUR", "DAY", "HOUR|DAY", "SHARD", "OFFSET", "TIMELINE", "WORKER", "DAG", "FILE", "SERVICE"}
    assert arguments == words


def test_everything_that_prints_a_table_prints_json_too() -> None:
    without = {" ".join(path) for path, command in LEAVES.items() if not _has(command, "--json")}
    assert without == WITHOUT_JSON


def test_everything_that_changes_something_asks() -> None:
    assert {" ".join(path) for path, command in LEAVES.items() if _has(command, "--yes")} == ASKING


@pytest.mark.parametrize("path", LEAVES, ids=NAMES)
def test_an_unknown_option_is_wrong_use_of_every_command(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*path, "--no-such-option", monkeypatch=monkeypatch) == 2
    assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize("path", OF_A_STREAM, ids=map(" ".join, OF_A_STREAM))
def test_a_name_that_would_leave_its_root_is_wrong_use_of_every_command_with_a_stream(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [one for one in LEAVES[path].params if one.param_type_name == "argument"]
    values = {"STREAM": "../x", "HOUR": "2026-11-15T07", "DAY": "2026-11-15", "HOUR|DAY": "2026-11-15T07"}
    values |= {"SHARD": "0001-0", "OFFSET": "1", "TIMELINE": "1"}
    options = {"flags accept": ["--reason", "r"], "timeline switch": ["--cluster", "main", "--topic", "t"]}
    given = [values[one.metavar] for one in arguments] + options.get(" ".join(path), [])
    assert run(*path, *given, monkeypatch=monkeypatch) == 2
    told = capsys.readouterr().err
    assert "../x" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("line", ["flags clicks", "archive check clicks", "archive repair clicks"])
@pytest.mark.parametrize("day", ["x", "2026-13-45"])
def test_a_day_is_an_argument_and_an_error_names_it(
    line: str, day: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*line.split(), day, monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == f"tidemark: Cannot read {day!r} as a day: wanted UTC, such as 2026-11-15\n"


def _has(command: Any, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


def test_wrong_use_is_2_and_one_line(tmp_path: Path) -> None:
    found = tidemark("stack", "up", "--port", "kafka=many", home=tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith("tidemark: ")
    assert len(found.stderr.splitlines()) == 1


def test_no_is_1(tmp_path: Path) -> None:
    assert tidemark("stack", "status", home=tmp_path).returncode == 1


@pytest.mark.parametrize("line", ["--debug stack up --port kafka=many", "stack up --port kafka=many --debug"])
def test_debug_shows_where_an_error_came_from_wherever_it_stands(line: str, tmp_path: Path) -> None:
    found = tidemark(*line.split(), home=tmp_path)
    assert "Traceback" in found.stderr


def test_an_error_that_nobody_expected_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> NoReturn:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("tidemark.ledger.zookeeper.open_session", fail)
    assert run("workers", monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err == "tidemark: unexpected RuntimeError: first (--debug shows where)\n"


def test_a_connection_that_cannot_be_read_is_wrong_use(tmp_path: Path) -> None:
    environment = {"AIRFLOW_CONN_ZOOKEEPER_DEFAULT": '{"host": "127.0.0.1", "port": "many"}'}
    found = tidemark("workers", home=tmp_path, environment=environment)
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ["rebuild clicks"])
def test_a_change_without_yes_and_without_a_terminal_is_wrong_use(line: str, tmp_path: Path) -> None:
    found = tidemark(*line.split(), home=tmp_path)
    assert found.returncode == 2
    assert "say --yes" in found.stderr
    assert found.stdout


def test_ctrl_c_ends_quietly_and_leaves_nothing(tmp_path: Path) -> None:
    waiting = subprocess.Popen(
        [*COMMAND, "boom", "write", str(tmp_path / "x.bm")], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: any(tmp_path.iterdir()), "it waits for lines")
    waiting.send_signal(signal.SIGINT)
    _, told = waiting.communicate(timeout=60)
    assert (waiting.returncode, told, list(tmp_path.iterdir())) == (130, "", [])


def test_a_reader_that_goes_away_ends_a_command_quietly(tmp_path: Path) -> None:
    """More than any pipe holds, so that the command is still writing when its reader is gone."""
    given = tmp_path / "input"
    given.write_text("line\n" * 2_000_000)
    command = f"{sys.executable} -c 'from tidemark.cli.main import main; main()' parse < {given}"
    pipe = f"{command} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("boom write {folder}/x.bm <&-", "read standard input: it is closed"),
        ("parse <&-", "read standard input: it is closed"),
        ("boom read {golden} >&-", "write standard output: it is closed"),
        ("boom write {folder}/x.bm >&- </dev/null", "write standard output: it is closed"),
    ],
)
def test_input_or_output_that_is_closed_is_wrong_use(line: str, told: str, tmp_path: Path) -> None:
    done = in_a_shell(line.format(folder=tmp_path, golden=GOLDEN))
    assert (done.returncode, done.stderr) == (2, f"tidemark: Cannot {told}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["boom read {golden}", "boom verify {golden}", "parse < {golden}", "--version"])
def test_output_that_is_full_is_told_in_one_line(line: str) -> None:
    done = in_a_shell(f"{line.format(golden=GOLDEN)} > /dev/full")
    assert (done.returncode, done.stderr) == (1, "tidemark: Cannot write standard output: No space left on device\n")


def test_a_question_without_an_input_is_wrong_use() -> None:
    done = in_a_shell("rebuild clicks <&-")
    assert done.returncode == 2
    assert "say --yes" in done.stderr


@pytest.mark.parametrize(("settings", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_and_not_with_no_color(
    settings: Mapping[str, str], is_coloured: bool, tmp_path: Path
) -> None:
    environment = {"TIDEMARK_HOME": str(tmp_path), "PATH": "", "TERM": "xterm-256color"}
    _, shown = on_a_terminal([*COMMAND, "stack", "status"], {**environment, **settings})
    assert "service" in shown
    assert bool(COLOUR.search(shown)) == is_coloured
    assert "\x1b" not in tidemark("stack", "status", home=tmp_path, environment={"TERM": "xterm-256color"}).stdout


def test_a_row_stays_one_line_in_a_pipe(tmp_path: Path) -> None:
    file = tmp_path / "streams.yaml"
    root = f"file:///{'deep/' * 40}"
    file.write_text(f"streams: {{clicks: {{cluster: main, topic: clicks, owner: web, root: '{root}'}}}}")
    shown = tidemark("streams", home=tmp_path, environment={"TIDEMARK_STREAMS": str(file)})
    assert len(shown.stdout.splitlines()) == 2
    assert root.rstrip("/") in shown.stdout


@pytest.mark.parametrize(("seconds", "is_shown"), [(0, False), (4, True)])
def test_a_bar_is_shown_on_a_terminal_when_a_command_takes_its_time(seconds: int, is_shown: bool) -> None:
    code = f"import time; from tidemark.cli.progress import progress\nwith progress('Reading'): time.sleep({seconds})"
    _, shown = on_a_terminal([sys.executable, "-c", code], {"TERM": "xterm-256color"})
    assert ("Reading" in shown) == is_shown
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (piped.stdout, piped.stderr) == (b"", b"")


def test_a_command_that_looks_before_it_asks_shows_a_bar(tmp_path: Path) -> None:
    """At a ZooKeeper that takes connections and says nothing."""
    lines = (
        "workers evict worker-0000000001",
        "flags accept clicks 2026-11-15T07 --reason known",
        "timeline retire clicks 1",
        "retain clicks --execute 0123",
    )
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(len(lines)) as threads:
        connection = json.dumps({"host": "127.0.0.1", "port": silent.getsockname()[1]})
        environment = {"TIDEMARK_HOME": str(tmp_path), "PATH": "", "TERM": "xterm-256color"}
        environment["AIRFLOW_CONN_ZOOKEEPER_DEFAULT"] = connection
        found = list(threads.map(lambda line: on_a_terminal([*COMMAND, *line.split()], environment), lines))
    assert [code for code, _ in found] == [3] * len(lines)
    assert [shown for _, shown in found if not re.search(r"Looking|Reading", shown)] == []


@pytest.mark.parametrize(
    ("shell", "words", "wanted"),
    [
        ("bash", "why cl", "clicks"),
        ("bash", "offsets ", "payments"),
        ("zsh", "flags accept cl", "clicks"),
        ("fish", "arch", "archive"),
    ],
)
def test_the_shell_completes_commands_and_streams(shell: str, words: str, wanted: str, tmp_path: Path) -> None:
    line = f"tidemark {words}"
    environment = {
        "_TIDEMARK_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    script = Path(sys.executable).with_name("tidemark")
    done = subprocess.run(
        [script, "--help"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert wanted in done.stdout
