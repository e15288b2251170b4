"""The heartbeats of all groups of a node but group 0: sent at the same moment, and in one frame to each node.

An idle group does nothing but send heartbeats and answer them. If each group did so at its own time and on its own
connection, a node with many groups would spend its time on system calls and on wake-ups. So:

* the node has one timer. Before the heartbeats of an idle leader are due, it makes all leaders of the node send theirs
  (``Raft.beat``). A heartbeat that is sent early has no other effect than one that is due. The checks for a quorum that
  are due before the next beat, and would succeed, are made with it
* a node that gets the heartbeats of another one beats with it, if its own beat is due soon (``Beats.join``)
* the timers of the replicas share one of the event loop (``alarms.py``), because each beat sets them later
* a heartbeat in step, or its response, that only counts (``quiet.only_counts``) is stepped at once, in a short turn
* the heartbeats and the responses of one iteration of the event loop are collected for each node, and sent in one BEATS
  frame: a list of [group, incarnation of the sender in it, message as in a PEER frame]

A frame goes over the connection of one of the groups in it: the one with the fewest unsent bytes, and of several such
the one that has not carried a frame for the longest time. So a connection that loses everything, and does not end,
costs the other groups at most every other heartbeat. Only connections of groups other than 0 carry frames, and only if
the other side said in its WELCOME that it reads BEATS.

The health of a group must show on its own connections. So a group has an entry only while its own connection to that
node is open, and only while nothing waits for it on that connection (``quiet.is_in_step``). All other heartbeats travel
on the group's own connection.

| a BEATS frame, or an entry of it | effect |
| --- | --- |
| lost, for example because the process dies before it is sent | as for a lost heartbeat: the next one follows |
| doubled, late, overtaken by a message on the group's own connection | as for a delayed heartbeat: term, number and \
round of the message decide |
| an entry of a group that the receiver does not host, or that has failed there | dropped; other entries count |
| an entry whose sender is no member of its group, or has another disk | dropped, and the group's own connections of \
that sender end, so that it is refused with the reason |
| an entry for another member than this one, because it had another id before | dropped |
| an entry with another message than a heartbeat or its response, or in the name of another node | the connection ends |
| more than ``_ENTRIES_MAX`` entries, a frame on a connection of group 0, or of a node whose messages this group does \
not accept | the connection ends |
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from viewstamp.consensus.messages import HeartbeatRequest, HeartbeatResponse
from viewstamp.errors import FrameError
from viewstamp.host.interfaces import Buffer
from viewstamp.ids import GroupId
from viewstamp.node.alarms import Alarms
from viewstamp.node.peers.codec import decode_message, encode_heartbeat
from viewstamp.node.peers.connection import PeerConnection
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import Frame, FrameKind, encode_frame

__all__ = ["Beat", "Beats", "Heartbeat", "decode_beats"]

Heartbeat = HeartbeatRequest | HeartbeatResponse
Beat = tuple[GroupId, str, Heartbeat]
"""A group, the incarnation of the sender in it, and its message."""

_NOTHING = memoryview(b"")
_ENTRIES_MAX = 256
"""Heartbeats in one frame, so that no frame keeps the event loop of its receiver busy for long."""
_KNOWN_MAX = 4096
"""Decoded heartbeats that are kept: four for each of the 256 groups of a cluster are in use, and a few terms."""


class Beats:
    """The timer of a node that hosts several groups, and the frames that are being collected.

    Invariants:
      * at most one timer is set, and none before :meth:`start` and after :meth:`stop`
      * between two iterations of the event loop nothing is collected
    """

    def __init__(self, seconds: float, leaders: Callable[[], Iterable[Callable[[], None]]]) -> None:
        """Prepare; nothing runs before :meth:`start`.

        Args:
          seconds: the time from one beat to the next, less than that between two heartbeats of an idle leader.
          leaders: returns for each group that this node leads, but group 0, the function that makes it beat.
        """
        self._seconds = seconds
        self._leaders = leaders
        self.alarms = Alarms()
        """The timers of the replicas of all groups."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """The time of the next beat, while the timer is set."""
        self._collected: dict[str, list[tuple[PeerConnection, list[object]]]] = {}
        """For each node the links on which the entries would be sent one by one, and the entries."""
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Begin to beat. Idempotent."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._due = loop.time() + self._seconds
            self._timer = loop.call_at(self._due, self._on_time)

    def stop(self) -> None:
        """Stop beating. Idempotent; messages are still sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def join(self) -> None:
        """Beat now, with another node whose heartbeats have just arrived, if the own beat is due within half of a beat.

        So the nodes beat one after the other within a moment, and each of them wakes up about half as often: it gets
        the heartbeats and responses of the others together, and sends its heartbeats with its responses. The one whose
        timer fires first sets the pace.
        """
        if self._timer is not None and self._due - asyncio.get_running_loop().time() <= self._seconds / 2:
            self._timer.cancel()
            self._on_time()

    def _on_time(self) -> None:
        self._timer = None
        self.start()
        for beat in self._leaders():
            beat()

    def send(self, node: str, link: PeerConnection, beat: Beat) -> None:
        """Send a message to a node in this iteration of the event loop, together with those of other groups.

        Args:
          node: the name of the node.
          link: the open link of the group to that node.
          beat: the group, the incarnation of this node in it, and the message.
        """
        if not self._collected:
            asyncio.get_running_loop().call_soon(self._flush)
        group, incarnation, message = beat
        entry: list[object] = [group, incarnation, encode_heartbeat(message)]
        self._collected.setdefault(node, []).append((link, entry))

    def _flush(self) -> None:
        collected, self._collected = self._collected, {}
        for entries in collected.values():
            left = [(link, entry) for link, entry in entries if link.connection is not None]
            while left:
                now, left = left[:_ENTRIES_MAX], left[_ENTRIES_MAX:]
                carrier = _carrier([link for link, _ in now])
                carrier.beats_number = next(self._numbers)
                frame: list[Buffer] = encode_frame(FrameKind.BEATS, [entry for _, entry in now])
                carrier.send(frame)


def _carrier(links: Sequence[PeerConnection]) -> PeerConnection:
    return min(links, key=lambda link: (link.unsent_bytes, link.beats_number))


def decode_beats(frame: Frame) -> list[Beat]:
    """Return the entries of a BEATS frame. Raises FrameError: the connection must end."""
    try:
        entries = [(group, incarnation, body) for group, incarnation, body in frame.body]
    except (TypeError, ValueError) as error:
        raise FrameError(f"no heartbeats: {brief_repr(frame.body)}") from error
    if len(entries) > _ENTRIES_MAX:
        raise FrameError(f"{len(entries)} heartbeats in one frame, at most {_ENTRIES_MAX} are allowed")
    beats: list[Beat] = []
    for group, incarnation, body in entries:
        message = _decode_heartbeat(body)
        is_named = type(group) is int and group > 0 and type(incarnation) is str
        if not is_named or message is None:
            raise FrameError(f"no heartbeat of a group: {brief_repr([group, incarnation, body])}")
        beats.append((GroupId(group), incarnation, message))
    return beats


def _decode_heartbeat(body: object) -> Heartbeat | None:
    """Return the heartbeat in an entry; None if it is another message. Raises FrameError."""
    try:
        return _decode_known(tuple(body))  # type: ignore[arg-type]
    except TypeError:  # It is no list, or holds one.
        message = decode_message(Frame(FrameKind.PEER, body, _NOTHING))
        return message if isinstance(message, Heartbeat) else None


@lru_cache(_KNOWN_MAX)
def _decode_known(body: tuple[object, ...]) -> Heartbeat | None:
    """Return the heartbeat. Cached, because an idle group sends the same ones again and again.

    A message is immutable, and bodies that are equal have equal messages, also if one has True or 1.0 for 1.
    """
    message = decode_message(Frame(FrameKind.PEER, list(body), _NOTHING))
    return message if isinstance(message, Heartbeat) else None
