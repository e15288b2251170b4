"""Short complete runs of rows against real servers, which check the shape and arithmetic but never the speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.ours import Ours
from benchmarks.peers.processes import with_children
from benchmarks.rows import NAMES, Options, RowResult, load
from benchmarks.rows.appends import append_side
from benchmarks.rows.turns import alternate
from viewstamp.bench.load import repeat


def options(seconds: float = 0.3) -> Options:
    said: list[str] = []
    return Options(seconds=seconds, rounds=1, say=said.append)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_says_what_it_compares_in_one_line(name: str) -> None:
    row = load(name)
    assert 20 <= len(row.compares) <= 200
    assert "\n" not in row.compares
    assert all(goal.subject for goal in row.goals)


@pytest.mark.slow
async def test_appends_over_two_numbers_of_sessions_are_measured_with_their_processor_time(tmp_path: Path) -> None:
    for seconds in (0.3, 3.0, 30.0):  # A busy machine may complete no append in the first of these windows.
        result = RowResult(subjects=[])
        side = append_side(Ours(), tmp_path, options(seconds), result, 4, sessions=(1, 2))
        await alternate([side], options(seconds), result, "/s")
        assert (result.failed, result.left_out) == ([], [])
        if all(each.value > 0 for each in result.subjects):
            break
    assert [each.name for each in result.subjects] == ["viewstamp, 1 session", "viewstamp, 2 sessions"]
    for each in result.subjects:
        assert each.value > 0
        assert each.cpu_us is not None
        assert each.cpu_us > 0
        assert each.durability == "majority, synced"
    assert not (tmp_path / "viewstamp").exists()


@pytest.mark.slow
async def test_a_value_is_read_from_leader_and_follower(tmp_path: Path) -> None:
    """The nodes of a measurement have no fault switches, because each write would pass two more layers."""
    ours = Ours(settings={"actors.counter": "benchmarks.actors:Counter"})
    async with ours.running(tmp_path / "ours"):
        assert not any(node.settings.node.chaos for node in ours.cluster.nodes.values())
        assert ours.cpu_used() > 0
        assert set(ours.pids().values()) <= set(with_children(ours.pids().values()))
        for server in ours.pids():
            reader = await ours.reader(server)
            while (await repeat([reader.read], 2, 0.1, warm_up=0)).count == 0:
                """A read that a busy machine takes longer for than the window does not count."""
            await reader.close()
