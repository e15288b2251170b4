"""A log with a bound: never larger than it says, nothing lost, nothing held back for long, and soon up again.

Real disks, whose files are looked at by their own sizes and blocks.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import viewstamp as vs
from tests.integration.actor_group import ActorGroup, Callers, bytes_in
from tests.integration.ledger import Ledger
from tests.node.group import PATIENCE_SECONDS, Group, not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.client import Client
from viewstamp.errors import OutcomeUnknownError, StorageFullError, TrimmedError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId
from viewstamp.node.snapshots import SnapshotOptions
from viewstamp.wal.wal import Options as WalOptions

KIB, MIB = 1024, 1024 * 1024
TIGHT = WalOptions(segment_bytes=64 * KIB, bytes_max=MIB, reserve_bytes=0, margin_bytes=8 * KIB)
"""Sixteen small segments: full after a moment."""
OFTEN = SnapshotOptions(log_bytes=128 * KIB)

ResultT = TypeVar("ResultT")

pytestmark = pytest.mark.slow


class Sampler:
    """Looks all the time at how large some directories are, from a thread of its own."""

    def __init__(self, *directories: Path) -> None:
        self.largest = 0
        self.most_blocks = 0
        self.count = 0
        self._directories = directories
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.002):
            for directory in self._directories:
                size, blocks = bytes_in(directory)
                self.largest = max(self.largest, size)
                self.most_blocks = max(self.most_blocks, blocks)
                self.count += 1


async def test_commands_never_go_over_the_bound_and_none_is_lost_and_a_restart_is_quick(tmp_path: Path) -> None:
    """Three times as much as the log may hold, on three members whose files are measured all the while."""
    wal = WalOptions(segment_bytes=MIB, bytes_max=16 * MIB, reserve_bytes=0)
    snapshots = SnapshotOptions(log_bytes=4 * MIB, restart_seconds_max=5.0)
    async with ActorGroup(tmp_path, wal=wal, snapshots=snapshots) as group:
        await group.run()
        callers = Callers(group.client(), [str(number) for number in range(1000)], padding=bytes(450))
        with Sampler(*(tmp_path / name / "wal" for name in group.members)) as sampler:
            await callers.send(100)
            await group.caught_up()
        await callers.check()
        assert len(set(group.digests().values())) == 1
        for node in group.nodes.values():
            assert node.wal is not None
            assert node.wal.end > 100_000
            assert node.wal.first_index > 60_000, "little was dropped: the bound was not felt"
        assert sampler.count > 100
        assert sampler.largest <= 16 * MIB
        assert sampler.most_blocks <= 16 * MIB + 64 * KIB, "the file system's own blocks are all that may come on top"
        await group.stop(*group.nodes)
        for name in group.members:
            started = time.monotonic()
            await group.start(name)
            assert time.monotonic() - started < 5.0
        await group.caught_up()
        await callers.send(1)
        await callers.check(group.client())
