"""The one translator between the core's writes and the WAL with its control file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.ready import AppendLog, EndSilence, ResetLog, TruncateLog, Write, WriteHistory, WriteTerm
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import CorruptionError
from viewstamp.ids import Index, Term
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.wal import Wal

__all__ = ["LogStore", "check_history", "stored_membership"]

Done = Callable[[BaseException | None], None]


class LogStore:
    """Makes the core's writes durable, in exactly the order in which it handed them out.

    Everything goes through the WAL's one lane, the control file too: a write is durable no earlier than all
    those before it. A failed write is final; the WAL reports it once and refuses everything afterwards.

    Invariants:
      * ``state`` is what the control file will hold once all writes so far are durable
    """

    def __init__(self, wal: Wal, control: ControlFile, state: ControlState) -> None:
        self._wal = wal
        self._control = control
        self.state = state

    @property
    def durable_state(self) -> ControlState | None:
        """What the control file holds durably now; for checkers."""
        return self._control.state

    def persist(self, writes: Sequence[Write], done: Done) -> None:
        """Queue ``writes``; ``done`` is called when the last is durable, and all before it are.

        Never awaits. Dying on the way leaves a prefix of the writes, each of them whole or absent.
        """
        for write in writes[:-1]:
            self._queue(write, _ignore)
        self._queue(writes[-1], done)

    def remember_peer(self, node: str, incarnation: str) -> None:
        """Store the incarnation of a peer in the place of any other; see ``ControlState.peers``."""
        if (node, incarnation) in self.state.peers:
            return
        others = tuple(peer for peer in self.state.peers if peer[0] != node)
        self._write_control(replace(self.state, peers=(*others, (node, incarnation))), _ignore)

    def set_commit_end(self, commit_end: Index) -> None:
        """Let the next group carry what is committed: never more than is durable here (protocol rule 8)."""
        self._wal.commit_hint = commit_end

    def _queue(self, write: Write, done: Done) -> None:
        match write:
            case AppendLog(batches):
                reservation = self._wal.reserve(sum(batch.size for batch in batches), urgent=True)
                self._wal.fill(reservation, batches, done)
            case TruncateLog(end):
                self._wal.truncate(end, done)
            case ResetLog(end, term):
                self._wal.reset(end, term, done)
            case WriteTerm(term, vote):
                self._write_control(replace(self.state, term=term, vote=vote), done)
            case EndSilence():
                self._write_control(replace(self.state, silent_until=None), done)
            case WriteHistory(history):
                self._write_control(replace(self.state, history=history.starts), done)

    def _write_control(self, state: ControlState, done: Done) -> None:
        self.state = state
        self._wal.run(partial(self._control.write, state), done)


def stored_membership(state: ControlState, hint: Membership) -> MembershipEntry:
    """Return the membership at the start of the log: the stored one, or the settings' hint where there is none."""
    membership = Membership.decode(state.membership) if state.membership else hint
    return MembershipEntry(Index(0), Term(0), membership)


def check_history(history: TermHistory, wal: Wal, scan_from: Index, directory: str) -> None:
    """Check the stored history against the terms in the log's headers from ``scan_from`` on (protocol rule 20).

    Raises:
      CorruptionError: they differ. It is damage, and never repaired by guessing.
    """
    end = wal.recovery.end
    begins = {start.begin: start.term for start in history.starts if scan_from < start.begin < end and start.term > 0}
    if scan_from < end and history.starts[0].begin <= scan_from:
        begins[scan_from] = history.term_at(scan_from)
    found = [(Term(term), Index(index)) for term, index in wal.recovery.term_starts]
    expected = sorted((term, begin) for begin, term in begins.items())
    if found != expected:
        raise CorruptionError(
            f"the log in {directory} holds terms from {found}, the control file says {expected}",
            path=directory,
            expected=str(expected),
            found=str(found),
            remedy="keep the directory, the other members go on without this one; please report it",
        )


def _ignore(_: BaseException | None) -> None:
    """Failures are told once, by ``Wal.start(on_failed)``."""
