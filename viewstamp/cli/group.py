"""The class of every group of commands: its help lists the first sentence of each command, whole."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

__all__ = ["CommandGroup"]

_WHOLE: Final = 10_000
"""More characters than a first sentence has: the parser's formatter wraps the text, it need not be cut."""


class CommandGroup(TyperGroup):
    """A group whose help does not end its summaries in the middle of a sentence."""

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
