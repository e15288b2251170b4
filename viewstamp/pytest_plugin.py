"""The pytest plugin: the fixture ``viewstamp_cluster`` and its options.

Every pytest run on a machine with viewstamp imports this file, so it imports nothing until a test uses the fixture.
The implementation is in ``viewstamp.testing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from viewstamp.testing import ClusterFactory

__all__ = ["pytest_addoption", "viewstamp_cluster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--viewstamp-seed``, ``--viewstamp-seeds`` and ``--viewstamp-trace``."""
    group = parser.getgroup("viewstamp", "viewstamp: replicated actors in a simulated cluster")
    group.addoption("--viewstamp-seed", type=int, metavar="N", help="run this seed only, to repeat a failure")
    group.addoption("--viewstamp-seeds", type=int, metavar="N", help="run seeds 1 to N instead of those of each test")
    group.addoption("--viewstamp-trace", action="store_true", help="print every event of every seed")


@pytest.fixture
def viewstamp_cluster(request: pytest.FixtureRequest) -> ClusterFactory:
    """Run replicated actors in simulated clusters with faults: ``viewstamp_cluster(actors={...}).run(scenario)``.

    A failure shows its seed, and the command that repeats it. The guide is ``docs/guides/testing.md``.
    """
    from viewstamp.testing.simulation import ClusterFactory

    return ClusterFactory(request)
