"""One explored member: the real core, its disk and its pending writes, and every input that can happen to it.

Time is removed. A timeout is an input of its own, and between inputs each timer is set to a value that restrains
nothing: for example, no member withholds a vote because it has a leader. The model thus allows every behaviour of the
real core, and more. A pre-vote writes nothing and promises nothing, so a campaign begins with the vote.

A write becomes durable and is reported to the core in one input. Only a crash could see the time between the two, and a
crash keeps any prefix of the pending writes anyway.

With ``slow_disks`` a write is an input like others. Otherwise it directly follows the input that requests it, and a
crash between the two is an input of its own (:class:`Taken`). This omits only the behaviours in which completions
overtake each other. A member that votes, accepts an announcement or wins sends no answer until its write is durable, so
the completion could as well arrive later. An append that is not durable is neither acknowledged nor used in a vote, so
it could as well arrive later or be lost in a crash. A leader's own records are the exception: followers may have them
before the leader's disk does, and they stay in its log when it no longer leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.explore.copies import clone
from tests.explore.disk import Disk, left_by_a_crash
from tests.explore.scope import Scope
from viewstamp.consensus import leader
from viewstamp.consensus.membership import AddMember, Membership, RemoveMember
from viewstamp.consensus.messages import (
    Message,
    PreVoteRequest,
    PreVoteResponse,
    SnapshotOffer,
    TermResponse,
    VoteResponse,
)
from viewstamp.consensus.progress import ProgressState
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import AppendLog, Write
from viewstamp.consensus.state import Campaign, CampaignPhase, Core, Leading, RaftOptions, SnapshotPoint
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.ids import Index, NodeId, Term, Viewstamp
from viewstamp.value_class import value_class
from viewstamp.wire.batch import build_batch

__all__ = ["Input", "Member", "Pending", "Sent", "SnapshotFile", "Taken", "inputs", "start", "take"]

FOR_EVER = (Term(2**31), Index(2**62))
"""A viewstamp that no member reaches: for a member with another's identity, or one that has lost its own state."""


_INCARNATION = "disk"
"""The name of every disk, because no disk is replaced where disks have names."""


class Input(NamedTuple):
    """An input to a member: its kind (``word``), with an amount (``number``) or a member (``name``)."""

    word: str
    number: int = 0
    name: str = ""


class _NoEntropy:
    def randrange(self, start: int, stop: int) -> int:
        return start


@value_class
class SnapshotFile(Message):
    """The snapshot file that the node of a leader sends with its offer, as far as the core uses it."""

    point: SnapshotPoint


class Sent(NamedTuple):
    """A sent message, and the disk of its sender at that moment."""

    message: Message
    disk: Disk


@dataclass(slots=True)
class Pending:
    """The writes of one Ready that are pending, and the messages to send when the last one is durable."""

    writes: list[Write]
    notice: Viewstamp
    after: list[Message]
    is_own: bool = False
    """Whether they contain records that this member appended as the leader."""


@dataclass(slots=True)
class Taken:
    """The result of an input: the member afterwards, its messages, and the states that a crash during it leaves."""

    member: Member
    sent: list[Sent] = field(default_factory=list)
    crashed: list[tuple[Disk, list[Sent]]] = field(default_factory=list)
    """The disks, and the messages sent until then."""


@dataclass(slots=True)
class Member:
    """The state of one member."""

    raft: Raft
    disk: Disk
    queue: list[Pending] = field(default_factory=list)
    is_resumed: bool = False
    """Whether the process started within the current term.

    Its earlier messages of that term are then of another life.
    """

    @property
    def core(self) -> Core:
        return self.raft.core

    @property
    def is_leading(self) -> bool:
        return self.core.leader == self.core.me


def start(me: NodeId, disk: Disk, hint: Membership, scope: Scope) -> Member:
    """Start a member from the contents of its disk."""
    options = RaftOptions(election_timeout_ticks=10, heartbeat_ticks=2, sync_only=not scope.has_gate)
    if scope.small_appends:
        options = replace(options, append_bytes_max=1)
    disk = disk.recovered()
    member = Member(Raft(me, options, disk.stored(hint), _NoEntropy()), disk, is_resumed=disk.term > 0)
    if disk.snapshot is not None:
        member.raft.trimmed(disk.begin, (disk.snapshot.end, disk.snapshot.last_term))
    for met in (me, *disk.peers) if scope.names else ():
        member.raft.note_incarnation(NodeId(met), _INCARNATION)
    sent: list[Sent] = []
    _turn(member, sent, scope)
    while not scope.slow_disks and member.queue:
        _write(member, sent)
        _turn(member, sent, scope)
    assert not sent, "a member sends nothing while it starts"
    _calm(member, scope)
    return member


def inputs(member: Member, scope: Scope, *, may_crash: bool, may_change: bool) -> Iterator[Input]:
    """Return the inputs that are possible without a message."""
    core = member.core
    if member.queue:
        yield Input("write")
    if scope.snapshots and min(core.log.handed_end, core.log.durable_end) > member.disk.begin:
        yield Input("snapshot")
    if member.is_leading:
        if not core.installing:
            if core.log.end <= scope.records:
                yield Input("propose")
            is_news = any(
                each.sent_commit_end < core.log.commit_end and each.next_end == core.log.end
                for each in core.leading.progress.values()
            )
            if scope.changes or scope.names or (scope.tells and is_news):
                yield Input("tell")
            if scope.notices and core.log.end > core.log.commit_end and not core.leading.notices:
                yield Input("notify")
            if scope.names:
                strangers = core.membership.electors.keys() - core.incarnations.keys()
                yield from (Input("meet", name=stranger) for stranger in sorted(strangers))
            if scope.asks and any(
                each.state is not ProgressState.REPLICATING for each in core.leading.progress.values()
            ):
                yield Input("ask")
            if scope.transfers and core.leading.transferee is None:
                yield from (Input("transfer", name=voter) for voter in core.membership.voters if voter != core.me)
            if may_change:
                yield from (Input("remove", name=each) for each in scope.removed)
                yield from (Input("add", name=each) for each in scope.added)
        if scope.quits:
            yield Input("quit")
    else:
        if core.term < scope.terms:
            yield Input("campaign")
        if scope.loses and core.leader is not None:
            yield Input("lose", name=core.leader)
    if may_crash:
        kept = left_by_a_crash(member.disk, [write for pending in member.queue for write in pending.writes])
        yield from (Input("crash", each) for each in range(len(kept)))
        if scope.damages:
            yield from (Input("damage", batch.first_index) for batch in member.disk.batches)
        if scope.powers and member.disk.synced_end is not None:
            ends = [batch.end for batch in member.disk.batches if batch.end > member.disk.synced_end]
            yield from (Input("power", end) for end in (member.disk.synced_end, *ends))
        if scope.wipes and member.disk != Disk():
            yield Input("wipe")


def take(before: Member, what: Input, message: Message | None, hint: Membership, scope: Scope) -> Taken | None:
    """Return the result of an input; None = it is impossible or out of bounds.

    Raises:
      AssertionError, BrokenRuleError, ContradictionError: the core reports a broken rule.
    """
    if what.word in _RESTARTS:
        return Taken(_RESTARTS[what.word](before, what.number, hint, scope))
    member: Member = clone(before)
    sent: list[Sent] = []
    crashed: list[tuple[Disk, list[Sent]]] = []
    if isinstance(message, SnapshotFile):
        if not _install(member, message.point):
            return None
    elif message is not None:
        member.raft.step(message)
    elif what.word == "write":
        _write(member, sent)
    elif not _INPUTS[what.word](member, what.name):
        return None
    _turn(member, sent, scope)
    while not scope.slow_disks and member.queue and not member.queue[0].is_own:
        writes = [write for pending in member.queue for write in pending.writes]
        crashed += [(disk, list(sent)) for disk in left_by_a_crash(member.disk, writes)]
        _write(member, sent)
        _turn(member, sent, scope)
    member.is_resumed &= member.core.term == before.core.term
    _calm(member, scope)
    state = member.core.state
    if isinstance(state, Leading) and any(each.number > scope.announcements for each in state.progress.values()):
        return None
    return Taken(member, sent, crashed)


def _is_sent(message: Message, scope: Scope) -> bool:
    """Return whether a message is sent. Any message may be lost; a scope can exclude these kinds altogether."""
    match message:
        case TermResponse():
            return scope.answers_terms
        case VoteResponse():
            return scope.refuses or message.granted
        case _:
            return True


def _turn(member: Member, sent: list[Sent], scope: Scope) -> None:
    """Perform the actions that the core requests."""
    ready = member.raft.ready()
    if ready is None:
        return
    assert not ready.fetches, "the whole log is in memory"
    for each in ready.messages:
        if _is_sent(each, scope):
            sent.append(Sent(each, member.disk))
        if isinstance(each, SnapshotOffer):
            assert member.disk.snapshot is not None
            carried = SnapshotFile(source=each.source, target=each.target, term=each.term, point=member.disk.snapshot)
            sent.append(Sent(carried, member.disk))
    if ready.durable is None:
        return
    after = [each for each in ready.messages_after_durable if _is_sent(each, scope)]
    last = member.queue[-1] if member.queue else None
    if last is not None and not ready.writes and not last.writes and last.notice == ready.durable:
        # Merge it with the turn before, because a repeated identical question only adds one more answer.
        last.after.extend(each for each in after if each not in last.after)
        last.after.sort(key=repr)
    else:
        is_own = member.is_leading and any(isinstance(write, AppendLog) for write in ready.writes)
        member.queue.append(Pending(list(ready.writes), ready.durable, after, is_own))


# -- Inputs -----------------------------------------------------------------------------------------------------


def _write(member: Member, sent: list[Sent]) -> None:
    core = member.core
    pending = member.queue.pop(0)
    disk = member.disk
    for write in pending.writes:
        disk = disk.written(write)
    member.raft.durable(pending.notice)
    hint = max(disk.commit_hint, min(core.log.handed_end, core.log.durable_end, disk.end))
    member.disk = replace(disk, commit_hint=hint)
    for message in pending.after:
        if message.target == core.me:
            member.raft.step(message)
        else:
            sent.append(Sent(message, member.disk))


def _campaign(member: Member, _: str) -> bool:
    core = member.core
    core.ticks_since_leader = core.election_ticks
    member.raft.tick(0)
    for voter in core.membership.electors:
        granted = PreVoteResponse(source=voter, target=core.me, term=Term(core.term + 1), granted=True)
        if _is_in(core, CampaignPhase.PRE_VOTE):
            member.raft.step(granted)
    core.output.messages = [each for each in core.output.messages if not isinstance(each, PreVoteRequest)]
    return _is_in(core, CampaignPhase.VOTE) and bool(core.output.writes)


def _snapshot(member: Member, _: str) -> bool:
    """Take a snapshot of the applied and durable records, then drop the log before it."""
    core = member.core
    end = min(core.log.handed_end, core.log.durable_end)
    if core.installing or member.queue or end <= member.disk.begin:
        return False
    point = SnapshotPoint(
        end=end,
        last_term=core.history.term_at(Index(end - 1)),
        history=core.history.advertised(end),
        membership=[entry for entry in core.memberships if entry.index < end][-1],
        log_time=0,
    )
    member.disk = member.disk.with_snapshot(point).without_before(end)
    log = core.log
    while log._starts and log._starts[0] < end:
        log.cache_bytes -= log._batches.pop(0).size
        log._starts.pop(0)
    member.raft.trimmed(end, (end, point.last_term))
    return True


def _install(member: Member, point: SnapshotPoint) -> bool:
    """Install a received snapshot file; one that cannot be installed now arrives later."""
    before = member.disk
    member.disk = before.with_snapshot(point)
    return member.raft.install(point) is not None and member.disk is not before


def _is_in(core: Core, phase: CampaignPhase) -> bool:
    return isinstance(core.state, Campaign) and core.state.phase is phase


def _propose(member: Member, _: str) -> bool:
    core = member.core
    batch = build_batch([b"again" if member.is_resumed else b"once"])
    if core.options.sync_only:
        leader.append_own(core, core.leading, batch)
        return True
    try:
        member.raft.propose(batch)
    except UnavailableError:
        return False
    return True


def _tell(member: Member, _: str) -> bool:
    member.core.leading.heartbeat_elapsed = 0
    member.raft.tick(0)
    return True


def _notify(member: Member, _: str) -> bool:
    core = member.core
    member.raft.tell_durable_end(frozenset(core.leading.progress))
    return bool(core.leading.notices or core.output.messages)


def _ask(member: Member, _: str) -> bool:
    core = member.core
    core.leading.heartbeat_elapsed = core.options.heartbeat_ticks
    for progress in core.leading.progress.values():
        progress.ticks_in_state = 1000
    member.raft.tick(0)
    return True


def _quit(member: Member, _: str) -> bool:
    core = member.core
    core.leading.ticks_since_check = core.options.election_timeout_ticks
    for progress in core.leading.progress.values():
        progress.has_responded = False
    member.raft.tick(0)
    return core.leader is None


def _meet(member: Member, peer: str) -> bool:
    member.raft.note_incarnation(NodeId(peer), _INCARNATION)
    member.disk = replace(member.disk, peers=tuple(sorted({*member.disk.peers, peer})))
    return True


def _lose(member: Member, lost: str) -> bool:
    member.raft.lost_leader(NodeId(lost))
    return True


def _transfer(member: Member, target: str) -> bool:
    try:
        member.raft.transfer(NodeId(target))
    except UnavailableError:
        return False
    return True


def _remove(member: Member, node: str) -> bool:
    try:
        member.raft.change(RemoveMember(NodeId(node)))
    except (UnavailableError, RequestError):
        return False
    return bool(member.core.output.writes)


def _add(member: Member, what: str) -> bool:
    node, _, replaced = what.partition(">")
    try:
        member.raft.change(AddMember(NodeId(node), f"at-{node}", replaces=NodeId(replaced) if replaced else None))
    except (UnavailableError, RequestError):
        return False
    return bool(member.core.output.writes)


_INPUTS = {
    "campaign": _campaign,
    "propose": _propose,
    "tell": _tell,
    "notify": _notify,
    "ask": _ask,
    "quit": _quit,
    "lose": _lose,
    "meet": _meet,
    "transfer": _transfer,
    "snapshot": _snapshot,
    "remove": _remove,
    "add": _add,
}


# -- Crashes ----------------------------------------------------------------------------------------------------


def _crash(before: Member, kept: int, hint: Membership, scope: Scope) -> Member:
    writes = [write for pending in before.queue for write in pending.writes]
    return start(before.core.me, left_by_a_crash(before.disk, writes)[kept], hint, scope)


def _damage(before: Member, end: int, hint: Membership, scope: Scope) -> Member:
    """Lose durable records.

    Recovery stores the viewstamp that the member would have advertised before it cuts the log (rule 17).
    """
    disk = before.disk
    pair = max(disk.pair, disk.recovering_until or disk.pair)
    return start(before.core.me, replace(disk.cut(Index(end)), recovering_until=pair), hint, scope)


def _power(before: Member, end: int, hint: Membership, scope: Scope) -> Member:
    """Lose power in interval mode: records appended since the last sync are gone from ``end`` on."""
    return start(before.core.me, before.disk.without_unsynced(Index(end)), hint, scope)


def _wipe(before: Member, _: int, hint: Membership, scope: Scope) -> Member:
    """Lose the disk: the old identity stays a voter and is recovering for ever (rule 18)."""
    return start(before.core.me, Disk(recovering_until=FOR_EVER), hint, scope)


_RESTARTS = {"crash": _crash, "damage": _damage, "power": _power, "wipe": _wipe}


# -- Between inputs ---------------------------------------------------------------------------------------------


def _calm(member: Member, scope: Scope) -> None:
    """Set every timer to a value that restrains nothing, and every counter to its initial value."""
    core = member.core
    core.wall_us = 0
    core.patience.forget()
    core.last_leader, core.vote_term = (Term(0), None), Term(0)
    core.ticks_since_message = core.vote_ticks = core.leaderless_ticks = 0
    core.ticks_since_leader = 0 if core.leader == core.me else core.options.election_timeout_ticks
    core.election_ticks = core.options.election_timeout_ticks
    core.unfinished = len(member.queue)
    if not core.installing:
        core.completions_left = 0
    leading = core.state
    if not isinstance(leading, Leading):
        return
    leading.ticks_since_check = leading.heartbeat_elapsed = leading.transfer_ticks = 0
    leading.full_ticks = leading.uncommitted_bytes = 0
    if not core.installing:
        leading.vote_responses = {}
    for progress in leading.progress.values():
        progress.has_responded = True
        progress.ticks_since_response = progress.slowest_response_ticks = progress.ticks_in_state = 0
        progress.round_ticks = progress.stuck_ticks = progress.standing_ticks = 0
        if not scope.tells:
            progress.sent_commit_end = Index(0)
