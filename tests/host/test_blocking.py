"""Blocking calls that end before their cancellation does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from viewstamp.host.blocking import in_thread, to_the_end
from viewstamp.sim.loop import SimulatedLoop


async def test_a_call_in_a_thread_has_the_result_or_the_error_of_the_function() -> None:
    assert await in_thread(divmod, 7, 2) == (3, 1)
    assert await in_thread(int, "11", base=2) == 3
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 7, 0)


async def test_a_cancelled_call_ends_first_however_often_it_is_cancelled() -> None:
    release = threading.Event()
    done: list[bool] = []
    task = asyncio.create_task(in_thread(lambda: done.append(release.wait(10))))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]


async def test_an_error_after_the_cancellation_gives_way_to_it() -> None:
    release = asyncio.Event()

    async def fail() -> None:
        await release.wait()
        raise ValueError("no caller is left to get this")

    task = asyncio.create_task(to_the_end(fail()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_simulated_loop_makes_the_call_in_its_own_time() -> None:
    loop = SimulatedLoop(1)
    caller = threading.get_ident()
    assert loop.run_until_complete(in_thread(threading.get_ident)) == caller
    loop.close()
