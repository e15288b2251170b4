"""The interval mode: its name in receipts, its guarantees, its possible losses, and its behaviour on a slow disk."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.actor_group import ActorGroup, actor_processes
from tests.integration.ledger import Ledger
from tests.integration.test_actors import Account, check_members
from tests.node.group import not_on_the_loop
from tests.node.hooked_disk import HookedDisk
from tests.processes import eventually
from viewstamp.host.disk import RealDisk
from viewstamp.sim.recording import Playback, Recording
from viewstamp.wal.budget import WalOptions

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
NAME = "interval_may_lose_acknowledged_writes"
SECONDS = 0.15
SYNC = WalOptions(segment_bytes=1 << 20, reserve_bytes=0)
INTERVAL = WalOptions(segment_bytes=1 << 20, reserve_bytes=0, sync_seconds=SECONDS)

pytestmark = pytest.mark.slow


async def test_kills_lose_nothing_and_receipts_and_status_name_the_mode(tmp_path: Path) -> None:
    """The writes are in the page cache, which outlives every process."""
    entropy = random.Random(1)
    account = Account()
    settings = {"wal.durability": NAME, "wal.sync_interval_ms": "1000"}
    async with actor_processes(tmp_path, settings=settings) as cluster:
        async with cluster.connect() as client:
            await client.create_topic("news")
            assert (await client.append("news", b"x")).durability == NAME
            assert [node["durability"] for node in await client.status()] == [NAME] * 3
        for number in range(10 if SOAK else 2):
            async with cluster.connect() as client:
                account.is_over = False
                names = [f"{number}-{caller}" for caller in range(16)]
                calling = [asyncio.create_task(account.call(client, name, bytes(500))) for name in names]
                await eventually(partial(account.has, len(account.results) + 60))
                await asyncio.sleep(entropy.uniform(0, 0.3))
                await cluster.kill(*cluster.names)
                await client.close()
                account.is_over = True
                await asyncio.gather(*calling)
            await cluster.run()
            async with cluster.connect() as client:
                await account.resolve(client)
                await account.check(client)
                await check_members(client)
    assert sum(account.acknowledged.values()) > 100


class Told(NamedTuple):
    """A caller that asked at ``asked`` received ``total``, the number of entered commands, at ``at``."""

    total: int
    asked: float
    at: float


async def test_a_power_cut_takes_no_more_than_was_acknowledged_within_one_interval(tmp_path: Path) -> None:
    """The cut must lose something, because otherwise the log would not be in interval mode."""
    live = tmp_path / "live"
    live.mkdir()
    recording = Recording(str(live))
    disk = recording.disk(RealDisk())
    syncs = Syncs()
    async with ActorGroup(live, 1, disks=lambda _: HookedDisk(disk, syncs.hook), wal=INTERVAL) as group:
        await group.run()
        ledger = group.client().actor("ledger", Ledger)
        began = len(recording)
        until = time.monotonic() + 6 * SECONDS
        number = 0
        while time.monotonic() < until or len(recording) < began + 200:
            number += 1
            asked = time.monotonic()
            recording.mark(Told(await ledger.enter("only", number), asked, time.monotonic()))
        ended = len(recording)
    entropy = random.Random(1)
    replay = Playback(recording)
    most = 0
    for cut in sorted(entropy.sample(range(began + 50, ended), 100 if SOAK else 12)):
        replay.advance(cut)
        told = [mark for mark in recording.marks(cut) if isinstance(mark, Told)]
        # A sync takes time, so the unsynced commands may be older by its duration. The node acknowledged the last
        # command after the caller asked, and on a busy machine long before the caller received the answer.
        safe = [mark.total for mark in told if mark.at < told[-1].asked - SECONDS - syncs.longest]
        root = tmp_path / f"cut-{cut}"
        replay.write(entropy, str(root))
        async with ActorGroup(root, 1, wal=INTERVAL) as group:
            await group.run()
            total, _, wrong = await group.client().actor("ledger", Ledger).state()
        assert wrong == []
        assert total >= max(safe, default=0), f"cut at {cut}: lost commands older than an interval"
        most = max(most, told[-1].total - total)
    assert most > 0


class Syncs:
    """Counts and times the syncs of a log, and can slow them down."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.began: list[float] = []
        self.ended: list[float] = []
        self._disk = RealDisk()

    def use(self, disk: RealDisk) -> None:
        """Use another disk than the default one."""
        self._disk = disk

    is_under_way = False
    """Whether a slowed sync waits at present."""

    @property
    def longest(self) -> float:
        """The duration of the longest sync, measured to the next call of the disk."""
        return max((end - begin for begin, end in zip(self.began, self.ended, strict=False)), default=0.0)

    def hook(self, call: str, path: str, caller: str) -> bool:
        now = time.monotonic()
        if path.endswith(".segment"):
            if len(self.ended) < len(self.began):
                self.ended.append(now)
            if call == "sync_data":
                self.began.append(now)
                self.is_under_way = self.seconds > 0
                time.sleep(self.seconds)
                self.is_under_way = False
        return not_on_the_loop(call, path, caller)

    def disk(self, _: object) -> HookedDisk:
        return HookedDisk(self._disk, self.hook)


async def test_a_slow_disk_pushes_back(tmp_path: Path) -> None:
    """No call completes while a sync is overdue, so the possible loss does not grow with the slowness of the disk."""
    syncs = Syncs()
    async with ActorGroup(tmp_path, 1, disks=syncs.disk, wal=INTERVAL) as group:
        await group.run()
        ledger = group.client().actor("ledger", Ledger)
        await ledger.enter("only", 1)
        syncs.seconds = 3 * SECONDS
        told: list[float] = []
        until = time.monotonic() + 12 * SECONDS
        while time.monotonic() < until or len(told) <= 10:
            await ledger.enter("only", len(told) + 2)
            told.append(time.monotonic())
        syncs.seconds = 0.0
        gaps = [after - before for before, after in pairwise(told)]
        assert max(gaps) > 2 * SECONDS, "callers do not notice"
        total, _, wrong = await ledger.state()
        assert (total, wrong) == (len(told) + 1, [])


async def test_by_default_voters_sync_before_they_acknowledge(tmp_path: Path) -> None:
    """Check the default mode.

    Kudu's log does not sync by default. Here the mode without a sync for each append must be chosen by name (checklist
    B2, line 16).
    """
    assert WalOptions().sync_seconds == 0.0
    seldom = replace(INTERVAL, sync_seconds=60.0)
    for wal, name, least, most in ((SYNC, "majority, synced", 50, 10_000), (seldom, NAME, 0, 2)):
        syncs = Syncs()
        directory = tmp_path / name
        directory.mkdir()
        async with ActorGroup(directory, 1, disks=syncs.disk, wal=wal) as group:
            await group.run()
            client = group.client()
            ledger = client.actor("ledger", Ledger)
            await ledger.enter("only", 1)
            before = len(syncs.began)
            for number in range(50):
                await ledger.enter("only", number + 2)
            assert least <= len(syncs.began) - before <= most
            await client.create_topic("news")
            assert (await client.append("news", b"x")).durability == name
            assert group.nodes[next(iter(group.nodes))].status["durability"] == name


@pytest.mark.parametrize("threads", [1, 3], ids=["a thread", "a pool of threads"])
async def test_a_slow_sync_stalls_neither_the_loop_nor_the_order(tmp_path: Path, threads: int) -> None:
    """Checklist B1, line 5: the loop continues during the sync, and the appends complete in their order."""
    syncs = Syncs()
    syncs.use(RealDisk(executor_threads=threads))
    async with ActorGroup(tmp_path, 1, disks=syncs.disk, wal=SYNC) as group:
        await group.run()
        ledger = group.client().actor("ledger", Ledger)
        await ledger.enter("only", 1)
        syncs.seconds = 0.3
        told: list[int] = []
        begun = len(syncs.began)

        async def call(caller: str) -> None:
            for number in range(1, 4):
                told.append(await ledger.enter(caller, number))

        calling = asyncio.gather(*(call(str(caller)) for caller in range(50)))
        turns = 0
        while not calling.done():
            await asyncio.sleep(0.005)
            turns += syncs.is_under_way
        await calling
        assert told == list(range(2, 152))
        assert turns >= len(syncs.began) - begun, "the loop waited for the disk"
        syncs.seconds = 0.0
