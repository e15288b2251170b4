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
from viewstamp.embed.node_thread import HostedNode, NodeThread, make_node, peers_of
from viewstamp.host.interfaces import ConnectionHandler
from viewstamp.host.logger import Logger
from viewstamp.node.node import Node
from viewstamp.trio.client import Client, run_client
from viewstamp.trio.network import TrioTlsNetwork
from viewstamp.trio.nursery import inner_nursery
from viewstamp.trio.runtime import TrioRuntime

__all__ = ["EmbeddedNode", "open_node"]


class EmbeddedNode(HostedNode, Client):
    """A member of the cluster inside this process, and a client of the cluster. Made by :func:`open_node`.

    Calls go to this member first, without a socket. If another member leads, the client sends appends to that one.
    """

    def __init__(self, runtime: TrioRuntime, outside: Dialer, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        tls = node.host.tls
        network = _Bridge(runtime, outside if tls is None else TrioTlsNetwork(outside, tls), node, loop)
        super().__init__(runtime, peers_of(node), network=network, cluster_id=node.options.cluster)


@asynccontextmanager
async def open_node(
    settings: str | Path | NodeSettings,
    *,
    actors: Actors = NO_ACTORS,
    timeout: float = 30.0,
    log: Logger | None = None,
) -> AsyncIterator[EmbeddedNode]:
    """Run a member of the cluster in this process while the context is open. Entering waits until it is RUNNING.

    Arguments and errors are those of :func:`viewstamp.open_node`. The node always runs on an asyncio event loop in a
    thread of its own. Between that and trio goes one hand-off for each write, so for each batch, and none for each
    record. An exception of the body is raised unchanged. Leaving waits until the node has stopped, also when cancelled;
    cancelled while it enters, it leaves nothing running.
    """
    async with (
        _run_node(lambda: make_node(settings, actors, log), timeout) as (node, loop),
        run_client(lambda runtime, outside: EmbeddedNode(runtime, outside, node, loop)) as embedded,
    ):
        yield embedded


@asynccontextmanager
async def _run_node(make: Callable[[], Node], timeout: float) -> AsyncIterator[tuple[Node, asyncio.AbstractEventLoop]]:
    """Run a node in a thread; the thread has ended when the context has been left."""
    is_started = trio.Event()
    token = trio.lowlevel.current_trio_token()
    host = NodeThread(make, timeout, lambda: token.run_sync_soon(is_started.set))

    async def run() -> None:
        # The thread is not cancelled, because a part of the node runs until the end. It has a limiter of its own,
        # because a node would otherwise take one of the threads that the program has for other work.
        await trio.to_thread.run_sync(host.run, limiter=trio.CapacityLimiter(1))

    try:
        async with inner_nursery() as nursery:
            nursery.start_soon(run)
            try:
                await is_started.wait()
                if host.node is not None and host.loop is not None:
                    yield host.node, host.loop
            finally:
                host.stop()
    finally:
        # Raised here and not in the thread's task, which would put it into a group.
        if host.error is not None:
            raise host.error


class _Bridge:
    """Connects to the node in this process without a socket, and to other nodes by sockets."""

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
        tls = self._node.host.tls
        identity = tls.loaded.name if tls is not None else None
        return bridge(self._runtime, accept, self._loop, self._node.server.accept, identity)
