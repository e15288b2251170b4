"""The writer thread may take the next segment before the event loop has processed the message that it was ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import SerialExecutor
from viewstamp.ids import Index, Position, Term
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, build_batch

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

OPTIONS = WalOptions(segment_bytes=64 * 1024, reserve_bytes=0)


class LateNews(RealDisk):
    """A disk that reports prepared segments only when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.news: list[Callable[[], None]] = []

    def executor(
        self,
        name: str,
        work: Callable[[list[ItemT]], ResultT],
        done: Callable[[list[ItemT], ResultT | BaseException], None],
    ) -> SerialExecutor[ItemT]:
        if name != "wal-prepare":
            return super().executor(name, work, done)
        return super().executor(name, work, lambda items, outcome: self.news.append(lambda: done(items, outcome)))

    async def prepared(self) -> Callable[[], None]:
        """Wait for the next report and return it."""
        async with asyncio.timeout(10):
            while not self.news:  # noqa: ASYNC110  # events of a thread have to be polled
                await asyncio.sleep(0.001)
        return self.news.pop()


def batch(index: int) -> Batch:
    made = build_batch([b"." * 10_000])
    made.stamp(
        term=Term(1),
        first_index=Index(index),
        previous_term=Term(1 if index > 1 else 0),
        log_time=index,
        first_position=Position(0),
    )
    return made


async def test_a_segment_that_was_taken_before_it_was_announced_is_not_counted_as_ready(tmp_path: Path) -> None:
    """If it were counted twice, the log would assume free space that does not exist, and prepare no further segment."""
    disk = LateNews()
    wal = await asyncio.to_thread(Wal.open, disk, str(tmp_path), OPTIONS, on_batch=lambda batch, commit_end: None)
    wal.start(lambda error: pytest.fail(str(error)))
    index = 1
    for segments in range(2, 6):
        tell = await disk.prepared()
        while len(wal.segments()) < segments:
            await wal.append([batch(index)])
            index += 1
        tell()
    assert len(wal.segments()) == 5
    (await disk.prepared())()
    await wal.close()
