"""The request of ordered appends, a row of the table of requests; ``requests.py`` has the others."""

from __future__ import annotations

from typing import Annotated

from viewstamp.wire.access import Need, Right
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import Range, RequestBody, request

__all__ = ["WaitOrdered"]

_POSITION = Range(1, remedy="positions begin at 1")
_WAIT = Range(0, 600.0, remedy="wait from 0 to 600 s")


@request(FrameKind.WAIT_ORDERED, needs=Need(Right.READ, Right.APPEND, topic="stream"))
class WaitOrdered(RequestBody):
    """Wait until a record of a stream has a global position. Sent to the leader of the group of the stream.

    It reads, so it may be sent again, to any later leader. The node holds it for up to ``wait`` seconds, and has the
    committed records of the stream ordered at once.

    OK: ``runs``, a list of [global position of the first record, its position in the stream, number of records]. They
    tile the positions of the stream, and the first one has the record at ``position``; [] = it has no global position
    yet. There are as many as the node knows, up to 256, so that one request serves all callers of a client.

    ``expects``: the client is appending records at or behind ``position``, and does not know their positions yet. Then
    nothing is ordered at once because of this request, because the append itself says that it waits.
    """

    stream: str
    position: Annotated[int, _POSITION]
    wait: Annotated[float, _WAIT]
    expects: bool = False
