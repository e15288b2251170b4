"""Memory that is freed and soon needed again: a process keeps a little of it instead of giving it all back.

A node that reads its log for clients frees pieces of a MiB as fast as it allocates others. glibc gives a freed piece at
the end of its memory back to the operating system, which has to clear each of its pages when the next piece is
allocated. That took more processor time than reading, verifying and sending the piece.
"""

from __future__ import annotations

import os

__all__ = ["keep_freed_memory"]

_KEPT_BYTES = 32 * 1024 * 1024
"""Free bytes at the end of an arena that are kept, and the size up to which a piece is taken from an arena: two pieces
of the largest that is used often, a row group of archived records. A thread has an arena if it allocates; few do."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's ``mallopt``."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process, up to a bound. For processes of viewstamp only; no effect without glibc.

    Settings of the user, as ``MALLOC_TRIM_THRESHOLD_`` or ``GLIBC_TUNABLES``, stay in force.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ) or not _is_glibc():
        return
    import ctypes

    libc = ctypes.CDLL(None)
    libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    libc.mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)


def _is_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, ValueError, OSError):
        return False
