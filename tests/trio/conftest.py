"""Peers for trio programs: they run on asyncio in their own thread, as they would elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.client.cluster import Cluster
from tests.in_thread import InThread, in_thread


@pytest.fixture
def peers() -> Iterator[InThread[Cluster]]:
    """Three nodes that follow the test's script."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Cluster]:
        cluster = Cluster()
        await cluster.start(3)
        yield cluster
        await cluster.close()

    with in_thread(opened) as cluster:
        yield cluster
