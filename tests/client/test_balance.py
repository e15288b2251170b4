"""The choice of the leader that moves next: it ends, and then no node leads more than an even spread needs."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from viewstamp.client.balance import next_move
from viewstamp.ids import GroupId

NODES = ["n1", "n2", "n3", "n4"]


def balanced(leaders: dict[GroupId, str], members: dict[GroupId, list[str]]) -> tuple[dict[GroupId, str], int]:
    """Return the leaders after all moves, and the number of moves."""
    leaders, moves = dict(leaders), 0
    while (move := next_move(leaders, {g: [n for n in m if n != leaders[g]] for g, m in members.items()})) is not None:
        group, node = move
        assert node in members[group]
        leaders[group] = node
        moves += 1
        assert moves < 100, "it does not end"
    return leaders, moves


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[GroupId, str], dict[GroupId, list[str]]]:
    members = {
        GroupId(number): draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True))
        for number in range(1, draw(st.integers(1, 6)) + 1)
    }
    leaders = {group: draw(st.sampled_from(each)) for group, each in members.items()}
    return {GroupId(0): draw(st.sampled_from(NODES)), **leaders}, members


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_no_other_choice_of_leaders_is_more_even(
    cluster: tuple[dict[GroupId, str], dict[GroupId, list[str]]],
) -> None:
    leaders, members = cluster
    found, _ = balanced(leaders, members)

    def unevenness(chosen: tuple[str, ...]) -> int:
        return sum(load * load for load in Counter([leaders[GroupId(0)], *chosen]).values())

    least = min(map(unevenness, product(*members.values())))
    assert unevenness(tuple(found[group] for group in members)) == least
    assert balanced(found, members) == (found, 0), "the same call again moves nothing"
    assert found[GroupId(0)] == leaders[GroupId(0)]


def test_a_leader_is_given_on_over_a_node_that_has_its_share() -> None:
    """n1 leads two groups of n1 and n2 only; n3 gets the group of n2 and n3."""
    members = {GroupId(1): ["n1", "n2"], GroupId(2): ["n1", "n2"], GroupId(3): ["n2", "n3"]}
    leaders = dict(zip(members, ["n1", "n1", "n2"], strict=True))
    found, moves = balanced(leaders, members)
    assert (sorted(found.values()), moves) == (["n1", "n2", "n3"], 2)


def test_a_difference_of_one_moves_nothing() -> None:
    members = {GroupId(number): NODES[:2] for number in (1, 2, 3)}
    assert next_move(dict(zip(members, ["n1", "n1", "n2"], strict=True)), members) is None
