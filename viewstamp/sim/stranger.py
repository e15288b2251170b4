"""A process outside the group that connects to a member and sends arbitrary forged messages.

It has everything that the members show to any peer: ids, addresses, terms, ends of logs. It does not have the
incarnation of a present member, because with that only authentication could distinguish it from the member. And it does
not attack newcomers, which accept the first group that they meet.

| its name | the refused frame |
| --- | --- |
| an unknown node, with and without `~` in its name | each consensus message |
| a member, with another incarnation | its HELLO |
| a removed member, with its former incarnation | each consensus message, where the removal is known |
| a member that lost its disk, while that disk answers | its JOIN |
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryResponse,
    Message,
    PreVoteRequest,
    ReadIndexResponse,
    SnapshotOffer,
    TermResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.state import Core, Leading
from viewstamp.consensus.term_history import TermHistory
from viewstamp.host.interfaces import Buffer, Connection
from viewstamp.ids import Index, NodeId, Position, Term, name_of
from viewstamp.node.peers.codec import encode_message
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.wire.batch import build_batch
from viewstamp.wire.frame import FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.handshake import Hello
from viewstamp.wire.peer_requests import AskToJoin

__all__ = ["FORGERIES", "Stranger", "can_be_attacked"]

_ADDRESS = "127.0.0.1:6999"
"""Its advertised address, on which there is no listener."""
_INCARNATION = "feedfacefeedface"
_LEAPS = (0, 1, 5, 1 << 33, 1 << 61, (1 << 62) - 2)
"""Numbers that are added to the member's own term for the terms of forged messages."""


def _append(core: Core, head: dict[str, Any], entropy: random.Random) -> Message:
    batch = build_batch([b"forged"])
    previous = core.history.term_at(Index(core.log.end - 1))
    batch.stamp(
        term=head["term"],
        first_index=core.log.end,
        previous_term=previous,
        log_time=core.log_time,
        first_position=Position(1),
    )
    return AppendRequest(
        **head,
        number=entropy.choice((core.announced_number, 99)),
        start=core.log.end,
        previous_term=previous,
        commit_end=Index(core.log.end + 1),
        batches=(batch,),
    )


def _announcement(core: Core, head: dict[str, Any], entropy: random.Random) -> Message:
    start = entropy.choice((Index(1), core.log.end))
    term = max(Term(1), head["term"])
    before: list[tuple[int, int]] = [each for each in core.history.starts if each.begin < start and each.term < term]
    return Announcement(**head, number=99, history=TermHistory([*(before or [(0, 1)]), (term, start)]), start=start)


def _round(core: Core) -> int:
    """Return the newest round of heartbeats that a leader may have to confirm; 0 = this member does not lead."""
    return core.leading.round if core.leader == core.me else 0


FORGERIES: dict[str, Callable[[Core, dict[str, Any], random.Random], Message]] = {
    "term": lambda core, head, _: TermResponse(**head),
    "heartbeat": lambda core, head, entropy: HeartbeatRequest(
        **head,
        number=entropy.choice((core.announced_number, 99)),
        commit_end=core.log.end,
        sent_end=core.log.end,
        round=1,
    ),
    "announcement": _announcement,
    "append": _append,
    "snapshot": lambda core, head, _: SnapshotOffer(**head, end=Index(core.log.end + 1000), last_term=core.term),
    "pre-vote": lambda core, head, _: PreVoteRequest(**head, last_term=head["term"], end=Index(1 << 40)),
    "vote-request": lambda core, head, _: VoteRequest(
        **head, last_term=head["term"], end=Index(1 << 40), transfers=True
    ),
    "vote": lambda core, head, _: VoteResponse(**head, granted=True, history=core.advertised, end=core.log.end),
    "history": lambda core, head, _: HistoryResponse(
        **head, number=0, history=TermHistory([(0, 1), (max(1, head["term"]), 2)]), end=Index(1 << 40)
    ),
    "announced": lambda core, head, _: AnnouncementResponse(**head, number=1, end=core.log.end),
    "acknowledgement": lambda core, head, _: AppendResponse(
        **head, number=1, end=core.log.end, received_end=core.log.end, rejected=False
    ),
    "heard": lambda core, head, _: HeartbeatResponse(**head, number=1, end=core.log.end, round=_round(core)),
    "read-index": lambda core, head, _: ReadIndexResponse(**head, token=1, index=core.log.end),
    "timeout-now": lambda core, head, _: TimeoutNow(**head),
}
"""The forged messages, by the words that the trace shows."""


def can_be_attacked(member: Member) -> bool:
    """Return whether the member runs and a committed record names its disk; until then it accepts any group."""
    node = member.node if member.is_up else None
    if node is None or node.replica is None:
        return False
    core = node.replica.raft.core
    return core.me in core.memberships[0].membership.incarnations


class Stranger:
    """Attacks one member after another; each attack is one connection."""

    def __init__(self, cluster: Cluster, entropy: random.Random) -> None:
        self._cluster = cluster
        self._entropy = entropy
        self._network = cluster.network.view("stranger")
        self._process = cluster.loop.process("stranger")

    def attack(self, member: Member) -> None:
        """Begin to attack ``member``, if it no longer accepts any group."""
        if can_be_attacked(member):
            name, incarnation = self._entropy.choice(self._names(member))
            self._process.spawn(self._attack(member, name, incarnation))

    def _names(self, member: Member) -> list[tuple[NodeId, str]]:
        core = _core(member)
        unknown = [NodeId("n99"), NodeId("n99~00"), NodeId(f"{name_of(core.me)}~00")]
        members = [each for each in core.incarnations if each != core.me]
        removed = [
            (each.id, each.incarnation)
            for each in self._cluster.retired
            if each.incarnation and not core.is_known(each.id) and each.id != core.leader
        ]
        return [*((each, _INCARNATION) for each in [*unknown, *members]), *removed]

    async def _attack(self, member: Member, name: NodeId, incarnation: str) -> None:
        hello = Hello(cluster="simulated", node=name, incarnation=incarnation, address=_ADDRESS)
        words = self._entropy.choices([*FORGERIES, "join", "digest"], k=3)
        self._cluster.note(member.id, "!", f"stranger as {name}: {' '.join(words)}")
        try:
            connection = await self._network.connect(member.address, _Session)
        except OSError:
            return
        connection.send(encode_frame(FrameKind.HELLO, hello.to_map()))
        for word in words:
            if can_be_attacked(member):
                connection.send(self._frame(member, name, word))
        connection.close()

    def _frame(self, member: Member, name: NodeId, word: str) -> Sequence[Buffer]:
        core = _core(member)
        if word == "join":
            return encode_frame(AskToJoin.kind, AskToJoin(address=_ADDRESS, member=self._reborn(core)).to_map())
        if word == "digest":
            return encode_frame(FrameKind.DIGEST, {"end": core.log.end, "odd": core.me, "trail": []})
        term = Term(min(core.term + self._entropy.choice(_LEAPS), (1 << 62) - 1))
        head = {"source": name, "target": core.me, "term": term}
        return encode_message(FORGERIES[word](core, head, self._entropy))

    def _reborn(self, core: Core) -> str:
        """Return the id of a reborn member, of which the old disk answered this leader a moment ago.

        For a member that does not answer, the forgery would succeed, as a JOIN of the node itself would: see
        ``docs/operating.md``.
        """
        timeout = core.options.election_timeout_ticks
        progress = core.state.progress if isinstance(core.state, Leading) else {}
        heard = [other for other, each in progress.items() if each.ticks_since_response <= timeout]
        return f"{name_of(self._entropy.choice(sorted(heard)))}~00" if heard else "n99~00"


def _core(member: Member) -> Core:
    assert member.node is not None, "only members that can be attacked are chosen"
    assert member.node.replica is not None, "only members that can be attacked are chosen"
    return member.node.replica.raft.core


class _Session:
    """The stranger's end of a connection; it ignores all answers."""

    def __init__(self, connection: Connection) -> None:
        self._decoder = FrameDecoder()

    def on_bytes(self, data: bytes) -> None:
        self._decoder.feed(data)

    def on_closed(self, error: BaseException | None) -> None:
        pass
