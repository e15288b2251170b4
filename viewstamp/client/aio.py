"""``Client`` for asyncio, and its runtime: futures, timers and tasks of the running event loop."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from viewstamp.client.checks import as_staleness
from viewstamp.client.client import BaseClient
from viewstamp.client.links import Links
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Change
from viewstamp.client.runtime import Dialer
from viewstamp.wire.batch import Batch, Record
from viewstamp.wire.commands import Stale

__all__ = ["AsyncioRuntime", "Client", "links_of_loop"]

ResultT = TypeVar("ResultT")


class Client(BaseClient):
    """One session with a cluster, shared by all tasks of an event loop. Made by :func:`viewstamp.connect`.

    A client belongs to the event loop in which it is first used, and is not thread-safe. It opens no connection before
    the first call. Use it with ``async with``, or call :meth:`close`.

    Calls can be cancelled at any time. A cancelled write may still be committed, unless it was not sent yet.
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
        """Create a client; never awaits. Arguments and errors are those of :class:`BaseClient`."""
        runtime = AsyncioRuntime()
        self._tasks = runtime.tasks
        super().__init__(
            addresses,
            runtime=runtime,
            links=links_of_loop,
            network=network,
            entropy=entropy,
            cluster_id=cluster_id,
            options=options,
        )

    async def __aenter__(self) -> Self:
        self._router.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close at once. Unsent appends fail with ClosedError, sent ones with OutcomeUnknownError. Idempotent."""
        self._close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def watch(
        self, name: str, cls: type[Any] | None = None, *, key: str | None = None, index: int = 0
    ) -> AsyncGenerator[Change, None]:
        """Yield the commands that are applied to an actor and their results, in order, each once; never ends.

        Example::

            async for change in client.watch("inventory", Inventory, index=1):
                print(change.index, change.command, change.arguments, change.result)
                if change.result is False:
                    break  # A reservation was refused.

        If a connection is lost, the client opens another one and continues after the last change. Nodes keep only the
        newest changes, bounded in bytes. A reader that is too slow gets TrimmedError; no change is skipped silently.

        Args:
          name: the actor's name.
          cls: its class, so that errors have its classes; None = errors are plain CommandError.
          key: the key of an instance; None = all instances.
          index: the first log index of interest; 0 = from now on. After ``change``: ``change.index + 1``.

        Raises:
          TrimmedError: those changes are no longer kept: read the present state with a query, then watch again.
          UnknownActorError, RequestError: no such actor, or an index below 0.
          UnavailableError: no node answered within the default timeout.
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
        stream: int | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Read a topic's records in order, from position ``start`` up to ``end`` (half-open).

        Example::

            async for record in client.read("orders", 1):
                print(record.position, record.value)

        Without ``end`` and ``follow``, reading ends at the last record that was committed when it began. The read is
        linearizable: it includes every append that was acknowledged before it began. If a connection is lost, the
        client opens another one and continues with the next record.

        Args:
          topic: the topic's name.
          start: the first position, from 1; None = the first that is kept, if the topic has been trimmed.
          end: the position after the last one; None = the end of the topic, see above.
          follow: wait for records that do not exist yet, without end or up to ``end``.
          node: read from this member only, from its applied records, even if it is behind; None = from any member.
          stream: one stream of a topic with streams, from 1 on, which has positions of its own; None = all records.

        The records of a topic with streams come in one order, with positions in the topic: they are
        :class:`~viewstamp.SpreadRecord`. Reading ends at the last record that had a position when it began, because an
        acknowledged record gets its position shortly after its acknowledgement.

        Raises:
          UnknownTopicError, RequestError: no such topic, no such node, or a start below 1.
          TrimmedError: the next record has been trimmed; ``first`` is the first position from which on all records are
            kept.
          UnavailableError: no node answered within the default timeout; of a topic with streams: no node of the group
            of the named stream, which may have the next record.
        """
        return self._reader(topic, start, end=end, follow=follow, node=node, stream=stream).records()

    def scan(
        self,
        topic: str,
        start: bytes | str = b"",
        end: bytes | str | None = None,
        *,
        prefix: bytes | str | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Yield the last record of each key in ``[start, end)`` of a keyed topic, in the order of the keys.

        Example::

            await client.configure_keyed("orders")
            async for record in client.scan("orders", prefix="A-"):
                print(record.key, record.value)

        Deleted keys are left out. The records come in pages of about 1 MiB. Each page includes every record that was
        acknowledged before the page was requested, so the scan as a whole is of no one moment.

        Args:
          topic: the name of a keyed topic.
          start: the first key; text is its UTF-8. Keys are compared byte by byte.
          end: the key before which it ends; None = after the last key.
          prefix: only keys with this prefix, in place of ``start`` and ``end``.

        Raises:
          RequestError, UnknownTopicError, CorruptionError, UnavailableError: as :meth:`get`.
        """
        return self._keyed.scanner(topic, start, end, prefix).records()

    async def read_stale(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        max_staleness: float | None = None,
        node: str | None = None,
        stream: int | None = None,
    ) -> Stale[AsyncGenerator[Record, None]]:
        """Read the records that one node has applied, and return how stale its end of the topic is.

        Example::

            stale = await client.read_stale("orders", max_staleness=5.0)
            print(stale.age_seconds, [record.value async for record in stale.value])

        ``value`` of the result yields the records, as :meth:`read` does. No record before the end is missing.

        Args:
          topic: the topic's name.
          start: the first position, from 1; None = the first that is kept.
          end: the position after the last one; None = the last that the node has applied.
          max_staleness: the end is at most this many seconds old, see :meth:`describe_topic`; None = any age.
          node: the member to read from; None = any.
          stream: the stream of a spread topic, from 1 on; None = the topic has none.

        Raises:
          UnknownTopicError, RequestError: no such topic on that node, no such node, a start below 1, or a topic with
            streams and no ``stream``.
          UnavailableError: no node, or none that is fresh enough, answered within the default timeout.
        """
        staleness = as_staleness(True, max_staleness)
        reader = self._reader(topic, start, end=end, node=node, staleness=staleness, stream=stream)
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
        stream: int | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Read whole batches, not decoded: all batches that hold a position of the range. Otherwise as :meth:`read`.

        The first and the last batch may hold records outside the range. A batch is a view of the received bytes, which
        stay in memory as long as the batch does: keep copies of the values, not the batch.

        Raises: as :meth:`read`; RequestError also for a topic with streams without ``stream``.
        """
        return self._reader(topic, start, end=end, follow=follow, node=node, stream=stream).batches()


class AsyncioRuntime:
    """The running event loop as a :class:`Runtime`, and the client's tasks in it."""

    def __init__(self) -> None:
        self.create_future: Callable[[], asyncio.Future[Any]]
        self.time: Callable[[], float]
        self.call_soon: Callable[[Callable[[], object]], object]
        self.tasks: set[asyncio.Task[Any]] = set()
        """The running tasks. Closing the client cancels them."""

    def begin(self) -> None:
        """Attach to the running event loop."""
        loop = self._loop = asyncio.get_running_loop()
        self.create_future = loop.create_future
        self.time = loop.time
        self.call_soon = loop.call_soon

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call ``callback`` after ``seconds``."""
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
        """Wait for ``seconds``."""
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, work: Awaitable[ResultT]) -> ResultT:
        """Await ``work``; raises TimeoutError, and cancels it, after ``seconds``."""
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            return await work


class _OfThread(threading.local):
    loop: asyncio.AbstractEventLoop | None = None
    links: Links


_of_thread = _OfThread()


def links_of_loop() -> Links:
    """Return the links that the clients of the running event loop share.

    Only the loop that ran last in a thread is remembered, so that loops that have ended are not kept. Clients of loops
    that take turns in one thread share links less often than they could.
    """
    loop = asyncio.get_running_loop()
    if _of_thread.loop is not loop:
        runtime = AsyncioRuntime()
        runtime.begin()
        _of_thread.loop, _of_thread.links = loop, Links(runtime)
    return _of_thread.links
