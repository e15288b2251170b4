"""When a log stores its commit hint.

Idle, busy, in a new segment, at a stop; the hint is never above the synced end.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.wal.logs import SMALL, make_batch, open_wal, simulated, swallow
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.log import Wal
from viewstamp.wal.upkeep import HINT_SECONDS, Upkeep


def started(disk: SimulatedDisk, options: WalOptions = SMALL) -> tuple[Wal, list[int]]:
    """Open a log that gets a commit index after each append; return it with its stored hints."""
    stored: list[int] = []
    wal, _ = open_wal(disk, options)
    wal.start(swallow, store_hint=stored.append)
    return wal, stored


@simulated
async def test_a_log_that_becomes_idle_has_its_hint_stored_once(disk: SimulatedDisk) -> None:
    wal, stored = started(disk)
    await wal.append([make_batch(1, 3)])
    wal.commit_hint = 3
    await asyncio.sleep(3 * SMALL.idle_seconds)
    assert stored == [3]
    wal.commit_hint = 4  # A follower gets this commit index with a heartbeat, while nothing is written.
    await asyncio.sleep(3 * SMALL.idle_seconds)
    assert stored == [3, 4]
    await asyncio.sleep(10.0)
    assert stored == [3, 4]
    await wal.close()


@simulated
async def test_a_log_that_is_settled_is_left_alone() -> None:
    """A timer that goes on for ever wakes two threads of an idle node four times a second."""
    closed: list[bool] = []
    settled = False
    upkeep = Upkeep(
        0.25,
        groups=lambda: len(closed),
        is_busy=lambda: False,
        is_settled=lambda: settled,
        close_group=lambda: closed.append(True),
        store_hint=lambda: None,
    )
    upkeep.watch()
    await asyncio.sleep(1.0)
    assert closed == [True]
    settled = True
    upkeep.watch()  # The report of the group that was closed.
    await asyncio.sleep(10.0)
    assert closed == [True]
    settled = False
    upkeep.watch()
    await asyncio.sleep(1.0)
    assert closed == [True, True]


@simulated
async def test_a_log_that_is_never_idle_has_its_hint_stored_every_few_seconds(disk: SimulatedDisk) -> None:
    wal, stored = started(disk, replace(SMALL, segment_bytes=1 << 20))
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while loop.time() - begin < 10 * HINT_SECONDS:
        await wal.append([make_batch(wal.end)])
        wal.commit_hint = wal.durable_end
        await asyncio.sleep(SMALL.idle_seconds / 10)
    assert 8 <= len(stored) <= 14
    await wal.close()
    assert stored[-1] == wal.end


@simulated
async def test_a_new_segment_and_a_clean_stop_store_it(disk: SimulatedDisk) -> None:
    wal, stored = started(disk, replace(SMALL, idle_seconds=1000.0))
    await asyncio.sleep(0.1)
    for _ in range(4):
        await wal.append([make_batch(wal.end, size=5000)])
        wal.commit_hint = wal.durable_end
    await asyncio.sleep(0.1)
    assert stored == [5], "the fourth batch is in the second segment"
    await wal.append([make_batch(5)])
    wal.commit_hint = 6
    await asyncio.sleep(0.1)
    assert stored == [5]
    await wal.close()
    assert stored == [5, 6]


@simulated
async def test_the_stored_hint_is_at_most_the_synced_end(disk: SimulatedDisk) -> None:
    """A leader may commit records not on its own disk, and in the interval mode complete appends may be unsynced."""
    wal, stored = started(disk, replace(SMALL, segment_bytes=1 << 20, sync_seconds=1000.0))
    wal.commit_hint = 100
    await wal.append([make_batch(1, 3)])
    await wal.append([make_batch(4)])
    path = wal.segments()[-1].path
    await asyncio.sleep(3 * SMALL.idle_seconds)
    assert stored == [5]
    assert disk.volume.find(path).is_synced, "storing the hint syncs the segment first"
    await wal.close()


def test_a_commit_hint_above_the_log_is_cut_to_the_durable_end(disk: SimulatedDisk) -> None:
    wal, _ = open_wal(disk)
    wal.append_now([make_batch(1, 3)])
    wal.commit_hint = 100
    assert wal.durable_commit_end == 4
    wal.commit_hint = 2
    assert wal.durable_commit_end == 2
