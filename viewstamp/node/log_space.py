"""The free space of a member's log: for which batches it suffices, and the reserve for records that free space."""

from __future__ import annotations

from contextlib import suppress

from viewstamp.consensus.raft import Raft
from viewstamp.errors import OverloadedError, StorageFullError
from viewstamp.host.logger import Logger
from viewstamp.node.health.headroom import Headroom
from viewstamp.node.ports import SnapshotPort
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, Kind

__all__ = ["LogSpace"]

_RUNS = frozenset(
    {
        *(Kind.PREPARE_RUN, Kind.COMMIT_RUN, Kind.DROP_RUN, Kind.FORGET_RUN),
        *(Kind.PREPARE_KEYS, Kind.COMMIT_KEYS, Kind.DROP_KEYS, Kind.FORGET_KEYS),
    }
)
_URGENT = frozenset(
    {
        Kind.TRIM_TOPIC,
        Kind.CONFIGURE_TOPIC,
        Kind.CONFIGURE_ARCHIVE,
        Kind.CONFIGURE_KEYED,
        Kind.ABORT_ATTEMPTS,
        Kind.FORGET_SINK,
        Kind.EXPIRE_SESSIONS,
        Kind.MEMBERSHIP,
        Kind.AUDIT,
        Kind.REVOKE_TOKEN,
        *_RUNS,
    }
)
"""Records that may use the reserve: those that free space, and the record of a new leader, because a leader must write
it before it admits any other. Also those of ``_SPARING``."""
_SPARING = frozenset({Kind.AUDIT, Kind.REVOKE_TOKEN}) | _RUNS
"""Records that may use half of the reserve, because callers may repeat them and they free nothing: the entry of the
audit log that a change of members writes first, because a change may bring a member with more room; the end of a token,
because a stolen one must not stay valid; and those about runs, because the log deletes what is archived only later."""

_QUIET_SECONDS = 10.0
_LEADING_BYTES = 4096
"""Bytes that a new leader must be able to write: the membership record of its term."""


class LogSpace:
    """Decides whether a batch fits, before it enters the log.

    Invariants:
      * batches admitted in this turn are counted in ``turn_bytes``, because the log reserves their space at its end
    """

    def __init__(
        self, raft: Raft, wal: Wal, headroom: Headroom, snapshots: SnapshotPort, *, tick_seconds: float, log: Logger
    ) -> None:
        self.full: StorageFullError | None = None
        """The reason why this member refuses batches at present; None = it does not."""
        self.turn_bytes = 0
        """Bytes of batches admitted in this turn, from a leader or from clients; the replica resets it."""
        self.tick = 0
        """The replica's count of ticks."""
        self._raft = raft
        self._wal = wal
        self._headroom = headroom
        self._is_bounded = wal.bytes_max > 0
        self._snapshots = snapshots
        self._logger = log
        self._explained = (0, "")
        """The tick in which ``explain_full`` was last called, and its answer."""
        self._quiet_ticks = round(_QUIET_SECONDS / tick_seconds)
        self._silent_until = 0
        """Before this tick "full" is not logged again, because small batches that fit in between would repeat it."""

    def fitting(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """Return the first of a leader's batches that fit, usually all; they are counted in ``turn_bytes``.

        To a member that is behind, the leader sends more at once than a bounded log may have room for. If the member
        took all or nothing, its log would never get so full that old records are dropped: it would stay behind.
        """
        size, is_urgent = 0, True
        for batch in batches:
            size += batch.size
            is_urgent = is_urgent and batch.kind in _URGENT
        if self._is_bounded and batches and not is_urgent and self._snapshots.is_behind:
            return ()
        try:
            self._wal.check_room(self.turn_bytes + size, urgent=is_urgent)
        except StorageFullError:
            return self._first_that_fit(batches)
        self.turn_bytes += size
        self.full = None
        return batches

    def _first_that_fit(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        for number, batch in enumerate(batches):
            try:
                self._wal.check_room(self.turn_bytes + batch.size, urgent=batch.kind in _URGENT)
            except StorageFullError as error:
                if number == 0:
                    self.note_full(error, batch.size)
                return batches[:number]
            self.turn_bytes += batch.size
        return batches

    def check(self, batch: Batch) -> None:
        """Check that a client's batch fits; the caller adds it to ``turn_bytes`` once it is in the log.

        Raises:
          OverloadedError: a bounded log has to wait for a snapshot.
          StorageFullError: there is no space, or the snapshot could not be taken; pass it to :meth:`note_full`.
        """
        is_urgent = batch.kind in _URGENT
        size = self.turn_bytes + batch.size
        if is_urgent and batch.kind in _SPARING:
            size += self._wal.margin_bytes // 2
        if not self._is_bounded:
            self._wal.check_room(size, urgent=is_urgent)
            return
        if not is_urgent:
            self._check_snapshot()
        self._wal.check_room(size, urgent=is_urgent, spared=self._headroom.spared_bytes)

    def _check_snapshot(self) -> None:
        """Raise if the bounded log has to wait for a snapshot: StorageFullError if the last one failed."""
        if not self._snapshots.is_behind:
            return
        message = f"{self._raft.core.me} has to take a snapshot before its bounded log grows further"
        failure = self._snapshots.failure
        if failure is None:
            raise OverloadedError(message, remedy="try again in a moment")
        raise StorageFullError(
            f"{message}, and could not: {failure.message}",
            remedy=f"{failure.remedy}; the node tries again every few seconds, or at once: `viewstamp snapshot create`",
        )

    def admitted(self, size: int) -> None:
        """Count a client's batch of ``size`` bytes that has just entered the log."""
        self.turn_bytes += size
        if self._is_bounded:
            self._headroom.admit(size)

    @property
    def can_lead(self) -> bool:
        """Return whether the first record of a new leader fits, because a leader that cannot write it would fail."""
        try:
            self._wal.check_room(_LEADING_BYTES, urgent=True)
        except StorageFullError as error:
            self.note_full(error, _LEADING_BYTES)
            return False
        return True

    def note_full(self, error: StorageFullError, size: int) -> None:
        """Note that a batch of ``size`` bytes did not fit, and add to the error's remedy how to free space."""
        self._snapshots.wanted_bytes = max(self._snapshots.wanted_bytes, size)
        if self.full is None or self._explained[0] != self.tick:  # Once a tick, because it looks at every topic.
            self._explained = self.tick, self._snapshots.explain_full()
        if self._explained[1]:
            error.remedy = f"{self._explained[1]}; {error.remedy}"
        if self.full is None and self.tick >= self._silent_until:
            self._silent_until = self.tick + self._quiet_ticks
            self._logger.error("! full", reason=error.message, remedy=error.remedy)
        self.full = error

    @property
    def status(self) -> list[str] | None:
        """Return why this member refuses batches, and the remedy. Checks again, as no batch may have arrived since."""
        if self.full is not None:
            with suppress(StorageFullError):
                self._wal.check_room(_LEADING_BYTES)
                with suppress(OverloadedError):
                    self._check_snapshot()
                self.full = None
        return None if self.full is None else [self.full.message, self.full.remedy]
