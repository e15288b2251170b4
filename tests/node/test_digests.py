"""Rules for comparing states, without network or disk.

The member that differs is found, stops and reports the first differing command.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.consensus.group import Group
from tests.node.group import Journal
from tests.streams.log import Log
from viewstamp.actors.replicated import ReplicatedActor, command
from viewstamp.consensus.membership import Membership
from viewstamp.errors import DivergedError, FrameError
from viewstamp.host.interfaces import Clock
from viewstamp.ids import GROUP_0, Index, NodeId, Sequence, SessionId
from viewstamp.node.applier import Applier
from viewstamp.node.health.digests import Digests
from viewstamp.node.health.headroom import Headroom
from viewstamp.node.log_clock import LogClock
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.commands import encode_command


class Counter(ReplicatedActor):
    """Counts; while its class attribute is set, it counts differently, which simulates a diverged member."""

    skew = 0

    def __init__(self) -> None:
        self.total = 0

    @command
    def add(self, amount: int) -> int:
        self.total += amount + type(self).skew
        return self.total


@dataclass
class Time(Clock):
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_us(self) -> int:
        return 0


def commands(session: int, sequence: int, *amounts: int) -> Batch:
    values = [encode_command("counter", "", 1, "add", [amount], {}) for amount in amounts]
    return build_batch(values, kind=Kind.COMMANDS, session=SessionId(session), sequence=Sequence(sequence))


@dataclass
class Members:
    """The states and comparers of three members; n1 leads. The test delivers the frames."""

    group: Group = field(default_factory=lambda: Group(3))
    time: Time = field(default_factory=Time)
    logs: dict[NodeId, Log] = field(default_factory=dict)
    appliers: dict[NodeId, Applier] = field(default_factory=dict)
    digests: dict[NodeId, Digests] = field(default_factory=dict)
    frames: list[tuple[NodeId, NodeId, dict[str, object]]] = field(default_factory=list)
    failures: dict[NodeId, DivergedError] = field(default_factory=dict)
    left: dict[NodeId, int | None] = field(default_factory=lambda: defaultdict(lambda: None))
    """The bytes that each member has left of its bounded log."""

    def __post_init__(self) -> None:
        self.group.elect("n1")
        for me in self.group.members:
            raft = self.group[me].raft
            assert raft is not None
            self.logs[me] = Log(Streams(classes={"counter": Counter}))
            self.appliers[me] = Applier(self.logs[me].machine, self.time)
            self.digests[me] = self.comparer(me, raft)
        for log in self.logs.values():
            log.run(build_batch([b""], kind=Kind.OPEN_SESSION))

    def comparer(self, me: NodeId, raft: Any) -> Digests:
        return Digests(
            raft,
            self.appliers[me],
            Headroom(raft, lambda: self.left[me]),
            self.time,
            LogClock(self.time, raft.core, bound_seconds=10, log=Journal().logger()),
            group=GROUP_0,
            send=lambda peer, body: self.frames.append((me, peer, body)),
            fail=lambda error: self.failures.__setitem__(me, error),
        )

    def run(self, sequence: int, *amounts: int, skewed: tuple[str, ...] = ()) -> None:
        """Apply one batch on every member; ``skewed`` members count differently."""
        for me, log in self.logs.items():
            Counter.skew = int(me in skewed)
            log.run(commands(1, sequence, *amounts))
            self.note(me, log)
        Counter.skew = 0

    def note(self, me: NodeId, log: Log) -> None:
        """Record the chain after a batch, as an applier does in its turns."""
        machine = log.machine
        self.appliers[me].chains.append((log.applied[-1].end, machine.chain, machine.lineage))

    def compare(self, *silent: str) -> None:
        """Let the followers report and the leader compare; deliver the verdicts until no frames are left."""
        for me, digests in self.digests.items():
            if me != "n1" and me not in silent:
                digests.report(NodeId("n1"))
        self.deliver()
        self.digests[NodeId("n1")].judge(Membership(dict.fromkeys(self.digests, "")))
        self.deliver()

    def deliver(self) -> None:
        while self.frames:
            source, target, body = self.frames.pop(0)
            self.digests[target].on_frame(source, body)


def test_members_that_agree_are_left_alone() -> None:
    members = Members()
    for sequence in range(1, 20):
        members.run(sequence, 1, 2, 3)
        members.compare()
    assert members.failures == {}


def test_a_member_that_agreed_before_the_command_that_differed_does_not_confirm_the_leaders_state() -> None:
    """Otherwise a diverged leader stops its correct followers one after the other, in the order of their reports."""
    members = Members()
    members.run(1, 10)
    members.compare()
    members.run(2, 10, skewed=("n1",))
    members.compare("n2")
    assert members.failures == {}
    members.compare()
    assert list(members.failures) == ["n1"]


def test_the_odd_member_stops_and_names_the_first_command_that_differed() -> None:
    members = Members()
    members.run(1, 10)
    members.run(2, 20, 30)
    members.run(3, 1, 2, 3, skewed=("n3",))
    members.run(4, 5)
    members.compare()
    assert list(members.failures) == ["n3"]
    error = members.failures[NodeId("n3")]
    assert error.index == 5, "1 opened the session, 2 to 4 were equal"
    assert "add" in str(error)
    assert "first command that differed is index 5" in str(error)


def test_a_leader_that_disagrees_with_a_majority_stops_itself() -> None:
    members = Members()
    members.run(1, 10)
    members.run(2, 20, skewed=("n1",))
    members.compare()
    assert list(members.failures) == ["n1"]
    assert members.failures[NodeId("n1")].index == 3


def test_a_leader_that_disagrees_stops_itself_under_load() -> None:
    """Under load no two members report the same end. Members with the right state must not be stopped for that."""
    members = Members()
    members.run(1, 10)
    members.run(2, 20, skewed=("n1",))
    for sequence in range(3, 20, 2):
        members.digests[NodeId("n2")].report(NodeId("n1"))
        members.run(sequence, 1)
        members.digests[NodeId("n3")].report(NodeId("n1"))
        members.run(sequence + 1, 1)
        members.deliver()
        members.digests[NodeId("n1")].judge(Membership(dict.fromkeys(members.digests, "")))
    members.deliver()
    assert list(members.failures) == ["n1"]


def test_members_that_run_different_versions_of_a_class_are_not_compared() -> None:
    """During an upgrade the same state has other bytes, so a comparison would stop a healthy member."""
    members = Members()
    members.run(1, 10, skewed=("n3",))
    for me, digests in members.digests.items():
        digests._chains = type(digests._chains)((end, chain, int(me == "n3")) for end, chain, _ in digests._chains)
    members.compare()
    for _ in range(10):
        members.compare()
    assert members.failures == {}


def test_without_reports_of_a_majority_the_leaders_state_counts_in_the_end() -> None:
    """Clients have been given the leader's answers, and an absent member must not keep a wrong state alive."""
    members = Members()
    members.run(1, 10, skewed=("n3",))
    for sequence in range(2, 10):
        members.compare("n2")
        assert members.failures == {}
        members.run(sequence, 10)
    members.compare("n2")
    assert list(members.failures) == ["n3"]


def test_a_leader_that_stalls_between_two_reports_stops_no_member_with_the_right_state() -> None:
    """The leader is the odd one. Its event loop stands still after the first report; the second waits in a buffer."""
    members = Members()
    members.run(1, 10, skewed=("n1",))
    members.compare("n3")
    members.time.now += 60.0
    members.compare("n3")
    members.compare()
    assert list(members.failures) == ["n1"]


def test_a_report_about_records_not_yet_applied_here_waits() -> None:
    members = Members()
    members.run(1, 10)
    ahead = members.logs[NodeId("n2")]
    ahead.run(commands(1, 2, 7))
    members.note(NodeId("n2"), ahead)
    members.compare()
    assert members.failures == {}


def test_after_a_snapshot_nothing_old_is_compared() -> None:
    """A snapshot brings its own chain; the recorded ends belong to the state that it replaced."""
    members = Members()
    members.run(1, 10, skewed=("n3",))
    for applier in members.appliers.values():
        applier.chains = deque()
    members.compare()
    assert members.failures == {}


@pytest.mark.parametrize(
    "body", [{}, {"end": "x", "chain": 1}, {"odd": "n1", "end": 1}, [1], {"odd": "n1", "end": 1, "trail": 5}]
)
def test_a_frame_that_is_no_digest_ends_the_connection(body: object) -> None:
    members = Members()
    with pytest.raises(FrameError):
        members.digests[NodeId("n1")].on_frame(NodeId("n2"), body)


def test_ends_rise() -> None:
    """The lookup is a binary search, so the list has to be sorted."""
    members = Members()
    members.run(1, 1)
    members.run(2, 1)
    chains = members.digests[NodeId("n1")]._chains
    assert [end for end, *_ in chains] == sorted(end for end, *_ in chains)
    assert isinstance(chains[0][0], int)
    assert Index(chains[0][0]) > 1
