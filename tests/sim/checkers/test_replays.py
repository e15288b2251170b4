"""The allowed and the required contents of a replay of a run's disks."""

import pytest

from viewstamp.sim.checkers.replays import check_acknowledged, check_whole
from viewstamp.sim.checkers.replicas import Kept
from viewstamp.sim.violation import Violation

WRITTEN = {b"a", b"b", b"c", b"d"}
KNOWN = [("orders", 5, b"a"), ("orders", 7, b"c")]


def kept(first: int, *values: bytes) -> dict[str, Kept]:
    return {"orders": Kept(first, list(values), [1] * len(values))}


@pytest.mark.parametrize("found", [kept(5, b"a", b"b", b"c", b"d"), kept(7, b"c"), kept(8, b"d")])
def test_a_replay_may_show_unacknowledged_records_and_lack_trimmed_ones(found: dict[str, Kept]) -> None:
    check_acknowledged("n1, n2", found, KNOWN, WRITTEN, trims=False)


@pytest.mark.parametrize(
    ("found", "invariant"),
    [
        (kept(5, b"a", b"b"), "ReplayKeepsAcknowledged"),
        (kept(5, b"a", b"c", b"b"), "ReplayKeepsAcknowledged"),
        ({}, "ReplayKeepsAcknowledged"),
        (kept(5, b"a", b"b", b"c", b"e"), "ReplayInventsNothing"),
        (kept(4, b"c", b"a", b"b", b"c"), "ReplayInventsNothing"),
    ],
)
def test_a_lost_moved_doubled_or_invented_record_is_noticed(found: dict[str, Kept], invariant: str) -> None:
    with pytest.raises(Violation) as caught:
        check_acknowledged("n1, n2", found, KNOWN, WRITTEN, trims=False)
    assert caught.value.invariant == invariant


def test_where_topics_are_trimmed_nothing_of_one_may_be_left() -> None:
    check_acknowledged("n1, n2", {}, KNOWN, WRITTEN, trims=True)


def test_at_the_end_a_replay_shows_the_members_contents() -> None:
    held = {**kept(5, b"a", b"b"), "empty": Kept(3, [], [])}
    check_whole("n1, n2", kept(5, b"a", b"b"), held)
    for found in (kept(5, b"a"), kept(4, b"c", b"a", b"b"), {}, {**kept(5, b"a", b"b"), "other": Kept(1, [b"c"], [1])}):
        with pytest.raises(Violation, match="ReplayEqualsMembers"):
            check_whole("n1, n2", found, held)
