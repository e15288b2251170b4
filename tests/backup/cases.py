"""A cluster in this process with all kinds of content, and its backups in a directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from viewstamp.actors.replicated import ReplicatedActor, command, query
from viewstamp.backup.create import BackupTaker
from viewstamp.backup.manifest import Manifest
from viewstamp.backup.options import BackupOptions
from viewstamp.backup.source import BackupSource, ClusterSource
from viewstamp.backup.store import BackupStore, DirectoryStore
from viewstamp.client import Client
from viewstamp.embed.local_cluster import ClusterHandle, local_cluster
from viewstamp.host.clock import RealClock
from viewstamp.host.disk import RealDisk
from viewstamp.wire.batch import Record

FAST = BackupOptions(bytes_per_second=1 << 40, share=1.0)
SMALL = {"wal.segment_bytes": 65536, "snapshots.log_bytes": 65536, "wal.reserve_bytes": 0}
"""Settings with which a log of some 100 KiB takes snapshots and drops segments."""


class Counter(ReplicatedActor):
    """An actor with a state that depends on every command."""

    def __init__(self) -> None:
        self.total = 0

    @command
    def add(self, number: int) -> int:
        """Add a number; return the sum."""
        self.total += number
        return self.total

    @query
    def value(self) -> int:
        """Return the sum."""
        return self.total


@asynccontextmanager
async def cluster_of(
    directory: Path, *, nodes: int = 3, settings: dict[str, object] | None = None
) -> AsyncIterator[ClusterHandle]:
    async with local_cluster(
        nodes=nodes, directory=directory, actors={"counter": Counter}, settings=settings or {}
    ) as cluster:
        yield cluster


async def fill(client: Client, *, topic: str = "orders", count: int = 50, size: int = 200) -> None:
    """Append records, call an actor, and commit a batch of a sink."""
    await client.create_topic(topic)
    await asyncio.gather(*(client.append(topic, b"%d " % number + bytes(size)) for number in range(count)))
    counter = client.actor("counter", Counter, key=topic)
    for number in range(10):
        await counter.add(number)


async def records_of(client: Client) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for topic in await client.list_topics():
        found[topic.name] = [record async for record in client.read(topic.name)]
    return found


def store_in(directory: Path) -> DirectoryStore:
    return DirectoryStore(RealDisk(), str(directory))


async def back_up(
    store: BackupStore, source: Client | BackupSource, *, node: str | None = None, options: BackupOptions = FAST
) -> Manifest:
    """Take a backup as the command does."""
    chosen = ClusterSource(source, node=node) if isinstance(source, Client) else source
    with store.held():
        return await BackupTaker(store, chosen, clock=RealClock(), release="test", options=options).take()
