"""Groups of 2f + 1 members continue with f members down, and stop without harm with f + 1 (checklist B2, line 15)."""

import pytest

from tests.consensus.group import Group
from viewstamp.errors import UnavailableError


def write(group: Group, value: bytes) -> bool:
    """Append through the running leader; return whether the record was committed."""
    for _ in range(80):
        leaders = [me for me in group.leaders() if group.is_running(me)]
        if leaders:
            try:
                viewstamp = group.propose(leaders[-1], value)
            except UnavailableError:
                return False
            group.run(4)
            return group[leaders[-1]].core.log.commit_end > viewstamp.index
        group.run(1)
    return False


@pytest.mark.parametrize("f", [0, 1, 2])
def test_a_group_of_2f_plus_1_tolerates_exactly_f_dead_members(f: int) -> None:
    group = Group(2 * f + 1, seed=f)
    written = []
    assert write(group, b"before")
    written.append(b"before")
    for number in range(f):
        group.crash(group.leaders()[0])
        value = b"with %d down" % (number + 1)
        assert write(group, value)
        written.append(value)
    lost = group.leaders()[0]
    group.crash(lost)
    assert not write(group, b"too many")
    group.start(lost)
    assert write(group, b"after")
    for member in list(group.members.values()):
        if not member.is_up:
            group.start(member.me)
    group.run(40)
    histories = [group.values(me) for me in group.members]
    assert all(history == histories[0] for history in histories)
    assert [value for value in histories[0] if value != b"too many"] == [*written, b"after"]


@pytest.mark.parametrize("members", [3, 5])
def test_an_acknowledged_record_survives_the_loss_of_every_member_in_turn(members: int) -> None:
    group = Group(members)
    for number in range(2 * members):
        assert write(group, b"%d" % number)
        group.restart(group.leaders()[0])
    assert write(group, b"end")
    group.run(30)
    assert group.values("n1") == [b"%d" % number for number in range(2 * members)] + [b"end"]
