"""The records that place a group, report the disk of a founder, and cancel a placement: one msgpack map each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgpack

from viewstamp.ids import GroupId, NodeId
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = ["encode_cancel", "encode_hosted", "encode_place"]


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


def _record(kind: Kind, fields: dict[str, object], by: str = "") -> Batch:
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=kind)
