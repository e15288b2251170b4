"""Blocking calls of a coroutine that no cancellation leaves under way.

A thread cannot be stopped. Who goes on while one is still in the middle of a write or a rename will close the file
under it, or take away the name that it is about to use. So what is cancelled here ends first, and is cancelled then.

On the real event loop the threads are those of its executor; the simulated one makes the call in an event of its own.
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
    """Make a blocking call off the event loop; cancelled, it is carried out all the same."""
    return await to_the_end(asyncio.to_thread(call, *arguments, **named))


async def to_the_end(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run ``work``; cancelled, wait until it is over all the same, and be cancelled then."""
    try:
        task = asyncio.ensure_future(work)
    except RuntimeError:  # The loop is gone already: clean-up code that is run by nobody.
        work.close()
        raise
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it was looked at: nobody is left to be told
        raise
