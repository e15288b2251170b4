"""Clusters on an asyncio loop in their own thread, for tests of trio, Spark and commands, which do not await."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

__all__ = ["InThread", "in_thread"]

ResultT = TypeVar("ResultT")
HeldT = TypeVar("HeldT")

SECONDS_MAX = 60.0
"""Seconds after which a call of a test fails."""


class InThread(Generic[HeldT]):
    """An object on an asyncio loop in another thread. Safe to use from any thread."""

    def __init__(self, held: HeldT, loop: asyncio.AbstractEventLoop) -> None:
        self.held = held
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``work`` on that loop, and wait for its result. Blocks."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS_MAX)

    def call(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function`` on that loop, and wait for its result. Blocks."""

        async def work() -> ResultT:
            return function()

        return self.run(work())


@contextmanager
def in_thread(open_held: Callable[[], Any]) -> Iterator[InThread[Any]]:
    """Enter the async context manager that ``open_held`` returns on a loop in a thread; leave it at the end."""
    ready: concurrent.futures.Future[InThread[Any]] = concurrent.futures.Future()
    done: list[Callable[[], None]] = []

    async def main() -> None:
        end = asyncio.Event()
        loop = asyncio.get_running_loop()
        done.append(lambda: loop.call_soon_threadsafe(end.set))  # type: ignore[arg-type]
        async with open_held() as held:
            ready.set_result(InThread(held, loop))
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="in_thread")
    thread.start()
    try:
        yield ready.result(SECONDS_MAX)
    finally:
        done[0]()
        thread.join(SECONDS_MAX)
