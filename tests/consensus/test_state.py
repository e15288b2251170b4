"""The state that depends on a member's role is one value that is replaced as a whole.

So nothing of an earlier role is left.
"""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from tests.consensus import schedule
from tests.consensus.group import Group
from viewstamp import consensus
from viewstamp.consensus import reconfigure
from viewstamp.consensus.messages import TimeoutNow
from viewstamp.consensus.state import Campaign, CampaignPhase, Core, Following, Leading

ROLES = (Following, Campaign, Leading)
GIVEN = {
    Following: {"leader"},
    Campaign: {"phase", "votes", "recovering_votes"},
    Leading: {"leader", "term_start", "progress", "vote_responses", "elected_without"},
}
"""The fields that a change of role passes on; every other field begins with its default."""


def default(field: dataclasses.Field[object]) -> object:
    made = field.default_factory
    return made() if made is not dataclasses.MISSING else field.default


@pytest.mark.slow
def test_each_change_of_role_begins_with_a_fresh_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each change of role had to clear single fields, one could be forgotten.

    A count of ticks with a full disk once was, and deposed healthy leaders.
    """
    changes: Counter[tuple[type, type]] = Counter()
    seen: list[object] = []  # Kept, so that no identity is reused.
    become = Core.become

    def watched(self: Core, state: Following | Campaign | Leading) -> None:
        assert not any(state is each for each in seen), "the value of an earlier role is used again"
        for field in dataclasses.fields(state):
            if field.name not in GIVEN[type(state)]:
                assert getattr(state, field.name) == default(field), f"{field.name} of {type(state).__name__}"
        changes[type(self.state), type(state)] += 1
        seen.append(state)
        become(self, state)
        assert self.leader == state.leader
        assert (self.leader == self.me) is isinstance(state, Leading)

    monkeypatch.setattr(Core, "become", watched)
    for mix in ("even", "losses", "changes and damage"):
        for seed in range(2):
            schedule.run(mix, seed, finish=True)
    assert changes[Campaign, Leading] > 5
    assert changes[Leading, Following] > 1
    assert changes[Campaign, Following] > 1


def test_only_become_replaces_the_state_of_a_role() -> None:
    """An assignment to ``state`` or ``leader`` elsewhere would let the two disagree."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted(Path(consensus.__path__[0]).glob("*.py"))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and function.name not in ("__init__", "become")
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id in ("core", "self") and node.attr in ("state", "leader")
        if not (path.name == "progress.py" and node.attr == "state")
    ]
    assert found == []


def test_no_field_of_a_role_stands_in_the_core_as_well() -> None:
    """``leader`` is an exception on purpose, because it is read more often than anything else."""
    common = set(vars(Group(1)["n1"].core))
    for role in ROLES:
        assert {field.name for field in dataclasses.fields(role)} & common <= {"leader"}


def test_the_state_of_a_leader_cannot_be_read_in_another_role() -> None:
    core = Group(1)["n1"].core
    with pytest.raises(AssertionError, match="n1 does not lead term 0"):
        core.leading  # noqa: B018
    core.become(Campaign(CampaignPhase.PRE_VOTE))
    with pytest.raises(AssertionError, match="does not lead"):
        core.leading  # noqa: B018


def tick_full(group: Group, me: str, count: int) -> None:
    """Let ticks pass for all members, while the disk of ``me`` has no room."""
    for _ in range(count):
        for member in group.up():
            assert member.raft is not None
            member.raft.tick(group.wall_us, has_room=member.me != me)
            group.after(member.me)
        group.settle()


def test_a_full_disk_deposes_the_leader_only_if_it_stays_full_without_a_break() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(5)
    period = reconfigure.STUCK_TIMEOUTS * group["n1"].core.options.election_timeout_ticks
    for _ in range(3):  # Fewer full ticks than needed each time, with room in between.
        tick_full(group, "n1", period - 1)
        assert group.leaders() == ["n1"]
        group.run(1)
    tick_full(group, "n1", 1)
    assert group.leaders() == ["n1"], "one full tick is no reason"
    assert not [message for message in group.sent if isinstance(message, TimeoutNow)]
    tick_full(group, "n1", period)
    assert group.leaders() != ["n1"], "a disk that stays full is a reason"
