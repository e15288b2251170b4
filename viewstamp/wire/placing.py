"""The records that place a group, report the disk of a founder, and cancel a placement: one msgpack map each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgpack

from viewstamp.ids import GroupId, NodeId
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = ["encode_cancel", "encode_hosted", "encode_place"]


def encode_place(members: Mapping[NodeId, str], streams: Sequence[str]) -> Batch:
    """Return the record that places a group with these founders, by name with their addresses, and these streams."""
    return _record(Kind.PLACE_GROUP, {"members": dict(members), "streams": list(streams)})


def encode_hosted(group: GroupId, node: NodeId, incarnation: str) -> Batch:
    """Return the record that ``node`` has created its directory of ``group``, and that its disk is ``incarnation``."""
    return _record(Kind.HOSTED, {"group": group, "node": node, "incarnation": incarnation})


def encode_cancel(group: GroupId) -> Batch:
    """Return the record that cancels the placement of ``group``."""
    return _record(Kind.CANCEL_GROUP, {"group": group})


def _record(kind: Kind, fields: dict[str, object]) -> Batch:
    return build_batch([msgpack.packb(fields)], kind=kind)
