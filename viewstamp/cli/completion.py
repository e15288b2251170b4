"""``viewstamp completion``: prints the script with which a shell completes commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

__all__ = ["COMPLETE_VARIABLE", "completion", "register"]

COMPLETE_VARIABLE: Final = "_VIEWSTAMP_COMPLETE"
"""The environment variable with which the script asks for completions at the cursor."""


class Shell(StrEnum):
    """The shells that are supported."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print a script for shell completion of commands and options. Add it to the start-up file of the shell."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="viewstamp", complete_var=COMPLETE_VARIABLE, shell=shell.value))


def register() -> None:
    """Make the parser answer the script's requests for completions."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
