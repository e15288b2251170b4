"""A log with a size limit is preallocated, never exceeds it, refuses early and continues after a trim."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wal.logs import (
    DIRECTORY,
    SMALL,
    Journal,
    bytes_on,
    contents,
    make_batch,
    make_batches,
    names_of,
    open_wal,
    simulated,
)
from viewstamp.errors import ConfigError, StorageError, StorageFullError
from viewstamp.host.interfaces import File
from viewstamp.ids import Index
from viewstamp.sim import loop as sim_loop
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.log import Wal

LIMIT = 8 * SMALL.segment_bytes
BOUNDED = replace(SMALL, bytes_max=LIMIT)


class WatchedDisk(SimulatedDisk):
    """Records the largest total size of the log's files after any disk call."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.make_directory("/data")

    def note(self, operation: str, text: str, glyph: str = "=") -> None:
        super().note(operation, text, glyph)
        self.most = max(self.most, bytes_on(self))


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


def started(disk: SimulatedDisk, options: WalOptions = BOUNDED) -> tuple[Wal, list[StorageError]]:
    failures: list[StorageError] = []
    wal, _ = open_wal(disk, options, first_index=Index(1 << 40))
    wal.start(failures.append)
    return wal, failures


async def fill(wal: Wal, *, size: int = 2000) -> StorageFullError:
    """Append batch after batch until the log refuses one."""
    while True:
        try:
            await wal.append([make_batch(wal.end, size=size)])
        except StorageFullError as error:
            return error


def new_wal_disk(disk: SimulatedDisk) -> tuple[Wal, list[StorageError]]:
    """Open a new log at index 1."""
    failures: list[StorageError] = []
    wal, _ = open_wal(disk, BOUNDED)
    wal.start(failures.append)
    return wal, failures


@simulated
async def test_the_log_is_preallocated_to_its_bound_in_the_background(disk: WatchedDisk) -> None:
    wal, failures = new_wal_disk(disk)
    assert wal.bytes_allocated < LIMIT
    await wal.append([make_batch(1)])
    await asyncio.sleep(1)
    assert (wal.bytes_allocated, bytes_on(disk), wal.bytes_max) == (LIMIT, LIMIT, LIMIT)
    assert len(names_of(disk, "prepared")) == 7
    assert disk.most == LIMIT
    assert failures == []


@simulated
async def test_the_log_never_exceeds_its_limit_and_continues_by_itself_after_a_trim(
    disk: WatchedDisk,
) -> None:
    """A full log refuses, serves reads, accepts urgent records, is trimmed, and continues (checklist B1, line 4)."""
    wal, failures = new_wal_disk(disk)
    for _ in range(12):
        error = await fill(wal)
        assert f"[wal] bytes_max is {LIMIT}" in error.message
        left = wal.bytes_left
        assert left < 3000
        assert f"{wal._space.left_for(0)} bytes can still be written" in error.message
        assert wal.bytes_used > LIMIT * 0.85
        with pytest.raises(StorageFullError):
            wal.check_room(2000)
        wal.check_room(500, urgent=True)
        urgent: list[BaseException | None] = []
        wal.fill(wal.reserve(500, urgent=True), [make_batch(wal.end)], urgent.append)
        assert wal.read(Index(wal.end - 2), 1), "reads are still served"
        wal.trim(Index(wal.end - 15), urgent.append)
        await asyncio.sleep(0.1)
        assert urgent == [None, None]
        assert wal.bytes_left > 3 * SMALL.segment_bytes
    assert failures == []
    assert wal.end > 400
    assert disk.most <= LIMIT
    expected = contents(wal.read(wal.first_index, 1 << 30))
    disk.crash()
    assert bytes_on(disk) <= LIMIT
    assert open_wal(disk, BOUNDED, first_index=wal.first_index)[1] == expected


def test_trimmed_bytes_count_again_when_they_can_be_written_and_not_before(disk: WatchedDisk) -> None:
    """A dropped file still holds old bytes until it is overwritten with zeros."""
    wal, _ = open_wal(disk, BOUNDED)
    for batch in make_batches(1, 48, size=2000):
        wal.append_now([batch])
    wal._prepare_next = lambda: None  # type: ignore[method-assign]
    before = wal.bytes_left
    wal.trim(Index(49), lambda error: None)
    wal._work_now()
    dropped = len(names_of(disk, "dropped"))
    assert dropped > 4
    assert 0 <= before + SMALL.segment_bytes - wal.bytes_left < 2 * SMALL.segment_bytes
    del wal._prepare_next
    for _ in range(dropped):
        left = wal.bytes_left
        wal._prepare_next()
        assert wal.bytes_left == left + SMALL.segment_bytes
    assert names_of(disk, "dropped") == []


@simulated
async def test_truncating_and_resetting_a_full_log_keeps_within_the_bound(disk: WatchedDisk) -> None:
    wal, failures = new_wal_disk(disk)
    journal = Journal()
    for cut in (30, 5, 2):
        await fill(wal)
        journal.truncate(wal, cut)
        await journal.settle()
        assert wal.bytes_left > LIMIT // 3
    await fill(wal)
    journal.reset(wal, 1000, 1)
    await journal.settle()
    await asyncio.sleep(0.1)
    assert (wal.first_index, wal.end, wal.bytes_allocated) == (1000, 1000, LIMIT)
    await fill(wal)
    assert wal.bytes_used > LIMIT * 0.85
    assert failures == []
    assert disk.most <= LIMIT


@simulated
async def test_a_batch_larger_than_a_segment_takes_its_room_from_the_spares(disk: WatchedDisk) -> None:
    wal, failures = new_wal_disk(disk)
    await asyncio.sleep(0.1)
    await wal.append([make_batch(1)])
    await wal.append([make_batch(2, size=3 * SMALL.segment_bytes)])
    await wal.append([make_batch(3)])
    error = await fill(wal)
    assert "bytes_max" in error.message
    assert failures == []
    assert wal.bytes_used > LIMIT * 0.8
    assert disk.most <= LIMIT
    with pytest.raises(StorageFullError):
        wal.reserve(LIMIT)


@simulated
async def test_the_seal_of_a_segment_that_grew_has_its_room_too(disk: WatchedDisk) -> None:
    """Here 40 bytes are in no file and a seal takes 72, so the open segment grows instead, from the last spare."""
    limit = 4 * SMALL.segment_bytes
    wal, _ = open_wal(disk, replace(BOUNDED, bytes_max=limit, margin_bytes=0))
    failures: list[StorageError] = []
    wal.start(failures.append)
    await asyncio.sleep(0.1)
    large = make_batch(1, size=limit - SMALL.segment_bytes - 40 - 144 - 96 - 8 - len(b"1.1"))
    await wal.append([large])
    assert (wal.bytes_allocated, len(names_of(disk, "prepared"))) == (limit - 40, 1)
    await wal.append([make_batch(2, size=500)])
    assert failures == []
    assert wal.end == 3
    assert disk.most <= limit


@simulated
async def test_a_full_log_starts_again_within_the_bound(disk: WatchedDisk) -> None:
    wal, _ = new_wal_disk(disk)
    await fill(wal)
    end = wal.end
    for way in ("closed", "killed"):
        if way == "closed":
            await wal.close()
        disk.kill()
        wal, failures = started(disk)
        assert wal.end == end
        with pytest.raises(StorageFullError):
            wal.check_room(3000)
        await asyncio.sleep(0.1)
        assert failures == []
    wal.trim(Index(end), lambda error: None)
    await asyncio.sleep(0.1)
    await wal.append([make_batch(end)])
    assert disk.most <= LIMIT


@simulated
async def test_a_bound_that_was_lowered_gives_the_spares_up_and_refuses_until_enough_is_trimmed(
    disk: WatchedDisk,
) -> None:
    wal, _ = new_wal_disk(disk)
    for batch in make_batches(1, 20, size=2000):
        await wal.append([batch])
    await asyncio.sleep(0.1)
    await wal.close()
    disk.kill()
    wal, failures = started(disk, replace(BOUNDED, bytes_max=3 * SMALL.segment_bytes))
    assert names_of(disk, "prepared") == []
    with pytest.raises(StorageFullError):
        wal.check_room(6000)
    wal.trim(Index(21), lambda error: None)
    await asyncio.sleep(0.1)
    assert wal.bytes_allocated == bytes_on(disk) == 3 * SMALL.segment_bytes
    await wal.append([make_batch(21, size=6000)])
    assert failures == []


def test_a_bound_below_two_segments_is_refused(disk: WatchedDisk) -> None:
    with pytest.raises(ConfigError, match="two segments"):
        open_wal(disk, replace(SMALL, bytes_max=SMALL.segment_bytes))


@simulated
async def test_a_disk_that_is_full_bounds_the_log_before_its_own_bound_does(disk: WatchedDisk) -> None:
    disk.capacity_bytes = LIMIT // 2
    wal, failures = new_wal_disk(disk)
    error = await fill(wal)
    assert "the disk has" in error.message
    assert failures == []
    disk.capacity_bytes = 10 * LIMIT
    with pytest.raises(StorageFullError):
        wal.check_room(3000)
    await asyncio.sleep(0.1)
    error = await fill(wal)
    assert "bytes_max" in error.message
    assert failures == []
    assert disk.most <= LIMIT


class RefusingDisk(WatchedDisk):
    """Creates no files while it ``refuses``, although bytes are free: no inode is left, or a quota is used up."""

    refuses = False

    def open(self, path: str, *, create: bool = False) -> File:
        if create and self.refuses:
            raise StorageFullError(f"cannot open {path}: Disk quota exceeded", remedy="raise the quota")
        return super().open(path, create=create)


@simulated
@pytest.mark.parametrize("bytes_max", [0, LIMIT])
async def test_a_disk_that_creates_no_more_files_fills_the_log_and_the_error_has_its_reason(bytes_max: int) -> None:
    disk = RefusingDisk()
    wal, failures = started(disk, replace(SMALL, bytes_max=bytes_max))
    disk.refuses = True
    error = await fill(wal)
    assert "Disk quota exceeded" in error.message
    assert failures == []
    disk.refuses = False
    with pytest.raises(StorageFullError):
        wal.check_room(SMALL.segment_bytes)
    await asyncio.sleep(0.1)
    for _ in range(4):
        await wal.append([make_batch(wal.end, size=2000)])
    assert failures == []


@given(st.integers(0, 1 << 30))
@settings(max_examples=20, deadline=None)
def test_accepted_batches_are_written_whatever_their_sizes_and_order(seed: int) -> None:
    """The promise under the limit: an accepted reservation always finds room."""
    disk = WatchedDisk()
    entropy = random.Random(seed)
    refused = 0

    async def run() -> None:
        nonlocal refused
        wal, failures = new_wal_disk(disk)
        journal = Journal()
        for _ in range(100):
            size = entropy.choice((1, 30, 300, 3000, 9000, 20_000))
            batches = make_batches(wal.end, entropy.choice((1, 1, 3, 40)), size=size)
            try:
                journal.append(wal, batches)
            except StorageFullError:
                refused += 1
                journal.trim(wal, wal.end - entropy.randrange(40))
            if entropy.random() < 0.1:
                await journal.settle()
                ends = [batch.end for batch in wal.read(wal.first_index, 1 << 30)]
                journal.truncate(wal, entropy.choice(ends[-5:] or [wal.end]))
                await journal.settle()
            if entropy.random() < 0.3:
                await asyncio.sleep(entropy.choice((0, 0.001, 0.1)))
        await journal.settle()
        assert failures == []

    sim_loop.run(run())
    assert refused
    assert disk.most <= LIMIT


def test_the_directory_holds_nothing_else(disk: WatchedDisk) -> None:
    wal, _ = open_wal(disk, BOUNDED)
    wal.append_now([make_batch(1)])
    assert [name.rpartition(".")[2] for name in disk.list_directory(DIRECTORY)] == ["segment", "prepared"]
