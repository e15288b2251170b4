"""Latency over offered load: the points of a system, and the rate at which its measurement ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from benchmarks.latency import has_kept_up, measure_peer, point
from benchmarks.peers.peer import Peer, Session
from viewstamp.bench.histogram import Histogram
from viewstamp.bench.load import Figures
from viewstamp.bench.plot import draw_lines


class OneAtATime(Peer):
    """A server that acknowledges at most one record every 2 ms."""

    name = "one at a time"
    warm_up_seconds = 0.01

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def connect_to(self, server: str) -> Session:
        async def append() -> None:
            async with self._turn:
                await asyncio.sleep(0.002)

        async def close() -> None: ...

        def start(value: bytes) -> Awaitable[object]:
            assert len(value) == 256
            return append()

        return Session(start, close)

    async def start(self, directory: Path) -> None: ...

    def pids(self) -> dict[str, int]:
        return {}

    async def leader(self) -> str:
        return ""

    async def kill(self, server: str) -> None: ...

    async def start_again(self) -> None: ...


async def test_a_system_is_left_at_the_first_rate_that_it_does_not_keep_up_with() -> None:
    """It acknowledges at most 500 records a second, so 1,000 are too many on any machine."""
    points = await measure_peer(OneAtATime(), [1_000, 2_000], 0.3)
    assert [each["offered"] for each in points] == [1_000]
    assert not has_kept_up(points[0])
    assert has_kept_up({"offered": 100, "per_second": 95})


def test_a_point_has_the_rate_that_was_reached_inside_the_window() -> None:
    figures = Figures(Histogram([1.0] * 99 + [50.0]), 2.0, 0.4, 0.6, late=10)
    assert point(50, figures) == {
        "offered": 50,
        "per_second": 45.0,
        "p50": pytest.approx(1.0, rel=0.006),
        "p99": pytest.approx(1.0, rel=0.006),
        "p99.9": 50.0,
        "longest": 50.0,
        "client_cores": 0.2,
        "cpu_us": 10_000.0,
    }


def test_lines_are_drawn_and_those_without_a_point_are_left_out(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "lines.svg"
    draw_lines(path, {"p50": {"ours": [(1, 2), (10, 3)], "none": []}, "p99": {"ours": [(1, 5)]}}, x="rate")
    first = path.read_bytes()
    assert first.startswith(b"<?xml")
    draw_lines(path, {"p50": {"ours": [(1, 2), (10, 3)], "none": []}, "p99": {"ours": [(1, 5)]}}, x="rate")
    assert path.read_bytes() == first
