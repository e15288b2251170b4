"""The records of a stream in a range of positions are in the files of runs, or are read from the nodes: each once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from viewstamp.client import archived_ranges
from viewstamp.client.stream_archives import StreamRunInfo
from viewstamp.client.stream_ranges import StreamRange
from viewstamp.errors import PeerError


def run_of(number: int, positions: Sequence[int], first: int, end: int) -> StreamRunInfo:
    """Return a run with the records ``first`` to ``end`` of a stream, which are at ``positions``."""
    return StreamRunInfo(
        id=number,
        topic="orders",
        first_position=first,
        last_position=end - 1,
        state="committed",
        origin="",
        bytes=1,
        digest="",
        first_time=1,
        last_time=1,
        stream=2,
        group=7,
        first_global=positions[first - 1],
        last_global=positions[end - 2],
    )


def test_each_record_of_a_stream_is_in_one_piece() -> None:
    """Whatever the runs are: with gaps, longer than the range, and with its border within a run."""
    dice = random.Random(1)
    kinds = set()
    for _ in range(2000):
        positions = sorted(dice.sample(range(1, 90), dice.randint(1, 30)))
        count = len(positions)
        ends = sorted(dice.sample(range(1, count + 2), min(count + 1, dice.randint(1, 6))))
        runs = [
            run_of(number, positions, first, end)
            for number, (first, end) in enumerate(itertools.pairwise(ends))
            if dice.random() < 0.8
        ]
        start = dice.randint(1, 90)
        end = dice.randint(start, 90)
        wanted = [local for local, at in enumerate(positions, 1) if start <= at < end]
        if not wanted:
            continue
        part = StreamRange(2, start, end, wanted[0], wanted[-1] + 1)
        archived, rest = archived_ranges.divide_by_runs("orders", part, runs)
        pieces = [*(piece for piece, _ in archived), *rest]
        assert sorted(local for each in pieces for local in range(each.first, each.last_end)) == wanted
        for each in pieces:
            inside = [local for local, at in enumerate(positions, 1) if each.start <= at < each.end]
            assert inside == [*range(each.first, each.last_end)], "a piece has all records at its positions"
            assert start <= each.start < each.end <= end
        held = {local for run in runs for local in range(run.first_position, run.last_position + 1)}
        assert {local for each, _ in archived for local in range(each.first, each.last_end)} == held & {*wanted}
        assert all(run.first_position <= each.first < each.last_end <= run.last_position + 1 for each, run in archived)
        kinds.add((bool(archived), bool(rest), len(archived) > 1))
    assert len(kinds) == 5, "runs only, the log only, both; one run and several"


@pytest.mark.parametrize(("first_global", "last_global"), [(3, 60), (12, 30), (40, 39)])
def test_a_run_with_another_order_than_the_range_is_an_error(first_global: int, last_global: int) -> None:
    positions = [*range(10, 20), *range(30, 40)]
    run = run_of(1, positions, 6, 16)
    wrong = StreamRunInfo(
        **{name: getattr(run, name) for name in run.__dataclass_fields__ if not name.endswith("_global")},
        first_global=first_global,
        last_global=last_global,
    )
    part = StreamRange(2, 10, 40, 1, 21)
    assert len(archived_ranges.divide_by_runs("orders", part, [run])[0]) == 1
    with pytest.raises(PeerError, match="stream 2 of topic 'orders' is at record"):
        archived_ranges.divide_by_runs("orders", part, [wrong])
