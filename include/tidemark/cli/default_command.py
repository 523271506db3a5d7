"""A group of commands one of which need not be named."""

from typing import Any

from typer.core import TyperGroup

DEFAULT = "show"


class ShowsByDefault(TyperGroup):
    """`tidemark offsets clicks` is `tidemark offsets show clicks`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if named or (not args and (self.no_args_is_help or ctx.resilient_parsing)):
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, [DEFAULT, *args])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of commands, and what may follow the one that need not be named."""
        first = next((one for one in self.commands[DEFAULT].params if one.param_type_name == "argument"), None)
        return [*super().shell_complete(ctx, incomplete), *(first.shell_complete(ctx, incomplete) if first else ())]
