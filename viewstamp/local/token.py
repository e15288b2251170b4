"""The token file of the running command, and new files for tokens."""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Final

from viewstamp.errors import ConfigError
from viewstamp.host.private import FILE_MODE

__all__ = ["TOKEN_FILE", "write_token"]

TOKEN_FILE: Final[ContextVar[str | None]] = ContextVar("TOKEN_FILE", default=None)
"""The file that ``--token-file`` of the running command names; None = the option was not given."""


def write_token(path: str, text: str) -> None:
    """Write a token to a new file that only this user may read.

    Raises:
      ConfigError: the file exists, because another token in it would be lost, or it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise ConfigError(
            f"the token cannot be written to {path}: {error.strerror}", remedy="name a file that does not exist"
        ) from error
    with open(descriptor, "w", encoding="ascii") as stream:
        stream.write(text + "\n")
