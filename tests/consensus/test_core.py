"""The state of one member: what belongs to an office ends with it, and a full disk counts only while it is full."""

from collections.abc import Callable

import pytest

from tests.consensus.group import Group
from viewstamp.consensus import follower, leader
from viewstamp.consensus.messages import TimeoutNow
from viewstamp.consensus.state import Core
from viewstamp.ids import Term


def declared_by(reset: Callable[[Core], None], core: Core) -> list[str]:
    """Return the names of the fields that ``reset`` assigns."""
    fresh = object.__new__(Core)
    reset(fresh)
    return sorted(vars(fresh))


@pytest.mark.parametrize("end", ["stepping down", "winning the next election"])
def test_nothing_of_a_leader_outlives_its_office(end: str) -> None:
    """Every field that only a leader uses, set to what no fresh leader has, is reset when the office ends and begins.

    A field that is cleared by hand is forgotten once: a count of full ticks that was never reset deposed leaders.
    """
    group = Group(1)
    group.elect("n1")
    core = group["n1"].core
    fields = [name for name in declared_by(Core.forget_leading, core) if name not in ("term_start", "progress")]
    before = {name: getattr(core, name) for name in fields}
    assert "full_ticks" in fields
    for name in fields:
        setattr(core, name, object())
    follower.step_down(core, Term(core.term + 1))
    if end == "winning the next election":
        for name in fields:
            setattr(core, name, object())
        leader.become_leader(core)
    assert {name: getattr(core, name) for name in fields} == {**before, "is_reached": False, "uncommitted_bytes": 0}


def test_nothing_of_a_campaign_outlives_it() -> None:
    group = Group(1)
    core = group["n1"].core
    fields = declared_by(Core.forget_campaign, core)
    before = {name: getattr(core, name) for name in fields}
    for name in fields:
        setattr(core, name, object())
    follower.step_down(core, Term(core.term + 1))
    assert {name: getattr(core, name) for name in fields} == before


def tick_full(group: Group, me: str, count: int) -> None:
    """Let ticks pass for everybody, in which the disk of ``me`` has no room."""
    for _ in range(count):
        for member in group.up():
            assert member.raft is not None
            member.raft.tick(group.wall_us, has_room=member.me != me)
            group.after(member.me)
        group.settle()


def test_a_full_disk_costs_the_leader_its_office_only_while_it_is_full_without_a_break() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(5)
    period = leader._STUCK_TIMEOUTS * group["n1"].core.options.election_timeout_ticks
    for _ in range(3):  # Short of it each time, and there is room in between.
        tick_full(group, "n1", period - 1)
        assert group.leaders() == ["n1"]
        group.run(1)
    tick_full(group, "n1", 1)
    assert group.leaders() == ["n1"], "one full tick is no reason"
    assert not [message for message in group.sent if isinstance(message, TimeoutNow)]
    tick_full(group, "n1", period)
    assert group.leaders() != ["n1"], "a disk that stays full is one"
