"""The rows of the table of requests about copies of a node's log and snapshots, for a backup.

``requests.py`` has the others.
"""

from __future__ import annotations

from typing import Annotated

from viewstamp.wire.access import Need, Right
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import Range, RequestBody, request

__all__ = ["CopyLog", "CopySnapshot", "DescribeLog"]

_ADMINISTER = Need(Right.ADMINISTER)
_SOME_BYTES = Range(1, remedy="ask for at least one byte")


@request(FrameKind.DESCRIBE_LOG, needs=_ADMINISTER)
class DescribeLog(RequestBody):
    """Describe the log that this node has applied, and its state at that index, for a backup.

    The node first applies everything that was committed when the request arrived, as for a linearizable read; so it
    needs a leader. With ``stale`` it answers at once, and the newest records may be missing.

    OK: ``log`` = {cluster, node, first_index, end (exclusive), term and log_time of the last record, history (pairs of
    term and first index), chain and lineage (checksums of the state), topics, sinks, actors and snapshots (as the
    requests that list them answer)}.

    A cluster with other established groups refuses it, unless the caller sets ``groups``: it then copies the logs of
    all groups. The answer of group 0 also has, for their cuts: groups (their ids), version (that of the order),
    open_attempts and pending_attempts (those of sinks: not committed, and committed but not released).
    """

    stale: bool
    groups: bool = False


@request(FrameKind.COPY_LOG, needs=_ADMINISTER)
class CopyLog(RequestBody):
    """Read committed batches, as ReadLog, with zeros in place of the incarnations of members.

    OK; payload: whole batches from index ``start`` on, none beyond ``end``; none = not durable here yet.
    """

    start: int
    end: int
    bytes_max: Annotated[int, _SOME_BYTES]


@request(FrameKind.COPY_SNAPSHOT, needs=_ADMINISTER)
class CopySnapshot(RequestBody):
    """Read a piece of a snapshot's file, as ReadSnapshot, with zeros in place of the incarnations of members."""

    end: int
    term: int
    offset: int
    bytes_max: Annotated[int, _SOME_BYTES]
