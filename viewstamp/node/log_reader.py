"""Reads batches back: new ones from the core's memory, others from disk, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from viewstamp.consensus.log import RaftLog
from viewstamp.consensus.ready import Fetch
from viewstamp.errors import CorruptionError, TrimmedError, UnavailableError
from viewstamp.host.interfaces import Disk, SerialExecutor
from viewstamp.ids import Index, NodeId, Position, TopicId
from viewstamp.node.inbox import FromPeer, Inbox
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, Buffer, Kind
from viewstamp.wire.staged import StagedBatch, decode_commit, entries_of

__all__ = ["LogFetches", "LogReader", "TopicMap"]

_SCAN_BYTES = 1024 * 1024
"""Bytes of the log that are read in one step."""
_SMALL_BYTES = 64 * 1024
"""Staged batches are read together with the batches after them, up to this number of bytes."""
_AROUND_BYTES = 4 * 1024
"""Staged batches of one COMMIT may have so many bytes of other batches between them, and are still read together."""
_ENTRIES_AHEAD = 64
"""The number of staged batches of a COMMIT whose sizes decide how many bytes are read together."""


class TopicMap(Protocol):
    """Finds the records of one topic in the applied part of the log."""

    def locate(self, position: Position) -> tuple[Index, Position]:
        """Return an index from which a forward scan finds ``position``, and the first position visible there."""
        ...

    def has_effect(self, index: Index) -> bool:
        """Return whether the COMMIT at ``index`` gave positions."""
        ...


@dataclass(slots=True)
class _Job:
    work: Callable[[], list[Batch]]
    future: asyncio.Future[list[Batch]]


def _ignore(_: CorruptionError) -> None:
    """Do nothing, because the caller gets the error."""


class LogReader:
    """Reads for clients and for members that are far behind: applied batches, or batches that the core requests.

    It has an executor of its own, so that a long scan never delays an append.
    """

    def __init__(
        self, disk: Disk, wal: Wal, log: RaftLog, name: str, *, on_rot: Callable[[CorruptionError], None] = _ignore
    ) -> None:
        """Read ``wal``, of which ``log`` holds the newest batches; ``on_rot`` is called with each damage found."""
        self._wal = wal
        self._log = log
        self._on_rot = on_rot
        self._executor: SerialExecutor[_Job] = disk.executor(f"{name}-reader", _run, self._done)

    async def read_log(self, start: Index, bytes_max: int) -> list[Batch]:
        """Return batches from ``start`` on, from disk. Raises StorageError or CorruptionError. Safe to cancel."""
        return await self._call(lambda: self._wal.read(start, bytes_max))

    async def read_committed(self, start: int, end: int, bytes_max: int) -> list[Batch]:
        """Return committed batches from ``start`` on, none beyond ``end``, for a member that repairs its log.

        Raises:
          UnavailableError: not all batches before ``end`` are known to be committed here.
          TrimmedError: the log here begins above ``start``.
          StorageError, CorruptionError: as :meth:`read_log`.
        """
        if end > self._log.commit_end:
            raise UnavailableError(
                f"only records before index {self._log.commit_end} are known to be committed here",
                remedy="ask another member, or try again later",
            )
        return [batch for batch in await self.read_log(Index(start), bytes_max) if batch.end <= end]

    async def read_topic(
        self, topic: TopicId, topic_map: TopicMap, position: Position, end: Index, bytes_max: int
    ) -> list[Buffer]:
        """Return the topic's batches from the one that holds ``position`` on, up to ``bytes_max``, at least one.

        The bytes are to be sent one after the other. A staged batch has the position and the log time of its COMMIT.

        Args:
          topic: the topic.
          topic_map: the locations of its records.
          position: the first position to return; it exists, before ``end``.
          end: the end of the applied records: nothing from here on is read.
          bytes_max: stop before this number of bytes is exceeded.

        Raises:
          TrimmedError: the position was trimmed, or the next one was meanwhile.
          StorageError, CorruptionError: as :meth:`read_log`.
        """
        found = _Found(bytes_max)
        await self._find(found, topic, topic_map, position, end)
        # If the position was trimmed meanwhile, has_effect() may have been wrong about COMMITs. This raises then.
        topic_map.locate(position)
        return found.buffers

    async def _find(self, found: _Found, topic: TopicId, topic_map: TopicMap, position: Position, end: Index) -> None:
        index, at = topic_map.locate(position)
        """``at``: the next position that becomes visible from ``index`` on."""
        while index < end and not found.is_full:
            for batch in await self._batches(index, _SCAN_BYTES):
                if batch.first_index >= end or found.is_full:
                    return
                index = batch.end
                if batch.kind is Kind.RECORDS and batch.topic == topic:
                    at = Position(batch.first_position + batch.count)
                    if at > position:
                        found.add(batch.size, batch.buffer)
                elif batch.kind is Kind.COMMIT and topic_map.has_effect(batch.first_index):
                    at = await self._add_committed(found, batch, topic, at, position)
                    if found.buffers and not found.is_full:
                        # The next record of the topic may be far behind, after batches that others staged.
                        following, following_at = topic_map.locate(at)
                        if following > index:
                            index, at = following, following_at
                            break

    async def _add_committed(
        self, found: _Found, commit: Batch, topic: TopicId, at: Position, position: Position
    ) -> Position:
        """Add the batches that a COMMIT placed in ``topic`` from position ``at`` on; return the next position."""
        near: dict[int, Batch] = {}
        parts = decode_commit(commit).parts
        staged = [entry for _, entries in parts for entry in entries_of(entries) if entry.topic == topic]
        for number, entry in enumerate(staged):
            if at + entry.count > position and found.has_room(entry.size):
                batch = near.get(entry.index)
                if batch is None:
                    # Small batches of others around them would take longer to decode than the wanted ones.
                    ahead = (each for each in staged[number : number + _ENTRIES_AHEAD] if each.index >= entry.index)
                    bytes_max = min(_SMALL_BYTES, sum(each.size for each in ahead) + _AROUND_BYTES)
                    near = {each.first_index: each for each in await self._batches(Index(entry.index), bytes_max)}
                    batch = near[entry.index]
                found.add(batch.size, *_placed(batch, entry, at, commit))
            at = Position(at + entry.count)
        return at

    async def _batches(self, index: Index, bytes_max: int) -> list[Batch]:
        batches = self._log.slice(index, bytes_max)
        return await self.read_log(index, bytes_max) if batches is None else list(batches)

    async def close(self) -> None:
        """Finish the reads that have begun, then stop."""
        await self._executor.close()

    def _call(self, work: Callable[[], list[Batch]]) -> asyncio.Future[list[Batch]]:
        future: asyncio.Future[list[Batch]] = asyncio.get_running_loop().create_future()
        self._executor.put(_Job(work, future))
        return future

    def _done(self, jobs: list[_Job], results: list[list[Batch] | Exception] | BaseException) -> None:
        each = [results] * len(jobs) if isinstance(results, BaseException) else results
        for job, result in zip(jobs, each, strict=True):
            if isinstance(result, CorruptionError):
                self._on_rot(result)
            if job.future.done():
                continue
            if isinstance(result, BaseException):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)


class LogFetches:
    """Reads batches from disk that the core sends to members that are far behind: ``Ready.fetches``."""

    def __init__(self, reader: LogReader, me: NodeId, inbox: Inbox, fail: Callable[[BaseException], None]) -> None:
        """Answer into ``inbox``, in the name of ``me``; ``fail`` stops the node."""
        self._reader = reader
        self._me = me
        self._inbox = inbox
        self._fail = fail
        self._tasks: dict[asyncio.Task[None], None] = {}

    def begin(self, fetch: Fetch) -> None:
        """Begin to read. Never awaits; the answer comes as ``BatchesRead``."""
        task = asyncio.get_running_loop().create_task(self._read(fetch))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def cancel(self) -> None:
        """Cancel all reads."""
        for task in list(self._tasks):
            task.cancel()

    async def _read(self, fetch: Fetch) -> None:
        try:
            batches = await self._reader.read_log(fetch.start, fetch.bytes_max)
        except TrimmedError:
            batches = []  # The member needs a snapshot by now.
        except CorruptionError:
            return  # The log is being repaired; afterwards the leader probes the member again.
        except Exception as error:
            # Every other error stops the node, because without an answer the core would wait for ever.
            self._fail(error)
            return
        self._inbox.put(FromPeer(fetch.answer(self._me, batches)))


class _Found:
    """The buffers of an answer; after a batch that did not fit, no other is added."""

    def __init__(self, bytes_max: int) -> None:
        self.buffers: list[Buffer] = []
        self.is_full = False
        self._left = bytes_max

    def has_room(self, size: int) -> bool:
        """Return whether a batch of this size fits; if not, the answer is full."""
        self.is_full = self.is_full or (bool(self.buffers) and size > self._left)
        return not self.is_full

    def add(self, size: int, *buffers: Buffer) -> None:
        """Add one batch, if it fits."""
        if self.has_room(size):
            self.buffers += buffers
            self._left -= size
            self.is_full = self._left <= 0


def _placed(batch: Batch, entry: StagedBatch, position: Position, commit: Batch) -> tuple[Buffer, Buffer]:
    """Return a staged batch as readers get it. Raises CorruptionError if the COMMIT describes another one."""
    found = (batch.first_index, batch.topic, batch.count, batch.size)
    if batch.kind is not Kind.STAGED or found != tuple(entry):
        raise CorruptionError(
            f"{commit!r} names {entry}, the log holds {batch!r}",
            remedy="stop this node, and check its log with `viewstamp wal verify`",
        )
    return batch.placed(position, commit.log_time)


def _run(jobs: list[_Job]) -> list[list[Batch] | Exception]:
    """Do the jobs; an error fails only its job, because jobs only read."""
    results: list[list[Batch] | Exception] = []
    for job in jobs:
        try:
            results.append(job.work())
        except Exception as error:
            results.append(error)
    return results
