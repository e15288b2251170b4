"""Limits of the resources that all connections of a server use together: descriptors, memory, waiting requests.

| limit | effect if it is exceeded |
| --- | --- |
| connections that have not sent a HELLO | the oldest of them ends |
| connections of clients | a HELLO is refused, with OverloadedError |
| connections of one peer in one group | the oldest of them ends, because after a network failure old ones look alive |
| connections of all peers, in all groups | the oldest of the peer with most connections in one group ends; if each \
has only one, the HELLO is refused with OverloadedError |
| bytes of unfinished frames, and of unread answers, of clients | the connection that holds most ends |
| requests that wait | a request is refused, with OverloadedError |

Peers have limits of their own, because a member must reach the others however many clients are connected. A node with
many groups needs a link to each peer in each of them, so surplus connections in one group, for example those of nodes
that ask to join, never keep the only link of a peer out of another group.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from viewstamp.errors import BrokenRuleError, OverloadedError, ViewstampError
from viewstamp.host.logger import Logger

__all__ = ["Complaints", "Crowd", "CrowdLimits", "Guest"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdLimits:
    """Limits of connections, for all of them together unless stated otherwise."""

    clients_max: int = 8192
    """Connections of clients."""
    peers_max: int = 64
    """Connections of peers, in all groups together."""
    one_peer_max: int = 8
    """Connections of one peer in one group: its link, and those for repairs and snapshots."""
    handshakes_max: int = 128
    """Connections that have not sent a HELLO."""
    hello_bytes_max: int = 4096
    """Bytes of a HELLO."""
    hello_seconds: float = 5.0
    """Seconds in which a connection must send its HELLO."""
    buffered_bytes_max: int = 512 * _MIB
    """Bytes of unfinished frames, and of answers that clients have not read."""
    requests_max: int = 65_536
    """Requests of clients that wait: for a record, for a leader, for the disk."""

    @classmethod
    def within(cls, descriptors: int, *, connections_max: int, buffered_bytes_max: int) -> CrowdLimits:
        """Return limits with which a process with at most ``descriptors`` file descriptors never runs out of them.

        Up to half, at most 256, are kept for the logs, the snapshots, 64 peers and connections being accepted. With
        more than 1,024 descriptors a 16th of them, at most 2,048, is for peers, for the links of many groups.
        """
        peers = max(4, min(64, descriptors // 10), min(2048, descriptors // 16))
        left = descriptors - min(256, descriptors // 2) - max(0, peers - 64)
        handshakes = max(2, min(128, left // 8))
        return cls(
            clients_max=max(1, min(connections_max, left - handshakes)),
            peers_max=peers,
            handshakes_max=handshakes,
            buffered_bytes_max=buffered_bytes_max,
        )


class Guest(Protocol):
    """One connection that the crowd counts."""

    counted_bytes: int
    """The bytes that the crowd has counted for it."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes that it holds now: of an unfinished frame, and of unread answers."""
        ...

    def cut(self, reason: str) -> None:
        """End it immediately."""
        ...


class Crowd:
    """Counts connections, their bytes and their requests.

    Invariants:
      * a connection is in exactly one of ``_greeting``, ``_clients`` and ``_peers`` from ``arrived`` to ``left``
      * ``_bytes`` is the sum of ``counted_bytes`` of all that are not peers
    """

    def __init__(self, limits: CrowdLimits) -> None:
        self.limits = limits
        self.requests = 0
        """Requests that wait."""
        self._greeting: dict[Guest, None] = {}
        self._clients: dict[Guest, None] = {}
        self._peers: dict[Guest, tuple[str, int]] = {}
        """Those of peers: the name of the peer, and the group."""
        self._bytes = 0

    def arrived(self, guest: Guest) -> None:
        """Take a new connection."""
        self._greeting[guest] = None
        if len(self._greeting) > self.limits.handshakes_max:
            oldest = next(iter(self._greeting))
            self.left(oldest)
            oldest.cut(f"over {self.limits.handshakes_max} connections have not sent a HELLO, and this is the oldest")

    def greeted(self, guest: Guest, peer: str, group: int = 0) -> None:
        """Count a connection that has sent its HELLO as one of ``peer``, or of a client if ``peer`` is "".

        Peers are counted in each ``group``, because a node has a link to a peer in each group that they share.

        Raises:
          OverloadedError: too many connections of peers or of clients are open.
        """
        limits = self.limits
        if peer:
            own = [each for each, side in self._peers.items() if side == (peer, group)]
            if len(own) >= limits.one_peer_max:
                self.left(own[0])
                own[0].cut(f"{peer} has {len(own)} other connections here")
            if len(self._peers) >= limits.peers_max:
                self._make_room_for((peer, group))
        elif len(self._clients) >= limits.clients_max:
            raise OverloadedError(
                f"{len(self._clients)} clients are connected, as many as this node takes",
                remedy="try another node; or raise [limits] connections_max, and the limit of file descriptors"
                " (ulimit -n, LimitNOFILE=) of the node",
            )
        self._greeting.pop(guest, None)
        if peer:
            self._peers[guest] = (peer, group)
            self._bytes -= guest.counted_bytes
            guest.counted_bytes = 0
        else:
            self._clients[guest] = None

    def _make_room_for(self, side: tuple[str, int]) -> None:
        """End the oldest connection of the peer that has most of them in one group, if that is more than one."""
        counts = Counter([side, *self._peers.values()])  # Of equal ones the first counts, so no other peer loses one.
        largest, count = counts.most_common(1)[0]
        if count == 1:
            raise OverloadedError(
                f"{len(self._peers)} connections of peers are open, each of another peer or group",
                remedy="raise the limit of file descriptors (ulimit -n, LimitNOFILE=) of the node",
            )
        oldest = next(guest for guest, each in self._peers.items() if each == largest)
        self.left(oldest)
        oldest.cut(f"the node has {self.limits.peers_max} connections of peers, and most of them are of this one")

    def left(self, guest: Guest) -> None:
        """Forget a connection that has ended. Idempotent."""
        self._greeting.pop(guest, None)
        self._clients.pop(guest, None)
        self._peers.pop(guest, None)
        self._bytes -= guest.counted_bytes
        guest.counted_bytes = 0

    def count(self, guest: Guest, size: int) -> None:
        """Count the bytes of a connection. If all together hold too many, end the one that holds most."""
        if guest not in self._clients and guest not in self._greeting:
            return
        self._bytes += size - guest.counted_bytes
        guest.counted_bytes = size
        if self._bytes > self.limits.buffered_bytes_max:
            self._relieve()

    def _relieve(self) -> None:
        # Count again, because bytes that were sent since the last count are still included.
        guests = [*self._clients, *self._greeting]
        for guest in guests:
            guest.counted_bytes = guest.buffered_bytes
        self._bytes = sum(guest.counted_bytes for guest in guests)
        while self._bytes > self.limits.buffered_bytes_max:
            largest = max(guests, key=lambda guest: guest.counted_bytes)
            reason = (
                f"all connections hold {self._bytes:,} bytes of unfinished frames and answers not taken, over the limit"
                f" of {self.limits.buffered_bytes_max:,}; this one holds most of them: {largest.counted_bytes:,}"
            )
            self.left(largest)
            guests.remove(largest)
            largest.cut(reason)

    def check_requests(self) -> None:
        """Raise OverloadedError if too many requests wait already."""
        if self.requests >= self.limits.requests_max:
            raise OverloadedError(
                f"{self.requests} requests wait on this node", remedy="try another node, or a little later"
            )

    @property
    def status(self) -> dict[str, int]:
        """Return the numbers of connections: {"clients", "clients_max", "peers", "handshakes"}."""
        return {
            "clients": len(self._clients),
            "clients_max": self.limits.clients_max,
            "peers": len(self._peers),
            "handshakes": len(self._greeting),
        }


_QUIET_SECONDS = 10.0
"""Time after a line in which further complaints of its kind are only counted."""
_KINDS_MAX = 256
"""Number of kinds of complaints that are distinguished; further ones count as one kind."""


class Complaints:
    """Logs warnings about connections: the first of each kind immediately, then one in ten seconds.

    A kind is the event, the other side, and the rule that was broken. The port of the other side does not count,
    because each connection comes from another one.
    """

    def __init__(self, log: Logger) -> None:
        self._logger = log
        self._kinds: dict[tuple[str, str, str], _Kind] = {}

    def warning(self, event: str, peer: str, error: ViewstampError) -> None:
        """Log ``event`` with the reason, or count it. ``peer`` is an id, or an address. Never awaits."""
        rule = error.rule if isinstance(error, BrokenRuleError) else type(error).__name__
        key = (event, peer.rpartition(":")[0] or peer, rule)
        if key not in self._kinds and len(self._kinds) >= _KINDS_MAX:
            key = (event, "", "")
        kind = self._kinds.setdefault(key, _Kind())
        now = asyncio.get_running_loop().time()
        if now < kind.quiet_until:
            kind.unsaid += 1
            return
        unsaid = {"unsaid": kind.unsaid} if kind.unsaid else {}
        kind.quiet_until, kind.unsaid = now + _QUIET_SECONDS, 0
        self._logger.warning(event, peer=peer, rule=rule, reason=str(error), **unsaid)


class _Kind:
    """The time of the next log line of a kind, and the number of complaints since the last one."""

    def __init__(self) -> None:
        self.quiet_until = 0.0
        self.unsaid = 0
