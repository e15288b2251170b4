"""Clusters for trio programs to talk to: they run on asyncio, in a thread of their own, as they would elsewhere."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar

import pytest

from tests.client.cluster import Cluster

ResultT = TypeVar("ResultT")
HeldT = TypeVar("HeldT")


class Elsewhere(Generic[HeldT]):
    """Something that lives on an asyncio loop in another thread."""

    def __init__(self, held: HeldT, loop: asyncio.AbstractEventLoop) -> None:
        self.held = held
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``work`` over there, and wait for it. Blocks."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def call(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function`` over there, and wait for it. Blocks."""

        async def work() -> ResultT:
            return function()

        return self.run(work())


@contextmanager
def elsewhere(open_held: Callable[[], Any]) -> Iterator[Elsewhere[Any]]:
    ready: concurrent.futures.Future[Elsewhere[Any]] = concurrent.futures.Future()
    done: list[Callable[[], None]] = []

    async def main() -> None:
        end = asyncio.Event()
        loop = asyncio.get_running_loop()
        done.append(lambda: loop.call_soon_threadsafe(end.set))  # type: ignore[arg-type]
        async with open_held() as held:
            ready.set_result(Elsewhere(held, loop))
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="elsewhere")
    thread.start()
    try:
        yield ready.result(60)
    finally:
        done[0]()
        thread.join(60)


@pytest.fixture
def peers() -> Iterator[Elsewhere[Cluster]]:
    """Three nodes that do what the test tells them."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Cluster]:
        cluster = Cluster()
        await cluster.start(3)
        yield cluster
        await cluster.close()

    with elsewhere(opened) as cluster:
        yield cluster
