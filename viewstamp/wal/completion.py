"""Callbacks by which the log reports that an item is complete, or never will be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from viewstamp.errors import StorageError
from viewstamp.host.interfaces import REMOVED_REMEDY

__all__ = ["Done", "failure_from", "ignore", "raise_error", "resolve"]

Done = Callable[[BaseException | None], None]
"""Called once for an item: with None when it is complete, with the error if it never will be."""


def resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    """Resolve the future of a caller, unless it has been cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def raise_error(error: BaseException | None) -> None:
    """Raise the error where the item was handed over, because the log works on the caller's thread."""
    if error is not None:
        raise error


def ignore(error: BaseException | None) -> None:
    """Do nothing: the owner of the log learns of a failure through ``on_failed``."""


def failure_from(error: BaseException) -> StorageError:
    """Return the final failure of a log for an error that is no failure of the disk."""
    if isinstance(error, FileNotFoundError):
        text = f"a file of the log, or its directory, was removed: {error.filename or error}"
        failure = StorageError(text, remedy=REMOVED_REMEDY)
    else:
        text = f"the log failed: {error!r}"
        failure = StorageError(text, remedy="please report it: the node stops, and cut no record")
    failure.__cause__ = error
    return failure
