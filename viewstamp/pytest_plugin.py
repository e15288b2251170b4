"""The pytest plugin: the fixture ``viewstamp_cluster`` and its options.

Every pytest run on a machine with viewstamp imports this file, so it imports nothing before a test asks for the
fixture: what there is stands in ``viewstamp.testing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from viewstamp.testing import ClusterFactory

__all__ = ["pytest_addoption", "viewstamp_cluster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("viewstamp", "viewstamp: replicated actors in a simulated cluster")
    group.addoption("--viewstamp-seed", type=int, metavar="N", help="run this seed only: what a failure tells")
    group.addoption("--viewstamp-seeds", type=int, metavar="N", help="run the seeds 1 to N, whatever the tests say")
    group.addoption("--viewstamp-trace", action="store_true", help="print every event of every seed")


@pytest.fixture
def viewstamp_cluster(request: pytest.FixtureRequest) -> ClusterFactory:
    """Run your replicated actors in simulated clusters that break: ``viewstamp_cluster(actors={...}).run(scenario)``.

    A failure says its seed, and the command that repeats it. The guide is ``docs/guides/testing.md``.
    """
    from viewstamp.testing.factory import ClusterFactory

    return ClusterFactory(request)
