"""The disk of a test of the log."""

from __future__ import annotations

import pytest

from tests.wal.logs import new_disk
from viewstamp.sim.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    """An empty disk; a file whose tests begin with another one has a fixture of its own."""
    return new_disk()
