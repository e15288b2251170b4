"""The answers of nodes to a client that waits for global positions."""

from __future__ import annotations

import pytest

from viewstamp.client.global_positions import read_runs
from viewstamp.errors import PeerError
from viewstamp.ids import GroupId, Stream

STREAM = Stream(GroupId(7), "orders.1")


def test_runs_that_tile_the_positions_from_the_first_one_on_are_taken() -> None:
    assert read_runs(STREAM, 5, []) == []
    assert read_runs(STREAM, 5, [[9, 4, 2], [20, 6, 1]]) == [(9, 4, 2), (20, 6, 1)]


@pytest.mark.parametrize(
    "packed",
    [
        [[9, 4, 1]],
        [[9, 6, 2]],
        [[0, 4, 2]],
        [[9, 0, 8]],
        [[9, 4, 2], [20, 7, 1]],
        [[9, 4, 2], [10, 6, 1]],
        [[9, 4, 2], [20, 6, 0]],
        [[9, 5, -1]],
    ],
)
def test_runs_that_do_not_are_refused(packed: list[list[int]]) -> None:
    with pytest.raises(PeerError, match=r"for position 5 of 'orders\.1'"):
        read_runs(STREAM, 5, packed)
