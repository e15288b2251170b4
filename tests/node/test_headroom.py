"""What a leader leaves free of a bounded log, by what its followers have told it."""

from __future__ import annotations

from dataclasses import replace

from tests.node.test_digests import Members
from viewstamp.ids import NodeId

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")


def three(**left: int) -> Members:
    """Members that have applied something, of which some have told what they have left."""
    members = Members()
    members.run(1, 10)
    members.left |= {NodeId(name): count for name, count in left.items()}
    return members


def spared(members: Members) -> int:
    """Let all tell the leader; return what it leaves free."""
    members.compare()
    return members.digests[N1]._headroom.spared_bytes


def test_a_leader_leaves_free_what_the_follower_lacks_without_which_it_has_no_majority() -> None:
    members = three(n1=1000, n2=700, n3=200)
    assert spared(members) == 300, "n2 and n1 are a majority"
    members.left[N2] = 100
    assert spared(members) == 800, "now n3 is nearer"
    members.left |= {N1: 150, N3: 150}
    assert spared(members) == 0


def test_what_was_admitted_since_a_member_told_is_reckoned_with_and_so_is_what_was_dropped_here() -> None:
    members = three(n1=1000, n2=700, n3=700)
    assert spared(members) == 300
    headroom = members.digests[N1]._headroom
    members.group.propose("n1", b"x")
    headroom.admit(100)
    members.left[N1] = 900
    assert headroom.spared_bytes == 300, "both have got it"
    members.left[N1] = 1400
    assert headroom.spared_bytes == 800, "this one has dropped a part of its log, of the others that is not known"


def test_who_has_not_told_lacks_nothing() -> None:
    members = three(n1=1000, n2=700)
    assert spared(members) == 0
    members.left[N3] = 10
    assert spared(members) == 300


def test_a_log_without_a_bound_leaves_nothing_free() -> None:
    members = three()
    assert spared(members) == 0
    members.left |= {N2: 10, N3: 10}
    assert spared(members) == 0


def test_what_was_told_in_an_earlier_term_does_not_count() -> None:
    members = three(n1=1000, n2=700, n3=200)
    assert spared(members) == 300
    members.group.elect("n2")
    members.group.elect("n1")
    assert members.digests[N1]._headroom.spared_bytes == 0
    members.run(2, 10)
    assert spared(members) == 300


def test_what_was_admitted_in_an_earlier_term_and_was_cut_does_not_count() -> None:
    members = three(n1=1000, n2=700, n3=700)
    group, headroom = members.group, members.digests[N1]._headroom
    for _ in range(5):
        group.propose("n1", b"x")
        headroom.admit(100)
    group.elect("n2", "n2", "n3")
    group.run(20)  # What was not committed is cut from the first one's log.
    group.elect("n1")
    group.propose("n1", b"y")
    headroom.admit(100)
    assert spared(members) == 400, "the last one is on its way to them; left is what it was"


def test_while_a_change_is_half_way_the_voters_before_it_need_room_too() -> None:
    """Only a majority of them as well commits the record that ends the change: full, they would block it for ever."""
    members = three(n1=1000, n2=700, n3=200)
    assert spared(members) == 300
    core = members.group[N1].core
    joint = replace(core.membership, voters={N1: "", N2: ""}, outgoing={N1: "", N3: ""})
    core.memberships.append(replace(core.memberships[-1], membership=joint))
    assert members.digests[N1]._headroom.spared_bytes == 800, "n3 is needed among the voters before the change"
