"""The class of every command group. Its help lists the first sentence of each command in full."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

__all__ = ["CommandGroup"]

_WHOLE: Final = 10_000
"""More characters than any first sentence has. The formatter wraps the text, so it need not be shortened."""


class CommandGroup(TyperGroup):
    """A command group whose help does not cut summaries in the middle of a sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and the first sentence of each command."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(_WHOLE))
            for name, command in found
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
