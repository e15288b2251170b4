"""Embedding: a node inside the caller's own process, and a client of it in the caller's event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from viewstamp.client.aio import Client
from viewstamp.config.model import NodeSettings
from viewstamp.embed.actor_classes import NO_ACTORS, Actors
from viewstamp.embed.bridge import BridgeNetwork
from viewstamp.embed.compose import compose_node, prepare_process, real_host, resolve
from viewstamp.embed.run_node import new_event_loop
from viewstamp.host.logger import Logger
from viewstamp.node.node import Node

__all__ = ["EmbeddedNode", "open_node", "stdlib_logger"]

ResultT = TypeVar("ResultT")


class EmbeddedNode(Client):
    """A member of the cluster inside this process, and a client of the cluster. Made by :func:`open_node`.

    Calls go to this member first, without a socket. If another member leads, the client sends appends to that one.
    """

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        others = [address for address in node.options.members.values() if address != node.address]
        assert node.server is not None, "a started node has a server"
        host = real_host()
        super().__init__(
            [node.address, *others],
            network=BridgeNetwork(node.address, node.server.accept, loop, host.network),
            entropy=host.entropy,
            cluster_id=node.options.cluster,
        )

    def stop_without_handing_over(self) -> None:
        """Have this node stop without transferring its leadership, because all nodes are about to stop."""
        self._node.hands_over = False

    @property
    def id(self) -> str:
        """The node's id."""
        return self._node.options.node

    @property
    def address(self) -> str:
        """The ``host:port`` at which the node listens."""
        return self._node.address

    @property
    def node_status(self) -> dict[str, object]:
        """The node's status, with the keys that ``viewstamp status --output json`` prints."""
        return self._node.status

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the node; None = it works. A failed node answers no calls: leave the context."""
        failed = self._node.failed
        return failed.result() if failed.done() and not failed.cancelled() else None


@asynccontextmanager
async def open_node(
    settings: str | Path | NodeSettings,
    *,
    actors: Actors = NO_ACTORS,
    timeout: float = 30.0,
    thread: bool = True,
    log: Logger | None = None,
) -> AsyncIterator[EmbeddedNode]:
    """Run a member of the cluster in this process while the context is open. Entering waits until it is RUNNING.

    Example::

        async with viewstamp.open_node("shop/n1.toml", actors={"inventory": Inventory}) as node:
            await node.actor("inventory", Inventory).reserve("A-17", 2)

    Args:
      settings: a settings file, or settings loaded by ``viewstamp.config``. The classes in its ``[actors]`` are
        imported.
      actors: the replicated actors that the node runs: name to class. All members must run the same classes. An entry
        here overrides the one in the settings.
      timeout: seconds to wait for RUNNING, which needs a majority of the members.
      thread: run the node on its own event loop in its own thread, so that a program that blocks its loop does not cost
        the cluster its leader. False: in the caller's loop, for tests and benchmarks.
      log: the logger of the node; None = the standard library's logger "viewstamp".

    If it is cancelled while it enters, nothing is left running.

    Raises:
      ConfigError: the settings, an actor's class, the address or the directory are wrong; the message says which.
      OutdatedCodeError: the log holds a command that this code does not have.
      NoQuorumError: the node is not RUNNING after ``timeout`` seconds; the message says what is missing.
      StorageError, CorruptionError: the disk failed, or damage was found; nothing was changed.
    """
    prepare_process()
    loaded, classes = resolve(settings, actors)
    runner = _Runner() if thread else None
    node_loop = runner.loop if runner is not None else asyncio.get_running_loop()
    node: Node | None = None

    async def start() -> Node:
        nonlocal node
        node = compose_node(loaded, real_host(), log if log is not None else stdlib_logger(), classes)
        await node.start()
        await node.wait_running(timeout)
        return node

    async def stop() -> None:
        if node is not None:
            await node.stop()

    try:
        async with EmbeddedNode(await _run(node_loop, start), node_loop) as embedded:
            yield embedded
    finally:
        try:
            await _run(node_loop, stop, cancels=False)
        finally:
            if runner is not None:
                runner.close()


async def _run(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, ResultT]], *, cancels: bool = True
) -> ResultT:
    """Run ``work`` on ``loop``, which may be another thread's, to its end.

    Cancelled, it cancels the work where ``cancels``, and raises only when the work has ended: until then something
    of the node still runs.
    """
    future, cancel = _begin(loop, work)
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancellation = error
            if cancels:
                cancel()
    if cancellation is not None:
        if not future.cancelled():
            future.exception()  # Marks it as retrieved: the cancellation goes before it.
        raise cancellation
    return future.result()


def _begin(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, ResultT]]
) -> tuple[asyncio.Future[ResultT], Callable[[], object]]:
    """Begin ``work`` on ``loop``; return its future on the running loop, and what cancels it."""
    here = asyncio.get_running_loop()
    if loop is here:
        task = here.create_task(work())
        return task, task.cancel
    result: asyncio.Future[ResultT] = here.create_future()
    tasks: list[asyncio.Task[ResultT]] = []

    def begin() -> None:
        task = loop.create_task(work())
        tasks.append(task)
        task.add_done_callback(lambda _: here.call_soon_threadsafe(end, task))

    def end(task: asyncio.Task[ResultT]) -> None:
        if task.cancelled():
            result.cancel()
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    loop.call_soon_threadsafe(begin)
    return result, lambda: loop.call_soon_threadsafe(lambda: tasks[0].cancel())


def stdlib_logger() -> Logger:
    """Return a structlog logger that hands its events to the standard library's logger "viewstamp".

    Silent until the program sets up logging: a library does not print.
    """
    import structlog  # What a node that is a process does not need, and must not wait for.

    target = logging.getLogger("viewstamp")
    if not target.handlers:
        target.addHandler(logging.NullHandler())
    logger: Logger = structlog.wrap_logger(
        target,
        processors=[structlog.stdlib.filter_by_level, structlog.processors.LogfmtRenderer(key_order=("event", "node"))],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger


class _Runner:
    """A thread with an event loop that runs until it is closed."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="viewstamp-node", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the loop and wait for the thread, which has nothing left to do."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
