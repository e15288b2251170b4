"""Reading batches back: from the core's memory where they are new, else from disk, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from viewstamp.consensus.log import Log
from viewstamp.host.seam import Disk, Lane
from viewstamp.ids import Index, Position, TopicId
from viewstamp.wal.wal import Wal
from viewstamp.wire.batch import Batch, Kind

__all__ = ["LogReader"]

_SCAN_BYTES = 1024 * 1024
"""How much of the log is looked at in one go."""


@dataclass(slots=True)
class _Job:
    work: Callable[[], list[Batch]]
    future: asyncio.Future[list[Batch]]


class LogReader:
    """Reads for clients and for members that are far behind. Only what is applied, or asked for by the core.

    One lane of its own: a long scan never delays an append.
    """

    def __init__(self, disk: Disk, wal: Wal, log: Log, name: str) -> None:
        self._wal = wal
        self._log = log
        self._lane: Lane[_Job] = disk.lane(f"{name}-reader", _run, _done)

    async def read_log(self, start: Index, bytes_max: int) -> list[Batch]:
        """Return batches from ``start`` on, from disk. Raises StorageError or CorruptionError. Safe to cancel."""
        return await self._call(lambda: self._wal.read(start, bytes_max))

    async def read_topic(
        self, topic: TopicId, scan_from: Index, position: Position, end: Index, bytes_max: int
    ) -> list[Batch]:
        """Return the topic's batches from the one that holds ``position`` on, up to ``bytes_max``, at least one.

        Args:
          topic: whose batches.
          scan_from: an index at or before the batch that holds ``position``.
          position: the first position wanted; it exists, before ``end``.
          end: the end of what has been applied: nothing from here on is returned.
          bytes_max: stop before this many bytes are exceeded.
        """
        found: list[Batch] = []
        size = 0
        index = scan_from
        while index < end and size < bytes_max:
            batches = self._log.slice(index, _SCAN_BYTES)
            if batches is None:
                batches = await self.read_log(index, _SCAN_BYTES)
            for batch in batches:
                if batch.first_index >= end:
                    return found
                if (
                    batch.kind is Kind.RECORDS
                    and batch.topic == topic
                    and batch.first_position + batch.count > position
                ):
                    if found and size + batch.size > bytes_max:
                        return found
                    found.append(batch)
                    size += batch.size
            index = batches[-1].end
        return found

    async def close(self) -> None:
        """Finish what is being read, then stop."""
        await self._lane.close()

    def _call(self, work: Callable[[], list[Batch]]) -> asyncio.Future[list[Batch]]:
        future: asyncio.Future[list[Batch]] = asyncio.get_running_loop().create_future()
        self._lane.put(_Job(work, future))
        return future


def _run(jobs: list[_Job]) -> list[list[Batch] | Exception]:
    """Do the jobs; an error belongs to its job alone, since nothing was written."""
    results: list[list[Batch] | Exception] = []
    for job in jobs:
        try:
            results.append(job.work())
        except Exception as error:
            results.append(error)
    return results


def _done(jobs: list[_Job], results: list[list[Batch] | Exception] | BaseException) -> None:
    for job, result in zip(jobs, [results] * len(jobs) if isinstance(results, BaseException) else results, strict=True):
        if job.future.done():
            continue
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
