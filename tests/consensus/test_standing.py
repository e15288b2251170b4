"""Majorities of plain and joint memberships, and the winner of an election among a set of disks."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.standing import Claim
from viewstamp.ids import Index, NodeId, Term

NAMES = [NodeId(f"n{number}") for number in range(1, 8)]
N1, N2, N3, N4, N5 = NAMES[:5]
REBORN = NodeId("n2~8c21f0aa")
voter_sets = st.sets(st.sampled_from(NAMES), min_size=1)
memberships = st.builds(
    lambda voters, outgoing: Membership(dict.fromkeys(voters, ""), outgoing=dict.fromkeys(outgoing, "")),
    voter_sets,
    st.sets(st.sampled_from(NAMES)),
)


def sets_of(membership: Membership) -> list[set[NodeId]]:
    return [set(voters) for voters in (membership.voters, membership.outgoing) if voters]


@given(memberships, st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9).map(Index)))
def test_the_end_of_a_majority_is_the_largest_that_some_majority_holds(
    membership: Membership, ends: dict[NodeId, Index]
) -> None:
    """Against brute force over every majority of each set of voters; a learner does not count, a missing end is 0."""
    expected = min(
        max(
            min(ends.get(voter, Index(0)) for voter in group)
            for group in combinations(sorted(voters), standing.majority(len(voters)))
        )
        for voters in sets_of(membership)
    )
    assert standing.majority_end(membership, ends) == expected


@given(memberships, st.lists(st.sampled_from(NAMES)))
def test_two_majorities_always_share_a_voter(membership: Membership, members: list[NodeId]) -> None:
    others = membership.electors.keys() - set(members)
    assert not (standing.is_majority(membership, members) and standing.is_majority(membership, others))
    expected = [sorted(each) for each in sets_of(membership) if 2 * len(each & set(members)) <= len(each)]
    assert standing.lacking(membership, members) == expected
    assert standing.is_majority(membership, members) == (not expected)


def test_an_empty_membership_has_no_majority() -> None:
    assert not standing.is_majority(Membership({}), [])
    assert standing.majority_end(Membership({}), {}) == 0


# -- An election among disks ---------------------------------------------------------------------------------------


PLAIN = Membership({N1: "1", N2: "2", N3: "3"})


def claim(
    member: NodeId,
    end: int,
    membership: Membership | None = PLAIN,
    *,
    term: int = 1,
    disk: str = "",
    lost: int = 0,
    lost_power: bool = False,
) -> Claim:
    """A member with a log up to ``end``; ``lost`` is the end that its log had before the damage or the power loss."""
    return Claim(
        member=member,
        incarnation=disk or f"disk-{member}",
        pair=(Term(term), Index(end)),
        recovering_until=(Term(term), Index(lost)) if lost else None,
        lost_power=lost_power,
        memberships=() if membership is None else (MembershipEntry(Index(1), Term(1), membership),),
    )


def winner(*claims: Claim) -> NodeId | None:
    found = standing.elect(claims)
    return None if found is None else found.member


def test_the_largest_pair_of_a_majority_wins() -> None:
    assert winner(claim(N1, 5), claim(N2, 7), claim(N3, 6)) == N2
    assert winner(claim(N1, 5), claim(N3, 6)) == N3
    assert winner(claim(N1, 5, term=2), claim(N2, 7)) == N1
    assert winner(claim(N1, 5)) is None
    assert winner() is None


def test_a_recovering_member_counts_again_once_its_log_has_reached_the_pair_that_it_lost() -> None:
    assert winner(claim(N2, 5, lost=7), claim(N3, 5)) is None
    assert winner(claim(N2, 7, lost=7), claim(N3, 5)) == N2
    assert winner(claim(N1, 7), claim(N2, 5, lost=7), claim(N3, 5)) == N1


def test_a_reborn_member_is_a_stranger_until_a_record_makes_it_a_voter() -> None:
    assert winner(claim(REBORN, 5), claim(N3, 5)) is None
    after = Membership({N1: "1", REBORN: "2", N3: "3"})
    assert winner(claim(N1, 7, after), claim(REBORN, 7, after)) == N1
    assert winner(claim(N1, 7, after), claim(N2, 7, after)) is None


def test_another_disk_than_the_one_that_the_membership_names_does_not_vote() -> None:
    named = Membership(PLAIN.voters, incarnations={each: f"disk-{each}" for each in PLAIN.voters})
    assert winner(claim(N1, 7, named), claim(N2, 1, None)) == N1
    assert winner(claim(N1, 7, named), claim(N2, 1, None, disk="empty")) is None
    forgotten = replace(named, incarnations={N1: "disk-n1"})
    assert winner(claim(N1, 8, forgotten), claim(N2, 7, forgotten)) is None


def test_a_disk_that_was_met_before_and_is_not_named_is_compared_too() -> None:
    met = replace(claim(N1, 7), met={N2: "disk-n2"})
    assert winner(met, claim(N2, 5)) == N1
    assert winner(met, claim(N2, 5, disk="empty")) is None


def test_a_joint_membership_needs_a_majority_of_both_sets() -> None:
    joint = Membership({N1: "1", N4: "4", N5: "5"}, outgoing=PLAIN.voters)
    assert winner(claim(N1, 7, joint), claim(N4, 7, joint), claim(N5, 7, joint)) is None
    assert winner(claim(N1, 7, joint), claim(N4, 7, joint), claim(N2, 3)) == N1
    assert winner(claim(N1, 3), claim(N2, 3)) == N1  # A member without the record of the change needs no votes for it.


def test_a_learner_neither_wins_nor_counts() -> None:
    membership = Membership({N1: "1", N2: "2", N3: "3"}, {N4: "4"})
    assert winner(claim(N1, 5, membership), claim(N4, 9, membership)) is None
    assert winner(claim(N1, 5, membership), claim(N2, 5, membership), claim(N4, 9, membership)) == N1


def test_a_member_with_the_longest_log_that_cannot_win_leaves_it_to_the_next() -> None:
    """The removed n3 holds most and votes for no other, but the others have a majority without it."""
    removed = Membership({N1: "1", N2: "2", N4: "4"})
    assert winner(claim(N1, 7, removed), claim(N2, 6, removed), claim(N3, 9, removed)) == N1


# -- The names of disks --------------------------------------------------------------------------------------------


naming_records = st.lists(
    st.tuples(st.integers(1, 4), st.booleans(), st.sets(st.sampled_from(NAMES[:4]))), min_size=1, max_size=3
)


@given(naming_records, st.integers(0, 12), st.dictionaries(st.sampled_from(NAMES[:4]), st.integers(1, 14).map(Index)))
def test_a_commit_covers_the_records_that_name_the_disks_which_hold_it(
    naming: list[tuple[int, bool, set[NodeId]]], committed: int, ends: dict[NodeId, Index]
) -> None:
    """Against brute force over every end. Each record names disks, after some records of clients.

    A record of an older term counts only if it is committed already.
    """
    entries, named, index, term = [], dict[NodeId, str](), 0, Term(1)
    for distance, is_own, met in naming:
        index += distance
        term = Term(2) if is_own else term
        named = {**named, **{member: f"disk-{member}" for member in met}}
        entries.append(MembershipEntry(Index(index), term, Membership(PLAIN.voters, incarnations=named)))
    possible = [
        end
        for end in range(1, 15)
        if standing.is_majority(
            PLAIN,
            [
                member
                for member, held in ends.items()
                if held >= end
                and any(
                    each.index < end
                    and (each.term == 2 or each.index < committed)
                    and member in each.membership.incarnations
                    for each in entries
                )
            ],
        )
    ]
    end = standing.commit_end(entries, ends, Index(1), disks_are_named=True, committed=Index(committed), term=Term(2))
    assert end == max(possible, default=0)


def test_an_acknowledgement_does_not_count_for_a_commit_below_the_record_that_names_the_disk() -> None:
    """Else a leader could lose power, with it both records, and no later leader would know the disk that has them."""
    first = Membership(PLAIN.voters, incarnations={N1: "disk-n1", N2: "disk-n2"})
    second = replace(first, incarnations={**first.incarnations, N3: "disk-n3"})
    entries = [MembershipEntry(Index(1), Term(1), first), MembershipEntry(Index(5), Term(1), second)]

    def end(*, term: int = 1, committed: int = 0, **ends: int) -> int:
        held = {NodeId(member): Index(end) for member, end in ends.items()}
        return standing.commit_end(
            entries, held, Index(1), disks_are_named=True, committed=Index(committed), term=Term(term)
        )

    assert end(n1=3, n3=9) == 0
    assert end(n1=3, n2=2, n3=9) == 2
    assert end(n1=6, n3=9) == 6
    assert end(n1=6, n3=9, term=2) == end(n1=6, n3=9, term=2, committed=5) == 0  # The records are of an older term.
    assert end(n1=6, n3=9, term=2, committed=6) == 6


def test_after_a_power_loss_no_election_waits_for_a_disk_that_no_record_names() -> None:
    """No acknowledged record rests on n1's disk alone, because nothing was committed by its acknowledgement."""
    named = Membership(PLAIN.voters, incarnations={each: f"disk-{each}" for each in (N2, N3)})

    def lost(member: NodeId, end: int, membership: Membership = named) -> Claim:
        return claim(member, end, membership, lost=9, lost_power=True)

    assert winner(lost(N2, 5), lost(N3, 6)) == N3
    assert winner(lost(N1, 5), lost(N2, 5)) is None
    everywhere = replace(named, incarnations={each: f"disk-{each}" for each in PLAIN.voters})
    assert winner(lost(N2, 5, everywhere), lost(N3, 6, everywhere)) is None
    assert winner(lost(N2, 5, PLAIN), lost(N3, 6, PLAIN)) is None, "without names any disk may hold them"
    assert winner(*(lost(each, 5, everywhere) for each in (N1, N2, N3))) is not None
