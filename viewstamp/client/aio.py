"""``Client`` for asyncio, and the runtime that it runs in: futures, timers and tasks of the running event loop."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from viewstamp.client.client import BaseClient
from viewstamp.client.options import ClientOptions
from viewstamp.client.runtime import Dialer

__all__ = ["AsyncioRuntime", "Client"]

ResultT = TypeVar("ResultT")


class Client(BaseClient):
    """One session with a cluster, shared by all tasks of an event loop.

    Belongs to the event loop on which it is first used; not thread-safe. Nothing is connected before the first call.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        network: Dialer,
        entropy: random.Random,
        cluster_id: str = "",
        options: ClientOptions | None = None,
    ) -> None:
        """Make a client; never awaits.

        Args:
          addresses: ``"host:port,host:port"`` or a sequence; any members, the others are learnt.
          network: how connections come about.
          entropy: the only source of randomness: where the search begins, and jitter.
          cluster_id: the cluster to talk to; "" = whichever answers first, and then only that one.
          options: see :class:`ClientOptions`.

        Raises:
          ConfigError: an address has another shape.
        """
        runtime = AsyncioRuntime()
        self._tasks = runtime.tasks
        super().__init__(
            addresses, runtime=runtime, network=network, entropy=entropy, cluster_id=cluster_id, options=options
        )

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End at once. Appends that were never sent get ClosedError, sent ones OutcomeUnknownError. Idempotent."""
        self._close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class AsyncioRuntime:
    """The running event loop as a :class:`Runtime`, and the tasks that a client has in it."""

    def __init__(self) -> None:
        self.create_future: Callable[[], asyncio.Future[Any]]
        self.time: Callable[[], float]
        self.tasks: set[asyncio.Task[Any]] = set()
        """What runs; whoever ends the client cancels it."""

    def begin(self) -> None:
        """Belong to the running loop."""
        loop = self._loop = asyncio.get_running_loop()
        self.create_future = loop.create_future
        self.time = loop.time

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back in the next turn."""
        self._loop.call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call back after ``seconds``."""
        return self._loop.call_later(seconds, callback, *args)

    def spawn(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        """Run ``work`` in a task."""
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def create_lock(self) -> asyncio.Lock:
        """Return a lock."""
        return asyncio.Lock()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, work: Awaitable[ResultT]) -> ResultT:
        """Await ``work``; raises TimeoutError, and cancels it, after ``seconds``."""
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            return await work
