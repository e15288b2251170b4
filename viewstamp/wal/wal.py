"""The log as its owner sees it: open, reserve, fill, truncate, read, close. Lives on the event loop.

The loop's side keeps the order and the bounds; ``writer.Writer`` does the work on the writer thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from viewstamp.errors import ClosedError, CorruptionError, FrameError, OverloadedError, StorageError, StorageFullError
from viewstamp.host.seam import Disk, Lane
from viewstamp.ids import Index, Term
from viewstamp.wal.catalogue import Segment
from viewstamp.wal.opening import settle_names, take_over
from viewstamp.wal.preparation import prepare
from viewstamp.wal.reading import read
from viewstamp.wal.recovery import Recovery, Survey
from viewstamp.wal.space import Space
from viewstamp.wal.writer import Append, Close, Cut, Done, Item, Job, Outcome, Writer
from viewstamp.wire.batch import Batch

__all__ = ["Options", "Reservation", "Wal"]

_HEADERS_BYTES = 128
"""What is reckoned for the headers of one append: its share of a group header, and a batch checksum each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a log.

    ``queue_bytes_max`` bounds what is reserved and not yet durable. ``bytes_max`` bounds the segments together, with
    the one that is ready for use; 0 = only the disk does. ``reserve_bytes`` of the disk stay free. ``margin_bytes`` of
    the room, at most a quarter of a segment, are kept for what is urgent. ``idle_seconds`` after the last append the
    last group is closed by an empty one.
    """

    segment_bytes: int = 16 * 1024 * 1024
    queue_bytes_max: int = 64 * 1024 * 1024
    bytes_max: int = 0
    reserve_bytes: int = 32 * 1024 * 1024
    margin_bytes: int = 1024 * 1024
    idle_seconds: float = 0.25


class Reservation:
    """A place in the order of the log; to be filled or cancelled.

    Invariants:
      * ``item`` is set once, by ``fill`` or, as None with ``ready``, by ``cancel``
    """

    __slots__ = ("cost", "item", "ready")

    def __init__(self, cost: int, item: Item | None = None) -> None:
        self.cost = cost
        self.item = item
        self.ready = item is not None


class Wal:
    """The group-commit log of one node. The specification is the docstring of ``viewstamp.wal``.

    Every method but :meth:`open` and :meth:`read` belongs on the event loop on which :meth:`start` was called, and
    none but :meth:`append` and :meth:`close` awaits.

    Invariants:
      * order of reservation = order on disk = order of completion
      * ``first_index <= durable_end <= end``
      * each ``done`` is called exactly once
      * after the first failure nothing is written any more, and ``on_failed`` has been called once
    """

    def __init__(
        self, disk: Disk, directory: str, options: Options, found: Survey, writer: Writer, is_prepared: bool
    ) -> None:
        """Take over what :meth:`open` found and made ready; use that."""
        self.directory = directory
        self.recovery: Recovery = found.recovery()
        self._disk = disk
        self._options = options
        self._catalogue = writer.catalogue
        self._writer = writer
        self._writer.prepared = is_prepared
        self._end = found.end
        self._durable_end = found.end
        self._commit_hint = found.chain.commit_hint
        self._cuts: deque[int] = deque()
        self._waiting: deque[Reservation] = deque()
        self._queued = 0
        self._failure: StorageError | None = None
        self._closed = False
        self._on_failed: Callable[[StorageError], None] | None = None
        self._lane: Lane[Item] | None = None
        self._preparing_lane: Lane[int] | None = None
        self._is_preparing = False
        self._is_taken_early = False
        """Whether the writer has gone on in the segment of which the loop has not heard yet that it is ready."""
        self._idle: asyncio.TimerHandle | None = None
        self._groups_at_idle = 0
        self._groups = writer.groups
        self._space = Space(
            segment_bytes=options.segment_bytes,
            bytes_max=options.bytes_max,
            reserve_bytes=options.reserve_bytes,
            margin_bytes=min(options.margin_bytes, options.segment_bytes // 4),
        )
        self._space.is_prepared = is_prepared
        self._space.free = disk.free_bytes(directory)
        self._measure(writer.room)

    # -- opening ----------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        options: Options,
        *,
        on_batch: Callable[[Batch, int], None],
        must_exist: bool = False,
        commit_hint: int = 0,
        first_index: Index = Index(1),
        previous_term: Term = Term(0),
        scan_from: Index = Index(1),
    ) -> Wal:
        """Recover the log in ``directory``, or create an empty one; blocking.

        A torn tail is cut. What was recovered is synced before this returns: it may have been in the page cache only.

        Args:
          disk: where the files are.
          directory: the log's own; made where it is missing.
          options: settings.
          on_batch: called for each recovered batch from ``scan_from`` on, in order, with the highest end that was known
            to be committed when the batch's group was written. Its buffer is a view of a piece that was read: valid as
            long as it is held, but holding it keeps the whole piece (1 MiB) alive, so copy what is to be kept.
          must_exist: the control file says that there is a log: none is damage.
          commit_hint: an end below which all is known to be committed (the control file's): ending below is damage.
          first_index: where the log begins at the latest: it was never trimmed further. An empty log begins there,
            after a record of ``previous_term``.
          previous_term: see ``first_index``; 0 = there is no record before.
          scan_from: a batch boundary; what lies before it is covered by a snapshot. Of segments wholly below it only
            the headers are read, so rot in them is found when they are read; ``recovery`` counts from here on, too.

        Raises:
          CorruptionError: damage, or a log that begins above ``first_index``; nothing on the disk was changed.
          ConfigError: a segment has a newer format.
          StorageError: the disk failed; StorageFullError: there is no room even for the first segment.
        """
        disk.make_directory(directory)
        found = Survey(
            disk=disk,
            directory=directory,
            commit_hint=commit_hint,
            must_exist=must_exist,
            first_index_max=first_index,
            previous_term=previous_term,
            scan_from=scan_from,
        )
        for item in found.walk():
            if isinstance(item, tuple):
                on_batch(item[1], found.chain.commit_hint)
        if found.verdict == "corruption":
            raise found.error()
        is_prepared = settle_names(disk, directory, options.segment_bytes, found)
        writer = take_over(disk, directory, options.segment_bytes, found)
        return cls(disk, directory, options, found, writer, is_prepared)

    # -- what is there ----------------------------------------------------------------------------------

    @property
    def first_index(self) -> Index:
        """The index of the first record kept."""
        return Index(self._catalogue.first_index)

    @property
    def end(self) -> Index:
        """The index after everything that was handed over in order, durable or not."""
        return Index(self._end)

    @property
    def durable_end(self) -> Index:
        """The index after everything that is durable and that no truncation handed over since will cut."""
        return Index(min(self._durable_end, *self._cuts) if self._cuts else self._durable_end)

    @property
    def commit_hint(self) -> int:
        """An end below which all is committed; written into each group header, at most the durable end."""
        return self._commit_hint

    @commit_hint.setter
    def commit_hint(self, end: int) -> None:
        self._commit_hint = self._writer.commit_hint = end

    @property
    def queued_bytes(self) -> int:
        """Bytes reserved and not yet durable."""
        return self._queued

    @property
    def groups(self) -> int:
        """How many groups were written and synced since the log was opened."""
        return self._groups

    @property
    def bytes_used(self) -> int:
        """Bytes written in all segments."""
        return self._catalogue.bytes_used()

    def segments(self) -> list[Segment]:
        """Return the segments in order; for people, they may change at any time."""
        return self._catalogue.segments()

    # -- writing ----------------------------------------------------------------------------------------

    def start(self, on_failed: Callable[[StorageError], None]) -> None:
        """Begin to write, with a writer thread that reports to the running loop.

        ``on_failed`` is called once, on the loop, if writing fails: the node must stop then.
        """
        assert self._lane is None, "started twice"
        self._on_failed = on_failed
        self._lane = self._disk.lane("wal-writer", self._writer.work, self._on_done)
        self._preparing_lane = self._disk.lane("wal-prepare", self._prepare, self._on_prepared)
        self._prepare_next()

    def check_room(self, size: int, *, urgent: bool = False) -> None:
        """Refuse early what :meth:`reserve` would refuse for want of space: to be asked before a batch enters the log.

        Keeps the last ``margin_bytes`` for what must be written whatever comes (``urgent``). Never awaits.

        Raises:
          StorageFullError: the log or the disk is full; nothing was harmed.
          StorageError: the log has failed; final.
          ClosedError: the log is closed.
        """
        self._check_open()
        self._check_space(size + _HEADERS_BYTES, urgent=urgent)

    def reserve(self, size: int, *, urgent: bool = False) -> Reservation:
        """Fix the place of the next ``size`` bytes of batches in the order of the log. Never awaits.

        ``urgent`` is for what was admitted before, here or elsewhere: no bound on the queue, and the last
        ``margin_bytes`` of the room may be used.

        Raises:
          OverloadedError: too much is waiting for the disk; nothing was reserved, try again a little later.
          StorageFullError: the log or the disk is full; nothing was reserved, nothing harmed.
          StorageError: the log has failed; final.
          ClosedError: the log is closed.
        """
        self._check_open()
        cost = size + _HEADERS_BYTES
        if not urgent and self._queued and self._queued + cost > self._options.queue_bytes_max:
            raise OverloadedError(
                f"{self._queued} bytes wait for the disk, {size} more would be over {self._options.queue_bytes_max}",
                remedy="try again a little later, with fewer bytes in flight",
            )
        self._check_space(cost, urgent=urgent)
        reservation = Reservation(cost)
        self._queued += cost
        self._waiting.append(reservation)
        return reservation

    def fill(self, reservation: Reservation, batches: Sequence[Batch], done: Done) -> None:
        """Give a reservation its batches: at least one, not larger than reserved, continuing the log.

        The buffers must not change any more. ``done`` is called on the loop, in the order of the reservations: with
        None once they are durable, with the error once they never will be.
        """
        assert not reservation.ready, "a reservation is filled or cancelled once"
        assert batches, "nothing to append"
        reservation.item = Append(batches, reservation.cost, done)
        reservation.ready = True
        self._pump()

    def cancel(self, reservation: Reservation) -> None:
        """Give a reservation back; what is behind it goes on."""
        assert not reservation.ready, "a reservation is filled or cancelled once"
        reservation.ready = True
        self._queued -= reservation.cost
        self._pump()

    async def append(self, batches: Sequence[Batch]) -> None:
        """Append batches and wait until they are durable. If cancelled, they may still become so.

        Raises:
          OverloadedError, StorageFullError, ClosedError: nothing was written.
          StorageError: the log has failed; final.
        """
        reservation = self.reserve(sum(batch.size for batch in batches))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.fill(reservation, batches, partial(_resolve, future))
        await future

    def append_now(self, batches: Sequence[Batch]) -> None:
        """Append batches as one group on the caller's thread, blocking: for tools and tests, on a log not started.

        Raises:
          StorageError: final.
        """
        assert self._lane is None, "a started log writes on its own thread"
        reservation = self.reserve(sum(batch.size for batch in batches))
        self.fill(reservation, batches, _raise)
        self._work_now()

    def truncate(self, end: Index, done: Done) -> None:
        """Cut the log to ``end``, a batch boundary, after everything handed over before. ``done`` as in :meth:`fill`.

        Raises:
          StorageError, ClosedError: as :meth:`reserve`.
        """
        self._check_open()
        self._enqueue(Cut(end, done))

    def run(self, job: Callable[[], None], done: Done) -> None:
        """Run a blocking ``job`` on the writer thread, once everything handed over before is durable.

        An error of the job is final for the log. ``done`` as in :meth:`fill`.

        Raises:
          StorageError, ClosedError: as :meth:`reserve`.
        """
        self._check_open()
        self._enqueue(Job(job, done))

    async def close(self) -> None:
        """Write what was handed over, close the last group, shorten the open segment, stop. Idempotent.

        Reservations that were not filled become skips. After a failure nothing is written.
        """
        if self._closed:
            return
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        for reservation in self._waiting:
            if not reservation.ready:
                reservation.ready = True
                self._queued -= reservation.cost
        if self._failure is None:
            self._waiting.append(Reservation(0, Close(True, _ignore)))
        self._pump()
        self._closed = True
        if self._lane is None:
            self._work_now()
        else:
            assert self._preparing_lane is not None, "both lanes start together"
            await self._lane.close()
            await self._preparing_lane.close()
        self._writer.close()

    def abandon(self) -> None:
        """Let go of a log that was opened and never started, without writing anything. Idempotent."""
        assert self._lane is None, "a started log is closed"
        self._closed = True
        self._writer.close()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ClosedError("the log is closed")

    def _check_space(self, cost: int, *, urgent: bool) -> None:
        try:
            self._space.check(self._queued + cost, urgent=urgent)
        except StorageFullError:
            self._prepare_next()  # there may be room again: the next call will know
            raise

    def _enqueue(self, item: Item) -> None:
        self._waiting.append(Reservation(0, item))
        self._pump()

    def _pump(self) -> None:
        """Hand the ready prefix of the order to the writer."""
        lane = self._lane
        if lane is not None:
            while (item := self._next_ready()) is not None:
                lane.put(item)

    def _next_ready(self) -> Item | None:
        """Take the next item that is ready from the order, passing over what was cancelled."""
        waiting = self._waiting
        while waiting and waiting[0].ready:
            item = waiting.popleft().item
            if isinstance(item, Append):
                self._end = item.batches[-1].end
            elif isinstance(item, Cut):
                self._end = item.end
                self._cuts.append(item.end)
            if item is not None:
                return item
        return None

    def _work_now(self) -> None:
        """Do what is ready without a lane."""
        items: list[Item] = list(iter(self._next_ready, None))
        self._on_done(items, self._writer.work(items))

    def _on_done(self, items: list[Item], outcome: Outcome | BaseException) -> None:
        """Take the writer's report: advance the durable end, complete the items in order."""
        if isinstance(outcome, BaseException):
            succeeded, failure = 0, outcome
        else:
            succeeded, failure = outcome.succeeded, outcome.error or AssertionError("an item failed without an error")
            self._groups += outcome.groups
            if outcome.took_prepared:
                self._space.is_prepared = False
                self._is_taken_early = self._is_preparing
            self._measure(outcome.room)
        error: StorageError | None = None
        for at, item in enumerate(items):
            if at == succeeded:
                error = self._fail(failure)
            if isinstance(item, Append):
                self._queued -= item.size
                if error is None:
                    self._durable_end = item.batches[-1].end
            elif isinstance(item, Cut):
                self._cuts.popleft()
                if error is None:
                    self._durable_end = min(self._durable_end, item.end)
            item.done(error)
        self._prepare_next()
        self._watch_idle()

    def _measure(self, open_room: int) -> None:
        self._space.open_room = open_room
        self._space.is_open_whole = self._writer.is_whole
        prepared = self._options.segment_bytes if self._space.is_prepared else 0
        self._space.used = self._catalogue.bytes_used() + open_room + prepared

    def _fail(self, error: BaseException) -> StorageError:
        """Make ``error`` final, once."""
        if self._failure is None:
            self._failure = error if isinstance(error, StorageError) else _failed(error)
            if self._on_failed is not None:
                self._on_failed(self._failure)
        return self._failure

    # -- the next segment -------------------------------------------------------------------------------

    def _prepare_next(self) -> None:
        """Have the next segment made ready, unless it is, is being made, or would take the log over its bounds."""
        is_ready = self._space.is_prepared and self._space.is_open_whole
        if is_ready or self._is_preparing or self._space.is_at_limit:
            return
        if self._failure is not None or self._closed:
            return
        self._is_preparing = True
        size = self._options.segment_bytes
        if self._preparing_lane is not None:
            self._preparing_lane.put(size)
        else:
            self._on_prepared([size], self._prepare([size]))

    def _prepare(self, sizes: list[int]) -> tuple[int, bool]:
        """Make the next segment ready (on a thread of its own); return the free bytes left, and whether it is."""
        free = self._disk.free_bytes(self.directory)
        if self._writer.prepared:
            return free, True
        if free < sizes[0] + self._options.reserve_bytes:
            return free, False
        try:
            prepare(self._disk, self.directory, sizes[0])
        except StorageFullError:
            return 0, False  # somebody else took the space in between: not ours to fail for
        self._writer.prepared = True
        return self._disk.free_bytes(self.directory), True

    def _on_prepared(self, sizes: list[int], outcome: tuple[int, bool] | BaseException) -> None:
        self._is_preparing = False
        if isinstance(outcome, BaseException):
            self._writer.fail(self._fail(outcome))
        else:
            self._space.free, self._space.may_grow = outcome
            self._space.is_prepared = self._space.may_grow and not self._is_taken_early
            self._measure(self._space.open_room)
            if self._is_taken_early:
                self._is_taken_early = False
                self._prepare_next()

    # -- closing an idle group --------------------------------------------------------------------------

    def _watch_idle(self) -> None:
        """See to it that the last group does not stay the last for long."""
        if self._idle is None and self._failure is None and not self._closed and self._lane is not None:
            self._groups_at_idle = self._groups
            self._idle = asyncio.get_running_loop().call_later(self._options.idle_seconds, self._on_idle)

    def _on_idle(self) -> None:
        self._idle = None
        if self._failure is not None or self._closed:
            return
        if self._groups != self._groups_at_idle or self._queued:
            self._watch_idle()
        else:
            self._enqueue(Close(False, _ignore))

    # -- reading ----------------------------------------------------------------------------------------

    def read(self, start: Index, bytes_max: int) -> list[Batch]:
        """Return durable batches from the one that holds ``start``, in order; blocking, on any thread.

        About ``bytes_max`` bytes of them, at least one if ``start`` is below the durable end. Their buffers are
        views: holding one keeps the piece it was read with alive.

        Raises:
          CorruptionError: what was durable is not readable any more.
          StorageError: the disk failed.
        """
        assert start >= self._catalogue.first_index, f"read from {start}, the log begins at {self.first_index}"
        while True:
            truncations = self._catalogue.truncations
            try:
                found = read(self._disk, self._catalogue, start, bytes_max)
            except (FrameError, FileNotFoundError) as error:
                if truncations == self._catalogue.truncations:
                    raise CorruptionError(
                        f"the log cannot be read at index {start}: {error}",
                        path=self.directory,
                        remedy="stop this node, and look with `viewstamp wal verify`",
                    ) from error
            else:
                # Where the log was cut and written again meanwhile, this could be a mix of before and after.
                if truncations == self._catalogue.truncations:
                    return found


def _resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def _ignore(error: BaseException | None) -> None:
    """The owner hears of a failure through ``on_failed``."""


def _failed(error: BaseException) -> StorageError:
    failure = StorageError(f"the log failed: {error!r}", remedy="this is a defect: the node stops, nothing was cut")
    failure.__cause__ = error
    return failure
