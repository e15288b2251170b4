"""Compares the members' states, because members that applied the same log must have the same state.

Every member computes a *chain* over all batches that it applies (``StateMachine.chain``) and regularly reports its
applied end and the chain there to its leader. The leader keeps its own chain at each of its latest batches, and
compares. If one differs, the two trails (index and chain of the newest commands) show the first command that differed.
The odd member stops: the one that differs from a majority, or, if no majority has reported within ``_PATIENCE_LOOKS``
comparisons, the one that differs from the leader, because clients have the leader's answers. Comparisons are counted
and not seconds, because a leader whose event loop stalls reads no reports meanwhile.

Messages, msgpack maps in DIGEST frames; all may be lost:

* report, follower → leader: ``end``, ``chain``, ``lineage``; of a bounded log also ``left`` and ``log_end``, for
  ``headroom.py``. When a link is made and once a second, to every member: also ``clock``, microseconds since 1970, for
  ``log_clock.py``; every four seconds in an idle group other than 0, because a node may have many of them. Members that
  run different versions of a class have different lineages, and different chains without an error. They are not
  compared until they run the same version again
* verdict, leader → the other: ``end``, ``odd`` (a node), ``trail``. The odd member compares the trails and stops. If
  the leader is odd, the other sends it a verdict with its own trail.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from viewstamp.actors import AsyncActor
from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.raft import Raft
from viewstamp.errors import DivergedError, FrameError
from viewstamp.host.interfaces import Clock
from viewstamp.ids import GROUP_0, GroupId, Index, NodeId
from viewstamp.node.applier import Applier
from viewstamp.node.health.headroom import Headroom
from viewstamp.node.log_clock import LogClock
from viewstamp.wire.brief_repr import brief_repr

__all__ = ["Digests", "clock_report"]

_LOOK_SECONDS = 0.25
_LOOKS_PER_CLOCK = 4
_IDLE_LOOKS = 4
_IDLE_LOOKS_OF_MANY = 16
"""Looks that an idle group lets pass, if it is not group 0: its first record after that is compared up to 4 s later."""
_TIME_END = 1 << 62
"""Above every plausible time in microseconds since 1970, and low enough that sums with it fit into 64 bits."""
_PATIENCE_LOOKS = 8
"""Comparisons in which a member may differ. After them the member is wrong, even if no majority has the leader's state.

Each member sends a report before every fourth comparison.
"""
_TRAIL_MAX = 65_536

Trail = list[tuple[int, int]]


@dataclass(slots=True)
class _Peer:
    """The last report of a member, and the result of comparing it."""

    end: Index = Index(0)
    chain: int = 0
    lineage: int = 0
    looks_differing: int = 0
    """The number of comparisons in which it has differed since it last agreed."""


class Digests(AsyncActor[None]):
    """One member's part in the comparison; on the leader it also judges."""

    def __init__(
        self,
        raft: Raft,
        applier: Applier,
        headroom: Headroom,
        clock: Clock,
        log_clock: LogClock,
        *,
        group: GroupId,
        send: Callable[[NodeId, dict[str, object]], None],
        fail: Callable[[DivergedError], None],
    ) -> None:
        self._raft = raft
        self._me = raft.core.me
        self._applier = applier
        self._machine = applier.machine
        self._headroom = headroom
        self._clock = clock
        self._log_clock = log_clock
        self._idle_looks = _IDLE_LOOKS if group == GROUP_0 else _IDLE_LOOKS_OF_MANY
        self._send = send
        self._fail = fail
        self._chains = applier.chains
        """The chains of the state that ``_peers`` were compared with."""
        self._peers: dict[NodeId, _Peer] = {}
        self._judges: set[NodeId] = set()
        """The members that this one, as the leader, has asked for a verdict on itself."""
        self._reported: tuple[NodeId | None, Index, int | None] = (None, Index(0), None)
        """The receiver, applied end and free space of this member's last report."""

    async def run(self) -> None:
        """Report to the leader, or compare as the leader, again and again until stopped."""
        looks, looked_end = 0, Index(0)
        while True:
            is_idle, looked_end = self._applier.applied_end == looked_end, self._applier.applied_end
            # A bounded log never rests: without its reports a leader admits more than its followers have room for.
            may_rest = is_idle and not self._is_any_odd and self._headroom.left() is None
            looks_slept = self._idle_looks - looks if may_rest else 1
            await asyncio.sleep(looks_slept * _LOOK_SECONDS)
            looks += looks_slept
            self._note_replaced_state()
            if looks >= _LOOKS_PER_CLOCK:
                looks = 0
                for member in self._raft.core.membership.addresses:
                    self.report_clock(member)
            leader = self._raft.core.leader
            if leader == self._me:
                self.judge(self._raft.core.membership)
            elif leader is not None:
                self._judges.clear()
                self.report(leader)

    @property
    def _is_any_odd(self) -> bool:
        """Return whether a member differs. Then it is checked often, also while nothing is applied."""
        return any(peer.looks_differing for peer in self._peers.values())

    def report(self, leader: NodeId) -> None:
        """Report this member's applied end and free space to the leader, if they have changed."""
        chains = self._applier.chains
        if not chains:
            return
        end, chain, lineage = chains[-1]
        left = self._headroom.left()
        if self._reported != (leader, end, left):
            self._reported = (leader, end, left)
            report: dict[str, object] = {"end": end, "chain": chain, "lineage": lineage}
            self._send(leader, report if left is None else {**report, "left": left, "log_end": self._headroom.end})

    def report_clock(self, member: NodeId) -> None:
        """Send a member the time here; see :func:`clock_report`.

        All members get it, not only the leader, because the next leader needs a majority's clocks immediately.
        """
        if member != self._me:
            self._send(member, clock_report(self._applier, self._clock))

    def judge(self, membership: Membership) -> None:
        """On the leader, compare the reports of members and learners with the state here.

        Args:
          membership: decides which members are a majority; this one is a voter of it.
        """
        self._note_replaced_state()
        differing: dict[NodeId, _Peer] = {}
        agreeing: dict[NodeId, Index] = {}
        for member, peer in self._peers.items():
            found = self._chain_at(peer.end)
            if found is None or found[1] != peer.lineage:
                continue
            if found[0] == peer.chain:
                peer.looks_differing = 0
                agreeing[member] = peer.end
            else:
                peer.looks_differing += 1
                differing[member] = peer
        is_odd_here = standing.is_majority(membership, differing)
        for member, peer in differing.items():
            # Members that differ are not compared with each other, because under load their reports have other ends.
            if is_odd_here:
                self._accuse(member, odd=self._me)
            elif self._is_confirmed(membership, agreeing, peer.end) or peer.looks_differing > _PATIENCE_LOOKS:
                self._accuse(member, odd=member)

    def _is_confirmed(self, membership: Membership, agreeing: Mapping[NodeId, Index], end: Index) -> bool:
        """Return whether a majority with this member has the state here at ``end``.

        A member that agreed at an earlier end does not count, because the state here may have become wrong since.
        """
        return standing.is_majority(membership, [self._me, *(each for each in agreeing if agreeing[each] >= end)])

    def on_frame(self, source: NodeId, body: Any) -> None:
        """Take a report or a verdict of ``source``, a member.

        A verdict on this member is accepted only from its leader, or, if this member leads, from a member that it has
        asked for one. Otherwise any member could stop it.

        Raises:
          FrameError: it is neither a report nor a verdict.
        """
        try:
            if "odd" not in body:
                peer = self._peers.setdefault(source, _Peer())
                peer.end = Index(int(body["end"]))
                peer.chain, peer.lineage = int(body["chain"]), int(body["lineage"])
                if "clock" in body:
                    self._log_clock.heard(source, _time(body["clock"]))
                if "left" in body:
                    self._headroom.heard(source, int(body["left"]), Index(int(body["log_end"])))
                return
            odd, end = str(body["odd"]), int(body["end"])
            trail = [(int(index), int(chain)) for index, chain in body["trail"]]
        except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise FrameError(f"no digest: {brief_repr(body)}") from error
        if odd == self._me:
            if source != self._raft.core.leader and source not in self._judges:
                return
            self._fail(self._diverged(trail, source, end))
        else:
            self._send(source, {"end": end, "odd": odd, "trail": self._trail()})

    def _accuse(self, member: NodeId, *, odd: NodeId) -> None:
        peer = self._peers.pop(member)
        if odd == self._me:
            self._judges.add(member)
        self._send(member, {"end": peer.end, "odd": odd, "trail": self._trail()})

    def _trail(self) -> Trail:
        return self._machine.trail()[-_TRAIL_MAX:]

    def _diverged(self, theirs: Trail, source: NodeId, end: int) -> DivergedError:
        """Return the error that names the first command after which this member's state differs."""
        known = dict(theirs)
        mine = [(index, chain) for index, chain in self._machine.trail() if index in known]
        first = next((index for index, chain in mine if known[index] != chain), 0)
        command = self._machine.describe_index(first) if first else ""
        if first and mine and first != mine[0][0]:
            where = f"the first command that differed is index {first}{': ' + command if command else ''}"
        elif first:
            where = (
                f"it began at or before index {first}, the oldest that is remembered{': ' + command if command else ''}"
            )
        else:
            where = f"it is not an actor's command that is remembered, and lies before index {end}"
        return DivergedError(
            f"{self._me} has applied the same log as {source} to another state; {where}",
            index=first,
            remedy="an actor is not deterministic, or the members run different code: correct it, remove this member's"
            " snapshots that end behind that index (its data_dir, snapshots/), and start it again",
        )

    def _chain_at(self, end: Index) -> tuple[int, int] | None:
        """Return chain and lineage after the batch that ends at ``end``; None = unknown, or not applied yet."""
        chains = self._applier.chains
        at = bisect_left(chains, end, key=lambda each: each[0])
        return chains[at][1:] if at < len(chains) and chains[at][0] == end else None

    def _note_replaced_state(self) -> None:
        """Drop all comparisons after a snapshot has replaced the state."""
        if self._applier.chains is not self._chains:
            self._chains = self._applier.chains
            self._peers.clear()


def clock_report(applier: Applier, clock: Clock) -> dict[str, object]:
    """Return the time here, together with a report, because an older version ends the connection without one.

    It is the first message on each connection between members, and repeated once a second.
    """
    end, chain, lineage = applier.chains[-1] if applier.chains else (Index(0), 0, 0)
    return {"end": end, "chain": chain, "lineage": lineage, "clock": max(0, clock.wall_us())}


def _time(value: object) -> int:
    """Return ``value`` if it can be a time; else raise ValueError."""
    if type(value) is not int or not 0 <= value < _TIME_END:
        raise ValueError(f"{brief_repr(value)} is no time")
    return value
