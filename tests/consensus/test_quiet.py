"""The number of ticks that may be counted at once: the core's state afterwards is the same as after single ticks."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import partial

import pytest

from tests.consensus.group import Group
from tests.consensus.schedule import MIXES, Schedule
from viewstamp.consensus.messages import AppendRequest, AppendResponse, HeartbeatRequest, HeartbeatResponse
from viewstamp.consensus.quiet import beat_ticks, completion_may_wait, is_in_step, only_counts, response_may_wait
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.state import Leading, PendingRead, RaftOptions
from viewstamp.errors import BrokenRuleError
from viewstamp.ids import Index, NodeId
from viewstamp.wire.batch import Batch

ONE, TWO = NodeId("n1"), NodeId("n2")


def plain(value: object) -> object:
    """Return the parts of ``value`` as plain values, so that two such values can be compared."""
    if isinstance(value, Mapping):
        return [(plain(key), plain(each)) for key, each in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, str | bytes | int | float | None | Enum):
        return value
    if isinstance(value, Batch):
        return value.first_index, value.term, value.kind, value.log_time
    if dataclasses.is_dataclass(value):
        return [(field.name, plain(getattr(value, field.name))) for field in dataclasses.fields(value)]
    try:
        return [plain(each) for each in value]  # type: ignore[attr-defined]
    except TypeError:
        return repr(value)


def everything(raft: Raft) -> object:
    """Return all state that a tick could change."""
    core = raft.core
    left_out = {"log", "options", "entropy"}
    fields = [(name, plain(value)) for name, value in vars(core).items() if name not in left_out]
    return [*fields, core.log.end, core.log.commit_end, core.log.durable_end, core.entropy.getrandbits(32)]


class Sleeper(Schedule):
    """A random schedule in which each member counts its quiet ticks at once, and one by one, with equal states.

    Beats, which make the leaders of several groups send at the same moment, come at random times.
    """

    longest = 0

    def _tick(self) -> None:
        for member in self.group.up():
            raft = member.raft
            assert raft is not None
            if self.entropy.randrange(4) == 0:
                raft.beat()
            for has_room in (True, self.entropy.randrange(10) > 0):
                if raft.quiet_ticks() > 1 and self.entropy.randrange(2):
                    self._compare(copy.deepcopy(raft), has_room=has_room)
        super()._tick()

    def _compare(self, raft: Raft, *, has_room: bool) -> None:
        quiet = raft.quiet_ticks()
        self.longest = max(self.longest, quiet)
        assert 1 <= quiet <= max(1, self.options.election_timeout_ticks // 2)
        at_once = copy.deepcopy(raft)
        at_once.tick(self.group.wall_us, has_room=has_room, ticks=quiet)
        for tick in range(1, quiet + 1):
            before = plain(raft.core.output)
            raft.tick(self.group.wall_us, has_room=has_room)
            assert tick == quiet or plain(raft.core.output) == before, f"tick {tick} of {quiet} did something"
        assert everything(at_once) == everything(raft), f"{quiet} ticks of {raft.core.me} as one"


@pytest.mark.slow
@pytest.mark.parametrize("mix", ["even", "changes", "damage", "losses"])
def test_quiet_ticks_pass_as_one_as_they_pass_one_by_one(mix: str) -> None:
    longest = 0
    for seed in range(2):
        schedule = Sleeper(replace(MIXES[mix], steps=250), seed)
        schedule.run()
        longest = max(longest, schedule.longest)
    assert longest > 1, "no member ever had two quiet ticks"


def settled(size: int = 3, *, heartbeat_ticks: int = 3) -> Group:
    """Return a group in which all is committed everywhere, and every member knows it."""
    group = Group(size, options=RaftOptions(election_timeout_ticks=18, heartbeat_ticks=heartbeat_ticks))
    group.elect(ONE)
    group.run(20)
    assert group[ONE].core.lifecycle is Lifecycle.RUNNING
    return group


def quiet(group: Group, me: NodeId) -> int:
    raft = group[me].raft
    assert raft is not None
    return raft.quiet_ticks()


def heartbeats(group: Group, ticks: int) -> int:
    """Return the number of heartbeats that a leader sends to one member within ``ticks``; all are answered."""
    count = 0
    for _ in range(ticks):
        group.tick(ONE)
        count += len(group.matching(HeartbeatRequest, target=TWO))
        group.settle()
    return count


def test_an_idle_leader_leaves_out_every_other_heartbeat() -> None:
    group = settled()
    assert heartbeats(group, 18) == 3
    core = group[ONE].core
    while core.leading.heartbeat_elapsed < 3:
        group.tick(ONE)
    group.propose(ONE)
    group.tick(ONE)
    assert group.matching(HeartbeatRequest, target=TWO), "it is due as soon as the leader is not idle any more"


def test_an_idle_leader_of_a_short_election_timeout_leaves_none_out() -> None:
    group = settled(heartbeat_ticks=4)
    assert heartbeats(group, 20) == 5


def test_a_beat_sends_the_heartbeats_of_an_idle_leader_before_they_are_due() -> None:
    group = settled()
    while group[ONE].core.leading.heartbeat_elapsed != 2:
        group.tick(ONE)
        group.settle()
    raft = group[ONE].raft
    assert raft is not None
    raft.beat()
    ready = raft.ready()
    assert ready is not None
    assert [type(message) for message in ready.messages] == [HeartbeatRequest, HeartbeatRequest]
    assert heartbeats(group, beat_ticks(raft.core.options)) == 0, "the next beat comes before the next is due"


def between_checks(group: Group, *, answers: bool) -> list[int]:
    """Return the ticks since the last check for a quorum after each beat of an idle leader in two election timeouts."""
    raft, found = group[ONE].raft, []
    assert raft is not None
    beat = beat_ticks(raft.core.options)
    for _ in range(36 // beat):
        raft.tick(group.wall_us, ticks=beat)
        if not isinstance(raft.core.state, Leading):
            break
        raft.beat()
        found.append(raft.core.leading.ticks_since_check)
        if answers:
            group.step(ONE)
            group.settle()
        else:
            raft.ready()
    return found


def test_an_idle_leader_checks_for_its_quorum_with_the_last_beat_of_an_election_timeout() -> None:
    """So it needs no timer for it: 18 ticks are over before the fourth beat."""
    group = settled()
    group[ONE].core.leading.ticks_since_check = 0
    assert between_checks(group, answers=True)[:6] == [5, 10, 0, 5, 10, 0]


def test_a_leader_without_answers_steps_down_after_an_election_timeout_and_with_no_beat_before() -> None:
    group = settled()
    leading = group[ONE].core.leading
    leading.ticks_since_check = 0
    for progress in leading.progress.values():
        progress.has_responded = False
    assert between_checks(group, answers=False) == [5, 10, 15]
    assert group[ONE].core.leader is None


def test_a_beat_of_a_busy_leader_or_a_follower_has_no_effect() -> None:
    group = settled()
    group.propose(ONE)
    for member in (ONE, TWO):
        raft = group[member].raft
        assert raft is not None
        before = list(raft.core.output.messages)
        raft.beat()
        assert raft.core.output.messages == before


def test_a_leader_sends_its_commit_end_before_the_next_tick_if_a_caller_asks_for_it() -> None:
    group = settled()
    group.propose(ONE)
    group.settle()
    leader, follower = group[ONE].raft, group[TWO].raft
    assert leader is not None
    assert follower is not None
    end = leader.core.log.commit_end
    assert end == leader.core.log.end > follower.core.log.commit_end
    leader.tell_commit_end({TWO})
    ready = leader.ready()
    assert ready is not None
    sent = [each for each in ready.messages if isinstance(each, HeartbeatRequest)]
    assert [(each.target, each.commit_end) for each in sent] == [(TWO, end)]
    for raft in (leader, follower):
        raft.tell_commit_end({TWO})
        assert not raft.core.output.messages, "a follower sends none, and a leader does it once"


def test_heartbeats_of_a_leader_with_unacknowledged_records_are_not_shared() -> None:
    """They must be lost with its appends, because its followers would otherwise never elect another leader."""
    group = settled()
    core = group[ONE].core
    request = HeartbeatRequest(
        source=ONE, target=TWO, term=core.term, number=1, commit_end=core.log.end, sent_end=core.log.end, round=0
    )
    assert is_in_step(core, request)
    group.propose(ONE)
    assert not is_in_step(core, request)


def test_responses_of_a_follower_with_uncommitted_records_are_not_shared() -> None:
    """They must be lost with its acknowledgements, because its leader would otherwise never step down."""
    group = settled()
    core = group[TWO].core
    response = HeartbeatResponse(source=TWO, target=ONE, term=core.term, number=1, end=core.log.end, round=0)
    assert is_in_step(core, response)
    group.propose(ONE)
    group.deliver(target=TWO)
    assert core.log.commit_end < core.log.end
    assert not is_in_step(core, response)


def test_a_leader_whose_follower_is_behind_leaves_no_heartbeat_out() -> None:
    group = settled()
    group.crash(TWO)
    group.propose(ONE)
    group.settle()
    assert heartbeats(group, 18) == 6


def test_a_leader_sleeps_until_its_next_heartbeat() -> None:
    group = settled()
    for _ in range(20):
        elapsed = group[ONE].core.leading.heartbeat_elapsed
        assert quiet(group, ONE) <= 6 - elapsed
        group.tick(ONE, quiet(group, ONE) - 1)
        assert not group.matching(HeartbeatRequest)
        group.tick(ONE)
        group.settle()
    assert group[ONE].core.leader == ONE


def test_a_leader_with_something_uncommitted_does_not_sleep() -> None:
    group = settled()
    while group[ONE].core.leading.heartbeat_elapsed:
        group.run(1)
    assert quiet(group, ONE) > 1
    group.propose(ONE)
    assert quiet(group, ONE) == 1


def test_a_follower_wakes_before_its_election_timeout_and_waits_for_the_rest_tick_by_tick() -> None:
    """A process that was stopped has to read its leader's messages before it may stand for election."""
    group = settled()
    core = group[TWO].core
    core.ticks_since_leader, core.election_ticks = 0, 18
    slept = 0
    while core.ticks_since_leader < core.election_ticks - 1:
        ticks = quiet(group, TWO)
        slept += ticks > 1
        left = core.election_ticks - core.ticks_since_leader
        assert left - ticks >= min(3, left - 1)
        group[TWO].raft.tick(group.wall_us, ticks=ticks)  # type: ignore[union-attr]
    assert slept > 0


class Waiter(Schedule):
    """A random schedule in which each input that may wait has no effect but on counters of the leader's members."""

    responses = completions = 0

    def _deliver(self, *, keep: bool = False) -> None:
        for message in self.group.matching(AppendResponse):
            raft = self.group[message.target].raft
            assert isinstance(message, AppendResponse)
            if raft is not None and response_may_wait(raft.core, message):
                self.responses += 1
                self._expect_nothing(raft, partial(Raft.step, message=message))
        super()._deliver(keep=keep)

    def _notify(self) -> None:
        for member in self.group.up():
            raft = member.raft
            if raft is not None and member.notices and not member.notices[0].after and completion_may_wait(raft.core):
                self.completions += 1
                self._expect_nothing(raft, partial(Raft.durable, viewstamp=member.notices[0].notice))
        super()._notify()

    def _expect_nothing(self, raft: Raft, take: Callable[[Raft], None]) -> None:
        copied = copy.deepcopy(raft)
        copied.ready()
        commit_end, role = copied.core.log.commit_end, type(copied.core.state)
        with suppress(BrokenRuleError):
            take(copied)
        assert copied.ready() is None, "it causes work"
        assert (copied.core.log.commit_end, type(copied.core.state)) == (commit_end, role)


def test_an_input_that_may_wait_causes_no_work() -> None:
    mixes = ["even", "changes", "damage", "losses"]
    schedules = [Waiter(replace(MIXES[mix], steps=300), seed) for mix in mixes for seed in range(2)]
    for schedule in schedules:
        schedule.run()
    assert sum(schedule.responses for schedule in schedules) > 0
    assert sum(schedule.completions for schedule in schedules) > 0


class Counter(Schedule):
    """A random schedule in which each heartbeat that only counts has no effect but a response."""

    requests = responses = 0

    def _deliver(self, *, keep: bool = False) -> None:
        for message in self.group.matching(HeartbeatRequest) + self.group.matching(HeartbeatResponse):
            raft = self.group[message.target].raft
            assert isinstance(message, HeartbeatRequest | HeartbeatResponse)
            if raft is not None and only_counts(raft.core, message):
                self._expect_response(copy.deepcopy(raft), message)
        super()._deliver(keep=keep)

    def _expect_response(self, raft: Raft, message: HeartbeatRequest | HeartbeatResponse) -> None:
        raft.ready()
        core = raft.core
        before = core.log.commit_end, core.log.end, type(core.state), core.term, core.memberships
        raft.step(message)
        ready = raft.ready()
        if isinstance(message, HeartbeatRequest):
            self.requests += 1
            assert ready is not None
            work = ready.writes, ready.messages_after_durable, ready.committed, ready.reads, ready.fetches
            assert not any(work)
            assert [type(each) for each in ready.messages] == [HeartbeatResponse]
            assert core.ticks_since_leader == 0
        else:
            self.responses += 1
            assert ready is None
        assert before == (core.log.commit_end, core.log.end, type(core.state), core.term, core.memberships)


def test_a_heartbeat_that_only_counts_causes_its_response_and_nothing_else() -> None:
    mixes = ["even", "changes", "damage", "losses"]
    schedules = [Counter(replace(MIXES[mix], steps=300), seed) for mix in mixes for seed in range(2)]
    for schedule in schedules:
        schedule.run()
    assert sum(schedule.requests for schedule in schedules) > 0
    assert sum(schedule.responses for schedule in schedules) > 0


def heartbeat(group: Group, **changes: object) -> HeartbeatRequest:
    """Return the heartbeat that the leader sends to n2."""
    core = group[ONE].core
    end, number = core.log.end, core.leading.progress[TWO].number
    fields: dict[str, object] = {"source": ONE, "target": TWO, "term": core.term, "number": number, "round": 0}
    return HeartbeatRequest(**{**fields, "commit_end": end, "sent_end": end, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["term", "number", "commit_end", "sent_end"])
def test_a_heartbeat_with_news_does_not_only_count(field: str) -> None:
    group = settled()
    assert only_counts(group[TWO].core, heartbeat(group))
    assert not only_counts(group[TWO].core, heartbeat(group, **{field: getattr(heartbeat(group), field) + 1}))
    assert not only_counts(group[TWO].core, heartbeat(group, source=NodeId("n3")))
    assert not only_counts(group[ONE].core, heartbeat(group, target=ONE)), "it leads"


@pytest.mark.parametrize("change", ["behind", "a read waits", "a round", "a transfer", "another number"])
def test_a_response_that_a_leader_waits_for_does_not_only_count(change: str) -> None:
    group = settled()
    core = group[ONE].core
    leading = core.leading
    response = HeartbeatResponse(
        source=TWO, target=ONE, term=core.term, number=leading.progress[TWO].number, end=core.log.end, round=0
    )
    response = replace(response, round=leading.round)
    assert only_counts(core, response)
    match change:
        case "behind":
            leading.progress[TWO].counted_end = Index(0)
        case "a read waits":
            leading.reads.append(PendingRead(1, None, leading.round, Index(1)))
        case "a round":
            response = replace(response, round=leading.round + 1)
        case "a transfer":
            leading.transferee = TWO
        case _:
            response = replace(response, number=response.number + 1)
    assert not only_counts(core, response)


def test_a_leader_alone_never_lets_a_completion_wait() -> None:
    group = settled(1)
    assert not completion_may_wait(group[ONE].core)


def test_the_response_that_commits_does_not_wait_and_the_next_one_does() -> None:
    group = settled()
    group.propose(ONE)
    for member in (ONE, TWO, NodeId("n3")):
        group.deliver(AppendRequest, target=member)
        group.sync(member)
    first, second = group.matching(AppendResponse)
    assert isinstance(first, AppendResponse)
    assert isinstance(second, AppendResponse)
    core = group[ONE].core
    assert not response_may_wait(core, first)
    group.step(ONE, first)
    assert response_may_wait(core, second)
    assert not response_may_wait(core, replace(second, rejected=True))
    assert not response_may_wait(group[TWO].core, second), "it does not lead"
