"""Liveness: once faults have stopped, every request completes within a minute.

| invariant | sentence |
| --- | --- |
| Liveness | after that minute the group is RUNNING, all members have applied the same log, all damage is repaired, \
and every client has been answered |

The minute is simulated. It is about two hundred election timeouts, so a request that misses it would never complete.
"""

from __future__ import annotations

from collections.abc import Callable

from viewstamp.sim.cluster import Cluster
from viewstamp.sim.violation import Violation

__all__ = ["RECOVERY_SECONDS", "check_liveness"]

RECOVERY_SECONDS = 60.0
_LOOK_SECONDS = 0.01
"""A look asks all members about all groups. After each event, looks took half of the time of a world with groups."""


def check_liveness(cluster: Cluster, is_answered: Callable[[], bool]) -> None:
    """Run a world without faults until it has recovered and ``is_answered`` holds. Raises Violation."""
    if not cluster.loop.run_until(
        lambda: is_answered() and cluster.has_settled, seconds=RECOVERY_SECONDS, every=_LOOK_SECONDS
    ):
        missing = "" if is_answered() else "clients wait; "
        raise Violation(
            "Liveness", f"not recovered {RECOVERY_SECONDS:g} s after the last fault: {missing}{cluster.describe()}"
        )
