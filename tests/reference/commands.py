"""The commands, their arguments, options and exit codes, as the code has them."""

from collections.abc import Iterator
from typing import Any

import typer

from tidemark.cli.default_command import DEFAULT, ShowsByDefault
from tidemark.cli.main import EXIT_CODES, app
from tidemark.cli.map import PANELS

ROOT: Any = typer.main.get_command(app)
_EVERYWHERE = """\
Answers go to standard output; errors, questions and progress to standard error. Progress bars (of what takes longer
than two seconds) and colours are for terminals only, and `NO_COLOR` is honoured. A command that changes something says
what it will do and asks; `--yes` is the answer where nobody can give one.

`tidemark --install-completion` teaches your shell (bash, zsh, fish) the commands, options and names of streams.
"""


def leaves(command: Any = ROOT, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command that does something, by the words that name it."""
    if not hasattr(command, "commands"):
        return {path: command}
    found: dict[tuple[str, ...], Any] = {}
    for name in command.list_commands(None):
        found |= leaves(command.commands[name], (*path, name))
    return found


def page() -> str:
    return "\n".join([*_head(), *(line for panel in PANELS for line in _panel(panel))])


def _head() -> Iterator[str]:
    yield "# Commands"
    yield "\nMade from the code by `python -m tests.reference`.\n"
    yield "## Exit codes\n"
    yield "| code | means |"
    yield "|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    yield "\n## Everywhere\n"
    yield _EVERYWHERE
    yield from map(_parameter, ROOT.params)
    yield "- `-h`, `--help`: What a command does; of `tidemark` alone the map of all.\n"


def _panel(panel: str) -> Iterator[str]:
    yield f"## {panel}\n"
    for path, command in leaves().items():
        if path[0] in PANELS[panel]:
            yield from _command(_shortest(path), command)


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"### tidemark {name}\n"
    yield f"    tidemark {' '.join([name, *map(_usage, command.params)])}\n"
    for paragraph in command.help.split("\n\n"):
        yield f"{' '.join(paragraph.split())}\n"
    yield from map(_parameter, command.params)
    if command.params:
        yield ""


def _shortest(path: tuple[str, ...]) -> str:
    is_default = path[-1] == DEFAULT and isinstance(ROOT.commands[path[0]], ShowsByDefault)
    return " ".join(path[:-1] if is_default else path)


def _usage(parameter: Any) -> str:
    many = "…" if parameter.multiple or parameter.nargs != 1 else ""
    if parameter.param_type_name == "argument":
        name = f"{parameter.metavar}{many}"
    else:
        name = parameter.opts[0] if parameter.is_flag else f"{parameter.opts[0]} {parameter.metavar}{many}"
    return name if parameter.required else f"[{name}]"


def _parameter(parameter: Any) -> str:
    name = parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0]
    has_default = parameter.default not in (None, False)
    return f"- `{name}`: {parameter.help}" + (f" Default: {parameter.default}." if has_default else "")
