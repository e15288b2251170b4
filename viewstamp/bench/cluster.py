"""What is measured: a cluster that is there, or one of its own that is gone in the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from viewstamp.errors import UnavailableError
from viewstamp.local.find import find_cluster
from viewstamp.local.process import nodes_end_with_this_process
from viewstamp.local.target import ClusterTarget

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.local.cluster import LocalCluster

__all__ = ["TOPIC", "WAIT_SECONDS", "connected", "connected_to", "filesystem_of", "own_cluster", "own_directory"]

TOPIC: Final = "bench"
NODES: Final = 3
WAIT_SECONDS: Final = 30.0


@asynccontextmanager
async def connected(
    directory: Path | None, cluster: str | None, count: int, *, embedded: bool = False
) -> AsyncIterator[tuple[list[Client], str]]:
    """Yield ``count`` clients, each with a session and a connection of its own, and the file system of the data.

    The cluster is the one that ``directory`` or ``cluster`` names, else one of its own. The topic is there.
    """
    async with AsyncExitStack() as stack:
        if directory is not None or cluster is not None:
            target = find_cluster(directory, cluster)
            filesystem = filesystem_of(directory) if directory is not None else "unknown"
        else:
            own = stack.enter_context(own_directory())
            filesystem = filesystem_of(own)
            local = await stack.enter_async_context(own_cluster(own, embedded=embedded))
            if embedded:
                yield [await stack.enter_async_context(_embedded_leader(local))], filesystem
                return
            target = local.target
        yield await stack.enter_async_context(connected_to(target, count)), filesystem


@asynccontextmanager
async def connected_to(target: ClusterTarget, count: int) -> AsyncIterator[list[Client]]:
    """Yield ``count`` clients of a cluster. The topic is there."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(target.connect()) for _ in range(count)]
        await clients[0].create_topic(TOPIC)
        yield clients


@contextmanager
def own_directory(parent: Path | None = None) -> Iterator[str]:
    """Yield a new directory in ``parent``, by default the current one; it is removed in the end with all in it."""
    # Beside the current directory's files and not in the system's temporary directory, which may be memory.
    path = tempfile.mkdtemp(prefix="viewstamp-bench-", dir=parent or os.getcwd())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def own_cluster(directory: str, *, embedded: bool = False) -> AsyncIterator[LocalCluster]:
    """Yield a new cluster with default settings that is RUNNING; in the end its nodes are killed.

    ``embedded``: without its first node, and so without being RUNNING.
    """
    from viewstamp.local.cluster import LocalCluster

    local = LocalCluster.open_or_create(directory, NODES)
    nodes = list(local.nodes.values())[embedded:]
    try:
        with nodes_end_with_this_process():
            for node in nodes:
                local.spawn(node)
            if not embedded:
                await local.wait_running(nodes, WAIT_SECONDS)
            yield local
    finally:
        for node in nodes:
            await node.kill()


@asynccontextmanager
async def _embedded_leader(local: LocalCluster) -> AsyncIterator[Client]:
    """Run n1, which campaigns first, in this process and on this loop."""
    from viewstamp.embed.open_node import open_node
    from viewstamp.local.node_process import logger

    settings = next(iter(local.nodes.values())).settings
    async with open_node(settings, thread=False, timeout=WAIT_SECONDS, log=logger("error")) as node:
        await node.create_topic(TOPIC)
        if node.node_status["role"] != "leader":
            raise UnavailableError("another node was elected than the one in this process", remedy="run it again")
        yield node


def filesystem_of(directory: str | Path) -> str:
    """Return the type of the file system that a directory is on."""
    from viewstamp.host.disk import RealDisk

    return RealDisk().filesystem(os.path.abspath(directory))
