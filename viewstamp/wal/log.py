"""The log as its owner sees it: open, reserve, fill, truncate, read, close. Lives on the event loop.

The loop's side keeps the order and the bounds; ``writer.Writer`` does the work on the writer thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from viewstamp.errors import (
    ClosedError,
    ConfigError,
    CorruptionError,
    FrameError,
    OverloadedError,
    StorageError,
    StorageFullError,
)
from viewstamp.host.interfaces import Disk, SerialExecutor
from viewstamp.ids import Index, Term
from viewstamp.wal.budget import Budget, SpareResult, Spares, WalOptions, cost_of
from viewstamp.wal.catalogue import Segment, read
from viewstamp.wal.completion import Done, failure_from, ignore, raise_error, resolve
from viewstamp.wal.format import NO_LOG_ID, SpareKind
from viewstamp.wal.recovery import Recovery, Survey, settle_names, take_over
from viewstamp.wal.upkeep import Upkeep
from viewstamp.wal.verdict import Known
from viewstamp.wal.writer import (
    AppendItem,
    CloseItem,
    JobItem,
    Reservation,
    ResetItem,
    SyncItem,
    TrimItem,
    TruncateItem,
    WorkResult,
    Writer,
    WriterItem,
)
from viewstamp.wire.batch import Batch

__all__ = ["Reservation", "Wal", "WalOptions"]


class Wal:
    """The group-commit log of one node. The docstring of ``viewstamp.wal`` has its promises.

    Every method but :meth:`open` and :meth:`read` belongs on the event loop on which :meth:`start` was called, and
    none but :meth:`append` and :meth:`close` awaits.

    Invariants:
      * order of reservation = order on disk = order of completion
      * ``first_index <= durable_end <= end``
      * each ``done`` is called exactly once
      * after the first failure nothing is written any more, and ``on_failed`` has been called once
    """

    def __init__(
        self, disk: Disk, directory: str, options: WalOptions, found: Survey, writer: Writer, spares: Spares
    ) -> None:
        """Take over a recovered log; use :meth:`open`."""
        self.directory = directory
        self.recovery: Recovery = found.recovery()
        self._disk = disk
        self._options = options
        self._catalogue = writer.catalogue
        self._writer = writer
        self._spares = spares
        self._end = found.judgement.end
        self._durable_end = found.judgement.end
        self._commit_hint = found.state.commit_hint
        self._cuts: deque[int] = deque()
        self._waiting: deque[Reservation] = deque()
        self._queued = 0
        self._failure: StorageError | None = None
        self._closed = False
        self._on_failed: Callable[[StorageError], None] | None = None
        self._executor: SerialExecutor[WriterItem] | None = None
        self._preparing_executor: SerialExecutor[bool] | None = None
        self._is_preparing = False
        self._upkeep = Upkeep(
            options.idle_seconds,
            groups=lambda: self._groups,
            is_busy=lambda: self._queued > 0,
            is_settled=lambda: self._writer.is_closed and self._hint_stored >= self._durable_end,
            close_group=lambda: self._enqueue(CloseItem(False, ignore)),
            store_hint=self._store_commit_hint,
        )
        self._hint_writer: Callable[[int], None] | None = None
        self._hint_stored = 0
        """Up to where the commit hint has been handed to ``_hint_writer``."""
        self._sync_due: asyncio.TimerHandle | None = None
        self._now: Callable[[], float] = float
        self._groups = writer.groups
        self.margin_bytes = min(options.margin_bytes, options.segment_bytes // 4)
        """The room that is kept for urgent writes."""
        self._space = Budget(
            segment_bytes=options.segment_bytes,
            bytes_max=options.bytes_max,
            reserve_bytes=options.reserve_bytes,
            margin_bytes=self.margin_bytes,
        )
        self._space.prepared = spares.prepared
        self._space.dropped = spares.dropped
        self._space.free = disk.free_bytes(directory)
        self._space.open_room = writer.room
        self._space.is_open_whole = writer.is_whole
        self._space.used = writer.catalogue.bytes_used

    # -- opening ----------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        options: WalOptions,
        *,
        on_batch: Callable[[Batch, int], None],
        must_exist: bool = False,
        commit_hint: int = 0,
        first_index: Index = Index(1),
        previous_term: Term = Term(0),
        scan_from: Index = Index(1),
        log_id: bytes = NO_LOG_ID,
    ) -> Wal:
        """Recover the log in ``directory``, or create an empty one; blocking.

        A torn tail is cut. Recovered batches are synced before this returns, because they may have been only in the
        page cache.

        Args:
          disk: the disk with the files.
          directory: the log's own directory; created if it is missing.
          options: settings.
          on_batch: called for each recovered batch from ``scan_from`` on, in order, with the highest end that was known
            to be committed when the batch's group was written. Its buffer is a view of a piece that was read: valid as
            long as it is held, but it keeps the whole piece (1 MiB) in memory, so copy the bytes that you keep.
          must_exist: the control file proves that there is a log: a missing one is damage.
          commit_hint: an end below which all is known to be committed (the control file's): ending below is damage.
          first_index: the largest allowed first index: the log was never trimmed further. An empty log begins there,
            after a record of ``previous_term``.
          previous_term: see ``first_index``; 0 = there is no record before.
          scan_from: a batch boundary; a snapshot covers the records before it. Of segments wholly below it only the
            headers are read, so damage in them is found when they are read; ``recovery`` counts from here on, too.
          log_id: the id for new segments. With ``must_exist`` a segment with another id is refused.

        Raises:
          ConfigError: a segment has a newer format, or is of another log; or ``bytes_max`` is less than two segments.
          CorruptionError: damage, or a log that begins above ``first_index``; nothing on the disk was changed.
          StorageError: the disk failed; StorageFullError: there is no room even for the first segment.
        """
        if 0 < options.bytes_max < 2 * options.segment_bytes:
            raise ConfigError(
                f"[wal] bytes_max is {options.bytes_max}, two segments of [wal] segment_bytes are"
                f" {2 * options.segment_bytes}",
                remedy="raise [wal] bytes_max, or lower [wal] segment_bytes",
            )
        disk.make_directory(directory)
        found = Survey(
            disk=disk,
            directory=directory,
            known=Known(end=commit_hint, must_exist=must_exist, first_index_max=first_index),
            previous_term=previous_term,
            scan_from=scan_from,
            log_id=log_id if must_exist and log_id != NO_LOG_ID else None,
        )
        for item in found.walk():
            if isinstance(item, tuple):
                on_batch(item[1], found.state.commit_hint)
        if found.judgement.verdict == "corruption":
            raise found.error()
        spares = settle_names(disk, directory, options.segment_bytes, options.bytes_max, found, log_id)
        writer = take_over(disk, directory, options, found, spares, log_id)
        return cls(disk, directory, options, found, writer, spares)

    # -- state ------------------------------------------------------------------------------------------

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
        """The index after everything that is complete and that no truncation or reset handed over since will cut.

        Complete is durable; in the interval mode only written, and durable within ``sync_seconds``.
        """
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
        """Number of groups that were written and synced since the log was opened."""
        return self._groups

    @property
    def bytes_used(self) -> int:
        """Bytes written in all segments."""
        return self._catalogue.bytes_used

    @property
    def bytes_allocated(self) -> int:
        """Bytes of all segments and spares on the disk, zeros included: never more than ``bytes_max``, if that is set.

        A truncation or reset that is under way has 64 more, its mark.
        """
        return self._spares.allocated

    @property
    def stuck_files(self) -> dict[str, str]:
        """Files that the log does not need and could not remove, with the reason; tried again with each new spare."""
        return self._spares.stuck

    @property
    def bytes_max(self) -> int:
        """The bound of :attr:`bytes_allocated`; 0 = only the disk bounds the log."""
        return self._options.bytes_max

    @property
    def bytes_left(self) -> int:
        """Bytes that may still be appended, headers included, before :meth:`check_room` refuses."""
        return self._space.left_for(self._queued)

    def bytes_between(self, start: int, end: int) -> int:
        """Return the bytes of the log from index ``start`` to ``end``, estimated; parts that it lacks count 0."""
        return self._catalogue.bytes_below(end) - self._catalogue.bytes_below(start)

    def segments(self) -> list[Segment]:
        """Return the segments in order, for output and tests. The writer thread may change them at any time."""
        return self._catalogue.segments()

    # -- writing ----------------------------------------------------------------------------------------

    def start(
        self,
        on_failed: Callable[[StorageError], None],
        *,
        now: Callable[[], float] | None = None,
        store_hint: Callable[[int], None] | None = None,
    ) -> None:
        """Begin to write, with a writer thread that reports to the running loop.

        Args:
          on_failed: called once, on the loop, if writing fails: the node must stop then.
          now: a monotonic clock in seconds that any thread may ask, for the interval mode; None = the loop's.
          store_hint: called on the writer thread with an end below which everything is committed and synced here, to
            store it durably in another file: when the log is idle, and so that little is above it (``upkeep``).
        """
        assert self._executor is None, "started twice"
        self._now = self._writer.now = now if now is not None else asyncio.get_running_loop().time
        self._on_failed = on_failed
        self._hint_writer = store_hint
        executor: SerialExecutor[WriterItem] = self._disk.executor("wal-writer", self._writer.work, self._on_done)
        self._preparing_executor = self._disk.executor("wal-prepare", self._prepare, self._on_prepared)
        self._executor = executor  # Set last, because a log without both of its threads is abandoned, not closed.
        self._prepare_next()

    def check_room(self, size: int, *, urgent: bool = False, spared: int = 0) -> None:
        """Raise the StorageFullError that :meth:`reserve` would raise. Call it before a batch enters the log.

        Keeps the last ``margin_bytes`` for writes that a full node must do (``urgent``), and ``spared`` of
        ``bytes_max`` from all others. Never awaits.

        Raises:
          StorageFullError: the log or the disk is full; nothing was harmed.
          StorageError: the log has failed; final.
          ClosedError: the log is closed.
        """
        wanted = self._queued + cost_of(size)
        if self._failure is not None or self._closed or wanted + self._space.sure_margin > self._space.open_room:
            self._check_open()
            self._check_space(wanted, urgent=urgent, spared=spared)

    def reserve(self, size: int, *, urgent: bool = False) -> Reservation:
        """Fix the place of the next ``size`` bytes of batches in the order of the log. Never awaits.

        ``urgent`` is for batches that were admitted before, here or elsewhere: the bound of the queue does not apply,
        and the last ``margin_bytes`` of the room may be used.

        Raises:
          OverloadedError: too many bytes wait for the disk; nothing was reserved, try again a little later.
          StorageFullError: the log or the disk is full; nothing was reserved, nothing harmed.
          StorageError: the log has failed; final.
          ClosedError: the log is closed.
        """
        self._check_open()
        cost = cost_of(size)
        if not urgent and self._queued and self._queued + cost > self._options.queue_bytes_max:
            raise OverloadedError(
                f"{self._queued} bytes wait for the disk, {size} more would be over {self._options.queue_bytes_max}",
                remedy="try again a little later, with fewer bytes in flight",
            )
        self._check_space(self._queued + cost, urgent=urgent)
        reservation = Reservation(cost)
        self._queued += cost
        self._waiting.append(reservation)
        return reservation

    def fill(self, reservation: Reservation, batches: Sequence[Batch], done: Done) -> None:
        """Give a reservation its batches: at least one, not larger than reserved, continuing the log.

        The buffers must not change any more. ``done`` is called on the loop, in the order of the reservations: with
        None once they are complete (durable; in the interval mode written), with the error once they never will be.
        """
        assert not reservation.ready, "a reservation is filled or cancelled once"
        assert batches, "nothing to append"
        reservation.item = AppendItem(batches, reservation.cost, done)
        reservation.ready = True
        self._pump()

    def write(self, batches: Sequence[Batch], size: int, done: Done) -> None:
        """Reserve (``urgent``) and fill in one call; ``size`` is that of all ``batches``.

        Raises:
          StorageFullError: the log or the disk is full; nothing was written, nothing harmed.
          StorageError: the log has failed; final.
          ClosedError: the log is closed.
        """
        assert batches, "nothing to append"
        cost = cost_of(size)
        wanted = self._queued + cost
        if self._failure is not None or self._closed or wanted + self._space.sure_margin > self._space.open_room:
            self._check_open()
            self._check_space(wanted, urgent=True)
        self._queued = wanted
        item = AppendItem(batches, cost, done)
        if self._executor is not None and not self._waiting:
            self._end = batches[-1].end  # It is the next in the order, so `_next_ready` would do the same.
            self._executor.put(item)
        else:
            self._enqueue(item, cost)

    def cancel(self, reservation: Reservation) -> None:
        """Give a reservation back; the items behind it continue."""
        assert not reservation.ready, "a reservation is filled or cancelled once"
        reservation.ready = True
        self._queued -= reservation.cost
        self._pump()

    async def append(self, batches: Sequence[Batch]) -> None:
        """Append batches and wait until they are complete. If cancelled, they may still become so.

        Raises:
          OverloadedError, StorageFullError, ClosedError: nothing was written.
          StorageError: the log has failed; final.
        """
        reservation = self.reserve(sum(batch.size for batch in batches))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.fill(reservation, batches, partial(resolve, future))
        await future

    def append_now(self, batches: Sequence[Batch]) -> None:
        """Append batches as one group on the caller's thread, blocking: for tools and tests, on a log not started.

        Raises:
          StorageError: final.
        """
        assert self._executor is None, "a started log writes on its own thread"
        reservation = self.reserve(sum(batch.size for batch in batches))
        self.fill(reservation, batches, raise_error)
        self._work_now()

    def truncate(self, end: Index, done: Done) -> None:
        """Cut the log to ``end``, a batch boundary, after everything handed over before. ``done`` as in :meth:`fill`.

        Raises:
          StorageError, ClosedError: as :meth:`reserve`.
        """
        self._check_open()
        self._enqueue(TruncateItem(end, done))

    def trim(self, first_index: Index, done: Done) -> None:
        """Drop whole segments whose records are all below ``first_index``, after everything handed over before.

        The open segment stays, so at least one does. They are dropped one by one, and later items continue between
        them; so ``done``, else as in :meth:`fill`, may be called after that of later items. Then :attr:`first_index`
        has moved as far as it can, and reading below it raises TrimmedError. The caller must know which records may be
        dropped. If the log is closed before, ``done`` gets ClosedError, and part of the work has been done.

        Raises:
          StorageError, ClosedError: as :meth:`reserve`.
        """
        self._check_open()
        self._enqueue(TrimItem(first_index, done))

    def reset(self, end: Index, term: Term, done: Done) -> None:
        """Drop everything, after everything handed over before: the log is empty and begins at ``end``.

        The old segments are set aside until :meth:`drop_replaced`, the next reset, or until the disk needs the room.
        The record before ``end`` had ``term``; the caller must have stored its state. For a crash it is one step: the
        old log is there, or the empty one. ``done`` as in :meth:`fill`.

        Raises:
          StorageError, ClosedError: as :meth:`reserve`.
        """
        self._check_open()
        self._enqueue(ResetItem(end, term, done))

    def drop_replaced(self) -> None:
        """Have the segments removed that the last reset has set aside, if they are still there. Never awaits."""
        if self._spares.keeps_replaced and self._failure is None and not self._closed:
            self._enqueue(JobItem(self._spares.remove_replaced, ignore))

    def reset_now(self, end: Index, term: Term) -> None:
        """Do the same as :meth:`reset` on the caller's thread, blocking, on a log that is not started.

        Raises:
          StorageError: the disk failed, and this log cannot be used any more.
        """
        assert self._executor is None, "a started log writes on its own thread"
        self.reset(end, term, raise_error)
        self._work_now()

    def run(self, job: Callable[[], None], done: Done) -> None:
        """Run a blocking ``job`` on the writer thread, once everything handed over before is durable.

        An error of the job is final for the log. ``done`` as in :meth:`fill`.

        Raises:
          StorageError, ClosedError: as :meth:`reserve`.
        """
        self._check_open()
        self._enqueue(JobItem(job, done))

    @property
    def durable_commit_end(self) -> int:
        """The commit hint that a job may store: at most the synced end of this disk, in the interval mode too.

        Only inside a job of :meth:`run`.
        """
        return self._writer.durable_commit_end

    async def close(self) -> None:
        """Write all items, close the last group, shorten the open segment, stop. Idempotent.

        Reservations that were not filled become skips. After a failure nothing is written.
        """
        if self._closed:
            return
        self._upkeep.stop()
        if self._sync_due is not None:
            self._sync_due.cancel()
            self._sync_due = None
        for reservation in self._waiting:
            if not reservation.ready:
                reservation.ready = True
                self._queued -= reservation.cost
        if self._failure is None:
            self._store_commit_hint()
            self._waiting.append(Reservation(0, CloseItem(True, ignore)))
        self._pump()
        self._closed = True
        if self._executor is None:
            self._work_now()
        else:
            assert self._preparing_executor is not None, "both executors start together"
            await self._executor.close()
            await self._preparing_executor.close()
        self._writer.close()

    @property
    def failure(self) -> StorageError | None:
        """Why nothing is written any more; None = nothing has failed."""
        return self._failure

    def abandon(self) -> None:
        """Close the files of a log that was opened and never started, without writing anything. Idempotent."""
        assert self._executor is None, "a started log is closed"
        self._closed = True
        self._writer.close()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ClosedError("the log is closed")

    def _check_space(self, wanted: int, *, urgent: bool, spared: int = 0) -> None:
        """Raise StorageFullError if there is no room for ``wanted`` bytes, which include the queued ones."""
        try:
            self._space.check(wanted, urgent=urgent, spared=spared)
        except StorageFullError:
            self._prepare_next(asks=True)  # reads the disk's free space again, for the next call
            raise

    def _enqueue(self, item: WriterItem, cost: int = 0) -> None:
        self._waiting.append(Reservation(cost, item))
        self._pump()

    def _pump(self) -> None:
        """Hand the ready prefix of the order to the writer."""
        executor = self._executor
        if executor is not None:
            while (item := self._next_ready()) is not None:
                executor.put(item)

    def _next_ready(self) -> WriterItem | None:
        """Take the next item that is ready from the order, and skip cancelled ones."""
        waiting = self._waiting
        while waiting and waiting[0].ready:
            item = waiting.popleft().item
            if isinstance(item, AppendItem):
                self._end = item.batches[-1].end
            elif isinstance(item, TruncateItem):
                self._end = item.end
                self._cuts.append(item.end)
            elif isinstance(item, ResetItem):
                self._end = item.end
                self._cuts.append(self._catalogue.first_index)
            if item is not None:
                return item
        return None

    def _work_now(self) -> None:
        """Do the ready items without an executor."""
        items: list[WriterItem] = list(iter(self._next_ready, None))
        self._on_done(items, self._writer.work(items))

    def _on_done(self, items: list[WriterItem], outcome: WorkResult | BaseException) -> None:
        """Take the writer's report: advance the durable end, complete the items in order."""
        if isinstance(outcome, BaseException):
            succeeded, failure = 0, outcome
        else:
            succeeded, failure = outcome.succeeded, outcome.error or AssertionError("an item failed without an error")
            self._groups += outcome.groups
            self._space.prepared -= outcome.taken
            self._space.dropped += outcome.dropped
            space = self._space
            space.open_room, space.is_open_whole, space.used = outcome.room, outcome.is_whole, outcome.used
            if outcome.unsynced_since is not None:
                self._watch_sync(outcome.unsynced_since)
            if outcome.taken and not self._closed and self._failure is None:
                self._store_commit_hint()  # The log has gone on in another segment.
        error: StorageError | None = None
        unfinished: list[TrimItem] = []
        for at, item in enumerate(items):
            if at == succeeded:
                error = self._fail(failure)
            if isinstance(item, AppendItem):
                self._queued -= item.size
                if error is None:
                    self._durable_end = item.batches[-1].end
            elif isinstance(item, TruncateItem):
                self._cuts.popleft()
                if error is None:
                    self._durable_end = min(self._durable_end, item.end)
            elif isinstance(item, ResetItem):
                self._cuts.popleft()
                if error is None:
                    self._durable_end = item.end
            elif isinstance(item, TrimItem) and error is None and self._catalogue.droppable(item.first_index):
                unfinished.append(item)
                continue
            try:
                item.done(error)
            except Exception as defect:  # A defect of the caller; the items behind have to complete all the same.
                error = self._fail(defect)
        for trim in unfinished:
            self._go_on_trimming(trim)
        if self._space.wants_another(self._queued) or not self._space.is_open_whole:
            self._prepare_next()
        if self._upkeep.timer is None and self._failure is None and not self._closed and self._executor is not None:
            self._upkeep.watch()

    def _go_on_trimming(self, trim: TrimItem) -> None:
        if self._closed:
            trim.done(ClosedError("the log was closed before the trim was complete"))
        elif self._executor is not None:
            self._executor.put(trim)
        else:
            self._on_done([trim], self._writer.work([trim]))

    def _fail(self, error: BaseException) -> StorageError:
        """Make ``error`` final, once."""
        if self._failure is None:
            self._failure = error if isinstance(error, StorageError) else failure_from(error)
            if self._on_failed is not None:
                self._on_failed(self._failure)
        return self._failure

    # -- the next segment -------------------------------------------------------------------------------

    def _prepare_next(self, *, asks: bool = False) -> None:
        """Let another spare be prepared, unless there are enough, or it would take the log over its bounds.

        The disk's free space is read again in two cases: ``asks``, because an append was refused; and if the open
        segment is shorter than its full length, because the disk was full.
        """
        if self._is_preparing or self._failure is not None or self._closed:
            return
        makes = self._space.wants_another(self._queued)
        if not makes and not asks and self._space.is_open_whole:
            return
        self._is_preparing = True
        self._space.is_making = makes and self._space.dropped <= 0
        if self._preparing_executor is not None:
            self._preparing_executor.put(makes)
        else:
            self._on_prepared([makes], self._prepare([makes]))

    def _prepare(self, wanted: list[bool]) -> tuple[SpareResult, int]:
        """Make a spare if one is wanted, on a thread of its own; return that, and the bytes free on the disk."""
        self._spares.retry_removals()
        prepared = self._spares.prepare(self._options.reserve_bytes) if wanted[0] else SpareResult(None, False, True)
        return prepared, self._disk.free_bytes(self.directory)

    def _on_prepared(self, _: list[bool], outcome: tuple[SpareResult, int] | BaseException) -> None:
        self._is_preparing = self._space.is_making = False
        if isinstance(outcome, BaseException):
            self._writer.fail(self._fail(outcome))
            return
        prepared, self._space.free = outcome
        self._space.may_grow = prepared.has_space
        self._space.refusal = prepared.refusal
        self._space.dropped -= prepared.used is SpareKind.DROPPED
        if prepared.is_made:
            self._space.prepared += 1
            if self._preparing_executor is not None:
                self._prepare_next()

    # -- the interval mode ------------------------------------------------------------------------------

    def _watch_sync(self, unsynced_since: float) -> None:
        """Set a timer, so that complete batches become durable in time even if no others follow."""
        if self._sync_due is None and not self._closed and self._failure is None:
            left = unsynced_since + self._options.sync_seconds - self._now()
            self._sync_due = asyncio.get_running_loop().call_later(max(0, left), self._on_sync_due)

    def _on_sync_due(self) -> None:
        # Straight to the writer, and not behind the reservations, because one of them may stay unfilled for long.
        self._sync_due = None
        if self._failure is None and not self._closed:
            assert self._executor is not None, "only a started log has a clock"
            self._executor.put(SyncItem(ignore))

    # -- the commit hint --------------------------------------------------------------------------------

    def _store_commit_hint(self) -> None:
        """Have the commit hint stored, if it has advanced, after all items that were handed over before."""
        end = min(self._commit_hint, self._durable_end)
        if self._hint_writer is not None and end > self._hint_stored:
            self._hint_stored = end
            store = self._hint_writer
            self._enqueue(JobItem(lambda: store(self._writer.durable_commit_end), ignore))

    # -- reading ----------------------------------------------------------------------------------------

    def read(self, start: Index, bytes_max: int) -> list[Batch]:
        """Return durable batches from the one that holds ``start``, in order; blocking, on any thread.

        About ``bytes_max`` bytes of them, at least one if ``start`` is below the durable end. Their buffers are views:
        each keeps the piece that it was read with in memory.

        Raises:
          TrimmedError: ``start`` is below the first index kept, or was trimmed meanwhile.
          CorruptionError: durable bytes are not readable any more.
          StorageError: the disk failed.
        """
        while True:
            truncations = self._catalogue.truncations
            try:
                found = read(self._disk, self._catalogue, start, bytes_max)
            except (FrameError, FileNotFoundError) as error:
                self._catalogue.check_kept(start)
                if truncations == self._catalogue.truncations:
                    raise CorruptionError(
                        f"the log cannot be read at index {start}: {error}",
                        path=self.directory,
                        remedy="ask another node; this one repairs itself from the others, if there are any",
                    ) from error
            else:
                # A segment that was trimmed meanwhile may have been overwritten while it was read.
                self._catalogue.check_kept(start)
                # If the log was cut and written again meanwhile, this could be a mix of before and after.
                if truncations == self._catalogue.truncations:
                    return found
