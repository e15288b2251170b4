"""The simulated loop runs ordinary asyncio code in simulated time, identically for the same seed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise

import pytest

from viewstamp.sim.loop import (
    DeadlockError,
    LivelockError,
    SimulatedClock,
    SimulatedCrash,
    SimulatedLoop,
    current_process,
    run,
)


@pytest.fixture(name="loop")
def _loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(seed=1)
    yield loop
    loop.close()
    gc.collect()


def test_an_hour_of_sleep_takes_no_time(loop: SimulatedLoop) -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert loop.run_until_complete(main()) == 3600.0


def test_timers_of_the_same_time_fire_in_the_order_in_which_they_were_set(loop: SimulatedLoop) -> None:
    fired: list[int] = []
    for number in range(50):
        loop.call_at(1.0, fired.append, number)
    loop.run_for(2.0)
    assert fired == list(range(50))
    assert loop.time() == 2.0


def test_run_for_leaves_later_timers_alone(loop: SimulatedLoop) -> None:
    fired: list[str] = []
    loop.call_later(1.0, fired.append, "now")
    loop.call_later(1.1, fired.append, "later")
    loop.run_for(1.0)
    assert fired == ["now"]


@pytest.mark.parametrize(("every", "looks"), [(0.0, 32), (1.0, 5), (60.0, 2)])
def test_a_condition_is_checked_at_its_interval_and_at_the_end(loop: SimulatedLoop, every: float, looks: int) -> None:
    """Thirty events at intervals of 0.125 s, and nothing after them."""
    for number in range(1, 31):
        loop.call_at(number / 8, int)
    seen: list[float] = []
    assert not loop.run_until(lambda: seen.append(loop.time()) is not None, seconds=5.0, every=every)
    assert seen[0] == 0.0
    assert seen[-1] == loop.time() == 5.0
    assert len(seen) == looks
    assert all(after - before >= every for before, after in pairwise(seen[:-1]))


def test_a_cancelled_timer_neither_fires_nor_moves_time(loop: SimulatedLoop) -> None:
    fired: list[int] = []
    handles = [loop.call_later(seconds, fired.append, seconds) for seconds in range(1, 1001)]
    for handle in handles[1:]:
        handle.cancel()
    loop.run_forever()
    assert fired == [1]
    assert loop.time() == 1.0


def test_timeouts_queues_events_and_groups_of_asyncio_work(loop: SimulatedLoop) -> None:
    async def main() -> list[object]:
        seen: list[object] = []
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        ready = asyncio.Event()

        async def produce() -> None:
            for number in range(3):
                await asyncio.sleep(1)
                await queue.put(number)
            ready.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            for _ in range(3):
                seen.append(await queue.get())
        await ready.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await queue.get()
        seen.append(await asyncio.to_thread(sum, [1, 2]))
        seen.append(await asyncio.gather(asyncio.sleep(1, "a"), asyncio.sleep(0.5, "b")))
        seen.append(asyncio.get_running_loop().time())
        return seen

    assert loop.run_until_complete(main()) == [0, 1, 2, 3, ["a", "b"], 14.0]


def test_a_deadlock_is_reported_with_every_waiting_task(loop: SimulatedLoop) -> None:
    async def wait_in_vain() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="wait_in_vain"):
        loop.run_until_complete(wait_in_vain())


def test_a_loop_that_spins_in_place_is_reported(loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewstamp.sim.loop._EVENTS_AT_ONE_TIME_MAX", 1000)

    async def spin() -> None:
        while True:  # noqa: ASYNC110 -- that is the mistake
            await asyncio.sleep(0)

    with pytest.raises(LivelockError):
        loop.run_until_complete(spin())


def test_an_exception_in_a_callback_ends_the_run_at_once_and_names_the_seed(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise ValueError("broken")

    loop.call_later(1.0, fail)
    with pytest.raises(ValueError, match="broken") as caught:
        loop.run_for(5.0)
    assert loop.time() == 1.0
    assert "seed 1" in caught.value.__notes__[0]


def test_an_unretrieved_exception_of_a_task_fails_the_run(loop: SimulatedLoop) -> None:
    kept = []

    async def fail() -> None:
        raise ValueError("never retrieved")

    async def main() -> None:
        kept.append(asyncio.create_task(fail()))
        await asyncio.sleep(1)

    with pytest.raises(ValueError, match="never retrieved"):
        loop.run_until_complete(main())
    kept.clear()


def test_the_hook_is_called_after_every_event_and_ends_the_run_by_raising(loop: SimulatedLoop) -> None:
    done: list[int] = []

    def check() -> None:
        assert len(done) < 3, "an invariant is broken"

    loop.after_event = check
    for number in range(10):
        loop.call_later(number, done.append, number)
    with pytest.raises(AssertionError, match="an invariant is broken"):
        loop.run_forever()
    assert done == [0, 1, 2]
    assert loop.events == 3


def test_a_killed_process_runs_no_more_code_not_even_finally_blocks(loop: SimulatedLoop) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(100):
                    await asyncio.gather(asyncio.sleep(10), asyncio.create_task(asyncio.sleep(20)))
        finally:
            seen.append("finally")
            await asyncio.sleep(1)

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(0.4)
                yield 1
        finally:
            seen.append("generator")

    async def read() -> None:
        async for _ in numbers():
            seen.append("tick")

    process = loop.process("n1")
    process.spawn(work())
    process.spawn(read())
    process.call(lambda: loop.call_later(2, seen.append, "timer"))
    loop.call_later(1, process.kill)
    loop.run_for(1)
    gc.collect()
    loop.run_for(1000)
    assert seen == ["tick", "tick"]


def test_everything_that_a_process_starts_belongs_to_it(loop: SimulatedLoop) -> None:
    owners: list[str | None] = []

    def note() -> None:
        process = current_process()
        owners.append(process.name if process else None)

    async def work() -> None:
        note()
        loop.call_soon(note)
        loop.call_later(1, note)
        await asyncio.create_task(inner())
        await asyncio.to_thread(note)

    async def inner() -> None:
        await asyncio.sleep(0.5)
        note()

    loop.process("n1").spawn(work())
    loop.call_later(2, note)
    loop.run_forever()
    assert owners == ["n1", "n1", "n1", "n1", "n1", None]


def test_killing_calls_the_registered_callbacks(loop: SimulatedLoop) -> None:
    told: list[str] = []
    process = loop.process("n1")
    process.on_death(lambda: told.append("first"))
    call_off = process.on_death(lambda: told.append("second"))
    call_off()
    process.kill()
    process.kill()
    assert told == ["first"]
    assert process.is_dead


def test_a_process_that_dies_inside_its_own_code_does_not_fail_the_run(loop: SimulatedLoop) -> None:
    process = loop.process("n1")
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1)
        process.kill()
        raise SimulatedCrash

    async def other() -> None:
        await process.spawn(work())
        seen.append("woke up")

    process.spawn(other())
    loop.run_forever()
    loop.check()
    assert seen == []


def test_a_paused_process_later_runs_the_work_that_came_due_meanwhile(loop: SimulatedLoop) -> None:
    seen: list[tuple[str, float]] = []
    process = loop.process("n1")

    async def tick() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(("tick", loop.time()))

    process.spawn(tick())
    process.call(lambda: loop.call_later(2.5, lambda: seen.append(("timer", loop.time()))))
    loop.run_for(1.5)
    process.pause()
    loop.run_for(5)
    assert seen == [("tick", 1.0)]
    process.resume()
    loop.run_forever()
    assert seen == [("tick", 1.0), ("timer", 6.5), ("tick", 6.5), ("tick", 7.5)]


def test_clocks_of_nodes_differ_by_offset_rate_and_jumps(loop: SimulatedLoop) -> None:
    clock = SimulatedClock(loop, offset=7.0, rate=1.5, wall_offset_us=-1_000_000)
    loop.run_for(10.0)
    assert clock.monotonic() == 22.0
    assert clock.wall_us() == SimulatedClock.WALL_START_US + 14_000_000


def test_numbers_drawn_by_name_are_the_same_for_the_same_seed() -> None:
    assert SimulatedLoop(7).entropy("disk").random() == SimulatedLoop(7).entropy("disk").random()
    assert SimulatedLoop(7).entropy("disk").random() != SimulatedLoop(8).entropy("disk").random()


_DISORDERLY = """
import asyncio, sys
from viewstamp.sim.loop import SimulatedLoop

def digest(seed):
    loop = SimulatedLoop(seed)
    entropy = loop.entropy("work")
    note = lambda text: loop.trace.note(loop.time(), "main", "=", text)

    async def work(name):
        for _ in range(entropy.randrange(5)):
            await asyncio.sleep(entropy.random())
            note(f"{name} {asyncio.current_task().get_name()}")
        if name == "w7":
            raise ValueError(name)
        try:
            await asyncio.sleep(100)
        finally:
            note(f"{name} is cancelled")

    async def main():
        tasks = {asyncio.create_task(asyncio.sleep(entropy.randrange(3), n)) for n in range(50)}
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            note(" ".join(str(task.result()) for task in done))
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(work(f"w{number}"))
        except* ValueError:
            note("failed")

    loop.run_until_complete(main())
    loop.close()
    return loop.trace.digest(), loop.events

if __name__ == "__main__":
    print(digest(int(sys.argv[1])))
"""


@pytest.mark.slow
def test_the_same_seed_does_the_same_in_two_processes_with_different_hash_seeds() -> None:
    """Order can leak through sets of tasks inside asyncio, because ``wait`` and ``TaskGroup`` iterate over them."""

    def digest(seed: int, hash_seed: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        command = [sys.executable, "-c", _DISORDERLY, str(seed)]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    assert digest(5, 1) == digest(5, 2)
    assert digest(5, 1) != digest(6, 1)


def test_the_same_seed_does_the_same_twice_in_one_process() -> None:
    scope: dict[str, object] = {"__name__": "disorderly"}
    exec(_DISORDERLY, scope)
    digest = scope["digest"]
    assert callable(digest)
    assert digest(5) == digest(5)


def test_run_runs_one_coroutine_in_a_world_of_its_own() -> None:
    async def main() -> float:
        asyncio.create_task(asyncio.sleep(1000))  # noqa: RUF006 -- left behind on purpose
        await asyncio.sleep(3)
        return asyncio.get_running_loop().time()

    assert run(main(), seed=3) == 3.0


def test_clean_up_code_of_a_world_that_ends_starts_nothing_in_another_loop() -> None:
    """If ``ensure_future`` found no loop, it would make a real one, and leave it open."""
    refused = []

    async def work() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            late = asyncio.sleep(1)
            try:
                await asyncio.ensure_future(late)
            except RuntimeError as error:
                refused.append(str(error))

    loop = SimulatedLoop(seed=1)
    loop.process("a").spawn(work())
    loop.run_for(1)
    loop.close()
    assert refused == ["the simulated loop is closed"]
