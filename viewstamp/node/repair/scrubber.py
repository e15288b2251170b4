"""Reads old segments and snapshots slowly, to find rot while the other members still have copies.

A pass reads every sealed segment and every snapshot, in small pieces, one at a time and off the event loop. It sleeps
in between, to keep to the limits of bytes read per second and of a twentieth of a processor. The open segment is not
read, because it is being written, and its groups are checked when the node starts.

| found | reaction |
| --- | --- |
| a snapshot that is not intact | it is set aside, and a new one is taken |
| the last one with which a member that is behind could begin | the node hands over, and restarts |
| a segment that is not intact, twice at the same place | ``on_rot``: the node restarts, with a repair |
| the log begins after records that the state refers to | the same, if another member still has them |
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass

from viewstamp.actors import AsyncActor
from viewstamp.errors import CorruptionError, ViewstampError
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Clock, Disk
from viewstamp.host.logger import Logger
from viewstamp.node.ports import GroupControl
from viewstamp.node.snapshots.policy import Snapshotter
from viewstamp.node.snapshots.store import SnapshotStore, StoredSnapshot
from viewstamp.wal.catalogue import Segment
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import scrub_segment

__all__ = ["ScrubOptions", "Scrubber"]

_SUSPECT_BYTES_PER_SECOND = 64 * 1024 * 1024
"""Read rate of suspected snapshots if passes are switched off."""
_DUTY = 20
"""The reciprocal of the largest share of time spent reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubOptions:
    """Rate and times of the search for rot; ``bytes_per_second`` 0 = no search."""

    bytes_per_second: int = 8 * 1024 * 1024
    period_seconds: float = 3600.0
    """Time from the beginning of one pass to that of the next."""
    first_seconds: float = 60.0
    """Time from the start of the node to the first pass."""


class Scrubber(AsyncActor[None]):
    """Owns the passes over one node's files.

    Invariants:
      * one piece is read at a time, and none on the event loop
    """

    def __init__(
        self,
        disk: Disk,
        wal: Wal,
        store: SnapshotStore,
        *,
        options: ScrubOptions,
        clock: Clock,
        group: GroupControl,
        snapshots: Snapshotter,
        find_lost_beginning: Callable[[], Awaitable[CorruptionError | None]],
        log: Logger,
    ) -> None:
        """Prepare the passes; :meth:`run` reads the files.

        Args:
          disk: of the files.
          wal: the log.
          store: the snapshots.
          options: rate and times.
          clock: for the rate.
          group: receives reports of rot in the log; the next pass may report the same rot again.
          snapshots: takes a new snapshot to replace a damaged one.
          find_lost_beginning: returns an error if the log lacks needed records that another member has.
          log: for lines about rot.
        """
        self.status: dict[str, object] = {}
        """The last pass: {"bytes", "seconds", "finished" (microseconds since 1970), "damaged" (paths)}; {} = none."""
        self._disk = disk
        self._wal = wal
        self._store = store
        self._options = options
        self.groups = 1
        """The number of groups on this node, which share the rate."""
        self._clock = clock
        self._group = group
        self._snapshots = snapshots
        self._find_lost_beginning = find_lost_beginning
        self._logger = log
        self._bytes = 0
        self._damaged: list[str] = []

    async def run(self) -> None:
        """Make passes, and read suspected snapshots in between, until stopped."""
        is_off = self._options.bytes_per_second == 0
        due = math.inf if is_off else self._clock.monotonic() + self._options.first_seconds
        while True:
            left = due - self._clock.monotonic()
            if left <= 0:
                due = self._clock.monotonic() + self._options.period_seconds
                await self.run_pass()
                continue
            suspect: StoredSnapshot | None = None
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_off else left):
                    suspect = await self._store.suspects.get()
            if suspect is not None:
                await self._look_at_snapshot(suspect)

    async def run_pass(self) -> None:
        """Read everything once."""
        started = self._clock.monotonic()
        self._bytes, self._damaged = 0, []
        for segment in self._wal.segments():
            if segment.sealed:
                await self._look_at_segment(segment)
        for stored in list(self._store.stored):
            await self._look_at_snapshot(stored)
        lost = await self._find_lost_beginning()
        if lost is not None:
            self._damaged.append(self._wal.directory)
            self._group.on_rot(lost)
        self.status = {
            "bytes": self._bytes,
            "seconds": round(self._clock.monotonic() - started, 3),
            "finished": self._clock.wall_us(),
            "damaged": self._damaged,
        }

    async def _look_at_segment(self, segment: Segment) -> None:
        """Read a segment; if it seems damaged, read it again, because it may have been trimmed or cut meanwhile."""
        error = await self._read_segment(segment)
        again = await self._read_segment(segment) if error is not None else None
        if again is not None and self._is_there(segment):
            self._damaged.append(segment.path)
            self._logger.error("! rot in the log", path=again.path, reason=again.message)
            self._group.on_rot(again)

    async def _read_segment(self, segment: Segment) -> CorruptionError | None:
        if not self._is_there(segment):
            return None
        try:
            await self._go_through(scrub_segment(self._disk, segment))
        except FileNotFoundError:
            return _missing(segment)
        except CorruptionError as error:
            return error
        return None

    def _is_there(self, segment: Segment) -> bool:
        """Return whether the segment still belongs to the log, unchanged."""
        return any(each is segment and each.sealed for each in self._wal.segments())

    async def _look_at_snapshot(self, stored: StoredSnapshot) -> None:
        try:
            await self._go_through(len(piece) for piece in self._store.load(stored))
        except CorruptionError as error:
            if stored not in self._store.stored:
                return  # It was removed meanwhile.
            self._damaged.append(stored.path)
            self._logger.error("! damaged snapshot", path=stored.path, reason=error.message)
            self._store.set_aside(stored, error)
            if self._snapshots.is_base_lost:
                # Another member may have a whole snapshot and should lead, because this one could offer none.
                self._group.on_rot(error)
                return
            with suppress(ViewstampError):
                await self._snapshots.create()

    async def _go_through(self, pieces: Generator[int, None, None]) -> None:
        """Run the generator, which reads a piece in each step and yields its size; sleep between the steps."""
        with closing(pieces):
            while True:
                started = self._clock.monotonic()
                size = await in_thread(next, pieces, None)
                if size is None:
                    return
                self._bytes += size
                taken = self._clock.monotonic() - started
                rate = self._options.bytes_per_second / self.groups or _SUSPECT_BYTES_PER_SECOND
                await asyncio.sleep(max(size / rate, _DUTY * taken) - taken)


def _missing(segment: Segment) -> CorruptionError:
    return CorruptionError(
        f"{segment.path} is gone", path=segment.path, expected="a segment of the log", found="no such file"
    )
