"""Peers for trio programs to talk to: they run on asyncio, in a thread of their own, as they would elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.client.cluster import Cluster
from tests.in_thread import InThread, in_thread


@pytest.fixture
def peers() -> Iterator[InThread[Cluster]]:
    """Three nodes that do what the test tells them."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Cluster]:
        cluster = Cluster()
        await cluster.start(3)
        yield cluster
        await cluster.close()

    with in_thread(opened) as cluster:
        yield cluster
