"""Log time never stops, never goes back, and stays within a bound of a majority's clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.consensus.group import Group
from tests.node.group import Journal
from viewstamp.consensus import standing
from viewstamp.consensus.messages import TermResponse
from viewstamp.host.interfaces import Clock
from viewstamp.ids import NodeId, Term
from viewstamp.node.log_clock import LogClock

SECOND = 1_000_000
HOUR = 3600 * SECOND
YEARS = 73 * 365 * 24 * HOUR
START = 1_700_000_000 * SECOND
N1, N2, N3 = (NodeId(f"n{number}") for number in (1, 2, 3))


@dataclass
class Machine(Clock):
    """Clocks that the test sets; ``off`` is the error of the wall clock."""

    now: float = 1000.0
    off: int = 0

    def monotonic(self) -> float:
        return self.now

    def wall_us(self) -> int:
        return START + self.off + round((self.now - 1000) * SECOND)


@dataclass
class Leader:
    """n1 leads; its time stamps are compared with the true time, in seconds."""

    voters: int = 3
    learners: int = 0
    group: Group = field(init=False)
    machine: Machine = field(default_factory=Machine)
    journal: Journal = field(default_factory=Journal)
    last: int = 0

    def __post_init__(self) -> None:
        self.group = Group(self.voters, learners=[NodeId(f"l{number}") for number in range(self.learners)])
        self.group.elect("n1")
        self.core = self.group["n1"].core
        self.core.log_time = START
        self.clock = LogClock(self.machine, self.core, bound_seconds=10, log=self.journal.logger())

    def hear(self, **offsets: int) -> None:
        """Deliver reports of other members with clocks that are off by the given number of microseconds."""
        for member, off in offsets.items():
            self.clock.heard(NodeId(member), self.true_us + off)

    def pass_time(self, seconds: float, *, reports: Mapping[str, int] | None = None) -> None:
        """Let time pass in a few ticks; the members in ``reports`` report at each."""
        ticks = 20
        for _ in range(ticks):
            self.machine.now += seconds / ticks
            self.hear(**(reports or {}))
            self.stamp()

    def stamp(self) -> float:
        """Stamp a record; return its lead over the true time, in seconds."""
        time_us = self.clock.tick()
        if self.core.leader == self.core.me:
            assert time_us >= max(self.last, self.core.log_time), "log time never goes back"
            self.core.log_time = self.last = time_us
        return (time_us - self.true_us) / SECOND

    @property
    def true_us(self) -> int:
        return START + round((self.machine.now - 1000) * SECOND)


@pytest.mark.parametrize("off", [2 * HOUR, YEARS])
def test_a_leader_whose_clock_is_ahead_stamps_at_most_the_bound_ahead_of_a_majority(off: int) -> None:
    leader = Leader()
    leader.machine.off = off
    leader.hear(n2=0, n3=0)
    for _ in range(50):
        assert leader.stamp() <= 10
        leader.pass_time(10)
    assert [line["offset_seconds"] for line in leader.journal.of("! clock off")] == [off / SECOND], "it is logged once"
    leader.machine.off = 0
    leader.stamp()
    assert len(leader.journal.of("= clock right")) == 1


@pytest.mark.parametrize("off", [-2 * HOUR, -YEARS])
def test_a_leader_whose_clock_is_behind_stamps_at_most_the_bound_behind_a_majority(off: int) -> None:
    leader = Leader()
    leader.hear(n2=0, n3=0)
    leader.stamp()
    leader.machine.off = max(off, -START)
    for _ in range(50):
        leader.pass_time(10)
        assert leader.stamp() >= -10.001


def test_a_majoritys_clock_is_counted_once_for_each_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A follower ticks as often as a leader, but its log time is used only after it is elected."""
    leader, count = Leader(), standing.majority_end
    counted: list[object] = []

    def majority_end(*arguments: Any) -> Any:
        counted.append(arguments)
        return count(*arguments)

    monkeypatch.setattr(standing, "majority_end", majority_end)
    leader.hear(n2=0)
    leader.hear(n3=0)
    leader.pass_time(1)
    assert len(counted) == 1
    leader.machine.off = -20 * SECOND
    assert leader.stamp() > -10.1, "it notices that its own clock was set back, without a report"
    assert len(counted) == 2
    leader.hear(n2=0)
    leader.pass_time(1)
    assert len(counted) == 3


def test_a_small_offset_is_the_leaders_own_affair() -> None:
    leader = Leader()
    leader.machine.off = 3 * SECOND
    leader.hear(n2=0, n3=-SECOND)
    assert leader.stamp() == 3


@pytest.mark.parametrize(
    ("offsets", "ahead"),
    [
        ({"n2": 0}, 10.0),  # Two of three are a majority: the later of both clocks does not count.
        ({"n2": YEARS}, YEARS / SECOND),  # A majority is wrong.
        ({"n2": YEARS, "n3": 0}, YEARS / SECOND),
        ({"n2": -YEARS, "n3": 0}, 10.0),
    ],
)
def test_the_reference_is_the_time_that_a_majority_has_reached(offsets: dict[str, int], ahead: float) -> None:
    leader = Leader()
    leader.machine.off = YEARS
    leader.hear(**{name: max(off, -START) for name, off in offsets.items()})
    assert leader.stamp() == ahead


def test_two_wrong_clocks_of_five_are_no_majority_even_if_few_others_report() -> None:
    """A median over the reported clocks would be wrong here: two of the three are."""
    leader = Leader(voters=5)
    leader.machine.off = YEARS
    leader.hear(n2=YEARS, n3=0)
    assert leader.stamp() == 10


def test_learners_and_strangers_do_not_count() -> None:
    leader = Leader(learners=3)
    leader.machine.off = 2 * HOUR
    leader.hear(n2=0, n3=0, l0=2 * HOUR, l1=2 * HOUR, l2=2 * HOUR, x1=2 * HOUR, x2=2 * HOUR)
    assert leader.stamp() == 10
    assert NodeId("x1") not in leader.clock._reports, "strangers must not take memory"


def test_the_last_report_of_a_member_is_extrapolated() -> None:
    leader = Leader()
    leader.hear(n2=0, n3=0)
    leader.machine.off = HOUR
    leader.pass_time(3600)
    assert 9.9 < leader.stamp() <= 10


def test_a_late_report_slows_log_time_and_no_more() -> None:
    leader = Leader()
    leader.hear(n2=0, n3=0)
    leader.stamp()
    leader.hear(n2=-60 * SECOND, n3=-60 * SECOND)
    leader.pass_time(2)
    assert leader.stamp() == pytest.approx(-1)
    leader.hear(n2=0, n3=0)
    assert leader.stamp() == 0


def test_log_time_goes_on_at_half_the_rate_while_it_is_ahead_and_so_the_lead_shrinks() -> None:
    leader = Leader()
    leader.core.log_time = START + 100 * SECOND
    reports = {"n2": 0, "n3": 0}
    leader.pass_time(100, reports=reports)
    assert leader.stamp() == pytest.approx(50, abs=0.01)
    assert leader.clock.status["ahead_seconds"] == pytest.approx(50, abs=0.01)
    leader.pass_time(100, reports=reports)
    assert leader.stamp() == pytest.approx(0, abs=0.01)


def test_a_new_leader_without_reports_does_not_jump_and_uses_its_own_clock_after_a_timeout() -> None:
    """In the end its own clock counts, because the other members may run a version that does not report clocks."""
    leader = Leader()
    leader.machine.off = 2 * HOUR
    leader.pass_time(4.5)
    assert leader.stamp() == pytest.approx(0, abs=0.2)
    leader.pass_time(1)
    assert leader.stamp() == pytest.approx(7200)


def test_waiting_as_a_follower_does_not_make_a_new_leader_trust_itself() -> None:
    leader = Leader()
    leader.machine.off = 2 * HOUR
    leader.group.step("n1", TermResponse(source=N2, target=N1, term=Term(leader.core.term + 1)))
    leader.pass_time(60)
    leader.group.elect("n1")
    leader.core.log_time = leader.true_us
    assert leader.stamp() <= 1
    leader.hear(n2=0, n3=0)
    assert leader.stamp() == 10


def test_the_first_record_of_a_group_whose_members_report_nothing_has_the_leaders_time() -> None:
    leader = Leader()
    leader.core.log_time = 0
    assert leader.stamp() == 0


def test_a_jump_of_an_only_voters_clock_counts_after_ten_minutes() -> None:
    """This leaves time to correct the clock before ages in the log lose their meaning."""
    leader = Leader(voters=1)
    leader.stamp()
    leader.machine.off = YEARS
    leader.pass_time(590)
    assert leader.stamp() <= 10
    leader.machine.off = 0
    leader.pass_time(1000)
    assert leader.stamp() <= 10
    leader.machine.off = 2 * HOUR
    leader.pass_time(700)
    assert leader.stamp() == 7200


def test_a_clock_that_creeps_is_followed() -> None:
    leader = Leader(voters=1)
    for _ in range(100):
        leader.machine.off += SECOND
        leader.pass_time(1)
    assert leader.stamp() == 100
