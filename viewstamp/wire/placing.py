"""The records about groups, as one msgpack map each: placement, disk of a founder, end, hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgpack

from viewstamp.ids import GroupId, NodeId
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = [
    "encode_cancel",
    "encode_host",
    "encode_hosted",
    "encode_left",
    "encode_place",
    "encode_remove",
    "encode_unhost",
]


def encode_place(members: Mapping[NodeId, str], streams: Sequence[str], *, since: int, by: str = "") -> Batch:
    """Return the record that places a group.

    Args:
      members: its founders, by name with their addresses.
      streams: the names of its streams.
      since: an index that the caller read before it first sent the request.
      by: the caller for the audit log; "" = none is known.
    """
    return _record(Kind.PLACE_GROUP, {"members": dict(members), "streams": list(streams), "since": since}, by)


def encode_hosted(group: GroupId, node: NodeId, incarnation: str) -> Batch:
    """Return the record that ``node`` has created its directory of ``group``, and that its disk is ``incarnation``."""
    return _record(Kind.HOSTED, {"group": group, "node": node, "incarnation": incarnation})


def encode_cancel(group: GroupId, *, by: str = "") -> Batch:
    """Return the record that cancels the placement of ``group``; ``by`` as in :func:`encode_place`."""
    return _record(Kind.CANCEL_GROUP, {"group": group}, by)


def encode_remove(group: GroupId, *, seen: int, is_lost: bool, by: str = "") -> Batch:
    """Return the record that removes the established ``group``.

    Args:
      group: its id.
      seen: an index of group 0 that the caller had read before the group said that it keeps nothing. The record is
        refused if a stream of the group was removed after it.
      is_lost: whether the group was not asked, because its nodes are lost.
      by: as in :func:`encode_place`.
    """
    return _record(Kind.REMOVE_GROUP, {"group": group, "seen": seen, "is_lost": is_lost}, by)


def encode_host(group: GroupId, node: NodeId, address: str, *, by: str = "") -> Batch:
    """Return the record that ``node``, which listens at ``address``, shall host ``group`` too; ``by`` as above."""
    return _record(Kind.HOST_GROUP, {"group": group, "node": node, "address": address}, by)


def encode_unhost(group: GroupId, node: NodeId, *, by: str = "") -> Batch:
    """Return the record that ``node`` shall leave ``group``; ``by`` as in :func:`encode_place`."""
    return _record(Kind.UNHOST_GROUP, {"group": group, "node": node}, by)


def encode_left(group: GroupId, node: NodeId) -> Batch:
    """Return the record that no id of ``node`` is a member of ``group`` any more."""
    return _record(Kind.LEFT_GROUP, {"group": group, "node": node})


def _record(kind: Kind, fields: dict[str, object], by: str = "") -> Batch:
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=kind)
