"""A group of commands one of which need not be named."""

from typing import Any

from typer.core import TyperGroup

DEFAULT = "show"


class ShowsByDefault(TyperGroup):
    """`tidemark offsets clicks` is `tidemark offsets show clicks`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if named or (not args and self.no_args_is_help):
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, [DEFAULT, *args])
