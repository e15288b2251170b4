"""The measured cluster: one that exists already, or one that is made for the measurement and removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from viewstamp.errors import UnavailableError
from viewstamp.local.find import find_cluster
from viewstamp.local.process import nodes_end_with_this_process
from viewstamp.local.target import ClusterTarget

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.embed.open_node import EmbeddedNode
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.local.node import LocalNode

__all__ = [
    "TOPIC",
    "WAIT_SECONDS",
    "EmbeddedLeader",
    "connected",
    "connected_to",
    "embedded_leader",
    "filesystem_of",
    "own_cluster",
    "own_directory",
]

TOPIC: Final = "bench"
NODES: Final = 3
WAIT_SECONDS: Final = 30.0
PATIENCE: Final = {"timeouts.election_ms": "5000"}
"""A long election timeout, because a busy machine would otherwise depose the leader in this process."""


@asynccontextmanager
async def connected(
    directory: Path | None, cluster: str | None, count: int, *, embedded: bool = False
) -> AsyncIterator[tuple[list[Client], str]]:
    """Yield ``count`` clients, each with a session of its own, and the type of the file system of the data.

    The cluster is the one that ``directory`` or ``cluster`` names, otherwise a new one of three nodes. The topic
    exists.
    """
    async with AsyncExitStack() as stack:
        if directory is not None or cluster is not None:
            target = find_cluster(directory, cluster)
            filesystem = filesystem_of(directory) if directory is not None else "unknown"
        else:
            own = stack.enter_context(own_directory())
            filesystem = filesystem_of(own)
            if embedded:
                leader = await stack.enter_async_context(embedded_leader(own))
                await leader.node.create_topic(TOPIC)
                yield [leader.node], filesystem
                return
            target = (await stack.enter_async_context(own_cluster(own))).target
        yield await stack.enter_async_context(connected_to(target, count)), filesystem


@asynccontextmanager
async def connected_to(target: ClusterTarget, count: int) -> AsyncIterator[list[Client]]:
    """Yield ``count`` clients of a cluster, in which the topic exists."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(target.connect()) for _ in range(count)]
        await clients[0].create_topic(TOPIC)
        yield clients


@contextmanager
def own_directory(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new directory in ``parent``, by default the current one; it is removed at exit with its contents.

    A missing ``parent`` is created, and removed at exit if it is empty.
    """
    # Beside the current directory's files and not in the system's temporary directory, which may be memory.
    parent = (parent or Path()).absolute()
    is_made = not parent.exists()
    parent.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="viewstamp-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if is_made and not any(parent.iterdir()):
            parent.rmdir()


@asynccontextmanager
async def own_cluster(directory: Path) -> AsyncIterator[LocalCluster]:
    """Yield a new RUNNING cluster with default settings and without fault switches; its nodes are killed at exit."""
    from viewstamp.local.cluster import LocalCluster

    local = LocalCluster.open_or_create(directory, NODES, chaos=False)
    nodes = list(local.nodes.values())
    async with _running(local, nodes):
        await local.wait_running(nodes, WAIT_SECONDS)
        yield local


class EmbeddedLeader:
    """A leader in this process, and the processes of the other members."""

    def __init__(self, node: EmbeddedNode, others: list[int]) -> None:
        self.node = node
        self.others = others
        """Process ids."""

    def check_leading(self) -> None:
        """Raise UnavailableError unless the member in this process leads, because only its figures are meant."""
        if self.node.node_status["role"] != "leader":
            raise UnavailableError("the member in this process does not lead any more", remedy="run it again")


@asynccontextmanager
async def embedded_leader(
    directory: Path, settings: Mapping[str, str] | None = None, *, thread: bool = False
) -> AsyncIterator[EmbeddedLeader]:
    """Yield the leader of a new cluster: its first member, which runs in this process and campaigns first.

    Args:
      directory: for the members' files and data.
      settings: ``section.key`` to text, for all members.
      thread: whether the leader has a loop and a thread of its own, which is the default of ``open_node``.

    Raises:
      UnavailableError: another member was elected, or a member did not start.
    """
    from viewstamp.embed.open_node import open_node
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.local.node_process import logger

    local = LocalCluster.open_or_create(directory, NODES, {**PATIENCE, **(settings or {})}, chaos=False)
    first, *others = local.nodes.values()
    async with (
        _running(local, others),
        open_node(first.file, thread=thread, timeout=WAIT_SECONDS, log=logger("error")) as node,
    ):
        await local.wait_running(others, WAIT_SECONDS)
        leader = EmbeddedLeader(node, [pid for other in others if (pid := other.pid()) is not None])
        leader.check_leading()
        yield leader


@asynccontextmanager
async def _running(local: LocalCluster, nodes: Sequence[LocalNode]) -> AsyncIterator[None]:
    try:
        with nodes_end_with_this_process():
            for node in nodes:
                local.spawn(node)
            yield
    finally:
        for node in nodes:
            await node.kill()


def filesystem_of(directory: str | Path) -> str:
    """Return the type of the file system that a directory is on."""
    from viewstamp.host.disk import RealDisk

    return RealDisk().filesystem(os.path.abspath(directory))
