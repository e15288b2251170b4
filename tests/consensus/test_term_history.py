import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.consensus.term_history import TermHistory, common_point
from viewstamp.errors import PeerError
from viewstamp.ids import Index, Term


def point(leader: list[tuple[int, int]], leader_end: int, member: list[tuple[int, int]], member_end: int) -> int | None:
    return common_point(TermHistory(leader), Index(leader_end), TermHistory(member), Index(member_end))


def test_without_a_common_term_an_untrimmed_log_is_sent_from_its_first_record() -> None:
    """The first of four cases of Neon's unit test: no common term.

    If the leader's log is trimmed, the member needs a snapshot.
    """
    assert point([(1, 1), (5, 9)], 12, [(2, 1), (3, 4)], 6) == 1
    assert point([(4, 7), (5, 9)], 12, [(2, 1), (3, 4)], 6) is None


def test_the_logs_part_in_the_middle_at_the_earlier_end_of_the_common_term() -> None:
    """Neon's second case: the histories are equal up to term 2, index 30."""
    assert point([(1, 10), (2, 20), (4, 50)], 60, [(1, 10), (2, 20), (3, 30)], 40) == 30
    assert point([(1, 10), (2, 20), (4, 30)], 60, [(1, 10), (2, 20), (3, 50)], 55) == 30


def test_a_member_that_ends_inside_the_common_term_continues_at_its_end() -> None:
    """Neon's third case: the histories are equal up to term 2, index 32, the member's end."""
    assert point([(1, 10), (2, 20), (4, 50)], 60, [(1, 10), (2, 20)], 32) == 32


def test_a_member_in_the_leaders_own_term_continues_at_its_end() -> None:
    """Neon's fourth case: the highest common term is the leader's own, and the member's end is 32."""
    assert point([(1, 10), (2, 20)], 40, [(1, 10), (2, 20)], 32) == 32


def test_an_end_beyond_the_leaders_is_cut_and_never_waited_for() -> None:
    assert point([(0, 1), (1, 1), (2, 3)], 3, [(0, 1), (1, 1)], 9) == 3


def test_the_point_is_at_the_highest_common_term_and_not_at_the_longest_common_prefix() -> None:
    """Histories are trimmed: compared as prefixes, a trimmed one and an untrimmed one have nothing in common.

    The member would be asked to cut below its commit index and would refuse, and a healthy node would stop.
    """
    untrimmed, trimmed = [(0, 1), (1, 1), (2, 1), (3, 5)], [(2, 1)]
    assert point(untrimmed, 6, trimmed, 4) == 4
    assert point([(2, 1), (3, 5)], 6, [(0, 1), (1, 1), (2, 1)], 4) == 4


def test_a_term_that_begins_at_two_places_is_a_broken_peer() -> None:
    with pytest.raises(PeerError, match="term 2 begins at 30"):
        point([(1, 10), (2, 20)], 40, [(1, 10), (2, 30)], 32)


def test_a_member_that_holds_more_of_a_term_than_its_leader_is_a_broken_peer() -> None:
    with pytest.raises(PeerError, match="its leader only up to 40"):
        point([(1, 10), (2, 20)], 40, [(1, 10), (2, 20)], 41)


def test_only_terms_that_the_log_has_reached_are_advertised_the_boundary_included() -> None:
    """The last term stays 1 until the end reaches 3; then it is 2, although there is no record of term 2 yet."""
    history = TermHistory([(1, 1), (2, 3)])
    assert [history.advertised(Index(end)).last_term for end in (1, 2, 3, 4)] == [1, 1, 2, 2]


def test_a_history_far_ahead_of_the_log_advertises_its_first_term_at_least() -> None:
    assert TermHistory([(0, 1), (1, 1), (4, 9)]).advertised(Index(1)).starts == ((0, 1), (1, 1))
    assert TermHistory().advertised(Index(1)).last_term == 0


def test_of_equal_begins_the_later_term_describes_the_record() -> None:
    """An empty term stays in the history, because it had a leader, and must not have another."""
    history = TermHistory([(0, 1), (1, 1), (2, 4), (3, 4)])
    assert [history.term_at(Index(index)) for index in (0, 1, 3, 4, 5)] == [0, 1, 1, 3, 3]
    assert history.end_of(Term(2), Index(9)) == 4
    assert history.begin_of(Term(2)) == 4
    assert history.begin_of(Term(7)) is None


@pytest.mark.parametrize("starts", [[], [(1, 1), (1, 2)], [(2, 1), (1, 2)], [(1, 5), (2, 4)]])
def test_an_invalid_history_is_refused(starts: list[tuple[int, int]]) -> None:
    with pytest.raises(PeerError):
        TermHistory(starts)


@st.composite
def forked_logs(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """A common log and two continuations that share no term, as lists of the term of each record."""
    common = sorted(draw(st.lists(st.integers(1, 4), max_size=8)))
    leader = sorted(draw(st.lists(st.sampled_from([5, 7, 9]), max_size=5)))
    member = sorted(draw(st.lists(st.sampled_from([6, 8]), max_size=5)))
    return common, leader, member


def history_of(terms: list[int]) -> TermHistory:
    starts = [(0, 1)]
    for index, term in enumerate(terms, 1):
        if term != starts[-1][0]:
            starts.append((term, index))
    return TermHistory(starts)


@given(forked_logs())
def test_the_point_is_where_two_logs_part_record_by_record(logs: tuple[list[int], list[int], list[int]]) -> None:
    """Against the obvious model: two lists compared from the left. The leader leads in term 20."""
    common, leader_tail, member_tail = logs
    leader, member = common + leader_tail, common + member_tail
    expected = 1
    while expected <= min(len(leader), len(member)) and leader[expected - 1] == member[expected - 1]:
        expected += 1
    history = history_of(leader).extended(Term(20), Index(len(leader) + 1))
    assert common_point(history, Index(len(leader) + 1), history_of(member), Index(len(member) + 1)) == expected
    # The member computes the same from its own side, without the end of the leader's log.
    end = Index(len(member) + 1)
    assert common_point(history, end, history_of(member), end) == expected
