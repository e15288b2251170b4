"""Who leads a group of a simulated cluster."""

from __future__ import annotations

from viewstamp.ids import GroupId
from viewstamp.sim.cluster import Cluster, Member

__all__ = ["leader_of"]


def leader_of(world: Cluster, *groups: GroupId) -> Member | None:
    """Return the leader of the first of the groups that has one; None = none of them has."""
    for group in groups:
        for member in world.members:
            hosted = member.group(group)
            if hosted is not None and hosted.replica is not None and hosted.replica.is_leading:
                return member
    return None
