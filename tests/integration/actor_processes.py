"""A cluster of processes that run a ledger each."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.integration import ledger
from tests.integration.test_kill import kill, start
from viewstamp.local.cluster import LocalCluster

__all__ = ["actor_processes"]


@asynccontextmanager
async def actor_processes(
    directory: Path, nodes: int = 3, settings: Mapping[str, str] | None = None
) -> AsyncIterator[LocalCluster]:
    """Run a cluster of processes of its own, RUNNING; none is left behind."""
    # Beside the settings: the nodes find it wherever they are started.
    shutil.copy(str(ledger.__file__), directory / "ledger_of_a_test.py")
    chosen = {"actors.ledger": "ledger_of_a_test:Ledger", "wal.segment_bytes": "1048576", **(settings or {})}
    cluster = await asyncio.to_thread(LocalCluster.open_or_create, directory, nodes, chosen)
    try:
        await start(cluster)
        yield cluster
    finally:
        await kill(cluster, *cluster.nodes)
