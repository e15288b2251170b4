"""Reading a topic from its first record to its last, by one reader and by 16 at once: megabytes a second.

400,000 records of 256 B. From cache: the files are in the page cache of the system. From disk: each turn begins with
the pages of all files dropped. Readers take whole batches and do not decode them (``Client.read_batches``); ``records``
are decoded into a Python object each, as ``Client.read`` yields them. Kafka's reader fetches a megabyte at a time and
does not decode the batches either.

Expected: a node copies batches from the file to the socket without decoding records, some hundred MB a second. 16
readers in one process are limited by its one core. Decoding a record takes a microsecond or more, so that reading
records cannot reach 256 MB/s.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.rows.appends import VALUE
from benchmarks.rows.pipeline import TOPIC, fill
from benchmarks.rows.row import Options, Row, RowResult
from benchmarks.rows.turns import Contender, Side, Turn, alternate, side_of

__all__ = ["ROW", "drop_pages"]

_RECORDS = 400_000
_IN_FLIGHT = 4096
_READERS = (1, 16)

Read = Callable[[], Awaitable[int]]
"""Reads the topic once; returns the bytes of its values."""


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    await alternate([_ours(options, directory, result), _kafka(options, directory, result)], options, result, "MB/s")
    return result


def _ours(options: Options, directory: Path, result: RowResult) -> Side:
    peer = Ours()

    async def contenders(stack: AsyncExitStack) -> list[Contender]:
        await fill(peer, VALUE, _RECORDS, _IN_FLIGHT)
        clients = [await stack.enter_async_context(peer.cluster.target.connect()) for _ in range(max(_READERS))]

        async def batches(number: int) -> int:
            records = 0
            async for batch in clients[number].read_batches(TOPIC, 1):
                records += batch.count
            return records * len(VALUE)

        async def records() -> int:
            return sum([len(record.value) async for record in clients[0].read(TOPIC, 1)])

        found = [*_kinds(peer, batches, directory)]
        found.append(_contender(peer, "1 reader, records, from cache", [records], None))
        return found

    return side_of(peer, directory, options, result, contenders)


def _kafka(options: Options, directory: Path, result: RowResult) -> Side:
    peer = Kafka()

    async def contenders(stack: AsyncExitStack) -> list[Contender]:
        await fill(peer, VALUE, _RECORDS, _IN_FLIGHT)

        async def read(_: int) -> int:
            return await peer.read_all(_RECORDS) * len(VALUE)

        return [*_kinds(peer, read, directory)]

    return side_of(peer, directory, options, result, contenders, rounds=1)


def _kinds(peer: Peer, read: Callable[[int], Awaitable[int]], directory: Path) -> list[Contender]:
    def reader(number: int) -> Read:
        return lambda: read(number)

    return [
        _contender(peer, f"{count} reader{'s' * (count > 1)}, from {place}", [reader(n) for n in range(count)], files)
        for count in _READERS
        for place, files in (("cache", None), ("disk", directory))
    ]


def _contender(peer: Peer, kind: str, readers: Sequence[Read], files: Path | None) -> Contender:
    async def work(seconds: float) -> Turn:
        if files is not None:
            await asyncio.to_thread(drop_pages, files)
        servers, cpu, began = peer.cpu_used(), time.process_time(), time.perf_counter()
        size = sum(await asyncio.gather(*(read() for read in readers)))
        lasted, cpu, servers = time.perf_counter() - began, time.process_time() - cpu, peer.cpu_used() - servers
        records = size / len(VALUE)
        return Turn(value=size / 1e6 / lasted, client_cores=cpu / lasted, cpu_us=(cpu + servers) / records * 1e6)

    return Contender(name=f"{peer.name}, {kind}", peer=peer, work=work)


def drop_pages(directory: Path) -> None:
    """Sync all files below a directory, and drop their pages from the system's cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


ROW = Row(
    name="scan",
    title="reading a topic of 400,000 records of 256 B",
    unit="MB/s",
    goals=[],
    measure=_measure,
    compares="bytes of values a second of all readers together, in one process; whole batches unless records are named",
)
