"""The root of all commands: its help is a map, and every command ends quietly when its reader goes."""

import os
import signal
import sys
from typing import Any, Final

import typer
from typer.core import TyperGroup

PANELS: Final = {
    "Readiness": ("why", "flags", "check", "verify"),
    "Streams": ("streams", "offsets", "timeline", "workers"),
    "Lines and files": ("locate", "cat", "boom", "parse"),
    "Repair and keep": ("archive", "rebuild", "retain"),
    "On this machine": ("stack", "demo"),
}


class Map(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return [name for names in PANELS.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(len(name) for name in self.list_commands(ctx))
        for panel, names in PANELS.items():
            commands = {f"{name:{width}}": self.commands[name] for name in names}
            with formatter.section(panel):
                formatter.write_dl([(name, c.get_short_help_str(formatter.width)) for name, c in commands.items()])

    def invoke(self, ctx: Any) -> Any:
        """`… | head` closes the pipe: that is an end, and like other commands' it is told by SIGPIPE's exit code.

        Not by the signal itself, which would end the process for a broken connection to a service, too.
        """
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(128 + signal.SIGPIPE) from None
