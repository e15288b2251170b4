"""The log alone: how many records of 256 B a second does one process make durable, beside RocksDB and a plain file?

There are two loads. One caller commits 100 records at a time; or 256 callers, tasks of one event loop, each commit one
record and then the next. Nothing is replicated. RocksDB and the plain file are called in the way that is fastest for
them: the one caller calls them without an event loop. For the 256 callers, one thread joins all waiting records into
one write and one sync, like our log. (256 threads that each call RocksDB, which joins their writes, commit some 5,000
records a second.)

Expected: a commit of 100 is a sync, 0.15 to 0.25 ms, and some 50 us of Python: building the batch, its checksum, its
headers, and the switch to the writer thread and back, which the others do not need. The sync of RocksDB takes one and a
half times as long, because its file grows, and it does 100 puts. The plain file is filled with zeros and has no
checksum, no headers and no recovery, so it is an upper limit for a log. With 256 callers the loop decides: a task that
waits for a future costs 5 us, so all three have similar figures.
"""

from __future__ import annotations

import abc
import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Turn, take_turns
from viewstamp.bench.histogram import Histogram
from viewstamp.bench.load import WARM_UP_SECONDS, Figures, drive, repeat
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import SerialExecutor
from viewstamp.ids import Position, Term
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import build_batch

__all__ = ["ROW"]

_VALUE = os.urandom(256)
_COMMIT = 100
_CALLERS = 256
_PLAIN_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024

Done = Callable[[BaseException | None], None]
_Waiting = tuple[list[bytes], Done]


class _Log(abc.ABC):
    """A log under measurement."""

    name: str
    durability: str
    client: str

    @abc.abstractmethod
    def put(self, values: list[bytes], done: Done) -> None:
        """Begin to write records; ``done`` is called on the loop when they are durable."""

    @abc.abstractmethod
    async def commits(self, seconds: float) -> Figures:
        """Commit 100 records at a time for ``seconds``; return the figures."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Close the log."""

    async def callers(self, seconds: float) -> Figures:
        """Let 256 callers commit one record at a time for ``seconds``; return the figures."""
        return await drive([_Gatherer(self.put).append], _VALUE, callers=_CALLERS, seconds=seconds)


class _Gatherer:
    """Joins the records that callers append in one turn of the loop into one ``put``."""

    def __init__(self, put: Callable[[list[bytes], Done], None]) -> None:
        self._put = put
        self._loop = asyncio.get_running_loop()
        self._values: list[bytes] = []
        self._futures: list[asyncio.Future[None]] = []

    def append(self, value: bytes) -> asyncio.Future[None]:
        """Append a record; the future is done when it is durable."""
        future = self._loop.create_future()
        if not self._values:
            self._loop.call_soon(self._flush)
        self._values.append(value)
        self._futures.append(future)
        return future

    def _flush(self) -> None:
        values, futures, self._values, self._futures = self._values, self._futures, [], []
        self._put(values, partial(_resolve, futures))


def _resolve(futures: Sequence[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class _Ours(_Log):
    """The log of a node, with its default settings."""

    name = "viewstamp"
    durability = "fdatasync, checksums, recovery after a crash"
    client = "viewstamp.wal.Wal on uvloop, its writer thread"

    def __init__(self, directory: Path) -> None:
        self._wal = Wal.open(RealDisk(), str(directory / "viewstamp"), WalOptions(), on_batch=lambda *_: None)
        self._wal.start(lambda _: None)  # ``append`` raises a write error to its caller.

    def put(self, values: list[bytes], done: Done) -> None:
        wal = self._wal
        batch, end = build_batch(values), wal.end
        batch.stamp(
            term=Term(1), first_index=end, previous_term=Term(end > 1), log_time=end, first_position=Position(end)
        )
        wal.fill(wal.reserve(batch.size), [batch], done)

    async def commits(self, seconds: float) -> Figures:
        loop, values = asyncio.get_running_loop(), [_VALUE] * _COMMIT

        async def commit() -> None:
            future: asyncio.Future[None] = loop.create_future()
            self.put(values, partial(_resolve, [future]))
            await future

        return await repeat([commit], 1, seconds)

    async def close(self) -> None:
        await self._wal.close()


class _Blocking(_Log):
    """A log with a blocking call, which the one caller makes itself, and a thread makes for many callers."""

    def __init__(self) -> None:
        self._executor: SerialExecutor[_Waiting] = RealDisk().executor("log", self._work, self._done)

    @abc.abstractmethod
    def commit(self, values: list[bytes]) -> None:
        """Make records durable, with one sync."""

    def put(self, values: list[bytes], done: Done) -> None:
        self._executor.put((values, done))

    async def commits(self, seconds: float) -> Figures:
        values = [_VALUE] * _COMMIT
        await asyncio.sleep(0)
        _commit_for(WARM_UP_SECONDS, partial(self.commit, values))
        return _commit_for(seconds, partial(self.commit, values))

    async def close(self) -> None:
        await self._executor.close()

    def _work(self, items: list[_Waiting]) -> None:
        self.commit([value for values, _ in items for value in values])

    def _done(self, items: list[_Waiting], outcome: BaseException | None) -> None:
        for _, done in items:
            done(outcome)


def _commit_for(seconds: float, commit: Callable[[], None]) -> Figures:
    """Commit repeatedly for ``seconds`` on this thread, which does nothing else; return the figures."""
    latencies, clock = Histogram(), time.perf_counter
    cpu, began = time.process_time(), clock()
    before, end = began, began + seconds
    while before < end:
        commit()
        now = clock()
        latencies.add((now - before) * 1000)
        before = now
    return Figures(latencies, before - began, time.process_time() - cpu)


class _RocksDb(_Blocking):
    """RocksDB with its write-ahead log and its memory table."""

    name = "RocksDB"
    durability = "WriteOptions.sync, log files recycled"
    client = "rocksdict, a WriteBatch for each commit"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.set_recycle_log_file_num(4)  # Because this makes its syncs a little faster.
        self._new_batch: Callable[[], Any] = partial(rocksdict.WriteBatch, raw_mode=True)
        self._options = rocksdict.WriteOptions()
        self._options.sync = True
        self._database = rocksdict.Rdict(str(directory / "rocksdb"), options)
        self._key = 0
        self.client += f" {version('rocksdict')}"

    def commit(self, values: list[bytes]) -> None:
        batch, first = self._new_batch(), self._key
        put = batch.put
        for key, value in enumerate(values, first):
            put(key.to_bytes(8, "big"), value)
        self._key = first + len(values)
        self._database.write(batch, self._options)

    async def close(self) -> None:
        await super().close()
        self._database.close()


class _PlainFile(_Blocking):
    """A file of zeros that is overwritten from front to back repeatedly: not a log, but an upper limit for one."""

    name = "plain file"
    durability = "only fdatasync of a zero-filled file"
    client = "os.pwritev"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._descriptor = os.open(directory / "plain", os.O_RDWR | os.O_CREAT)
        for _ in range(_PLAIN_BYTES // _PIECE_BYTES):
            os.write(self._descriptor, bytes(_PIECE_BYTES))
        os.fsync(self._descriptor)
        self._at = 0

    def commit(self, values: list[bytes]) -> None:
        written = os.pwrite(self._descriptor, b"".join(values), self._at)
        os.fdatasync(self._descriptor)
        self._at = self._at + written if self._at < _PLAIN_BYTES - _PIECE_BYTES else 0

    async def close(self) -> None:
        await super().close()
        os.close(self._descriptor)


_Way = tuple[Callable[[_Log, float], Awaitable[Figures]], int]
_WAYS: dict[str, _Way] = {
    f"{_COMMIT} a commit": (lambda log, seconds: log.commits(seconds), _COMMIT),
    f"{_CALLERS} callers": (lambda log, seconds: log.callers(seconds), 1),
}
"""A load that runs for some seconds, and the records in each of its calls."""


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    async with AsyncExitStack() as stack:
        kinds: list[Callable[[Path], _Log]] = [_Ours, _RocksDb, _PlainFile]
        if find_spec("rocksdict") is None:
            result.left_out.append("RocksDB: rocksdict is not installed")
            kinds.remove(_RocksDb)
        logs = [kind(directory) for kind in kinds]
        for log in logs:
            stack.push_async_callback(log.close)
        contenders = [_contender(log, way) for way in _WAYS for log in logs]
        await take_turns(contenders, options, result, "/s")
    return result


def _contender(log: _Log, way: str) -> Contender:
    async def work(seconds: float) -> Turn:
        run, records = _WAYS[way]
        figures = await run(log, seconds)
        return Turn.of(figures, figures.per_second * records)

    return Contender(name=f"{log.name}, {way}", peer=log, work=work)


ROW = Row(
    name="wal",
    title=f"the log alone: {_COMMIT} records of 256 B a commit / {_CALLERS} callers",
    unit="/s",
    goals=[
        Goal(subject=f"{_Ours.name}, {way}", peer=f"{_RocksDb.name}, {way}", at_least=bound)
        for way, bound in zip(_WAYS, (1.3, 1.0), strict=True)
    ],
    measure=_measure,
    compares="records a second that one process makes durable on one disk, without replication",
)
