"""The rows of the table of requests that members send to each other; ``requests.py`` has the others."""

from __future__ import annotations

from viewstamp.wire.access import MEMBERS
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import RequestBody, request

__all__ = ["AskToJoin", "PeerReport", "ReadLog", "ReadSnapshot", "ReportHosted", "ReportLeft", "ReportStreams"]


@request(FrameKind.READ_SNAPSHOT, needs=MEMBERS)
class ReadSnapshot(RequestBody):
    """Read a piece of a snapshot's file. OK: ``size`` and ``identity`` of the file; payload: bytes from ``offset``."""

    end: int
    term: int
    offset: int
    bytes_max: int


@request(FrameKind.READ_LOG, needs=MEMBERS)
class ReadLog(RequestBody):
    """Read committed batches. OK; payload: whole batches from index ``start`` on, at least one, none beyond ``end``."""

    start: int
    end: int
    bytes_max: int


@request(FrameKind.JOIN, needs=MEMBERS)
class AskToJoin(RequestBody):
    """Ask to be added; has no id and no answer. ``member``: passed on for another node that asks; "" = the sender."""

    address: str
    member: str = ""


@request(FrameKind.HOSTED, needs=MEMBERS)
class ReportHosted(RequestBody):
    """Report the disk of the sender in a group that was placed on it; has no id and no answer, and is repeated."""

    group: int
    incarnation: str


@request(FrameKind.LEFT_GROUP, needs=MEMBERS)
class ReportLeft(RequestBody):
    """Report that a node is no member of a group that the sender hosts; has no id and no answer, and is repeated."""

    group: int
    node: str


@request(FrameKind.REPORT_STREAMS, needs=MEMBERS)
class ReportStreams(RequestBody):
    """Report the committed ends of streams of a group; has no id and no answer, and is repeated.

    ``ends``: of each stream that has moved, its name, the end of its records and the end of its map. ``is_awaited``: a
    caller waits for global positions, so they are given at once. ``parts``: the placed parts of batches of sinks that
    are not visible yet, as the name of the stream, the commit, and the local position behind the part.
    """

    group: int
    ends: list[object]
    is_awaited: bool
    parts: list[object] | None = None


PeerReport = ReportHosted | ReportLeft | ReportStreams
"""What a member reports to the leader of group 0 about the other groups that it hosts."""
