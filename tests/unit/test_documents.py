"""What the documents say is so: links lead somewhere, commands can be typed, tables are those of the code.

That the commands do what the pages promise is tests/long/test_commands_of_documents.py.
"""

import inspect
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel
from tests.documents import PAGES_WITH_COMMANDS, REPOSITORY, Block, blocks_of, links_of, pages

from tidemark.cli.default_command import ShowsByDefault
from tidemark.cli.main import app
from tidemark.config import Stream, load_streams
from tidemark.index import IndexRecord
from tidemark.ledger import paths, records
from tidemark.names import Hour

DOCS = REPOSITORY / "docs"
COMMAND_BLOCKS = [block for page in pages() for block in blocks_of(page) if block.kind == "sh"]
_TIDEMARK = re.compile(r"(?:^ *|\| |\$\(|`)(?:\.venv/bin/|/opt/tidemark/bin/)?tidemark ([^`|\n)]*)", re.MULTILINE)
_NAMED_TEST = re.compile(r"\b(test_\w+)\b(?!\.py)")
_NAMED_FILE = re.compile(r"`((?:tests/\w+/)?test_\w+\.py)`")
_ANCHOR = re.compile(r"[^\w\- ]")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links_of(page):
        target, _, anchor = link.partition("#")
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in _anchors(found), f"{page.name}: {link}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {_ANCHOR.sub("", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("block", COMMAND_BLOCKS, ids=str)
def test_every_block_of_commands_is_a_script(block: Block) -> None:
    checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_page_with_commands_is_run() -> None:
    found = {Path(block.page).relative_to("docs").as_posix() for block in COMMAND_BLOCKS}
    assert found == set(PAGES_WITH_COMMANDS)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_command_of_ours_that_a_page_names_is_there_with_its_options(page: Path) -> None:
    group = typer.main.get_command(app)
    for match in _TIDEMARK.finditer(page.read_text("utf-8")):
        _check_command(group, match[1])


@pytest.mark.parametrize("text", ["nosuch clicks", "timeline swich clicks", "flags clicks --nosuch", "nosuch"])
def test_a_command_that_is_not_there_is_found_out(text: str) -> None:
    with pytest.raises(AssertionError, match=text.split()[-1]):
        _check_command(typer.main.get_command(app), text)


@pytest.mark.parametrize(
    "page",
    [
        "    tidemark nosuch",
        "x\n   tidemark nosuch",
        "out=$(/opt/tidemark/bin/tidemark nosuch 2>&1)",
        "`tidemark nosuch`",
    ],
)
def test_a_command_is_seen_wherever_it_stands(page: str) -> None:
    assert [match[1].split()[0] for match in _TIDEMARK.finditer(page)] == ["nosuch"]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    """In one of the files that its paragraph names."""
    for paragraph in re.split(r"\n\n|\n- ", page.read_text("utf-8")):
        files = [file for name in _NAMED_FILE.findall(paragraph) for file in _test_files(name)]
        known = "".join(file.read_text("utf-8") for file in files)
        for test in _NAMED_TEST.findall(paragraph):
            assert f"def {test}(" in known, f"{page.name}: {test}"


def _test_files(name: str) -> list[Path]:
    found = [REPOSITORY / name] if "/" in name else [*REPOSITORY.glob(f"tests/*/{name}")]
    assert [file for file in found if file.exists()], name
    return found


def _check_command(command: Any, text: str) -> None:
    words = text.split()
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands"):
        is_whole = not words or not re.fullmatch(r"[a-z]+", words[0])
        assert is_whole or isinstance(command, ShowsByDefault), f"tidemark {text}: there is no {words[0]}"
    command = command.commands["show"] if isinstance(command, ShowsByDefault) else command
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        option = word.strip("[]\"'.,:;").partition("=")[0]
        if option.startswith("--") and option != "--":
            assert option in known | {"--help", "--version"}, f"tidemark {text}: {option}"


def test_the_table_of_settings_has_each_field_with_its_default() -> None:
    table = (DOCS / "reference/configuration.md").read_text("utf-8")
    documented = {
        name: default
        for names, default in re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \| ((?:`[^`]+`)?) ?\|", table, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", names)
    }
    assert {name: documented.get(name) for name in _defaults(Stream)} == _defaults(Stream)


def _defaults(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            found |= _defaults(type(field.default), f"{prefix}{name}.")
        elif name != "name":
            found[f"{prefix}{name}"] = "" if field.is_required() or field.default is None else _written(field.default)
    return found


def _written(default: Any) -> str:
    if isinstance(default, str | int):
        return "`256MB`" if default == 256_000_000 else f"`{default}`"
    for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if default.total_seconds() % seconds == 0:
            return f"`{int(default.total_seconds() // seconds)}{unit}`"
    raise AssertionError(default)


def test_the_page_of_zookeeper_has_every_node_and_every_field() -> None:
    page = (DOCS / "reference/zookeeper.md").read_text("utf-8")
    given: dict[str, Any] = {
        "stream": "<stream>", "day": "<day>", "hour": Hour(0), "shift": "<id>", "epoch": "<n>", "order": 0,
        "name": "worker-…",
    }  # fmt: skip
    for _, function in inspect.getmembers(paths, inspect.isfunction):
        path = function(*(given[name] for name in inspect.signature(function).parameters))
        path = path.replace("0000", "<nnnn>").replace("1970-01-01/00", "<day>/<HH>")
        assert f"{path}" in page, path
    for kind in (
        records.Worker, records.LeaseRecord, records.Head, records.TimelinesVersion, records.Timeline,
        records.Positions, records.ShiftRecord, records.HourRecord, records.DayRecord, records.Retention,
    ):  # fmt: skip
        for field in fields(kind):
            name = "try" if field.name == "attempt" else field.name
            assert f"`{name}`" in page, f"{kind.__name__}.{name}"
    for state in (*records.HourState, *records.ShiftState):
        assert f"`{state}`" in page


def test_the_table_of_the_index_has_its_fields_and_no_others() -> None:
    page = (DOCS / "reference/storage.md").read_text("utf-8").partition("## The index")[2]
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {f.name for f in fields(IndexRecord)}


@pytest.mark.parametrize(
    "block", [block for page in pages() for block in blocks_of(page) if block.kind == "yaml"], ids=str
)
def test_every_stream_of_the_documents_is_sound(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "streams.yaml"
    file.write_text(f"streams:\n{block.text}", "utf-8")
    assert yaml.safe_load(file.read_text("utf-8"))["streams"]
    assert load_streams(file).errors == ()
