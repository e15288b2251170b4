"""The settings of a client: plain values, read from nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from viewstamp.client.routing import ExpectedNode
from viewstamp.wire.frame import FRAME_BYTES_MAX

__all__ = ["ClientOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client batches, waits and retries. All times are in seconds."""

    timeout: float = 30.0
    """How long a call waits when its caller names no ``timeout``; ``math.inf`` = for ever."""
    batch_bytes: int = 256 * 1024
    """A batch is closed for further records once it holds this many bytes. Bounded by bytes, never by records."""
    batches_in_flight: int = 8
    """Unanswered batches at most. Far below the receipts that a session keeps, so a retry always finds its own."""
    batches_eager: int = 2
    """A batch that is not full leaves at once while fewer than this many are unanswered; else it goes on filling.

    One is on a disk and one is on its way: with more, the same callers would only make smaller batches.
    """
    bytes_in_flight_max: int = 16 * 1024 * 1024
    """Bytes of appends that are held here, sent or not; above it ``append`` waits. One append is always let in."""
    stage_bytes_in_flight: int = 8 * 1024 * 1024
    """Bytes of one attempt that are staged and not acknowledged; above it ``stage`` waits. One block is let in."""
    connect_timeout: float = 1.0
    """How long opening a connection may take, handshake included."""
    silence: float = 2.0
    """A node that owes an answer and sends nothing for this long is left for another one."""
    back_off_min: float = 0.01
    back_off_max: float = 0.5
    """The wait after a failed attempt: from ``back_off_min``, a quarter more each time, with jitter."""
    read_bytes: int = 1024 * 1024
    """What one request of a reader asks for, at most."""
    follow_wait: float = 5.0
    """How long a node holds the request of a reader that follows the end."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    expected: Mapping[str, ExpectedNode] | None = None
    """Address to the node that has to answer there, for a caller who can read the nodes' directories: no request is
    sent before that is proved, see ``routing.py``. None = every node of the cluster will do."""
    doctor: str = "viewstamp doctor"
    """The command that says why there is no majority, for errors."""

    def __post_init__(self) -> None:
        assert 1 <= self.batches_eager <= self.batches_in_flight <= 64
        assert self.batch_bytes > 0
        assert self.bytes_in_flight_max > 0
        assert self.timeout > 0
