"""What most tests of the client stand on: three simulated nodes."""

from collections.abc import AsyncIterator

import pytest

from tests.client.cluster import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three nodes that run; tests that need other ones have a fixture of this name of their own."""
    cluster = Cluster()
    await cluster.start(3)
    yield cluster
    await cluster.close()
