"""A reader of the documents types every command of every page, in order, in one shell, on the stack of the tutorial."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.documents import PAGES_WITH_COMMANDS, REPOSITORY, Block, blocks_of

from tidemark.environment import inherited_environment, streams_file
from tidemark.stack import Stack

PATIENCE_S = 1800
# All that the commands name of a checkout; what they make stays in the test's own folder.
CHECKOUT = ("Makefile", ".venv", "requirements.txt", "pyproject.toml", ".env.example")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for name in CHECKOUT:
        (tmp_path / name).symlink_to(REPOSITORY / name)
    shutil.copy(streams_file(), tmp_path / "streams.yaml")
    yield tmp_path
    Stack(tmp_path / ".tidemark" / "demo").down()


def test_every_command_of_the_documents_does_what_its_page_says(folder: Path) -> None:
    blocks = [block for page in PAGES_WITH_COMMANDS for block in blocks_of(REPOSITORY / "docs" / page)]
    environment = {
        **inherited_environment(),
        "TIDEMARK_HOME": str(folder / ".tidemark"),
        "TIDEMARK_STREAMS": str(folder / "streams.yaml"),
    }
    log = folder / "shell.log"
    with log.open("w") as out:
        shell = subprocess.run(
            ["bash", "-s"],
            input="\n".join(_typed(block) for block in blocks),
            env=environment,
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert shell.returncode == 0, "".join(log.read_text("utf-8").splitlines(keepends=True)[-60:])


def _typed(block: Block) -> str:
    """What a reader does with a block; a shell that ends early has said which one it was at."""
    if block.kind == "yaml":
        return f"cat >> \"$TIDEMARK_STREAMS\" <<'END'\n{block.text}END"
    if block.kind != "sh" or block.needs_docker:
        return ""
    if block.ends_with:
        return f'echo "=== {block}"\nset +e\n{block.text}found=$?\nset -e\ntest $found = {block.ends_with}'
    return f'echo "=== {block}"\nset -e\n{block.text}'
