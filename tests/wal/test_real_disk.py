"""The log on the file system of this machine: threads, real syncs, real blocks."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

import pytest

from tests.wal.logs import make_batch
from viewstamp.errors import StorageError, StorageFullError, TrimmedError
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import REMOVED_REMEDY
from viewstamp.ids import Index
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import verify


def size_of(disk: RealDisk, path: str) -> int:
    file = disk.open_read(path)
    size = file.size()
    file.close()
    return size


async def test_a_log_lives_on_a_real_disk_with_real_threads(tmp_path: Path) -> None:
    """Covers order, group commit, rolling, truncation, a clean stop and recovery, as a node uses them."""
    disk = RealDisk()
    options = WalOptions(segment_bytes=64 * 1024)
    directory = str(tmp_path / "wal")
    wal = Wal.open(disk, directory, options, on_batch=lambda *_: None)
    failures: list[StorageError] = []
    wal.start(failures.append)
    completed: list[int] = []

    async def append(number: int) -> None:
        await wal.append([make_batch(number, size=500)])
        completed.append(number)

    await asyncio.gather(*(append(number) for number in range(1, 1001)))
    assert completed == list(range(1, 1001))
    assert wal.groups < 200
    cut: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    wal.truncate(Index(401), cut.set_result)
    await append(401)
    assert await cut is None
    for start in range(1, 402, 50):
        assert wal.read(Index(start), 1)[0].first_index == start
    await wal.close()
    assert failures == []
    segments = wal.segments()
    assert len(segments) > 1
    assert [size_of(disk, segment.path) for segment in segments] == [segment.length for segment in segments]
    assert verify(disk, directory).as_dict() | {"damage": []} == {
        "path": directory, "verdict": "clean", "segments": len(segments), "batches": 401, "records": 401,
        "first_index": 1, "last_index": 401, "torn_bytes": 0, "damage": [],
    }  # fmt: skip
    found: list[int] = []
    again = Wal.open(disk, directory, options, on_batch=lambda batch, committed: found.append(batch.first_index))
    assert found == list(range(1, 402))
    blocks = await asyncio.to_thread(os.stat, again.segments()[-1].path)
    assert blocks.st_blocks * 512 >= options.segment_bytes, "the zeros were written, so the blocks are allocated"
    await again.close()


async def test_reads_on_other_threads_go_on_while_the_log_is_written_and_cut(tmp_path: Path) -> None:
    """A read sees a prefix of the log at some moment.

    Consecutive batches, each of a term that was there at some time.
    """
    disk = RealDisk()
    wal = Wal.open(
        disk, str(tmp_path / "wal"), WalOptions(segment_bytes=32 * 1024), on_batch=lambda batch, committed: None
    )
    failures: list[StorageError] = []
    wal.start(failures.append)
    await wal.append([make_batch(1)])
    stop = False
    reads = 0

    def read() -> None:
        nonlocal reads
        while not stop:
            batches = wal.read(Index(1), 1 << 20)
            assert [batch.first_index for batch in batches] == list(range(1, len(batches) + 1))
            assert [batch.term for batch in batches] == sorted(batch.term for batch in batches)
            reads += 1

    reading = asyncio.gather(asyncio.to_thread(read), asyncio.to_thread(read))
    end = 2
    for term in range(1, 30):
        await asyncio.gather(*(wal.append([make_batch(end + i, term=term, size=700)]) for i in range(20)))
        end = max(2, end + 20 - term * 7 % 31)
        cut: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        wal.truncate(Index(end), cut.set_result)
        assert await cut is None
    stop = True
    await reading
    await wal.close()
    assert reads > 1
    assert failures == []
    assert verify(disk, str(tmp_path / "wal")).last_index == end - 1


@pytest.mark.slow
async def test_a_bounded_log_is_filled_and_trimmed_many_times_beside_readers(tmp_path: Path) -> None:
    """Writer, preparing thread, readers and event loop share the spares and the budget, and never exceed it."""
    disk = RealDisk()
    directory = tmp_path / "wal"
    options = WalOptions(segment_bytes=64 * 1024, bytes_max=512 * 1024, margin_bytes=4096, reserve_bytes=0)
    wal = Wal.open(disk, str(directory), options, on_batch=lambda *_: None)
    failures: list[StorageError] = []
    wal.start(failures.append)
    stop = False
    most = reads = trimmed = refused = 0

    def watch() -> None:
        nonlocal most
        while not stop:
            sizes = {}
            for path in directory.iterdir():
                with suppress(FileNotFoundError):
                    found = path.stat()
                    sizes[found.st_ino] = found.st_size
            most = max(most, sum(sizes.values()))
            time.sleep(0.001)

    def read() -> None:
        nonlocal reads, trimmed
        while not stop:
            start = wal.first_index
            try:
                batches = wal.read(start, 1 << 20)
            except TrimmedError:
                trimmed += 1
                continue
            assert [batch.first_index for batch in batches] == list(range(start, start + len(batches)))
            reads += 1

    beside = asyncio.gather(asyncio.to_thread(watch), asyncio.to_thread(read))
    while wal.end < 2000:
        batches = [make_batch(wal.end + i, size=1500) for i in range(20)]
        try:
            await asyncio.gather(*(wal.append([batch]) for batch in batches))
        except StorageFullError:
            refused += 1
            done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
            wal.trim(Index(wal.end - 100), done.set_result)
            assert await done is None
    stop = True
    await beside
    end = wal.end
    await wal.close()
    assert failures == []
    assert refused > 3
    assert reads > 10
    assert most <= options.bytes_max
    found = verify(disk, str(directory))
    assert (found.verdict, found.last_index) == ("clean", end - 1)


async def test_a_directory_that_is_removed_under_the_log_is_named(tmp_path: Path) -> None:
    """The log fails with a remedy for the operator, not with the advice to report a defect."""
    directory = tmp_path / "wal"
    wal = Wal.open(RealDisk(), str(directory), WalOptions(segment_bytes=64 * 1024), on_batch=lambda *_: None)
    failures: list[StorageError] = []
    wal.start(failures.append)
    await wal.append([make_batch(1)])
    rmtree(directory)
    for number in range(2, 400):
        with suppress(StorageError):
            await wal.append([make_batch(number, size=500)])
    assert str(directory) in failures[0].message
    assert failures[0].remedy == REMOVED_REMEDY
    with suppress(StorageError):
        await wal.close()
