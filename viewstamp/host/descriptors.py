"""The limit of file descriptors of this process: a node needs them for sockets, segments and snapshots."""

from __future__ import annotations

import contextlib
import resource

__all__ = ["descriptor_limit", "raise_descriptor_limit"]

_ENOUGH = 65_536
"""The highest limit that is requested, because no node has more connections, and some systems have no limit at all."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process to the hard one, which needs no privilege. For processes of viewstamp only.

    The soft limit is often 1,024, for the sake of programs that use ``select``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """Return the number of descriptors that this process may have open, at most 65,536."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else min(soft, _ENOUGH)
