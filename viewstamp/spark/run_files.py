"""The store of runs, as tasks and the driver open it: one for each process."""

from __future__ import annotations

import os

from viewstamp.archive.location import open_store
from viewstamp.archive.store import ObjectStore

__all__ = ["store_at"]

_stores: dict[tuple[int, str], ObjectStore] = {}
"""By process id, because Spark forks its workers, and connections do not survive a fork."""


def store_at(where: str) -> ObjectStore:
    """Return this process's store. Raises ConfigError: a package is missing."""
    key = os.getpid(), where
    if key not in _stores:
        _stores[key] = open_store(where)
    return _stores[key]
