"""A whole cluster in this process, in a temporary directory: for the tests of a service that uses viewstamp."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from viewstamp.client.aio import Client
from viewstamp.config import create_cluster, load_settings, make_certificates, node_file
from viewstamp.embed.actor_classes import NO_ACTORS, Actors
from viewstamp.embed.connect import connect
from viewstamp.embed.open_node import EmbeddedNode, open_node
from viewstamp.errors import RequestError
from viewstamp.host.tls import TlsFiles

__all__ = ["ClusterHandle", "local_cluster"]

NO_SETTINGS: Final[Mapping[str, object]] = MappingProxyType({})


class ClusterHandle:
    """A cluster in this process: its running nodes, and clients of it. Made by :func:`local_cluster`.

    Attributes:
      directory: the directory that holds the nodes' settings and data.
      ids: the names of all nodes, running or not: "n1", "n2", ...
      actors: the replicated actors that the nodes run.
      nodes: the running nodes, by name.
      tls: the certificate of a client, for ``connect``; None = the cluster has no TLS.
    """

    def __init__(
        self, directory: Path, ids: list[str], actors: Actors = NO_ACTORS, tls: TlsFiles | None = None
    ) -> None:
        self.tls = tls
        self.directory = directory
        self.ids = ids
        self.actors = actors
        self.nodes: dict[str, EmbeddedNode] = {}
        self._contexts: dict[str, AsyncExitStack] = {}
        self._clients: list[Client] = []

    def client(self) -> Client:
        """Return a new client of the cluster, in the caller's event loop. Closing the cluster closes it."""
        client = connect(",".join(self.address(node) for node in self.ids), tls=self.tls)
        self._clients.append(client)
        return client

    def address(self, node: str) -> str:
        """Return the ``host:port`` at which a node listens. The node need not run."""
        return load_settings(node_file(str(self.directory), node)).settings.node.advertise

    async def start(self, node: str, *, timeout: float = 30.0) -> EmbeddedNode:
        """Start a stopped node and return it when it is RUNNING. Cancelled: the node is stopped again.

        Raises:
          RequestError: the cluster has no such node.
          NoQuorumError: the node is not RUNNING after ``timeout`` seconds.
        """
        if node not in self.ids:
            raise RequestError(f"the cluster has no node {node!r}; its nodes are {', '.join(self.ids)}")
        context = AsyncExitStack()
        embedded = await context.enter_async_context(
            open_node(node_file(str(self.directory), node), actors=self.actors, timeout=timeout)
        )
        self._contexts[node] = context
        self.nodes[node] = embedded
        return embedded

    async def stop(self, node: str) -> None:
        """Stop a node cleanly: it hands over its leadership first. Does nothing if the node does not run."""
        context = self._contexts.pop(node, None)
        self.nodes.pop(node, None)
        if context is not None:
            await context.aclose()

    async def close(self) -> None:
        """Close all clients, then stop all nodes, none of which hands over its leadership."""
        for client in self._clients:
            await client.close()
        for embedded in self.nodes.values():
            embedded.stop_without_handing_over()
        for node in list(self._contexts):
            await self.stop(node)


@asynccontextmanager
async def local_cluster(
    *,
    nodes: int = 3,
    actors: Actors = NO_ACTORS,
    settings: Mapping[str, object] = NO_SETTINGS,
    directory: str | Path | None = None,
    timeout: float = 30.0,
    tls: bool = False,
) -> AsyncIterator[ClusterHandle]:
    """Run a whole cluster in this process, with real disks and sockets. Entering waits until all nodes are RUNNING.

    Example::

        async with viewstamp.local_cluster(nodes=3, actors={"inventory": Inventory}) as cluster:
            inventory = cluster.client().actor("inventory", Inventory)
            await inventory.reserve("A-17", 2)
            await cluster.stop("n1")

    Args:
      nodes: the number of nodes, 1 to 9.
      actors: the replicated actors that every node runs: name to class.
      settings: settings of every node that differ from the defaults, for example ``{"wal.bytes_max": 64 * 2**20}``.
      directory: the directory of the nodes' data, which stays there; None = a temporary one that is removed at the end.
      timeout: seconds to wait for RUNNING.
      tls: give the nodes and a client certificates, so that all connections have TLS. Needs ``viewstamp[tls]``.

    Raises:
      NoQuorumError: the nodes are not RUNNING after ``timeout`` seconds.
      ConfigError, StorageError: a setting is wrong, or the directory cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="viewstamp-", ignore_cleanup_errors=True) as temporary:
        root = Path(directory) if directory is not None else Path(temporary)
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()
        }
        ids = [str(node) for node in create_cluster(str(root), nodes, texts)]
        files = make_certificates(str(root), clients=["client"])[-1].tls.files if tls else None
        cluster = ClusterHandle(root, ids, actors, files)
        try:
            await _start_all(cluster, timeout)
            yield cluster
        finally:
            await cluster.close()


async def _start_all(cluster: ClusterHandle, timeout: float) -> None:
    """Start all nodes at once, because they need each other for a majority. If one fails, cancel the other starts."""
    starting = [asyncio.ensure_future(cluster.start(node, timeout=timeout)) for node in cluster.ids]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for start in starting:
            start.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        raise
