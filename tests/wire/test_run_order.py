"""The order of a run: what its file says about global positions, and nothing else."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.ids import GlobalPosition, Position
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.run_order import OrderBuilder, RunOrder


def runs_of(steps: list[tuple[int, int]], first: int = 5) -> list[GlobalRun]:
    """Return runs with these lengths, each behind a gap of global positions."""
    runs, local, position = [], first, 1
    for version, (gap, length) in enumerate(steps, 1):
        position += gap
        runs.append(GlobalRun(version, GlobalPosition(position), Position(local), length))
        local, position = local + length, position + length
    return runs


def all_runs(order: RunOrder) -> list[GlobalRun]:
    return order.runs_at(order.first, len(order))


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=20)


@given(STEPS)
def test_bytes_bring_the_same_order_back_and_each_record_has_its_position(steps: list[tuple[int, int]]) -> None:
    runs = runs_of(steps)
    order = RunOrder.inflate(RunOrder(runs).deflate())
    assert all_runs(order) == runs
    assert (order.first, order.end) == (5, runs[-1].end)
    assert (order.position, order.position_end) == (runs[0].position, runs[-1].position + runs[-1].length)
    expected = [run.position + at for run in runs for at in range(run.length)]
    assert list(order.positions(5, len(expected))) == expected
    assert list(order.positions(6, len(expected) - 1)) == expected[1:]
    for local, position in enumerate(expected, 5):
        at = order.runs_at(local, 1)[0]
        assert at.position + local - at.local == position
        assert order.runs_from(position, 1) == [at]
    assert order.runs_at(4, 9) == order.runs_at(order.end, 9) == []
    assert order.runs_from(order.position_end, 9) == []
    assert order.runs_from(0, 100) == runs


@given(STEPS, st.lists(st.integers(1, 7), max_size=30))
def test_a_builder_takes_pieces_and_has_the_runs_of_the_whole(steps: list[tuple[int, int]], cuts: list[int]) -> None:
    runs = runs_of(steps)
    builder, end = OrderBuilder(Position(6)), 6
    for cut in [*cuts, 1 << 20]:
        end = min(end + cut, runs[-1].end)
        if end > builder.end:
            builder.extend([run for run in runs if run.end > builder.end], end)
    if runs[-1].end > 6:
        skipped = runs[0]._replace(position=GlobalPosition(runs[0].position + 1), local=Position(6))
        head = [skipped._replace(length=runs[0].length - 1)] if runs[0].length > 1 else []
        assert all_runs(builder.order) == [*head, *runs[1:]]


def test_a_piece_whose_positions_are_not_all_known_is_refused() -> None:
    builder = OrderBuilder(Position(1))
    builder.extend(runs_of([(0, 4)], first=1), 4)
    for runs in ([], runs_of([(0, 4)], first=1), runs_of([(9, 4)], first=6)):
        with pytest.raises(ValueError, match=r"of the record at position [45] "):
            builder.extend(runs, 9)


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [(1, 1, 1, 0)],
        [(0, 1, 1, 1)],
        [(1, 1, 1, 2), (2, 9, 4, 1)],
        [(1, 5, 1, 2), (2, 6, 3, 1)],
        [(2, 1, 1, 2), (2, 9, 3, 1)],
        [(1, 1 << 63, 1, 1)],
    ],
)
def test_an_order_that_is_none_is_refused(runs: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(ValueError, match="order"):
        RunOrder(GlobalRun(version, GlobalPosition(at), Position(local), length) for version, at, local, length in runs)


@pytest.mark.parametrize("packed", [b"", b"x", zlib.compress(b""), zlib.compress(bytes(31)), zlib.compress(bytes(32))])
def test_bytes_that_are_no_order_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="order"):
        RunOrder.inflate(packed)
