"""The simulated disk: executors in simulated time, kills, power cuts and faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from viewstamp.errors import StorageError, StorageFullError
from viewstamp.sim.disk import DiskOptions, SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop


@pytest.fixture(name="loop")
def _loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(seed=1)
    yield loop
    loop.close()


@pytest.fixture(name="disk")
def _disk(loop: SimulatedLoop) -> SimulatedDisk:
    disk = SimulatedDisk("n1", loop=loop)
    disk.make_directory("/d")
    return disk


def test_a_kill_loses_nothing_that_was_written(disk: SimulatedDisk) -> None:
    disk.open("/d/file", create=True).write(0, [b"written"])
    disk.kill()
    assert disk.open_read("/d/file").read(0, 10) == b"written"


def test_a_power_cut_keeps_synced_bytes_and_maybe_the_rest(loop: SimulatedLoop) -> None:
    found = set()
    for seed in range(60):
        disk = SimulatedDisk(loop=loop)
        disk.make_directory("/d")
        file = disk.open("/d/file", create=True)
        file.write(0, [b"synced"])
        file.sync()
        disk.sync_directory("/d")
        file.write(0, [b"SYNCED"])
        disk.crash(random.Random(seed))
        found.add(disk.open_read("/d/file").read(0, 10))
    assert found == {b"synced", b"SYNCED"}


def test_bytes_that_survived_a_power_cut_are_durable_from_then_on(disk: SimulatedDisk) -> None:
    disk.open("/d/file", create=True).write(0, [bytes(range(256)) * 100])
    disk.crash(random.Random(3))
    survived = {name: disk.open_read(f"/d/{name}").read(0, 100_000) for name in disk.list_directory("/d")}
    for seed in range(5):
        disk.crash(random.Random(seed))
        assert {name: disk.open_read(f"/d/{name}").read(0, 100_000) for name in disk.list_directory("/d")} == survived


def test_files_and_locks_of_an_earlier_life_are_dead(disk: SimulatedDisk) -> None:
    file = disk.open("/d/file", create=True)
    lock = disk.lock("/d")
    disk.kill()
    with pytest.raises(SimulatedCrash):
        file.write(0, [b"x"])
    disk.lock("/d")
    lock.release()
    with pytest.raises(StorageError):
        disk.lock("/d")


def test_a_process_dies_inside_the_call_that_was_chosen(loop: SimulatedLoop, disk: SimulatedDisk) -> None:
    seen: list[str] = []
    process = loop.process("n1")

    async def work() -> None:
        try:
            file = disk.open("/d/file", create=True)
            seen.append("opened")
            file.write(0, [b"x"])
            file.sync()
            seen.append("synced")
        finally:
            with pytest.raises(SimulatedCrash):
                disk.open("/d/other", create=True)

    disk.crash_at(disk.calls + 3, lambda: seen.append("told"))
    process.spawn(work())
    loop.run_forever()
    assert seen == ["opened", "told"]
    assert process.is_dead
    disk.kill()
    assert disk.open("/d/file").size() == 1


def test_a_write_may_be_cut_short_by_death(loop: SimulatedLoop) -> None:
    sizes = set()
    for seed in range(40):
        disk = SimulatedDisk(entropy=random.Random(seed))
        disk.make_directory("/d")
        file = disk.open("/d/file", create=True)
        disk.crash_at(disk.calls + 1)
        with pytest.raises(SimulatedCrash):
            file.write(0, [b"ab", b"c"])
        with pytest.raises(SimulatedCrash):
            disk.exists("/d/file")
        disk.kill()
        sizes.add(disk.open("/d/file").size())
    assert sizes == {0, 1, 2, 3}


def test_a_full_disk_refuses_to_grow_and_changes_nothing(disk: SimulatedDisk) -> None:
    file = disk.open("/d/file", create=True)
    disk.capacity_bytes = 100
    file.write(0, [bytes(90)])
    assert disk.free_bytes("/d") == 10
    with pytest.raises(StorageFullError):
        file.write(80, [b"x" * 40])
    assert file.read(0, 1000) == bytes(90)
    file.write(50, [b"x" * 50])
    assert disk.free_bytes("/d") == 0


def test_a_failed_sync_raises_once_and_leaves_the_bytes_in_doubt_until_they_are_written_again(
    disk: SimulatedDisk,
) -> None:
    file = disk.open("/d/file", create=True)
    file.write(0, [b"old"])
    file.sync()
    disk.sync_directory("/d")
    file.write(0, [b"new"])
    disk.fail("sync")
    with pytest.raises(StorageError):
        file.sync()

    def left() -> set[bytes]:
        return {disk.volume.after_cut(random.Random(seed)).files["/d/file"] for seed in range(20)}

    file.sync()  # The sync succeeds, but writes nothing, because the system considers the page clean.
    assert left() == {b"old", b"new"}
    file.write(0, [b"new"])
    file.sync()
    assert left() == {b"new"}


def test_a_chosen_write_fails(disk: SimulatedDisk) -> None:
    file = disk.open("/d/file", create=True)
    disk.fail("write", after=1)
    file.write(0, [b"one"])
    with pytest.raises(StorageError):
        file.write(0, [b"two"])
    assert file.read(0, 10) == b"one"
    file.write(0, [b"six"])


def test_a_flipped_bit_is_durable(disk: SimulatedDisk) -> None:
    file = disk.open("/d/file", create=True)
    file.write(0, [bytes(10)])
    file.sync()
    disk.sync_directory("/d")
    file.write(5, [b"\x10"])
    disk.flip("/d/file", 5, 1)
    file.sync()
    disk.crash()
    assert disk.open_read("/d/file").read(0, 10) == b"\0\0\0\0\0\x12\0\0\0\0"


def test_an_executor_works_later_with_everything_that_was_queued_by_then(
    loop: SimulatedLoop, disk: SimulatedDisk
) -> None:
    disk.options = DiskOptions(delay_min=1.0, delay_mean=0)
    turns: list[tuple[list[int], float]] = []
    reports: list[float] = []

    def work(items: list[int]) -> None:
        turns.append((items, loop.time()))

    def done(items: list[int], result: BaseException | None) -> None:
        reports.append(loop.time())

    async def main() -> None:
        executor = disk.executor("test", work, done)
        executor.put(1)
        executor.put(2)
        assert turns == []
        await asyncio.sleep(1.0)
        executor.put(3)
        await executor.close()

    loop.run_until_complete(main())
    assert [items for items, _ in turns] == [[1, 2], [3]]
    assert 0 <= turns[0][1] <= reports[0] == 1.0 <= turns[1][1] <= reports[1] == 2.0


def test_nothing_of_an_executor_happens_after_its_process_or_disk_died(
    loop: SimulatedLoop, disk: SimulatedDisk
) -> None:
    for death in ("process", "disk"):
        happened: list[str] = []
        process = loop.process("n1")

        async def main(happened: list[str] = happened) -> None:
            def work(items: list[int]) -> None:
                happened.append("work")

            def done(items: list[int], result: BaseException | None) -> None:
                happened.append("done")

            executor = disk.executor("test", work, done)
            executor.put(1)

        process.spawn(main())
        loop.run_for(0)
        if death == "process":
            process.kill()
        else:
            disk.kill()
        loop.run_for(10)
        assert happened == []


def test_a_process_may_die_between_two_calls_of_an_executor(loop: SimulatedLoop, disk: SimulatedDisk) -> None:
    """Group commit has to handle this: the bytes are written but not synced, and no caller has an answer."""
    process = loop.process("n1")
    told: list[object] = []

    async def main() -> None:
        file = disk.open("/d/file", create=True)

        def work(items: list[bytes]) -> None:
            file.write(0, items)
            file.sync()

        executor = disk.executor("test", work, lambda items, result: told.append(result))
        disk.crash_at(disk.calls + 2)
        executor.put(b"x")

    process.spawn(main())
    loop.run_for(10)
    assert process.is_dead
    assert told == []
    disk.kill()
    assert disk.open("/d/file").read(0, 5) == b"x"


def test_an_asynchronous_file_takes_time_and_lets_others_run(loop: SimulatedLoop, disk: SimulatedDisk) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.0001)
            ticks += 1

    async def write() -> None:
        file = await disk.open_async("/d/file", create=True)
        for number in range(100):
            await file.write(number * 10, b"0123456789")
        await file.sync()
        await file.close()

    ticking = loop.create_task(tick())
    loop.run_until_complete(write())
    ticking.cancel()
    assert loop.time() > 100 * disk.options.delay_min
    assert ticks > 100
    disk.crash(random.Random(1))


def test_a_power_cut_keeps_the_synced_bytes_of_an_asynchronous_file(loop: SimulatedLoop) -> None:
    async def write(disk: SimulatedDisk) -> None:
        file = await disk.open_async("/d/file", create=True)
        await file.write(0, b"synced")
        await file.sync()
        disk.sync_directory("/d")
        await file.write(0, b"SYNCED")

    found = set()
    for seed in range(60):
        disk = SimulatedDisk(loop=loop)
        disk.make_directory("/d")
        loop.run_until_complete(write(disk))
        disk.crash(random.Random(seed))
        found.add(disk.open_read("/d/file").read(0, 10))
    assert found == {b"synced", b"SYNCED"}


def test_a_process_may_die_inside_each_call_of_an_asynchronous_file(loop: SimulatedLoop) -> None:
    """A write may be done in part, but nothing after it is ever done."""
    lengths = set()
    for call in range(1, 5):
        for seed in range(20):
            disk = SimulatedDisk(loop=loop, entropy=random.Random(seed))
            disk.make_directory("/d")
            told: list[str] = []

            async def write(disk: SimulatedDisk, told: list[str]) -> None:
                file = await disk.open_async("/d/file", create=True)
                told.append("open")
                await file.write(0, b"x" * 10)
                told.append("write")
                await file.sync()
                told.append("sync")

            died: list[bool] = []
            disk.crash_at(disk.calls + call, lambda died=died: died.append(True))  # type: ignore[misc]
            task = loop.process("node").spawn(write(disk, told))
            assert loop.run_until(lambda died=died, task=task: bool(died) or task.done(), seconds=1)
            assert told == ["open", "write", "sync"][: call - 1]
            disk.kill()
            if disk.exists("/d/file"):
                lengths.add((call, disk.open_read("/d/file").size()))
    assert {length for call, length in lengths if call == 2} > {0, 10}
    assert {length for call, length in lengths if call > 2} == {10}


def test_an_asynchronous_file_meets_the_faults_of_the_disk(loop: SimulatedLoop, disk: SimulatedDisk) -> None:
    async def write() -> None:
        file = await disk.open_async("/d/file", create=True)
        disk.fail("write")
        with pytest.raises(StorageError, match="input/output error"):
            await file.write(0, b"x")
        disk.capacity_bytes = 100
        with pytest.raises(StorageFullError):
            await file.write(0, b"x" * 101)
        assert await file.size() == 0
        await file.write(0, b"x" * 100)
        disk.fail("sync")
        with pytest.raises(StorageError):
            await file.sync()
        disk.kill()
        with pytest.raises(SimulatedCrash):
            await file.read(0, 1)

    loop.run_until_complete(write())


def test_the_same_seed_gives_the_same_disk() -> None:
    def digest(seed: int) -> str:
        loop = SimulatedLoop(seed)
        disk = SimulatedDisk("n1", loop=loop)
        disk.make_directory("/d")

        async def main() -> None:
            file = disk.open("/d/file", create=True)

            def work(items: list[int]) -> None:
                file.write(items[0] * 100, [bytes([item]) * 100 for item in items])
                file.sync_data()

            executor = disk.executor("test", work, lambda items, result: None)
            for number in range(100):
                executor.put(number)
                await asyncio.sleep(0.0003)
            await executor.close()

        loop.run_until_complete(main())
        disk.crash()
        content = disk.open_read("/d/file").read(0, 100_000) if disk.exists("/d/file") else b""
        loop.trace.note(loop.time(), "n1", "=", str(content))
        loop.close()
        return loop.trace.digest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)
