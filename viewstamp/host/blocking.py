"""Blocking calls of a coroutine that are completed even if the coroutine is cancelled.

A thread cannot be stopped. If the caller went on during a write or a rename, it could close the file or remove the
name that the thread still uses. So a cancelled call here ends first, and raises CancelledError then.

On the real event loop the calls run on the threads of its executor; the simulated loop runs each call as an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

__all__ = ["in_thread", "to_the_end"]

ParametersP = ParamSpec("ParametersP")
ResultT = TypeVar("ResultT")


async def in_thread(
    call: Callable[ParametersP, ResultT], *arguments: ParametersP.args, **named: ParametersP.kwargs
) -> ResultT:
    """Make a blocking call off the event loop, and return its result. If cancelled, the call is completed first."""
    return await to_the_end(asyncio.to_thread(call, *arguments, **named))


async def to_the_end(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run ``work`` and return its result. If cancelled, wait for the end of ``work``, then raise CancelledError."""
    try:
        task = asyncio.ensure_future(work)
    except RuntimeError:  # The loop is closed: for example, the garbage collector closes a generator after it.
        work.close()
        raise
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # Marks it as retrieved, because the caller gets CancelledError instead.
        raise
