"""Tokens in files and in the environment, for programs that are given one by their user."""

from __future__ import annotations

import os
from typing import Final

from viewstamp.errors import ConfigError, RequestError
from viewstamp.wire.access import Token, has_token

__all__ = ["TOKEN_VARIABLE", "find_token"]

TOKEN_VARIABLE: Final = "VIEWSTAMP_TOKEN"
_BYTES_MAX: Final = 4096


def find_token(path: str | None = None) -> str:
    """Return the text of the token in a file, or without one that in VIEWSTAMP_TOKEN; "" = there is none. Blocks.

    Raises:
      ConfigError: the file cannot be read, or the text is no token. No message shows the text.
    """
    text, where = os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
    if path:
        if has_token(path):
            raise ConfigError(
                "a token is given where the name of a file with a token is expected",
                remedy="write the token into a file that only its user can read, and give the name of the file",
            )
        where = path
        try:
            with open(path, encoding="utf-8") as stream:
                text = stream.read(_BYTES_MAX)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(
                f"the token file {path} cannot be read: {reason}", remedy="name a file that holds one token"
            ) from error
    if not text.strip() and not path:
        return ""
    try:
        return Token.read(text).text
    except RequestError as error:
        remedy = error.remedy if path else f"{error.remedy}, and not the name of a file that has it"
        raise ConfigError(f"{where}: {error.message}", remedy=remedy) from None
