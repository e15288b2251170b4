"""The load generators count the calls of their window, and divide callers evenly over sessions."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from viewstamp.bench import load
from viewstamp.bench.histogram import Histogram
from viewstamp.bench.interpreter import loop_ns
from viewstamp.bench.load import Append, Figures, drive, offer, repeat
from viewstamp.errors import UnavailableError


async def test_callers_are_dealt_evenly_over_the_sessions() -> None:
    """Otherwise `--sessions 8` would measure one busy session and seven idle ones."""
    outstanding: Counter[int] = Counter()
    most: Counter[int] = Counter()

    def session(number: int) -> Append:
        async def append(value: bytes) -> None:
            outstanding[number] += 1
            most[number] = max(most[number], outstanding[number])
            await asyncio.sleep(0)
            outstanding[number] -= 1

        return append

    await drive([session(number) for number in range(4)], b"x", callers=10, seconds=0.02, warm_up=0.01)
    assert sorted(most.values()) == [2, 2, 3, 3]
    assert outstanding.total() == 0


async def test_only_calls_that_begin_and_end_inside_the_window_count() -> None:
    """A call that begins in the window and ends after it is awaited, but does not count."""
    made = 0
    turn = asyncio.Event()

    async def call() -> None:
        nonlocal made
        made += 1
        await turn.wait()

    asyncio.get_running_loop().call_later(0.06, turn.set)
    figures = await repeat([call], 3, 0.02, warm_up=0.01)
    assert (made, figures.count) == (3, 0)
    assert figures.percentile_ms(50) is None
    assert figures.seconds >= 0.02


async def test_each_caller_awaits_its_call_before_the_next_and_each_call_is_a_figure() -> None:
    values: list[bytes] = []

    async def append(value: bytes) -> None:
        values.append(value)
        await asyncio.sleep(0)

    figures = await drive([append], b"value", callers=2, seconds=0.02, warm_up=0)
    assert set(values) == {b"value"}
    assert 0 < figures.count <= len(values)
    assert figures.per_second == figures.count / figures.seconds
    assert 0 < figures.client_cores == figures.client_cpu_seconds / figures.seconds


async def test_the_first_error_ends_the_others_and_is_raised_as_it_is() -> None:
    ended = asyncio.Event()

    async def fails() -> None:
        raise UnavailableError("gone")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(UnavailableError, match="gone"):
        await repeat([waits, fails], 2, 60, warm_up=60)
    assert ended.is_set()


async def test_cancelling_ends_every_caller() -> None:
    running = 0

    async def call() -> None:
        nonlocal running
        running += 1
        try:
            await asyncio.Event().wait()
        finally:
            running -= 1

    task = asyncio.create_task(repeat([call], 5, 60))
    while running < 5:  # noqa: ASYNC110 - the tasks send no event
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert running == 0


@pytest.mark.parametrize(
    ("percent", "milliseconds"), [(0, 1.0), (1, 1.0), (50, 50.0), (95, 95.0), (99, 99.0), (99.9, 100.0), (100, 100.0)]
)
def test_a_percentile_is_the_time_that_this_share_of_calls_did_not_exceed(percent: float, milliseconds: float) -> None:
    latencies = Histogram(float(number) for number in range(100, 0, -1))
    assert Figures(latencies, 1.0, 0.5).percentile_ms(percent) == pytest.approx(milliseconds, rel=0.006)
    assert load.percentile(range(1, 101), percent) == milliseconds


async def test_processor_time_of_servers_counts_only_inside_the_window() -> None:
    """The cost of a call includes the processor time of the callers and of the servers."""
    used = iter([10.0, 13.0])

    async def call() -> None:
        await asyncio.sleep(0)

    figures = await repeat([call], 1, 0.02, warm_up=0.01, servers=lambda: next(used))
    assert figures.server_cpu_seconds == 3.0
    assert figures.cpu_us == pytest.approx((3.0 + figures.client_cpu_seconds) / figures.count * 1e6)


async def test_calls_are_offered_at_their_rate_and_count_from_the_time_at_which_they_were_due() -> None:
    """The system stalls for 0.1 s. Each call that was due meanwhile is slow, not only the call that stalled."""
    made = 0

    async def call() -> None:
        nonlocal made
        made += 1
        if made == 50:
            time.sleep(0.1)  # noqa: ASYNC251 - so that the event loop itself stalls

    figures = await offer(call, 1000, 0.5, warm_up=0.0)
    assert made >= figures.count > 100
    assert figures.latencies.longest >= 90
    assert sum(count for milliseconds, count in figures.latencies.buckets() if milliseconds > 5) > 50


async def test_an_overloaded_system_ends_the_offer_early() -> None:
    async def slow() -> None:
        await asyncio.sleep(0.05)

    figures = await offer(slow, 100_000, 60, warm_up=0, outstanding_max=20)
    assert figures.seconds < 60
    assert figures.count == figures.late >= 20
    assert figures.per_second == 0.0


async def test_an_error_ends_the_offer_and_is_raised_as_it_is() -> None:
    async def fails() -> None:
        raise UnavailableError("gone")

    with pytest.raises(UnavailableError, match="gone"):
        await offer(fails, 1000, 60)


def test_the_fixed_loop_of_the_interpreter_takes_time() -> None:
    assert loop_ns() > 0
