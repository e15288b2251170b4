"""The rules of the records that change the hosts of an established group. Pure.

The *hosts* of a group are its founders and the nodes that were added to it, without those that have left. They say
which nodes shall be members; the leader of the group brings its members into line with them
(``node/host_changes.py``). The founders stay in the state, because they are the membership that counts before the first
record of the group. A node that has left is not added again, because its old directory could be taken for its new one.

| record | fields | changes nothing if | refused if |
| --- | --- | --- | --- |
| HOST_GROUP | group, node, address | the node is a host that is not leaving | the node is leaving or has left, or \
there are too many |
| UNHOST_GROUP | group, node | the node is leaving or has left | the node is no host, or all others are leaving too |
| LEFT_GROUP | group, node | the node has left | the node is not leaving |

Each of them is refused if the group is unknown or not established.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from viewstamp.errors import RequestError
from viewstamp.ids import NodeId, name_of
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.names import is_one_line

__all__ = ["FOUNDERS_MAX", "added_host", "check_host", "image_of_hosts", "leaving_host", "left_host", "with_hosts"]

FOUNDERS_MAX = 9
"""The most founders, and the most hosts, of a group."""
_ADDED_MAX = 64
"""The most nodes that are added to one group in the course of time."""
_TEXT_MAX = 256


def added_host(group: PlacedGroup, node: NodeId, address: str) -> PlacedGroup | None:
    """Return the group as a HOST_GROUP makes it; None = unchanged. Raises RequestError."""
    check_host(node, address)
    if node in group.left or node in group.leaving:
        raise RequestError(
            f"{node} {'has left' if node in group.left else 'is leaving'} group {group.id}, and a node is not added to"
            " a group again; nothing was changed",
            remedy="add another node; or place another group: `viewstamp group place`",
        )
    if node in group.hosts:
        return None
    if len(group.hosts) >= FOUNDERS_MAX or len(group.added) + len(group.left) >= _ADDED_MAX:
        raise RequestError(
            f"group {group.id} has {len(group.hosts)} hosts, and {len(group.left)} have left; it can have"
            f" {FOUNDERS_MAX}, and {_ADDED_MAX} in the course of time; {node} was not added",
            remedy=f"remove a host first: `viewstamp group remove-member {group.id} NODE`",
        )
    return replace(group, added={**group.added, node: address})


def leaving_host(group: PlacedGroup, node: NodeId) -> PlacedGroup | None:
    """Return the group as an UNHOST_GROUP makes it; None = unchanged. Raises RequestError."""
    if node in group.left or node in group.leaving:
        return None
    if node not in group.hosts:
        raise RequestError(
            f"{node} does not host group {group.id}: {', '.join(group.hosts)}; nothing was changed",
            remedy="name a host: see `viewstamp group list`",
        )
    leaving = (*group.leaving, node)
    if group.hosts.keys() <= set(leaving):
        raise RequestError(
            f"group {group.id} would have no host without {node}, so {node} was not removed",
            remedy=f"add another node first: `viewstamp group add-member {group.id} NODE`",
        )
    return replace(group, leaving=leaving)


def left_host(group: PlacedGroup, node: NodeId) -> PlacedGroup | None:
    """Return the group as a LEFT_GROUP makes it; None = unchanged. Raises RequestError."""
    if node in group.left:
        return None
    if node not in group.leaving:
        raise RequestError(
            f"{node} was reported as no member of group {group.id}, and nobody has removed it; it stays a host",
            remedy="run the same release on all nodes",
        )
    leaving = tuple(each for each in group.leaving if each != node)
    added = {each: address for each, address in group.added.items() if each != node}
    return replace(group, added=added, leaving=leaving, left=(*group.left, node))


def image_of_hosts(group: PlacedGroup) -> list[object]:
    """Return the hosts of a group as plain values; [] if they are its founders."""
    return [dict(group.added), list(group.leaving), list(group.left)] if group.has_moved else []


def with_hosts(group: PlacedGroup, added: dict[Any, Any], leaving: list[Any], left: list[Any]) -> PlacedGroup:
    """Return a group with the hosts of an image. Raises ValueError or TypeError if they break an invariant."""
    try:
        for node, address in {**added, **dict.fromkeys(left, "-")}.items():
            check_host(node, address)
    except RequestError as error:
        raise ValueError(f"group {group.id}: {error.message}") from error
    names = [*added, *left]
    if len(set(names)) < len(names) or added.keys() & group.members.keys() or len(set(leaving)) < len(leaving):
        raise ValueError(f"group {group.id} has a host twice")
    moved = replace(group, added=added, leaving=tuple(leaving), left=tuple(left))
    if not moved.is_established or not moved.has_moved or not set(leaving) < moved.hosts.keys():
        raise ValueError(f"group {group.id} has the hosts {added}, of which leave {leaving}, and left {left}")
    return moved


def check_host(node: object, address: object) -> None:
    """Check the name and the address of a host. Raises RequestError."""
    for text in (node, address):
        if type(text) is not str or not 1 <= len(text) <= _TEXT_MAX or not is_one_line(text):
            raise RequestError(
                f"a group cannot have the founder {brief_repr(node)} at {brief_repr(address)}",
                remedy="give the name and the address of a member of the cluster: `viewstamp members list`",
            )
    if node != (name := name_of(NodeId(str(node)))):
        raise RequestError(
            f"a group cannot have the founder {brief_repr(node)}, which is the id of one of its disks",
            remedy=f"give the name of the node, {name}",
        )
