"""Embedding: a node inside the caller's own process, and a client of it in the caller's event loop."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from viewstamp.client.aio import Client
from viewstamp.config.model import NodeSettings
from viewstamp.embed.actor_classes import NO_ACTORS, Actors
from viewstamp.embed.bridge import BridgeNetwork
from viewstamp.embed.compose import prepare_process
from viewstamp.embed.node_thread import HostedNode, NodeThread, make_node, peers_of
from viewstamp.host.logger import Logger
from viewstamp.node.node import Node

__all__ = ["EmbeddedNode", "open_node"]


class EmbeddedNode(HostedNode, Client):
    """A member of the cluster inside this process, and a client of the cluster. Made by :func:`open_node`.

    Calls go to this member first, without a socket. If another member leads, the client sends appends to that one.
    """

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        assert node.server is not None, "a started node has a server"
        host = node.host
        identity = host.tls.loaded.name if host.tls is not None else None
        super().__init__(
            peers_of(node),
            network=BridgeNetwork(node.address, node.server.accept, loop, host.network, identity),
            entropy=random.Random(),
            cluster_id=node.options.cluster,
        )


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
      ConfigError: the settings, an actor's class, the address or the directory are wrong; the message names it.
      OutdatedCodeError: the log holds a command that this code does not have.
      NoQuorumError: the node is not RUNNING after ``timeout`` seconds; the message names the reason.
      StorageError, CorruptionError: the disk failed, or damage was found; nothing was changed.
    """
    here = asyncio.get_running_loop()
    if not thread:
        prepare_process()
        node = make_node(settings, actors, log)
        try:
            await node.start()
            await node.wait_running(timeout)
            async with EmbeddedNode(node, here) as embedded:
                yield embedded
        finally:
            await _to_its_end(here.create_task(node.stop()))
        return
    is_started = asyncio.Event()
    has_ended: asyncio.Future[None] = here.create_future()
    host = NodeThread(
        lambda: make_node(settings, actors, log), timeout, lambda: here.call_soon_threadsafe(is_started.set)
    )

    def run() -> None:
        host.run()
        here.call_soon_threadsafe(has_ended.set_result, None)

    worker = threading.Thread(target=run, name="viewstamp-node", daemon=True)
    worker.start()
    try:
        await is_started.wait()
        if host.node is not None and host.loop is not None:
            async with EmbeddedNode(host.node, host.loop) as embedded:
                yield embedded
    finally:
        host.stop()
        try:
            await _to_its_end(has_ended)
        finally:
            worker.join()
        if host.error is not None:
            raise host.error


async def _to_its_end(ending: asyncio.Future[None]) -> None:
    """Wait for the end of a node even if cancelled meanwhile, because until then something of it still runs."""
    cancellation: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait([ending])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not ending.cancelled():
            ending.exception()  # Marks it as retrieved: the cancellation goes before it.
        raise cancellation
    ending.result()
