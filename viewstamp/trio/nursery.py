"""A nursery inside a context manager, invisible to the users of the context manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["inner_nursery"]


@asynccontextmanager
async def inner_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled at the end of the body; returns when they have ended.

    An exception of the body, also Cancelled, is raised unchanged, without a group around it. A task that fails cancels
    the body, and leaves in a group.
    """
    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as raised:
            error = raised
        # Shielded, so that a cancellation from outside, which is in ``error`` or comes with the next checkpoint, is
        # not mixed with ours. The tasks end at once; that of a hosted node when the node has stopped.
        nursery.cancel_scope.shield = True
        nursery.cancel_scope.cancel()
    if error is not None:
        try:
            raise error
        finally:
            del error
