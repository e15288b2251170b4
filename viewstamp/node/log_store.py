"""The one translator between the core's writes and the WAL with its control file.

The commit hint (``ControlState.commit_hint``) goes with every control write, and is written for its own sake when the
log is idle, every two seconds at least while it is not, with each new segment and snapshot, and at a clean stop
(``wal/upkeep.py``). It is min(commit end, synced end), taken on the writer thread inside the job that stores it, and
the writer syncs before every job. So:

* If power fails before the job, the old hint stays. It is still true, because the log only grew.
* If it fails between the log's sync and the first copy, or between the two copies, the old or the new hint is found.
  Both are below the synced end of the log. The rules of the control file decide which of its copies counts.
* A truncation that was handed over before the job has been carried out, a later one has not. Neither cuts committed
  records, and the hint is never above the commit end (protocol rule 8).
* After a failed sync the writer does nothing any more, and runs no jobs.

A node that loses nothing durable therefore never finds its log below its hint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from viewstamp.consensus.membership import Membership, MembershipEntry, Readdressing
from viewstamp.consensus.ready import AppendLog, EndRecovery, ResetLog, TruncateLog, Write, WriteHistory, WriteTerm
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import CorruptionError
from viewstamp.ids import Index, NodeId, Term
from viewstamp.node.running_mark import mark_stopped
from viewstamp.wal.completion import Done, ignore, resolve
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.log import Wal

__all__ = ["LogStore", "check_history", "readdressing_of", "stored_membership"]


class LogStore:
    """Makes the core's writes durable, in exactly the order in which it handed them out.

    All writes go through the WAL's executor, also those of the control file. So a write is never durable before an
    earlier one. A failed write is final; the WAL reports it once and refuses everything afterwards.

    Invariants:
      * the stored commit hint never falls, and is at most the synced end at the time when it was stored
    """

    def __init__(self, wal: Wal, control: ControlFile, state: ControlState) -> None:
        self._wal = wal
        self._control = control
        self.state = state
        """The newest state for the control file, without the commit hint, which the writer thread fills in."""
        self._reset: tuple[Term, Index] | None = None
        """(term, end) of a reset that was handed to the log before its history was; else None."""

    @property
    def durable_state(self) -> ControlState | None:
        """The durable content of the control file; for checkers."""
        return self._control.state

    def persist(self, writes: Sequence[Write], done: Done) -> None:
        """Queue ``writes``; ``done`` is called when the last is durable, and all before it are.

        Never awaits. If the process dies, a prefix of the writes is durable, each of them complete or absent.
        """
        left, wal = len(writes), self._wal
        for write in writes:
            left -= 1
            told = ignore if left else done
            match write:
                case AppendLog(batches):
                    size = 0
                    for batch in batches:
                        size += batch.size
                    wal.write(batches, size, told)
                case TruncateLog(end):
                    wal.truncate(end, told)
                case ResetLog(end, term):
                    self._reset = (term, end)
                    wal.reset(end, term, told)
                case WriteTerm(term, vote):
                    self._write_control(replace(self.state, term=term, vote=vote), told)
                case EndRecovery():
                    self._write_control(replace(self.state, recovering_until=None, lost_power=False), told)
                case WriteHistory(history):
                    self._write_history(history, told)

    def remember_peer(self, node: str, incarnation: str) -> None:
        """Store the incarnation of a peer, replacing an earlier one; see ``ControlState.peers``."""
        if (node, incarnation) in self.state.peers:
            return
        others = tuple(peer for peer in self.state.peers if peer[0] != node)
        self._write_control(replace(self.state, peers=(*others, (node, incarnation))), ignore)

    def keep_hint(self, end: int) -> None:
        """Store a commit hint that the log has computed, if it is higher. Blocks; on the writer thread.

        Raises:
          StorageError: final.
        """
        state = self._control.state
        assert state is not None, "a node that runs has a control file"
        if end > state.commit_hint:
            self._control.write(replace(state, commit_hint=end))

    async def store_hint(self) -> None:
        """Store the end of the records that are committed and durable here; the hint is durable on return.

        If cancelled, it may be stored all the same.

        Raises:
          StorageError: final.
          ClosedError: the log is closed.
        """
        await self._do(lambda: self.keep_hint(self._wal.durable_commit_end))

    async def mark_installing(self, end: Index, term: Term) -> None:
        """Store that a leader's snapshot is about to be renamed to its name; the mark is durable on return.

        If cancelled, it may be stored all the same: a mark without a file has no effect (``wal/verdict.py``).

        Raises:
          StorageError: final.
          ClosedError: the log is closed.
        """
        self.state = state = replace(self.state, installing=(term, end))
        await self._do(lambda: self._write(state))

    async def _do(self, job: Callable[[], None]) -> None:
        """Run a job on the writer thread, after all earlier writes, and wait for it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        self._wal.run(job, partial(resolve, future))
        await future

    def mark_stopped(self) -> None:
        """Clear the running mark, after the log was synced and closed. Blocks; nothing else may write.

        Raises:
          StorageError: the mark may remain. Then a power cut costs time for recovery, and no record is lost.
        """
        if self.state.running is not None:
            self.state = mark_stopped(self.state)
            self._write(self.state)

    def _write_history(self, history: TermHistory, done: Done) -> None:
        """Store a history. After a reset this completes the installation, and all before the snapshot is committed."""
        state = replace(self.state, history=history.starts)
        reset, self._reset = self._reset, None
        if reset is None:
            self._write_control(state, done)
            return
        term, end = reset
        if state.installing is not None and state.installing <= (term, end):
            state = replace(state, installing=None)  # A mark of a newer snapshot, which is being fetched by now, stays.
        self._write_control(state, done, floor=end)

    def _write_control(self, state: ControlState, done: Done, *, floor: int = 0) -> None:
        self.state = state
        self._wal.run(partial(self._write, state, floor), done)

    def _write(self, state: ControlState, floor: int = 0) -> None:
        """Write a state with the newest commit hint, at least ``floor``. On the writer thread, after a sync."""
        stored = self._control.state
        before = stored.commit_hint if stored is not None else 0
        hint = max(before, self._wal.durable_commit_end, floor)
        self._control.write(replace(state, commit_hint=hint))


def stored_membership(state: ControlState, hint: Membership) -> MembershipEntry:
    """Return the membership at the start of the log: the stored one, or the settings' hint if none is stored."""
    membership = Membership.decode(state.membership) if state.membership else hint
    return MembershipEntry(Index(0), Term(0), membership)


def readdressing_of(state: ControlState) -> Readdressing:
    """Return the addresses that an operator has set on this disk."""
    return Readdressing(state.moved_generation, {NodeId(member): address for member, address in state.moved})


def check_history(history: TermHistory, wal: Wal, scan_from: Index, directory: str) -> None:
    """Check the stored history against the terms in the log's headers from ``scan_from`` on (protocol rule 20).

    Raises:
      CorruptionError: they differ. This is damage, and is not repaired, because the right history is unknown.
    """
    end = wal.recovery.end
    begins = {start.begin: start.term for start in history.starts if scan_from < start.begin < end and start.term > 0}
    if scan_from < end and history.starts[0].begin <= scan_from:
        begins[scan_from] = history.term_at(scan_from)
    found = [(Term(term), Index(index)) for term, index in wal.recovery.term_starts]
    expected = sorted((term, begin) for begin, term in begins.items())
    if found != expected:
        raise CorruptionError(
            f"the log in {directory} holds terms from {found}, the control file has {expected}",
            path=directory,
            expected=str(expected),
            found=str(found),
            remedy="keep the directory, the other members go on without this one; please report it",
        )
