"""A cluster of real processes on this machine: the one harness for tests that start, kill and pause nodes.

Its verbs are those of ``tests/node/group.py``, which runs its nodes in the event loop of the test:

========================  ===================================================================
``start(*names)``         start nodes, by default all; returns before they are RUNNING
``run(*names)``           start stopped nodes, and wait until they are RUNNING
``stop(*names)``          stop cleanly
``kill(*names)``          SIGKILL, as nearly as possible at the same moment
``pause``, ``resume``     SIGSTOP and SIGCONT
========================  ===================================================================

``tests/soak/members.py`` adds proxies between the nodes, and faults of disks and networks.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from viewstamp.client import Client
from viewstamp.local.cluster import LocalCluster, LocalNode

__all__ = [
    "PATIENCE_SECONDS",
    "Processes",
    "eventually",
    "is_connected",
    "is_level",
    "leader_of",
    "none_left",
    "running",
    "statuses",
]

PATIENCE_SECONDS = 60.0
"""Seconds for which a test waits for an event before it fails; a healthy cluster needs a small part of them."""

FoundT = TypeVar("FoundT")


class Processes:
    """The processes of a local cluster."""

    patience = PATIENCE_SECONDS

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return [str(name) for name in self.cluster.nodes]

    def node(self, name: str) -> LocalNode:
        """Return a node. Raises ConfigError if it does not exist."""
        return self.cluster.node(name)

    def connect(self) -> Client:
        """Return a new client of all nodes, to be closed by the caller."""
        return self.cluster.target.connect()

    async def start(self, *names: str) -> None:
        """Start stopped nodes, by default all; returns before they are RUNNING."""
        for name in names or self.names:
            await asyncio.to_thread(self.cluster.spawn, self.node(name))

    async def run(self, *names: str) -> None:
        """Start stopped nodes, and wait until the named ones, or all, are RUNNING."""
        await self.start(*names)
        await self.cluster.wait_running([self.node(name) for name in names or self.names], self.patience)

    async def stop(self, *names: str) -> None:
        """Stop nodes cleanly, at the same time."""
        await self.cluster.stop(self.patience, [self.node(name) for name in names])

    async def kill(self, *names: str) -> None:
        """Kill nodes, as nearly as possible at the same moment, and wait until their processes are gone."""
        for name in names:
            self.node(name).send_signal(signal.SIGKILL)
        for name in names:
            assert await self.node(name).wait_gone(self.patience), f"{name} outlives SIGKILL"

    def pause(self, name: str) -> None:
        """Suspend a process."""
        self.node(name).send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Continue a suspended process."""
        self.node(name).send_signal(signal.SIGCONT)


@asynccontextmanager
async def running(
    directory: Path, nodes: int = 3, settings: Mapping[str, str] | None = None, *, tls: bool = False
) -> AsyncIterator[Processes]:
    """Run a new cluster in ``directory`` that is RUNNING; all of its processes are ended afterwards."""
    processes = Processes(await asyncio.to_thread(LocalCluster.open_or_create, directory, nodes, settings, tls=tls))
    try:
        await processes.run()
        yield processes
    finally:
        await processes.kill(*processes.names)


@contextmanager
def none_left(directory: Path) -> Iterator[None]:
    """When the context ends, kill the nodes of every cluster in a directory or in one of its subdirectories.

    For tests that start nodes by the command line, and so do not await.
    """
    try:
        yield
    finally:
        for file in (*directory.glob("n1.toml"), *directory.glob("*/n1.toml")):
            for node in LocalCluster.open(file.parent).nodes.values():
                asyncio.run(node.kill())


async def eventually(look: Callable[[], Awaitable[FoundT]]) -> FoundT:
    """Wait until ``look`` finds something, and return it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await look()
            if found:
                return found
            await asyncio.sleep(0.02)


async def leader_of(client: Client) -> str:
    """Return the name of the leader that accepts appends; "" = there is none."""
    for node in await client.status():
        if node.get("role") == "leader" and node.get("lifecycle") == "running":
            return str(node["id"])
    return ""


async def statuses(client: Client) -> list[dict[str, Any]]:
    """Return the statuses of all members; [] if one does not answer or starts."""
    nodes = await client.status()
    return nodes if all(node.get("lifecycle") == "running" for node in nodes) else []


async def is_level(client: Client) -> bool:
    """Return whether all members answer, and hold and have applied the same records."""
    ends = {(node["applied_index"], node["last_index"]) for node in await statuses(client)}
    return len(ends) == 1 and all(applied == last for applied, last in ends)


async def is_connected(client: Client) -> bool:
    """Return whether each member has a connection to each other one."""
    nodes = await statuses(client)
    return bool(nodes) and all(len(node["connected"]) == len(nodes) - 1 for node in nodes)
