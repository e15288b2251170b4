"""Tables of several streams become one in the order of the positions, and no row is given out too early."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.archive.committed_runs import RunShare, divide_by_positions
from viewstamp.archive.ordered_merge import OrderedMerge


def merged(lanes: list[list[list[int]]]) -> list[int]:
    """Return the positions in the order in which they are given out; each lane is a list of tables."""
    merge, left = OrderedMerge(len(lanes)), [list(lane) for lane in lanes]
    found: list[int] = []
    while True:
        while merge.wanted:
            lane = min(merge.wanted)
            positions = left[lane].pop(0) if left[lane] else None
            table = None if positions is None else pyarrow.table({"position": pyarrow.array(positions, "int64")})
            merge.add(lane, table)
        taken: Any = merge.take()
        if taken is None:
            return found
        assert taken.num_rows, "a step has a row"
        found += taken["position"].to_pylist()


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 7))
def test_rows_of_streams_are_given_out_by_position(streams: list[int], rows: int) -> None:
    lanes = []
    for stream in range(4):
        positions = [at for at, each in enumerate(streams) if each == stream]
        lanes.append([positions[at : at + rows] for at in range(0, len(positions), rows)])
    assert merged(lanes) == list(range(len(streams)))


def test_a_row_waits_for_the_streams_that_may_have_one_before_it() -> None:
    assert merged([[[1, 4], [6]], [[2, 3], [5]]]) == [1, 2, 3, 4, 5, 6]


def test_a_table_without_rows_does_not_end_a_lane() -> None:
    assert merged([[[], [1], [], [3]], [[2]], []]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("start", "end", "shares", "rest"),
    [
        (1, 31, [RunShare(0, 1, 11), RunShare(1, 15, 21)], [(11, 15), (21, 31)]),
        (5, 18, [RunShare(0, 5, 11), RunShare(1, 15, 18)], [(11, 15)]),
        (11, 15, [], [(11, 15)]),
        (10, 11, [RunShare(0, 10, 11)], []),
        (21, 22, [], [(21, 22)]),
        (7, 7, [], []),
    ],
)
def test_each_position_is_in_one_run_or_in_the_rest(
    start: int, end: int, shares: list[RunShare], rest: list[tuple[int, int]]
) -> None:
    assert divide_by_positions(start, end, [(1, 11), (15, 21)]) == (shares, rest)
