"""Executors of one thread and of a rotating pool behave the same behind the same interface."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from viewstamp.host.conformance import DISK_BEHAVIOURS
from viewstamp.host.disk import RealDisk
from viewstamp.host.executor import ThreadExecutor
from viewstamp.host.interfaces import Disk

EXECUTORS = [behaviour for behaviour in DISK_BEHAVIOURS if "an_executor" in behaviour.__name__]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("behaviour", EXECUTORS, ids=lambda each: each.__name__)
async def test_an_executor_conforms_however_many_threads_it_has(
    behaviour: Callable[[Disk, str], Coroutine[Any, Any, None]], threads: int, tmp_path: Path
) -> None:
    assert len(EXECUTORS) >= 3
    await behaviour(RealDisk(executor_threads=threads), str(tmp_path))


async def rotate(count: int, *, waits: bool) -> tuple[list[str], list[int]]:
    """Let a pool of three work on items, each put during or long after the previous one; return the workers."""
    workers: list[str] = []
    reported: list[int] = []
    at_once = 0

    def work(items: list[int]) -> int:
        nonlocal at_once
        at_once += 1
        assert at_once == 1, "one thread at a time"
        workers.append(threading.current_thread().name)
        if waits and items[0] < count - 1:
            executor.put(items[0] + 1)
        at_once -= 1
        return items[0]

    def done(items: list[int], outcome: int | BaseException) -> None:
        assert outcome == items[0]
        reported.extend(items)

    executor = RealDisk(executor_threads=3).executor("sync", work, done)
    executor.put(0)
    async with asyncio.timeout(10):
        put = 1
        while len(reported) < count:
            await asyncio.sleep(0.005)
            if not waits and len(reported) == put < count:
                executor.put(put)
                put += 1
    await executor.close()
    return workers, reported


async def test_the_threads_of_a_pool_take_turns_while_there_is_work_and_the_order_is_kept() -> None:
    workers, reported = await rotate(100, waits=True)
    assert reported == list(range(100))
    assert workers == [f"sync-{number % 3}" for number in range(100)]


async def test_a_thread_that_finds_nothing_to_do_keeps_the_executor() -> None:
    workers, reported = await rotate(5, waits=False)
    assert reported == list(range(5))
    assert workers == ["sync-0"] * 5


@pytest.mark.parametrize("threads", [1, 3])
async def test_no_thread_is_left_when_an_executor_is_closed(threads: int) -> None:
    before = set(threading.enumerate())
    executor = RealDisk(executor_threads=threads).executor("sync", lambda items: None, lambda items, outcome: None)
    executor.put(1)
    await asyncio.gather(executor.close(), executor.close())
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [1, 3])
def test_the_threads_end_where_the_loop_is_closed_before_they_can_report(threads: int) -> None:
    release = threading.Event()
    before = set(threading.enumerate())
    mine: list[threading.Thread] = []

    async def run() -> None:
        executor = RealDisk(executor_threads=threads).executor("sync", lambda items: release.wait(10), lambda *_: None)
        executor.put(1)
        mine.extend(set(threading.enumerate()) - before)
        assert mine

    asyncio.run(run())
    release.set()
    for thread in mine:
        thread.join(10)
        assert not thread.is_alive()


def living(name: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(f"{name}-")]


async def ended(name: str) -> None:
    """Wait until an executor has no thread."""
    async with asyncio.timeout(10):
        while living(name):  # noqa: ASYNC110  # because the end of a thread is no event
            await asyncio.sleep(0.001)


async def test_an_executor_has_threads_only_while_it_has_work() -> None:
    reported: list[int] = []
    executor = ThreadExecutor("rest", len, lambda items, _: reported.extend(items), threads=2, idle_seconds=0.001)
    assert not living("rest"), "an executor that was never used has no thread"
    for number in range(3):
        executor.put(number)
        await ended("rest")
        assert reported == list(range(number + 1))
    await executor.close()
    executor.put(3)
    assert not living("rest")


async def test_an_executor_keeps_the_order_wherever_its_threads_end() -> None:
    """Items come at all times around the end of the threads, so a second shift may begin before the first has ended."""
    entropy, at_once, reported = random.Random(1), [0], list[int]()

    def work(items: list[int]) -> None:
        at_once[0] += 1
        assert at_once[0] == 1, "one thread at a time"
        at_once[0] -= 1

    def done(items: list[int], outcome: object) -> None:
        assert outcome is None
        reported.extend(items)

    for count in (1, 2, 200):
        executor = ThreadExecutor("race", work, done, threads=2, idle_seconds=0.0002)
        for number in range(count):
            executor.put(number)
            await asyncio.sleep(entropy.choice((0, 0, 0.0002, 0.0004)))
        await executor.close()
        assert reported == list(range(count)), "and all were reported when close() returned"
        assert not living("race")
        reported.clear()


async def test_items_wait_while_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[int] = []
    executor = ThreadExecutor("none", len, lambda items, _: reported.extend(items), threads=2)
    refused = [0]

    def refuse(_: threading.Thread) -> None:
        refused[0] += 1
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", refuse)
        executor.put(1)
        executor.put(2)
        closing = asyncio.ensure_future(executor.close())
        await asyncio.sleep(0)
        assert refused[0] >= 1
        assert not closing.done()
    await closing
    assert reported == [1, 2]
