"""The cluster of most client tests: three simulated nodes."""

from collections.abc import AsyncIterator

import pytest

from tests.client.cluster import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three running nodes; tests that need others define a fixture of this name themselves."""
    cluster = Cluster()
    await cluster.start(3)
    yield cluster
    await cluster.close()
