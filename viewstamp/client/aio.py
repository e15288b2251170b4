"""``Client`` for asyncio, and the runtime that it runs in: futures, timers and tasks of the running event loop."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from viewstamp.client.checks import as_staleness
from viewstamp.client.client import BaseClient
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Change
from viewstamp.client.runtime import Dialer
from viewstamp.wire.batch import Batch, Record
from viewstamp.wire.commands import Stale

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
        """Make a client; never awaits. Arguments and errors are those of :class:`BaseClient`."""
        runtime = AsyncioRuntime()
        self._tasks = runtime.tasks
        super().__init__(
            addresses, runtime=runtime, network=network, entropy=entropy, cluster_id=cluster_id, options=options
        )

    async def __aenter__(self) -> Self:
        self._router.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End at once. Appends that were never sent get ClosedError, sent ones OutcomeUnknownError. Idempotent."""
        self._close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def watch(
        self, name: str, cls: type[Any] | None = None, *, key: str | None = None, index: int = 0
    ) -> AsyncGenerator[Change, None]:
        """Yield the commands that are applied to an actor, with what came of them, in order, each once; never ends.

        A connection that is lost is replaced, and watching goes on after the last change. Nodes keep the newest
        changes only, bounded in bytes: whoever is too slow is told, and nothing is left out silently.

        Args:
          name: of the actor.
          cls: its class, so that errors come as its own classes; None = as plain CommandError.
          key: which instance; None = all.
          index: the first log index of interest; 0 = from now on. After ``change``: ``change.index + 1``.

        Raises:
          TrimmedError: those changes are not kept any more: read the present state by a query, then watch again.
          UnknownActorError, RequestError: no such actor, or an index below 0.
          UnavailableError: nobody answered for as long as the default timeout.
        """
        return self._watcher(name, cls, key, index).changes()

    def read(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Read a topic's records in order, from position ``start`` up to ``end`` (half-open).

        Without ``end`` and ``follow`` it ends at the last record that was committed when it began. Linearizable: it
        sees every append that was acknowledged before it began. A connection that is lost is replaced, and reading
        goes on with the next record.

        Args:
          topic: its name.
          start: the first position, from 1; None = the first that is kept, where the topic has been trimmed.
          end: the position after the last one; None = see above.
          follow: wait for records that are not there yet, for ever or up to ``end``.
          node: read what this member alone has applied, be it behind or cut off.

        Raises:
          UnknownTopicError, RequestError: no such topic, no such node, or a start below 1.
          TrimmedError: what comes next has been trimmed; ``first`` is the first position that is left.
          UnavailableError: nobody answered for as long as the default timeout.
        """
        return self._reader(topic, start, end=end, follow=follow, node=node).records()

    async def read_stale(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        max_staleness: float | None = None,
        node: str | None = None,
    ) -> Stale[AsyncGenerator[Record, None]]:
        """Read a topic's records up to where one node has applied them, and say how stale that end is.

        ``value`` of the answer yields the records, as :meth:`read` does; nothing is missing before the end.

        Args:
          topic: its name.
          start: the first position, from 1; None = the first that is kept.
          end: the position after the last one; None = all that the node has.
          max_staleness: the end is at most so many seconds old; see :meth:`describe_topic`. None = however old it is.
          node: the member to read from; None = any.

        Raises:
          UnknownTopicError, RequestError: no such topic there, no such node, or a start below 1.
          UnavailableError: nobody answered within the default timeout, or nobody who is that fresh.
        """
        reader = self._reader(topic, start, end=end, node=node, staleness=as_staleness(True, max_staleness))
        await reader.begin()
        return Stale(reader.records(), reader.applied_index, reader.age_seconds)

    def read_batches(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Read whole batches: all that hold a position of the range, unopened. As :meth:`read` otherwise.

        The first and the last may hold records outside the range. A batch is a view of what was received: keep the
        values that you copy out of it, not the batch.
        """
        return self._reader(topic, start, end=end, follow=follow, node=node).batches()


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
