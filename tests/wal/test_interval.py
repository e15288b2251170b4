"""The interval mode: an append completes when it is written, and one sync covers all groups of an interval."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from tests.wal.logs import (
    DIRECTORY,
    SMALL,
    contents,
    make_batch,
    make_batches,
    new_disk,
    open_wal,
    simulated,
    swallow,
)
from viewstamp.errors import CorruptionError, StorageError
from viewstamp.ids import Index, Term
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import inspect
from viewstamp.wal.writer import AppendItem
from viewstamp.wire.batch import Kind

SECONDS = 0.1
INTERVAL = replace(SMALL, segment_bytes=1 << 20, sync_seconds=SECONDS, idle_seconds=10.0)


class CountingDisk(SimulatedDisk):
    """Records the times of its syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.make_directory("/data")
        self.synced_at: list[float] = []

    def note(self, operation: str, text: str, glyph: str = "=") -> None:
        super().note(operation, text, glyph)
        if operation in ("sync", "sync_data") and text.endswith(".segment"):
            self.synced_at.append(asyncio.get_running_loop().time())


def started(disk: SimulatedDisk, options: WalOptions = INTERVAL) -> Wal:
    wal, _ = open_wal(disk, options)
    wal.start(swallow)
    return wal


def durable_of(disk: SimulatedDisk) -> list[tuple[int, int]]:
    """Return each group's location and its ``durable`` field."""
    return [
        (entry.location, int(str(entry.fields["durable"])))
        for entry in inspect(disk, DIRECTORY)
        if entry.kind == "group"
    ]


@simulated
async def test_an_append_completes_before_it_is_synced_and_is_synced_within_the_interval() -> None:
    disk = CountingDisk()
    wal = started(disk)
    loop = asyncio.get_running_loop()
    await asyncio.sleep(1)
    disk.synced_at.clear()
    begin = loop.time()
    await wal.append([make_batch(1)])
    assert disk.synced_at == []
    assert (wal.durable_end, contents(wal.read(Index(1), 1))) == (2, contents([make_batch(1)]))
    await asyncio.sleep(5)
    [synced_at] = disk.synced_at
    assert SECONDS <= synced_at - begin < SECONDS + 0.02


@simulated
async def test_one_sync_covers_all_groups_of_an_interval() -> None:
    disk = CountingDisk()
    wal = started(disk)
    await asyncio.sleep(1)
    disk.synced_at.clear()
    begin = asyncio.get_running_loop().time()
    for i in range(500):
        await wal.append([make_batch(i + 1)])
    seconds = asyncio.get_running_loop().time() - begin
    assert wal.groups >= 500
    assert seconds / SECONDS - 2 < len(disk.synced_at) <= seconds / SECONDS + 2


@simulated
async def test_the_durable_field_of_a_group_stays_true(disk: SimulatedDisk) -> None:
    """The field holds the durable length of the segment at the write, which is equal between two syncs."""
    wal = started(disk)
    for i in range(3):
        await wal.append([make_batch(i + 1)])
    await asyncio.sleep(1)
    for i in range(3, 6):
        await wal.append([make_batch(i + 1)])
    located = durable_of(disk)
    assert [durable for _, durable in located[:3]] == [0, 0, 0]
    assert [durable for _, durable in located[3:]] == [located[3][0]] * 3


@simulated
async def test_the_commit_hint_on_disk_is_at_most_the_durable_end(disk: SimulatedDisk) -> None:
    wal = started(disk)
    await wal.append([make_batch(1)])
    await asyncio.sleep(1)
    await wal.append([make_batch(2)])
    wal.commit_hint = 3
    await wal.append([make_batch(3)])
    hints = [entry.fields["commit_hint"] for entry in inspect(disk, DIRECTORY) if entry.kind == "group"]
    assert hints == [0, 0, 2]


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_takes_a_tail_of_the_last_interval_and_is_no_damage(seed: int) -> None:
    """A power cut loses any subset of the pages of several groups; the log then ends before the first torn group."""
    disk = new_disk()
    entropy = random.Random(seed)
    batches = [make_batch(i + 1, size=entropy.choice((10, 500, 3000, 9000))) for i in range(30)]
    synced = 0

    @simulated
    async def live() -> None:
        nonlocal synced
        wal = started(disk)
        for batch in batches[:12]:
            await wal.append([batch])
        await asyncio.sleep(1)
        synced = 12
        begin = asyncio.get_running_loop().time()
        for batch in batches[12:]:
            await wal.append([batch])
        assert asyncio.get_running_loop().time() - begin < SECONDS, "none of these batches is synced"

    live()
    disk.crash(entropy)
    wal, found = open_wal(disk)
    assert found == contents(batches[: len(found)])
    assert len(found) >= synced
    wal.append_now([make_batch(len(found) + 1)])
    disk.crash(entropy)
    assert len(open_wal(disk)[1]) == len(found) + 1


@simulated
async def test_rot_below_a_later_groups_durable_field_is_damage_in_interval_mode_too(disk: SimulatedDisk) -> None:
    wal = started(disk)
    for i in range(3):
        await wal.append([make_batch(i + 1)])
    await asyncio.sleep(1)
    await wal.append([make_batch(4)])
    disk.kill()
    at = [entry.location for entry in inspect(disk, DIRECTORY) if entry.kind == "batch"]
    disk.flip(wal.segments()[0].path, at[1] + 100)
    with pytest.raises(CorruptionError, match="a later group calls this place durable"):
        open_wal(disk)


@simulated
async def test_batches_in_the_page_cache_only_are_rewritten_at_the_next_start(disk: SimulatedDisk) -> None:
    """The whole interval, not only its last group, is unsynced after a kill."""
    wal = started(disk)
    batches = make_batches(1, 20, size=2000)
    for batch in batches:
        await wal.append([batch])
    disk.kill()
    assert open_wal(disk)[1] == contents(batches)
    disk.crash()
    assert open_wal(disk)[1] == contents(batches)


@simulated
async def test_after_a_failed_sync_all_groups_of_the_interval_are_written_again_and_not_only_the_last(
    disk: SimulatedDisk,
) -> None:
    """The kernel has marked the pages clean, so another sync alone would not write any of them."""
    wal = started(disk)
    batches = make_batches(1, 20, size=2000)
    for batch in batches:
        await wal.append([batch])
    disk.fail("sync")
    await asyncio.sleep(1)
    disk.kill()
    assert open_wal(disk)[1] == contents(batches)
    disk.crash()
    assert open_wal(disk)[1] == contents(batches)


@pytest.mark.parametrize("kind", ["job", "truncation", "trim", "reset", "close", "roll", "idle"])
@simulated
async def test_every_item_other_than_an_append_syncs_first(disk: SimulatedDisk, kind: str) -> None:
    options = replace(INTERVAL, segment_bytes=16 * 1024, idle_seconds=0.05 if kind == "idle" else 10.0)
    wal = started(disk, options)
    await asyncio.sleep(0.01)
    await wal.append(make_batches(1, 4, size=1000))
    inode = disk.volume.find(wal.segments()[0].path)
    assert not inode.is_synced
    was_synced: list[bool] = []
    done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    match kind:
        case "job":
            wal.run(lambda: was_synced.append(inode.is_synced), done.set_result)
        case "truncation":
            wal.truncate(Index(3), done.set_result)
        case "trim":
            wal.trim(Index(1), done.set_result)
        case "reset":
            wal.reset(Index(90), Term(1), done.set_result)
        case "close":
            await wal.close()
            done.set_result(None)
        case "roll":
            await wal.append([make_batch(5, size=14_000)])
            assert len(wal.segments()) == 2
            done.set_result(None)
        case "idle":
            await asyncio.sleep(0.09)
            done.set_result(None)
    assert await done is None
    assert inode.is_synced
    assert was_synced in ([], [True])


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.RECORDS, Kind.STAGED, Kind.COMMANDS}))
@simulated
async def test_a_batch_that_gives_out_a_name_is_complete_when_it_is_durable(disk: SimulatedDisk, kind: Kind) -> None:
    """Sessions and topics are numbered. After a power cut an acknowledged number would be given to another client."""
    wal = started(disk)
    await asyncio.sleep(0.01)
    names = make_batch(2, kind=kind)
    await wal.append([make_batch(1), names, make_batch(3)])
    await wal.append([make_batch(4)])
    disk.crash()
    assert open_wal(disk)[1] == contents([make_batch(1), names, make_batch(3)])


def test_a_sync_that_is_due_is_done_before_more_is_written(disk: SimulatedDisk) -> None:
    """On a slow disk the writer waits here, so the queue grows to its bound and appends are refused."""
    wal, _ = open_wal(disk, replace(INTERVAL, segment_bytes=64 << 20))
    clock = iter([0.0, SECONDS / 2, SECONDS, SECONDS * 5, SECONDS * 5.5])
    wal._writer.now = lambda: next(clock)
    items = [AppendItem([make_batch(i + 1, size=5 << 20)], 0, swallow) for i in range(5)]
    calls = disk.calls
    outcome = wal._writer.work(list(items))
    assert (outcome.succeeded, outcome.error, outcome.groups) == (5, None, 5)
    assert disk.calls - calls == 5 + 1, "five writes, and one sync that was due"
    assert outcome.unsynced_since == SECONDS * 5


@simulated
async def test_a_sync_that_fails_after_an_append_was_complete_stops_the_log(disk: SimulatedDisk) -> None:
    failures: list[StorageError] = []
    wal, _ = open_wal(disk, INTERVAL)
    wal.start(failures.append)
    await asyncio.sleep(0.1)
    disk.fail("sync")
    await wal.append([make_batch(1)])
    await asyncio.sleep(1)
    assert len(failures) == 1
    with pytest.raises(StorageError):
        wal.reserve(1)


@simulated
async def test_an_unfilled_reservation_does_not_delay_the_sync_of_earlier_batches() -> None:
    disk = CountingDisk()
    wal = started(disk)
    await asyncio.sleep(1)
    await wal.append([make_batch(1)])
    disk.synced_at.clear()
    wal.reserve(100)
    await asyncio.sleep(1)
    assert len(disk.synced_at) == 1


def test_a_log_that_was_not_started_syncs_every_group(disk: SimulatedDisk) -> None:
    wal, _ = open_wal(disk, INTERVAL)
    wal.append_now([make_batch(1)])
    disk.crash()
    assert len(open_wal(disk)[1]) == 1
