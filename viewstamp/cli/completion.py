"""``viewstamp completion``: the script that has a shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

__all__ = ["COMPLETE_VARIABLE", "completion", "register"]

COMPLETE_VARIABLE: Final = "_VIEWSTAMP_COMPLETE"
"""By this variable the script asks for the words that may stand where the cursor is."""


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the script that has a shell complete commands and options, to be put into the shell's start-up file."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="viewstamp", complete_var=COMPLETE_VARIABLE, shell=shell.value))


def register() -> None:
    """Let the parser answer a script that asks for words."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
