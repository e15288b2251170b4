"""Takes snapshots, and deletes the log that they cover, to keep the log bounded and restarts short.

A snapshot is taken when

* the log has grown by ``log_bytes`` since the last one, and by at least the size of the last one; a bounded log by at
  most a quarter of its bound. The first is taken after a fraction of that, which differs between members, so that they
  take turns;
* replaying the log since the last one would take more than half of ``restart_seconds_max``;
* the log is three quarters full, and a snapshot would allow a part of it to be deleted;
* a caller requests one.

The steps, and what is left if the process dies in each:

1. the cut, at the applied end: nothing on disk yet;
2. the pieces are written to a temporary file, 256 KiB at a time, while batches are applied in between: a leftover;
3. wait until the own log has everything before the cut durably, because a leader may commit without its disk: a
   leftover;
4. the file is synced, renamed, and the name is synced: a snapshot, and the log still has all its records;
5. the log is deleted up to the *base* snapshot, in whole segments: any of them may be deleted;
6. snapshots that are not needed are removed: any of them may be removed.

The base is the second-newest snapshot that ends no later than the oldest record kept by any topic (``keep_from``). So a
member that begins anew gets all kept records from the base and the log after it. Members that are down do not keep the
log from being deleted. A member that is being sent batches or a snapshot does, unless space is short.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from viewstamp.actors import AsyncActor
from viewstamp.consensus.raft import Raft
from viewstamp.errors import ClosedError, RequestError, StorageFullError, UnavailableError, ViewstampError
from viewstamp.host.event_loop import seconds_to_look
from viewstamp.host.interfaces import Clock
from viewstamp.host.logger import Logger
from viewstamp.ids import ClusterId, Index
from viewstamp.node.applier import Applier
from viewstamp.node.archive_queries import ReleasedRunsQuery
from viewstamp.node.archived import ArchivedReads
from viewstamp.node.inbox import Inbox, LogTrimmed
from viewstamp.node.log_store import LogStore
from viewstamp.node.snapshots.file import SnapshotMeta
from viewstamp.node.snapshots.store import SnapshotStore, StoredSnapshot
from viewstamp.node.state_machine import SnapshotView
from viewstamp.wal.budget import cost_of
from viewstamp.wal.log import Wal

__all__ = ["SnapshotOptions", "Snapshotter"]

_LOOK_SECONDS = 0.1
"""Seconds between two checks whether a snapshot is due, while batches are applied."""
_IDLE_LOOK_SECONDS = 1.0
"""The same while no batches are applied. The first applied batch ends the wait."""
_DROP_SECONDS = 0.9
"""Seconds between two searches for log to delete, because each visits all topics, which may be thousands."""
_PIECE_BYTES = 256 * 1024
_SUSPECT_SECONDS = 10.0
"""A snapshot that is requested again is verified here, at most once in this time, because two members may need it."""
_HELD_SECONDS = 5.0
"""A snapshot counts as being sent for this time after a request, and the log after it stays if there is space."""
_RETRY_SECONDS = 5.0
"""Pause after a snapshot that could not be taken."""
_LOAD_BYTES_PER_SECOND = 20e6
"""Assumed rate of loading a snapshot until it was measured here."""
_MEASURED_BYTES = 1 << 20
_SCAN_BYTES_PER_SECOND = 300e6
"""Assumed rate of reading and checking a log. The time is short compared to applying it, which is measured."""
_REMOVE_SECONDS = 30.0
"""Pause before files that could not be removed are tried again."""
_FULL = 0.75
_SNAPSHOTS_IN_LOG = 4
"""A bounded log takes a snapshot after each quarter of its bytes, however large the snapshots are."""
_FAR = 2
"""New batches wait for a snapshot when the log since the last one exceeds the bound divided by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Times of snapshots, and their number; ``restart_seconds_max`` 0 = no limit for the time of a restart."""

    log_bytes: int = 64 * 1024 * 1024
    restart_seconds_max: float = 10.0
    kept_max: int = 6


class Snapshotter(AsyncActor[None]):
    """Owns the snapshots of one node. One is taken at a time; requests in the meantime get the next one.

    Invariants:
      * the log begins at or below the end of a snapshot that is listed, or at 1
      * the log is never dropped beyond ``keep_from``
    """

    def __init__(
        self,
        store: SnapshotStore,
        raft: Raft,
        applier: Applier,
        wal: Wal,
        log_store: LogStore,
        *,
        cluster: ClusterId,
        options: SnapshotOptions,
        archived: ArchivedReads,
        clock: Clock,
        inbox: Inbox,
        load_bytes: int,
        load_seconds: float,
        log: Logger,
    ) -> None:
        self.store = store
        self._raft = raft
        self._applier = applier
        self._wal = wal
        self._cluster = cluster
        self._options = options
        self._archived = archived
        self._clock = clock
        self._log_store = log_store
        self._inbox = inbox
        self._load_bytes = load_bytes
        self._load_seconds = load_seconds
        self._logger = log
        self._cut: SnapshotView | None = None
        self._wanted: list[asyncio.Future[StoredSnapshot]] = []
        self._wake = applier.due
        self._sent: dict[StoredSnapshot, float] = {}
        """The time of the last request for a piece of each snapshot."""
        self._reached: dict[StoredSnapshot, int] = {}
        """The byte up to which each snapshot was sent."""
        self._suspected: dict[StoredSnapshot, float] = {}
        """The time at which bytes of a snapshot were last requested again."""
        self._not_before = 0.0
        self.failure: ViewstampError | None = None
        """The reason why the last snapshot could not be taken; None = it was taken, or none was tried."""
        self._remove_not_before = 0.0
        self._reported_stuck: set[str] = set()
        """Files that could not be removed, and that were logged."""
        self.wanted_bytes = 0
        """The size of the largest batch for which the log had no room."""
        self._was_pressed = False
        self._trimmed: LogTrimmed | None = None
        """The last message to the replica."""

    # -- Calls ----------------------------------------------------------------------------------------------

    async def create(self) -> StoredSnapshot:
        """Take a snapshot now, and return it; if nothing was applied since the newest one, return that one.

        Cancelled, it may be taken all the same.

        Raises:
          StorageFullError: there is no space for it.
          RequestError: an actor has a value that cannot be packed; the message names it.
          UnavailableError: the state was replaced by a leader's snapshot, or the node stops; try again.
        """
        future: asyncio.Future[StoredSnapshot] = asyncio.get_running_loop().create_future()
        self._wanted.append(future)
        self._wake.set()
        return await future

    async def read(self, stored: StoredSnapshot, offset: int, bytes_max: int) -> bytes:
        """Return a piece of a snapshot's file for another member; the log after it is kept for ``_HELD_SECONDS``.

        Raises:
          TrimmedError: it is not kept any more.
        """
        now = self._clock.monotonic()
        self._sent[stored] = now
        if offset < self._reached.get(stored, 0) and now - self._suspected.get(stored, -math.inf) >= _SUSPECT_SECONDS:
            # It was sent already. A receiver verifies every byte, and begins again if one was wrong.
            self._suspected[stored] = now
            self.store.suspects.put_nowait(stored)
        self._reached[stored] = max(self._reached.get(stored, 0), offset + bytes_max)
        return await self.store.read_chunk(stored, offset, bytes_max)

    def let_go(self) -> None:
        """Cancel the snapshot that is being taken, because the state and the log are about to be replaced."""
        self._trimmed = None
        if self._cut is not None:
            self._cut.close()
            self._cut = None

    @property
    def is_base_lost(self) -> bool:
        """Return whether the snapshot before the log is damaged, so that no member could begin with this one."""
        log_begin = self._wal.first_index
        return log_begin > 1 and self.store.base(self._applier.machine.keep_from(), log_begin=log_begin) is None

    @property
    def newest(self) -> StoredSnapshot | None:
        """The newest snapshot."""
        return self.store.stored[0] if self.store.stored else None

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status`` about snapshots, and about files that could not be removed."""
        newest = self.newest
        return {
            "last_snapshot_index": newest.end - 1 if newest is not None else 0,
            "snapshots": len(self.store.stored),
            "damaged_snapshots": [each.path for each in self.store.damaged],
            "stuck_files": self.stuck_files,
            "restart_seconds_estimate": round(self.restart_seconds, 3),
        }

    @property
    def restart_seconds(self) -> float:
        """Return the estimated time of a restart: loading the newest snapshot, and applying the log since then."""
        newest = self.newest
        speed = _LOAD_BYTES_PER_SECOND
        if self._load_bytes >= _MEASURED_BYTES and self._load_seconds > 0:
            speed = self._load_bytes / self._load_seconds
        return (newest.size / speed if newest is not None else 0.0) + self._replay_seconds

    @property
    def _replay_seconds(self) -> float:
        """Return the time to read and apply the log since the newest snapshot's cut."""
        return self._applier.unsaved_seconds + self._applier.unsaved_bytes / _SCAN_BYTES_PER_SECOND

    def explain_full(self) -> str:
        """Return how a part of the log can be deleted, as text; "" = unknown."""
        self._wake.set()
        keep_from = self._applier.machine.keep_from()
        newest_end = self.newest.end if self.newest is not None else Index(1)
        held = self._held_by_runs()
        if held is not None and (keep_from is None or held < keep_from) and (why := self._archived.explain_held()):
            return why
        if keep_from is not None and keep_from <= max(newest_end, self._wal.first_index):
            return self._applier.machine.explain_kept()
        return "a snapshot will let some of it go: one is taken by itself, or by `viewstamp snapshot create`"

    # -- The loop -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take snapshots when they are due, and delete log and files, until stopped."""
        applier, looked_end, drop_at = self._applier, Index(0), -math.inf
        try:
            while True:
                was_woken = self._wake.is_set()
                self._wake.clear()
                if is_due := bool(self._wanted) or self._is_due():
                    await self._take()
                now = self._clock.monotonic()
                if was_woken or is_due or self._is_pressed or now >= drop_at:
                    drop_at = now + _DROP_SECONDS
                    await self._drop()
                is_possible = self._clock.monotonic() >= self._not_before
                applier.due_bytes = self._period if is_possible else math.inf
                is_idle, looked_end = applier.applied_end == looked_end, applier.applied_end
                if is_idle:
                    applier.due_bytes = min(applier.due_bytes, applier.unsaved_bytes + 1)
                if not self._wanted:
                    try:
                        async with asyncio.timeout(seconds_to_look(_IDLE_LOOK_SECONDS) if is_idle else _LOOK_SECONDS):
                            await self._wake.wait()
                    except TimeoutError:
                        pass
        finally:
            self.let_go()
            self._tell(ClosedError("this node is stopping", remedy="ask another node"))

    def _is_due(self) -> bool:
        applier, options = self._applier, self._options
        if applier.unsaved_bytes == 0 or self._clock.monotonic() < self._not_before:
            return False
        newest = self.newest
        keep_from = applier.machine.keep_from()
        if self._is_pressed and (keep_from is None or keep_from > (newest.end if newest is not None else 1)):
            return True
        if options.restart_seconds_max and self._replay_seconds > options.restart_seconds_max / 2:
            return True
        return applier.unsaved_bytes >= self._period

    @property
    def _period(self) -> float:
        """Return the bytes of log after which the next snapshot is due."""
        newest = self.newest
        period = max(self._options.log_bytes, newest.size if newest is not None else 0)
        if self._wal.bytes_max:
            # A topic keeps the log back to the snapshot before its first record, so a bounded log needs short periods.
            period = min(period, self._wal.bytes_max // _SNAPSHOTS_IN_LOG)
        return period if newest is not None else period * self._phase

    @property
    def is_behind(self) -> bool:
        """Return whether a bounded log has grown so far since the last snapshot that new batches must wait for one.

        A topic keeps the log from its first record on, and the base is the snapshot before that record. If snapshots
        were far apart, the log could become full although topics keep only a small part of it. It would stay full,
        because a full log takes no trim either. So appends wait also while no snapshot can be taken, for example
        because the disk is full.
        """
        total = self._wal.bytes_max
        return total > 0 and self._applier.unsaved_bytes > total // _FAR

    @property
    def _phase(self) -> float:
        """Return the point in the period of ``log_bytes`` at which this member takes snapshots, above 0 and up to 1.

        The logs of all members grow at the same rate. If members share a machine or a disk, snapshots that are taken
        at the same time slow all appends. So each member takes its first one at another point of the period.
        """
        core = self._raft.core
        members = list(core.membership.addresses)
        return (members.index(core.me) + 1) / len(members) if core.me in members else 1.0

    @property
    def _is_pressed(self) -> bool:
        """Return whether the log is so full that it keeps only necessary records.

        Fewer than a quarter of its bytes are free, or too few for a batch of the size that it refused before, because
        that batch would stay refused while the log holds records that nobody needs.
        """
        total = self._wal.bytes_max
        return total > 0 and self._wal.bytes_left < max((1 - _FULL) * total, cost_of(self.wanted_bytes))

    async def _take(self) -> None:
        """Take a snapshot, and answer its callers. See the steps in the module's docstring."""
        newest = self.newest
        if newest is not None and newest.end == self._applier.applied_end:
            self._tell(newest)
            return
        meta = self._meta()
        if meta is None:
            self._tell(UnavailableError("nothing has been committed yet", remedy="try again when something has"))
            return
        asked, self._wanted = self._wanted, []
        started = self._clock.monotonic()
        cut = self._cut = self._applier.machine.begin_snapshot()
        covered = self._applier.unsaved_bytes, self._applier.unsaved_seconds
        result: StoredSnapshot | ViewstampError
        try:
            result = await self._write(cut, meta)
            if self._cut is cut:
                self._applier.unsaved_bytes -= covered[0]
                self._applier.unsaved_seconds -= covered[1]
        except (StorageFullError, RequestError) as error:
            # There is no space for it, or an actor has a value that cannot be packed.
            self._logger.error("! no snapshot", reason=error.message, remedy=error.remedy)
            self._not_before = self._clock.monotonic() + _RETRY_SECONDS
            self.failure = error
            result = error
        except UnavailableError as error:
            result = error
        except BaseException:
            self._wanted = [*asked, *self._wanted]  # This node stops or has failed: ``on_stop`` answers all callers.
            raise
        finally:
            cut.close()
            self._cut = None
        if isinstance(result, StoredSnapshot):
            self.failure = None
            seconds = round(self._clock.monotonic() - started, 3)
            self._logger.info("= snapshot", index=result.end - 1, bytes=result.size, seconds=seconds)
            self._wal.drop_replaced()  # The node's own state is applied and durable again.
        self._tell(result, asked)

    async def _write(self, cut: SnapshotView, meta: SnapshotMeta) -> StoredSnapshot:
        file = await self.store.create(meta)
        try:
            while (piece := self._next_piece(cut)) is not None:
                await file.add(piece)
            await self._wait_durable()
            self._check(cut)
            return await file.finish()
        finally:
            await file.abandon()

    async def _wait_durable(self) -> None:
        """Wait until all applied records are durable in the own log, and store the commit hint.

        The hint is stored before the snapshot gets its name. So if a start finds a snapshot above the hint, the
        snapshot came from a leader (``wal/verdict.py``).
        """
        await self._log_store.store_hint()

    def _next_piece(self, cut: SnapshotView) -> bytes | None:
        self._check(cut)
        return cut.next_piece(_PIECE_BYTES)

    def _check(self, cut: SnapshotView) -> None:
        if self._cut is not cut:
            raise UnavailableError("the state was replaced by a leader's snapshot", remedy="try again")

    def _meta(self) -> SnapshotMeta | None:
        """Return the description of a snapshot of the present state; None = nothing was applied."""
        applier, core = self._applier, self._raft.core
        end = applier.applied_end
        entry = applier.membership
        if end == 1 or entry is None or core.installing or core.log.end < end:
            return None
        return SnapshotMeta(
            cluster=self._cluster,
            group=self.store.group,
            end=end,
            term=applier.applied_term,
            history=core.history.advertised(end).starts,
            membership=entry.membership.encode(),
            membership_index=entry.index,
            membership_term=entry.term,
            log_time=applier.log_time,
            created_us=self._clock.wall_us(),
        )

    def _tell(
        self, result: StoredSnapshot | ViewstampError, asked: list[asyncio.Future[StoredSnapshot]] | None = None
    ) -> None:
        """Answer the callers in ``asked``, or all."""
        if asked is None:
            asked, self._wanted = self._wanted, []
        for future in asked:
            if future.done():
                continue
            if isinstance(result, ViewstampError):
                future.set_exception(result)
            else:
                future.set_result(result)

    # -- Dropping -------------------------------------------------------------------------------------------

    async def _drop(self) -> None:
        """Delete the log up to the base, then the snapshots that are not needed."""
        if self._raft.core.installing:
            return
        is_pressed = self._is_pressed
        if is_pressed != self._was_pressed:
            self._was_pressed = is_pressed
            if is_pressed:
                left, total = self._wal.bytes_left, self._wal.bytes_max
                self._logger.warning("! the log is filling up", left=left, of=total, remedy=self.explain_full())
        now = self._clock.monotonic()
        self._sent = {each: at for each, at in self._sent.items() if now - at < _HELD_SECONDS}
        self._reached = {each: end for each, end in self._reached.items() if each in self.store.stored}
        self._suspected = {each: at for each, at in self._suspected.items() if each in self.store.stored}
        held = self._held_by_runs()
        base = self._base(held, pressed=is_pressed)
        if base is not None:
            end = base.end if held is None else min(base.end, held)
            if not is_pressed:
                end = min([end, self._raft.slowest_end, *(each.end for each in self._sent)])
            if end > self._wal.first_index:
                await self._trim(end)
            trimmed = LogTrimmed(self._wal.first_index, (base.end, base.term))
            if trimmed != self._trimmed and trimmed.first_index <= base.end:
                self._trimmed = trimmed
                self._inbox.put(trimmed)
        for path in await self.store.prune(base, self._options.kept_max, list(self._sent), self._are_near):
            self._logger.info("= snapshot removed", path=path)
        await self._retry_removals()

    def _held_by_runs(self) -> Index | None:
        """Return the lowest index that the log must keep because this node has not read a run yet; None = none.

        The replicated state says that a run was committed, but not whether the store still has it.
        """
        runs = self._applier.machine.query(ReleasedRunsQuery(self._wal.first_index))
        return self._archived.held(runs) if runs else None

    def _base(self, held: Index | None, *, pressed: bool) -> StoredSnapshot | None:
        """Return the base. It ends no later than ``held``, if the log still has the records from there on.

        If their first part was deleted before a restart, the base stays the snapshot before the log. A new member could
        not get that part from this log in any case.
        """
        keep_from, log_begin = self._applier.machine.keep_from(), self._wal.first_index
        if held is not None:
            if held < log_begin:
                held = min((each.end for each in self.store.stored if each.end >= log_begin), default=held)
            keep_from = held if keep_from is None else min(keep_from, held)
        return self.store.base(keep_from, log_begin=log_begin, pressed=pressed)

    async def _retry_removals(self) -> None:
        """Try again regularly to remove files that could not be removed; each is logged once."""
        stuck = self.stuck_files
        if self.store.stuck and self._clock.monotonic() >= self._remove_not_before:
            self._remove_not_before = self._clock.monotonic() + _REMOVE_SECONDS
            await self.store.retry_removals()
            stuck = self.stuck_files
        for path in stuck.keys() - self._reported_stuck:
            self._logger.warning(
                "! cannot remove a file that is not needed",
                path=path,
                reason=stuck[path],
                remedy=f"remove it by hand; it is tried again every {_REMOVE_SECONDS:g} s and costs only space",
            )
        self._reported_stuck = set(stuck)

    @property
    def stuck_files(self) -> dict[str, str]:
        """Files of the log and of the snapshots that are not needed and could not be removed, with the reason."""
        return {**self.store.stuck, **self._wal.stuck_files}

    def _are_near(self, before: Index, after: Index) -> bool:
        """Return whether a snapshot may be removed whose neighbours end at ``before`` and ``after``.

        The log between the two can then be trimmed only as a whole, so it must be a small part of a bounded log.
        """
        total = self._wal.bytes_max
        return not total or self._wal.bytes_between(before, after) <= total // _SNAPSHOTS_IN_LOG

    async def _trim(self, end: Index) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(_: BaseException | None) -> None:
            if not done.done():  # A failure stops the node by another way; a log that is being closed trims no more.
                done.set_result(None)

        before = self._wal.first_index
        self._wal.trim(end, on_done)
        await done
        if self._wal.first_index > before:
            self._logger.info("= log dropped", first_index=self._wal.first_index, bytes=self._wal.bytes_used)
