"""Files and directories that only their user may read, because they hold a cluster's records, settings and logs.

New ones get these modes with every umask. The modes of existing ones are not changed, because an administrator may
have set them on purpose (:func:`readable_by_others` finds them).
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["DIRECTORY_MODE", "FILE_MODE", "make_private_directory", "open_private", "readable_by_others"]

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


def open_private(path: str, flags: int) -> int:
    """Open a file, and return its descriptor. A new file has ``FILE_MODE``. For ``opener=`` of ``open``."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def make_private_directory(path: str) -> None:
    """Create a directory with ``DIRECTORY_MODE``, and its parents with the usual one. An existing one is not changed.

    Raises:
      OSError: it cannot be created, or a file is in the way.
    """
    os.makedirs(path, mode=DIRECTORY_MODE, exist_ok=True)


def readable_by_others(path: str) -> int:
    """Return the mode of a directory that other users may read or enter; 0 = they may not, or it does not exist."""
    try:
        mode = os.stat(path).st_mode & 0o777
    except OSError:
        return 0
    return mode if mode & 0o077 else 0
