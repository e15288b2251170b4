from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from viewstamp.consensus.quorum import has_quorum, majority, quorum_end
from viewstamp.ids import Index, NodeId

NAMES = [NodeId(f"n{number}") for number in range(1, 8)]
voter_sets = st.sets(st.sampled_from(NAMES), min_size=1)


@given(voter_sets, st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9).map(Index)))
def test_the_quorum_end_is_the_largest_that_some_majority_holds(voters: set[NodeId], ends: dict[NodeId, Index]) -> None:
    """Against brute force over every majority of voters; who is no voter does not count, who said nothing holds 0."""
    groups = combinations(sorted(voters), majority(len(voters)))
    expected = max(min(ends.get(voter, 0) for voter in group) for group in groups)
    assert quorum_end(voters, ends) == expected


@given(voter_sets, st.lists(st.sampled_from(NAMES)))
def test_two_quorums_always_share_a_voter(voters: set[NodeId], agreeing: list[NodeId]) -> None:
    others = voters - set(agreeing)
    assert not (has_quorum(voters, agreeing) and has_quorum(voters, others))
    assert has_quorum(voters, agreeing) == (2 * len(voters & set(agreeing)) > len(voters))


def test_nobody_is_no_quorum() -> None:
    assert not has_quorum([], [])
    assert quorum_end([], {}) == 0
