"""Asks for words that show that what cannot be undone is meant."""

from __future__ import annotations

import sys

from viewstamp.errors import ConfigError
from viewstamp.terminal.output import say

__all__ = ["confirm"]


def confirm(given: str, words: str, *, what: str, option: str) -> None:
    """Return if the caller has given these words, by the option or by typing them.

    Args:
      given: the value of the option; "" = it was left out.
      words: what has to be given.
      what: what the words are, for a question and an error.
      option: the name of the option, and how to write the words behind it.

    Raises:
      ConfigError: they were not given; nothing was changed.
    """
    if not given and sys.stdin.isatty():
        say(f"Type {what} to accept this:")
        given = sys.stdin.readline().strip()
    if given != words:
        raise ConfigError(
            f"{given!r} is not {what}; nothing was changed" if given else "it was not accepted; nothing was changed",
            remedy=f"add {option} to accept it",
        )
