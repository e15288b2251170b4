"""The cluster of most client tests: three nodes that follow a script, in simulated time.

In simulated time an answer that was sent arrives before a timeout expires, also on a busy machine, and waiting costs
nothing. A loop of ``asyncio.sleep(0)`` never ends there, because time only moves when nothing is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.client.cluster import Cluster
from tests.steady import SteadyLoop
from viewstamp.sim.loop import SimulatedLoop

ON_REAL_NODES = ("test_real_cluster.py", "test_members_on_real_nodes.py", "test_sink_on_real_nodes.py")


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests with real disks in real time, and all others in simulated time."""
    if item.path.name in ON_REAL_NODES:
        return {"steady": SteadyLoop}
    return {"simulated": lambda: SimulatedLoop(1)}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three running nodes; tests that need others define a fixture of this name themselves."""
    cluster = Cluster()
    await cluster.start(3)
    yield cluster
    await cluster.close()
