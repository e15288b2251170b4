"""The explored world: the members, the pending messages, and the facts seen so far.

A world is a tuple of small numbers: one for the state of each member, one for the facts (``invariants.Facts``), one for
the remaining bounds, and one for each message that was ever sent. Each number names an object that exists once. The
real core computes the result of an input to a member once; then it is cached, because a world has many neighbours while
a member has few states. So the search is arithmetic on tuples, and its cost does not depend on the core.

Messages stay pending: a message may arrive at any time, twice, or never. So loss, delay and reordering need no inputs
of their own.

**Left out of a world**, so that worlds with the same future are one:

* the names of the members (symmetry): of the worlds that differ in names only, one is explored; except when the
  inputs of the scope name members;
* time, and counters that only grow (``member.py``);
* a message that can no longer have an effect (:func:`_is_dead`);
* facts that no check will need (:meth:`World._forget`). Facts that the present members show (HistoriesAgree,
  LogMatching) are collected from all of them at each check.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields
from itertools import permutations
from typing import Any, Generic, NamedTuple, TypeVar

from tests.explore.copies import freeze, rename
from tests.explore.disk import Disk
from tests.explore.member import Input, Member, Sent, SnapshotFile, inputs, start, take
from tests.explore.scope import Scope
from viewstamp.consensus.invariants import BrokenInvariantError, Facts, Seen, check, check_sent, check_stored
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    DurableNotice,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryRequest,
    HistoryResponse,
    Message,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.progress import ProgressState
from viewstamp.consensus.state import Campaign, CampaignPhase, Core
from viewstamp.errors import ContradictionError, PeerError
from viewstamp.ids import Index, NodeId, Term

__all__ = ["Broken", "State", "Step", "World"]


class State(NamedTuple):
    """One world."""

    members: tuple[int, ...]
    facts: int
    crashes: int
    """Number of crashes so far."""
    changes: int
    messages: tuple[int, ...]


class Step(NamedTuple):
    """An input to one member; ``left`` selects one of the states that a crash during it leaves."""

    member: int
    what: Input
    left: int | None = None


class Broken(NamedTuple):
    """The violation after a step."""

    invariant: str
    complaint: str


class _Crashed(NamedTuple):
    member: int
    sent: tuple[tuple[int, int], ...]


class _Taken(NamedTuple):
    """The result of an input to a member."""

    member: int
    sent: tuple[tuple[int, int], ...]
    """Each message, with the disk of its sender at that moment."""
    broken: Broken | None
    crashed: tuple[_Crashed, ...] = ()
    """The possible states after a crash during the input."""


T = TypeVar("T")


class _Objects(Generic[T]):
    """Objects that exist once each, by number."""

    def __init__(self, key_of: Callable[[T], Hashable] = freeze) -> None:
        self.all: list[T] = []
        self._key_of = key_of
        self._numbers: dict[Hashable, int] = {}

    def number(self, each: T) -> int:
        key = self._key_of(each)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(each)
        return found


class World:
    """Computes the worlds of one scope and caches their parts."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names = [NodeId(f"n{number}") for number in range(1, scope.members + scope.spares + 1)]
        self.hint = Membership({name: f"at-{name}" for name in self.names[: scope.members]})
        self.members: _Objects[Member] = _Objects()
        self.facts: _Objects[Facts] = _Objects(_key_of_facts)
        self.messages: _Objects[Message] = _Objects()
        self.disks: _Objects[Disk] = _Objects()
        self.targets: list[int] = []
        self.calls = 0
        """Number of calls of a real core."""
        self._inputs: dict[tuple[int, bool, bool], list[Input]] = {}
        self._taken: dict[tuple[int, Input], _Taken | None] = {}
        self._looked: dict[tuple[object, ...], int | Broken] = {}
        self._dead: dict[tuple[int, int, bool], bool] = {}
        self._renamings = self._make_renamings()
        self._renamed: list[dict[int, int]] = [{} for _ in self._renamings]
        self._renamed_facts: list[dict[int, int]] = [{} for _ in self._renamings]
        self._renamed_messages: list[dict[int, int]] = [{} for _ in self._renamings]

    # -- Worlds ---------------------------------------------------------------------------------------------------

    def first(self) -> State:
        """Return the world in which nothing has happened yet."""
        disk = Disk(synced_end=Index(1) if self.scope.powers else None)
        members = [self.members.number(start(name, disk, self.hint, self.scope)) for name in self.names]
        return State(tuple(members), self.facts.number(Facts()), 0, 0, ())

    def next(self, state: State) -> Iterator[tuple[Step, State | Broken]]:
        """Return every step that changes the world, with the resulting world."""
        scope = self.scope
        may_crash = state.crashes < scope.crashes
        may_change = state.changes < scope.changes
        for at, number in enumerate(state.members):
            key = (number, may_crash, may_change)
            found = self._inputs.get(key)
            if found is None:
                every = inputs(self.members.all[number], scope, may_crash=may_crash, may_change=may_change)
                found = self._inputs[key] = list(every)
            for what in found:
                yield from self._outcomes(state, at, what, may_crash=may_crash)
        for each in state.messages:
            yield from self._outcomes(state, self.targets[each], Input("deliver", each), may_crash=may_crash)

    def _outcomes(
        self, state: State, at: int, what: Input, *, may_crash: bool
    ) -> Iterator[tuple[Step, State | Broken]]:
        taken = self._take(state.members[at], what)
        if taken is None:
            return
        follows = self._follow(state, at, taken, what)
        if follows is not None:
            yield Step(at, what), follows
        if may_crash:
            for left, each in enumerate(taken.crashed):
                follows = self._follow(state, at, _Taken(*each, None), _CRASH)
                if follows is not None:
                    yield Step(at, what, left), follows

    def step(self, state: State, step: Step) -> State | Broken | None:
        """Return the world after an input to one member; None = the input changes nothing or is impossible."""
        taken = self._take(state.members[step.member], step.what)
        if taken is None:
            return None
        if step.left is not None:
            return self._follow(state, step.member, _Taken(*taken.crashed[step.left], None), _CRASH)
        return self._follow(state, step.member, taken, step.what)

    def left_by(self, state: State, step: Step) -> Member | None:
        """Return the member that a crash during the step leaves; None = there is none."""
        taken = self._take(state.members[step.member], step.what)
        return self.members.all[taken.crashed[step.left].member] if taken and step.left is not None else None

    def _take(self, number: int, what: Input) -> _Taken | None:
        key = (number, what)
        taken = self._taken.get(key, _UNKNOWN)
        if taken is _UNKNOWN:
            taken = self._taken[key] = self._ask(number, what)
        return taken

    def _ask(self, number: int, what: Input) -> _Taken | None:
        self.calls += 1
        message = None
        if what.word == "deliver":
            message = self.messages.all[what.number]
        try:
            after = take(self.members.all[number], what, message, self.hint, self.scope)
            if after is None:
                return None
            member = self.members.number(after.member)
            me = after.member.core.me
            crashed = {
                _Crashed(self.members.number(start(me, disk, self.hint, self.scope)), self._numbers(sent))
                for disk, sent in after.crashed
            }
        except (AssertionError, PeerError, ContradictionError) as error:
            return _Taken(number, (), Broken(getattr(error, "invariant", type(error).__name__), str(error)))
        sent = self._numbers(after.sent)
        if member == number and not sent and what.word not in _COUNTED:
            return None
        return _Taken(member, sent, None, tuple(sorted(crashed)))

    def _numbers(self, sent: list[Sent]) -> tuple[tuple[int, int], ...]:
        return tuple(sorted({(self._number(message), self.disks.number(disk)) for message, disk in sent}))

    def _number(self, message: Message) -> int:
        number = self.messages.number(message)
        if number == len(self.targets):
            self.targets.append(self.names.index(message.target))
        return number

    def _follow(self, state: State, at: int, taken: _Taken, what: Input) -> State | Broken | None:
        if taken.broken is not None:
            return taken.broken
        before = state.members[at]
        if (
            before == taken.member
            and what.word not in _COUNTED
            and all(each in state.messages for each, _ in taken.sent)
        ):
            return None
        crashes = state.crashes + (what.word in _CRASHES)
        changes = state.changes + (what.word in _CHANGES)
        members = (*state.members[:at], taken.member, *state.members[at + 1 :])
        looked_key = (state.facts, at, before, members, taken.sent, what.word in _CRASHES)
        facts = self._looked.get(looked_key)
        if facts is None:
            facts = self._looked[looked_key] = self._look(state.facts, at, before, members, taken.sent, what)
        if isinstance(facts, Broken):
            return facts
        may_crash = crashes < self.scope.crashes
        is_new_budget = crashes != state.crashes
        sent = [each for each, _ in taken.sent]
        messages = set(state.messages)
        messages.update(sent)
        kept = [
            each
            for each in messages
            if (self.targets[each] != at and not is_new_budget and each not in sent)
            or not self._is_dead(each, members[self.targets[each]], may_crash)
        ]
        return State(members, facts, crashes, changes, tuple(sorted(kept)))

    # -- Checks ---------------------------------------------------------------------------------------------------

    def _look(
        self,
        number: int,
        at: int,
        before: int,
        members: tuple[int, ...],
        sent: tuple[tuple[int, int], ...],
        what: Input,
    ) -> int | Broken:
        """Check all invariants after a step of the member ``at``; return the facts afterwards."""
        known = self.facts.all[number]
        facts = _copy_of_facts(known)
        present = [self.members.all[each] for each in members]
        old, new = self.members.all[before].core, present[at]
        me = new.core.me
        if what.word in _LOSSES:
            lost = self.members.all[before].disk
            facts.votes[me, lost.term] = NodeId(lost.vote)  # No other state shows this vote any more.
        if what.word not in _CRASHES:
            facts.seen[me] = Seen(new.core, old.history, Index(0), old.log.commit_end)
        disks = {each.core.me: each.disk.durable for each in present}
        try:
            check_stored(me, new.disk.history, new.disk.batches)
            _check_base(new)
            check(facts, [each.core for each in present], disks)
            for message, disk in sent:
                check_sent(facts, self.messages.all[message], self.disks.all[disk].durable)
        except AssertionError as error:
            return Broken(getattr(error, "invariant", type(error).__name__), str(error))
        self._forget(facts, present)
        return self.facts.number(facts)

    def _forget(self, facts: Facts, present: list[Member]) -> None:
        """Drop the facts that no check will need, and those that the present members show."""
        facts.seen.clear()
        facts.batches.clear()
        facts.pasts.clear()
        oldest = min(member.disk.term for member in present)
        led = {member.core.term for member in present if member.is_leading}
        facts.leaders = {term: name for term, name in facts.leaders.items() if term >= oldest}
        by_name = {member.core.me: member for member in present}
        facts.kept_ends = {
            name: end
            for name, end in facts.kept_ends.items()
            if end > min(by_name[name].core.log.commit_end, by_name[name].core.log.durable_end)
        }
        facts.acknowledged = {
            (name, term): end
            for (name, term), end in facts.acknowledged.items()
            if term in led or term == by_name[name].core.term
        }
        facts.promised = dict(facts.acknowledged)
        terms = {member.core.term for member in present}
        facts.told = {(name, term): end for (name, term), end in facts.told.items() if term in terms}
        facts.votes = {
            (name, term): vote
            for (name, term), vote in facts.votes.items()
            if by_name[name].disk.term < term or (by_name[name].disk.term == term and by_name[name].disk.vote != vote)
        }
        commits: list[tuple[Term, Index]] = []
        for term, end in sorted(facts.commits, key=lambda each: (each[0], -each[1])):
            if not commits or end > commits[-1][1]:
                commits.append((term, end))
        facts.commits = commits

    # -- Symmetry -------------------------------------------------------------------------------------------------

    def _make_renamings(self) -> list[tuple[tuple[int, ...], dict[str, str]]]:
        """Return pairs of (members in the order of their new names, map of old to new names), the identity first."""
        identity = tuple(range(len(self.names)))
        if self.scope.spares or self.scope.changes or self.scope.names:
            return [(identity, {})]
        found = []
        for order in permutations(identity):
            names = {str(self.names[old]): str(self.names[new]) for new, old in enumerate(order)}
            found.append((order, names))
        return found

    def canonical(self, state: State) -> State:
        """Return the representative of the worlds that differ from ``state`` in the members' names only."""
        if len(self._renamings) == 1:
            return state
        best: list[int] = []
        least: tuple[int, ...] = ()
        for at, (order, _) in enumerate(self._renamings):
            known = self._renamed[at]
            members = []
            for old in order:
                number = state.members[old]
                new = known.get(number)
                members.append(self._rename(self.members, at, known, number) if new is None else new)
            found = tuple(members)
            if not best or found < least:
                best, least = [at], found
            elif found == least:
                best.append(at)
        return min(self._renamed_state(state, at, least) for at in best)

    def _renamed_state(self, state: State, at: int, members: tuple[int, ...]) -> State:
        if at == 0:
            return state
        known = self._renamed_messages[at]
        messages = []
        for each in state.messages:
            new = known.get(each)
            if new is None:
                new = known[each] = self._number(rename(self.messages.all[each], self._renamings[at][1]))
            messages.append(new)
        messages.sort()
        known = self._renamed_facts[at]
        facts = known.get(state.facts)
        if facts is None:
            facts = self._rename(self.facts, at, known, state.facts)
        return State(members, facts, state.crashes, state.changes, tuple(messages))

    def _rename(self, objects: _Objects[T], at: int, known: dict[int, int], number: int) -> int:
        new = known[number] = objects.number(rename(objects.all[number], self._renamings[at][1]))
        return new

    # -- Messages without an effect ----------------------------------------------------------------------------------

    def _is_dead(self, message: int, member: int, may_crash: bool) -> bool:
        if self.scope.keeps_old:
            return False
        key = (message, member, may_crash)
        found = self._dead.get(key)
        if found is None:
            each = self.messages.all[message]
            found = self._dead[key] = _is_dead(each, self.members.all[member], self.scope, may_crash=may_crash)
        return found


def _check_base(member: Member) -> None:
    """Check HistoryTrue for the record before the log, which is in a snapshot, so that no batch shows its term."""
    disk = member.disk
    if disk.begin == 1 or member.core.installing:
        return
    described = disk.history.term_at(Index(disk.begin - 1))
    if described != disk.begin_term:
        raise BrokenInvariantError(
            "HistoryTrue",
            f"{member.core.me} dropped a record of term {disk.begin_term}, {disk.history} says {described}",
        )


def _key_of_facts(facts: Facts) -> Hashable:
    values = [getattr(facts, field.name) for field in fields(Facts)]
    return tuple([tuple(sorted(each.items())) if isinstance(each, dict) else freeze(each) for each in values])


def _copy_of_facts(facts: Facts) -> Facts:
    """Copy the containers; their elements never change."""
    copies: dict[str, Any] = {}
    for each in fields(Facts):
        value = getattr(facts, each.name)
        copies[each.name] = value.copy() if isinstance(value, dict | list) else value
    return Facts(**copies)


def _is_dead(message: Message, target: Member, scope: Scope, *, may_crash: bool) -> bool:
    """Return whether a message can no longer have an effect on its target in any future.

    * Its term is below the one on the target's disk, which never falls: only the answer "my term is higher" may follow.
    * It answers a past campaign or a past leadership of the target. A member neither leads nor campaigns again in a
      term on its disk, and before the term is on the disk there is no answer.
    * It belongs to an older announcement than the leader's newest to its source, or than the newest one that the target
      has accepted, unless the target can forget that in a crash.
    """
    core = target.core
    term = target.disk.term
    if isinstance(message, SnapshotFile):
        return target.disk.snapshot is not None and target.disk.snapshot.end >= message.point.end
    if message.term < term:
        return not scope.answers_terms or not isinstance(message, _REQUESTS)
    if isinstance(message, _RESPONSES) and message.term == core.term == term:
        if core.leader == core.me:
            return _is_dead_for_leader(message, core, scope)
        is_voting = isinstance(core.state, Campaign) and core.state.phase is CampaignPhase.VOTE
        return not (isinstance(message, VoteResponse) and is_voting)
    if isinstance(message, VoteRequest) and message.term == core.term == term and target.disk.vote:
        # The target sent its vote when that was durable, or lost it in a crash. To this message it could only refuse.
        return not (scope.refuses or scope.asks or target.is_resumed)
    if isinstance(message, DurableNotice) and message.term == core.term == term:
        is_known = message.number < core.announced_number or message.end <= core.log.commit_end
        return not may_crash and core.leader is not None and is_known
    if isinstance(message, _OF_A_LEADER) and message.term == core.term == term:
        return not may_crash and core.leader is not None and message.number < core.announced_number
    return False


def _is_dead_for_leader(message: Message, core: Core, scope: Scope) -> bool:
    progress = core.leading.progress.get(message.source)
    if progress is None:
        return not scope.changes
    if isinstance(message, VoteResponse | HistoryResponse):
        if progress.number >= scope.announcements:
            return True  # It would cause one announcement too many.
        if isinstance(message, VoteResponse):
            return not scope.asks and progress.state is not ProgressState.ASKING
        return not scope.asks and 0 < message.number < progress.number
    assert isinstance(message, AnnouncementResponse | AppendResponse | HeartbeatResponse)
    if message.number != progress.number or progress.state is not ProgressState.REPLICATING:
        return message.number < progress.number
    if isinstance(message, AnnouncementResponse):
        return not scope.asks
    is_known = message.end <= (progress.durable_end if message.is_recovering else progress.counted_end)
    return is_known and not (isinstance(message, AppendResponse) and message.rejected)


_UNKNOWN = _Taken(-1, (), None)
_CRASH = Input("crash")
_CRASHES = frozenset({"crash", "damage", "power", "wipe"})
_LOSSES = frozenset({"damage", "power", "wipe"})
_CHANGES = frozenset({"add", "remove"})
_COUNTED = _CRASHES | _CHANGES
_RESPONSES = (VoteResponse, HistoryResponse, AnnouncementResponse, AppendResponse, HeartbeatResponse)
_OF_A_LEADER = (HistoryRequest, Announcement, AppendRequest, HeartbeatRequest)
_REQUESTS = (VoteRequest, HistoryRequest, Announcement, AppendRequest, HeartbeatRequest, TimeoutNow, DurableNotice)
