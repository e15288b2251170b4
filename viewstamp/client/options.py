"""The settings of a client: plain values, read from nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from viewstamp.client.routing import ExpectedNode
from viewstamp.wire.access import Token
from viewstamp.wire.frame import FRAME_BYTES_MAX

__all__ = ["ClientOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings for the batches, time limits and retries of a client. Times are in seconds, sizes in bytes.

    Example::

        options = viewstamp.ClientOptions(timeout=5.0, bytes_in_flight_max=64 * 2**20)
        client = viewstamp.connect("127.0.0.1:7001", options=options)
    """

    timeout: float = 30.0
    """The timeout of a call that is given none, above 0; ``math.inf`` = no timeout."""
    batch_bytes: int = 256 * 1024
    """A batch takes no more records once it holds this many bytes.

    If the leader is far away, a full batch of records takes further ones until it is sent, up to four times as many
    bytes. So few batches in flight hold many records.
    """
    batches_in_flight: int = 8
    """Limit of batches of one topic (or of commands) that are sent and not answered, 1 to 64, if the leader is near.

    All topics of a client together may have 64, because a session keeps no more results for retries.
    """
    batches_in_flight_far: int = 48
    """The same limit if the leader is far away (a high latency), from ``batches_in_flight`` to 64.

    Between the two it is in proportion to the quickest answer of the leader, 5 ms for ``batches_in_flight``. For
    example, 20 ms allow 32 batches. The quickest answer decides, because a busy leader usually answers late, and more
    batches would make its answers later.
    """
    batches_eager: int = 2
    """A batch that is not full is sent at once while fewer than this many of its topic are unanswered; else it waits
    and fills.

    Two keep both the disk and the network busy. With more, the same callers would only make smaller batches.
    """
    bytes_in_flight_max: int = 16 * 1024 * 1024
    """Bytes of appends that the client holds, sent or not. Above it ``append`` waits. One append is always accepted.

    If the client uses several groups, each has an equal share.
    """
    stage_bytes_in_flight: int = 8 * 1024 * 1024
    """Unacknowledged bytes of one attempt, above which ``stage`` waits. One block is always accepted."""
    connect_timeout: float = 1.0
    """Time limit for opening a connection, including the handshake."""
    silence: float = 2.0
    """If a node that owes an answer sends nothing for this long, the client asks another node."""
    back_off_min: float = 0.01
    back_off_max: float = 0.5
    """The pause after a failed attempt: ``back_off_min`` at first, 25 % longer each time, with jitter."""
    read_bytes: int = 1024 * 1024
    """The most that one request of a reader asks for."""
    follow_wait: float = 5.0
    """Seconds for which a node may hold a reader's request while it waits for new records."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    expected: Mapping[str, ExpectedNode] | None = None
    """The node that must answer at each address, for callers that can read the nodes' directories: no request is sent
    to an address before its node is confirmed, see ``routing.py``. None = any node of the cluster is accepted."""
    token: str = field(default="", repr=False)
    """The token that the client shows to each node: the text that ``viewstamp token create`` printed. "" = none."""
    doctor: str = "viewstamp doctor"
    """The command that explains a missing majority; error messages name it."""

    def __post_init__(self) -> None:
        assert 1 <= self.batches_eager <= self.batches_in_flight <= self.batches_in_flight_far <= 64
        if self.token:
            Token.read(self.token)
        assert self.batch_bytes > 0
        assert self.bytes_in_flight_max > 0
        assert self.timeout > 0
