"""The class of every command group. Its help lists the first sentence of each command in full."""

from __future__ import annotations

import copy
from typing import Any, Final

from typer.core import TyperGroup

from viewstamp.local.token import TOKEN_FILE

__all__ = ["CommandGroup"]

_WHOLE: Final = 10_000
"""More characters than any first sentence has. The formatter wraps the text, so it need not be shortened."""


class CommandGroup(TyperGroup):
    """A command group whose help does not cut summaries in the middle of a sentence.

    Each command that takes ``--cluster`` takes ``--token-file`` too.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; with ``--token-file`` if it is a client's."""
        command = super().get_command(ctx, cmd_name)
        names = [parameter.name for parameter in command.params] if command is not None else []
        if command is not None and "cluster" in names and "token_file" not in names:
            at = names.index("cluster")
            command.params.insert(at + 1, _token_option(command.params[at]))
        return command

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


def _token_option(cluster: Any) -> Any:
    """Return the option ``--token-file``. A copy of ``--cluster``, because parsers differ in how options are made."""

    def keep(context: Any, parameter: Any, value: str | None) -> None:
        TOKEN_FILE.set(value)
        context.call_on_close(lambda: TOKEN_FILE.set(None))

    option = copy.copy(cluster)
    option.name, option.opts, option.metavar = "token_file", ["--token-file"], "FILE"
    option.help = (
        "File with the token to use. Without it, VIEWSTAMP_TOKEN has the token itself. With --dir the command has all"
        " rights whatever its token."
    )
    option.callback, option.expose_value = keep, False
    return option
