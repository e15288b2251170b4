"""``open_node`` for trio: a node on an event loop of its own in a thread of its own, and a client of it here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from viewstamp.client.runtime import Dialer, Wire
from viewstamp.config.model import NodeSettings
from viewstamp.embed.actor_classes import NO_ACTORS, Actors
from viewstamp.embed.bridge import bridge
from viewstamp.embed.compose import compose_node, real_host, resolve
from viewstamp.embed.open_node import stdlib_logger
from viewstamp.embed.run_node import run_on_fast_loop
from viewstamp.host.interfaces import ConnectionHandler
from viewstamp.host.logger import Logger
from viewstamp.node.node import Node
from viewstamp.trio.client import Client, run_client
from viewstamp.trio.nursery import inner_nursery
from viewstamp.trio.runtime import TrioRuntime

__all__ = ["EmbeddedNode", "open_node"]


class EmbeddedNode(Client):
    """A node of the cluster inside this process, with every call of a client.

    Calls go to this member first, without a socket; where another one leads, appends are handed to it.
    """

    def __init__(self, runtime: TrioRuntime, outside: Dialer, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        others = [address for address in node.options.members.values() if address != node.address]
        network = _Bridge(runtime, outside, node, loop)
        super().__init__(runtime, [node.address, *others], network=network, cluster_id=node.options.cluster)

    @property
    def id(self) -> str:
        """The node's id."""
        return self._node.options.node

    @property
    def address(self) -> str:
        """Where the node listens."""
        return self._node.address

    @property
    def node_status(self) -> dict[str, object]:
        """What ``viewstamp status`` shows of this node."""
        return self._node.status

    @property
    def failure(self) -> BaseException | None:
        """Why the node has failed; None = it has not. A failed node answers nothing any more: leave the context."""
        failed = self._node.failed
        return failed.result() if failed.done() and not failed.cancelled() else None


@asynccontextmanager
async def open_node(
    settings: str | Path | NodeSettings,
    *,
    actors: Actors = NO_ACTORS,
    timeout: float = 30.0,
    log: Logger | None = None,
) -> AsyncIterator[EmbeddedNode]:
    """Run a node while the context is open; enters when the group is RUNNING.

    The node runs on an asyncio event loop in a thread of its own. Between that and trio goes one hand-off for each
    write, so for each batch, and none for each record. What the body raises leaves as it is. Leaving waits until
    the node has stopped, also when cancelled; cancelled while it enters, it leaves nothing running.

    Args:
      settings: a settings file, or settings as ``viewstamp.config`` loads them. The classes in its ``[actors]`` are
        imported.
      actors: the replicated actors that the node runs: name to class. All members run the same. What stands here
        wins over the settings.
      timeout: seconds to wait for RUNNING; a group needs a majority of its members for it.
      log: where the node logs; None = the standard library's logger "viewstamp".

    Raises:
      ConfigError: the settings, an actor's class, the address or the directory are wrong; the message says which.
      OutdatedCodeError: the log holds a command that this code does not know.
      NoQuorumError: the group is not RUNNING after ``timeout``; the message says what is missing.
      StorageError, CorruptionError: the disk failed, or damage was found; nothing was cut.
    """

    def make() -> Node:
        loaded, classes = resolve(settings, actors)
        return compose_node(loaded, real_host(), log if log is not None else stdlib_logger(), classes)

    async with (
        _run_node(make, timeout) as (node, loop),
        run_client(lambda runtime, outside: EmbeddedNode(runtime, outside, node, loop)) as embedded,
    ):
        yield embedded


@asynccontextmanager
async def _run_node(make: Callable[[], Node], timeout: float) -> AsyncIterator[tuple[Node, asyncio.AbstractEventLoop]]:
    """Run a node in a thread; the thread has ended when the context has been left."""
    host = _NodeThread(make, timeout)
    try:
        async with inner_nursery() as nursery:
            nursery.start_soon(host.run)
            try:
                await host.is_started.wait()
                if host.node is not None and host.loop is not None:
                    yield host.node, host.loop
            finally:
                host.stop()
    finally:
        # Raised here and not in the thread's task, which would put it into a group.
        if host.error is not None:
            raise host.error


class _NodeThread:
    """A thread that runs a node until it is told to stop.

    Invariants:
      * ``is_started`` is set, once, when the node is RUNNING or will never be
      * ``node`` is set while it is RUNNING, and was until it was told to stop
    """

    def __init__(self, make: Callable[[], Node], timeout: float) -> None:
        self.is_started = trio.Event()
        self.node: Node | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.error: BaseException | None = None
        """Why it could not start, or not stop."""
        self._make = make
        self._timeout = timeout
        self._token = trio.lowlevel.current_trio_token()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def run(self) -> None:
        """Run the thread, to its end whoever is cancelled: until then something of the node still runs."""
        # A limiter of its own, or nodes would take the threads that the program has for other work.
        await trio.to_thread.run_sync(self._main, limiter=trio.CapacityLimiter(1))

    def stop(self) -> None:
        """Tell the node to stop, wherever it stands. Called in the trio thread."""
        self._is_stopping = True
        if self.loop is not None:
            try:
                self.loop.call_soon_threadsafe(self._interrupt)
            except RuntimeError:
                return  # It has ended by itself: the node could not start.

    def _interrupt(self) -> None:
        """Stop the node, unless it is being stopped. Called in the node's thread."""
        if self._task is not None:
            self._task.cancel()

    def _main(self) -> None:
        try:
            run_on_fast_loop(self._serve)
        except asyncio.CancelledError:
            pass  # By ``stop``: nobody else knows this task.
        except BaseException as error:
            self.error = error
        finally:
            self._token.run_sync_soon(self.is_started.set)

    async def _serve(self) -> None:
        loop = self.loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if self._is_stopping:
            return
        node = self._make()
        try:
            await node.start()
            await node.wait_running(self._timeout)
            self.node = node
            self._token.run_sync_soon(self.is_started.set)
            await loop.create_future()
        finally:
            self._task = None
            await node.stop()


class _Bridge:
    """Connects to the node in this process without a socket, and to everybody else by sockets."""

    def __init__(self, runtime: TrioRuntime, outside: Dialer, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._runtime = runtime
        self._outside = outside
        self._node = node
        self._loop = loop

    async def connect(self, address: str, accept: Callable[[Wire], ConnectionHandler]) -> Wire:
        """Connect; see :class:`Dialer`."""
        if address != self._node.address:
            return await self._outside.connect(address, accept)
        await trio.lowlevel.checkpoint()
        assert self._node.server is not None, "a started node has a server"
        return bridge(self._runtime, accept, self._loop, self._node.server.accept)
