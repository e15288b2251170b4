"""The second step of a start: loads the newest whole snapshot, replays the log after it, and checks both.

| found | reaction |
| --- | --- |
| no snapshot, the log begins at 1 | the log is replayed from 1 |
| a snapshot, and a log with its last record: the same term by history and header | replayed from the snapshot's end |
| such a snapshot that the control file says was being installed | the installation is finished: see below |
| any other snapshot that the log does not reach | the log lost its end: damage, nothing is changed |
| any other snapshot that the log contradicts | damage, nothing is changed |
| a damaged snapshot | set aside; the next older one, as long as the log reaches back to it |
| no whole snapshot, the log begins above 1 | refused, because the state before the log is unknown |

A node that died while a leader's snapshot was being installed has the file, durable, a mark in the control file that
names it (``wal/verdict.py``), and perhaps still the old log. The log is reset to the snapshot's end, and then its
history is stored and the mark cleared, in this order (protocol rule 19). This can be repeated.

Before any message is sent, the running mark is stored, and with it the pair that the log must reach after a power loss
(``running_mark.py``).

All of this blocks, and belongs in an executor. If the process dies in between, a prefix of these steps is done: damaged
snapshots set aside; the log's torn end cut; the control file of a new directory; the running mark; the history of a
log that begins anew; an installation finished. The next start does the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.state import SnapshotPoint, Stored
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import CorruptionError
from viewstamp.host.interfaces import Host
from viewstamp.host.logger import Logger
from viewstamp.ids import Index, NodeId, Term
from viewstamp.node.applier import Applier
from viewstamp.node.data_dir import DataDir
from viewstamp.node.log_store import LogStore, check_history, readdressing_of, stored_membership
from viewstamp.node.options import NodeOptions
from viewstamp.node.running_mark import mark_started
from viewstamp.node.snapshots.file import SnapshotMeta
from viewstamp.node.snapshots.store import SnapshotStore, StoredSnapshot
from viewstamp.node.state_machine import StateMachine
from viewstamp.wal.control_file import ControlState
from viewstamp.wal.log import Wal
from viewstamp.wal.verdict import is_being_installed, known_end
from viewstamp.wire.batch import Batch, Kind

__all__ = ["InitialState", "Recovered", "point_of", "replay"]

_PIECE_BYTES = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Recovered:
    """The recovered state, ready to run. Loading the snapshot of ``load_bytes`` took ``load_seconds``."""

    stored: Stored
    wal: Wal
    """Open, and not started."""
    applier: Applier
    log_store: LogStore
    snapshots: SnapshotStore
    incarnation: str
    member_id: NodeId
    is_new: bool
    load_seconds: float
    load_bytes: int


class InitialState:
    """The initial state of a machine, to restore before a log is replayed again."""

    def __init__(self, machine: StateMachine) -> None:
        """Keep ``machine``, to which nothing has been applied."""
        self._machine = machine
        self._pieces: list[bytes] | None = None

    def restore(self) -> None:
        """Restore the initial state; the first call does nothing. Blocks."""
        if self._pieces is not None:
            self._machine.adopt(self._machine.prepare(self._pieces))
            return
        cut = self._machine.begin_snapshot()
        self._pieces = list(iter(lambda: cut.next_piece(_PIECE_BYTES), None))
        cut.close()


def point_of(meta: SnapshotMeta) -> SnapshotPoint:
    """Return the point in the log that a snapshot covers, in the form of the core."""
    entry = MembershipEntry(
        Index(meta.membership_index), Term(meta.membership_term), Membership.decode(meta.membership)
    )
    return SnapshotPoint(
        end=meta.end,
        last_term=meta.term,
        history=TermHistory(meta.history),
        membership=entry,
        log_time=meta.log_time,
    )


def replay(
    directory: DataDir,
    host: Host,
    machine: StateMachine,
    options: NodeOptions,
    *,
    members: Membership,
    on_wal: Callable[[Wal], None],
    check_stop: Callable[[], None],
    log: Logger,
) -> Recovered:
    """Build the state from snapshot and log, open the log, and store the control state that the core needs.

    Args:
      directory: open; nothing else uses it.
      host: the machine.
      machine: the state machine, in its initial state.
      options: of the node.
      members: the settings' hint, for a log without a membership.
      on_wal: called with the log when it is open, because it must be closed or abandoned from then on.
      check_stop: called repeatedly; it raises to cancel the replay.
      log: for lines about damaged snapshots.

    Raises:
      ConfigError: segments of another log, or files of a newer format.
      OutdatedCodeError: a newer release wrote the state.
      CorruptionError: damage; nothing was changed.
      StorageError: the disk failed.
    """
    applier = Applier(machine, host.clock)
    started = host.clock.monotonic()
    snapshot = _load_newest(directory.snapshots, applier, check_stop, log)
    load_seconds = host.clock.monotonic() - started
    begin = applier.applied_end
    log_pass = _Replay(applier)
    wal = _open_log(directory, options, log_pass, check_stop)
    on_wal(wal)
    state = _store_start(directory, host, options, wal.end, log)
    history = TermHistory(state.history)
    if snapshot is None and wal.end == 1 < history.starts[0].begin:
        # A repair has set the whole log aside, and it begins anew, so the terms of its records must go too.
        history = TermHistory()
        state = directory.write(replace(state, history=history.starts))
    if snapshot is not None and not _holds(wal, history, snapshot):
        if not is_being_installed(state, snapshot.end, snapshot.term):
            raise _contradicted(wal, history, snapshot)
        log.warning("! the log is reset to a snapshot that was being installed", index=snapshot.end - 1)
        assert applier.applied_end == begin, "no record of a log that contradicts a snapshot is applied"
        log_pass = _Replay(applier)
        wal.reset_now(snapshot.end, snapshot.term)
        history = TermHistory(snapshot.meta.history)
        state = directory.write(replace(state, history=history.starts, installing=None, commit_hint=snapshot.end))
    else:
        log_pass.apply(max(wal.recovery.commit_hint, state.commit_hint))
        check_history(history, wal, begin, directory.path)
    wal.commit_hint = max(wal.commit_hint, applier.applied_end)
    base = stored_membership(state, members) if snapshot is None else point_of(snapshot.meta).membership
    return Recovered(
        stored=Stored(
            term=Term(state.term),
            vote=state.vote,
            history=history,
            first_index=wal.first_index,
            end=wal.end,
            commit_end=applier.applied_end,
            log_time=max(applier.log_time, log_pass.log_time),
            tail=log_pass.tail(),
            memberships=[base, *log_pass.memberships],
            recovering_until=_pair(state.recovering_until),
            lost_power=state.lost_power,
            promised_us=state.promise_us,
            readdressing=readdressing_of(state),
        ),
        wal=wal,
        applier=applier,
        log_store=LogStore(wal, directory.control, state),
        snapshots=directory.snapshots,
        incarnation=state.incarnation,
        member_id=NodeId(state.member_id) or options.node,
        is_new=base.index == 0 and not log_pass.memberships and not state.membership,
        load_seconds=load_seconds,
        load_bytes=snapshot.size if snapshot is not None else 0,
    )


def _open_log(directory: DataDir, options: NodeOptions, log_pass: _Replay, check_stop: Callable[[], None]) -> Wal:
    """Open the log and read the batches after the loaded snapshot."""
    state, applier = directory.state, log_pass.applier

    def on_batch(batch: Batch, commit_end: int) -> None:
        check_stop()
        if state is None:
            raise directory.orphan(f"a log from index {batch.first_index} on")
        log_pass.on_batch(batch, commit_end)

    begin = applier.applied_end
    try:
        return Wal.open(
            directory.disk,
            directory.wal_path,
            options.wal,
            on_batch=on_batch,
            must_exist=state is not None,
            commit_hint=known_end(directory.disk, directory.path, state),
            first_index=begin,
            previous_term=applier.applied_term,
            scan_from=begin,
            log_id=directory.log_id,
        )
    except CorruptionError as error:
        if directory.snapshots.damaged:
            found = "; ".join(str(damaged.error) for damaged in directory.snapshots.damaged)
            error.message += f" (and no snapshot that is whole reaches the log; damaged: {found})"
        raise


def _store_start(directory: DataDir, host: Host, options: NodeOptions, end: Index, log: Logger) -> ControlState:
    """Store the owner of a new directory, and then the running mark; return the state of the control file."""
    state = directory.state
    if state is None:
        state = directory.write(
            ControlState(
                cluster_id=options.cluster,
                node_id=options.node,
                incarnation=f"{host.entropy.getrandbits(64):016x}",
                log_id=directory.log_id,
                group=options.group,
            )
        )
    marked = mark_started(state, host.boot_id(), is_interval=options.is_interval)
    if marked.recovering_until != state.recovering_until:
        log.error(
            "! the machine lost power: acknowledged records that were not synced may be gone here",
            end=end,
            pair=marked.recovering_until,
            remedy="nothing: this member votes and counts again when it has all records of the others",
        )
    # Written before the first message of this process, so that the next process keeps the promises that this one gives.
    return directory.write(replace(marked, promise_us=max(marked.promise_us, options.core.lease_us)))


def _load_newest(
    snapshots: SnapshotStore, applier: Applier, check_stop: Callable[[], None], log: Logger
) -> StoredSnapshot | None:
    """Adopt the newest whole snapshot, and set newer damaged ones aside. None = there is none."""
    for damaged in snapshots.damaged:
        log.error("! damaged snapshot", path=damaged.path, reason=str(damaged.error))
    for stored in list(snapshots.stored):
        check_stop()
        try:
            prepared = applier.machine.prepare(snapshots.load(stored))
        except CorruptionError as error:
            log.error("! damaged snapshot", path=stored.path, reason=str(error))
            snapshots.set_aside(stored, error)
            continue
        applier.adopt(prepared, point_of(stored.meta))
        return stored
    return None


def _holds(wal: Wal, history: TermHistory, snapshot: StoredSnapshot) -> bool:
    """Return whether the log holds the snapshot's last record.

    Its term is compared twice: as the log's headers have it, and as the term history has it.
    """
    last = Index(snapshot.end - 1)
    described = history.term_at(last) if history.starts[0].begin <= last else Term(0)
    return wal.end >= snapshot.end and wal.recovery.previous_term == snapshot.term == described


class _Replay:
    """Collects the result of reading the log: the applied state, batches that may be uncommitted, memberships."""

    def __init__(self, applier: Applier) -> None:
        self.memberships: list[MembershipEntry] = []
        self.log_time = 0
        self.applier = applier
        self._pending: deque[Batch] = deque()
        self._commit_end = 0
        """All batches below this index have been applied."""

    def on_batch(self, batch: Batch, commit_end: int) -> None:
        """Take the next batch of the log, and the commit end at the time when it was written."""
        self.log_time = max(self.log_time, batch.log_time)
        if batch.kind is Kind.MEMBERSHIP:
            membership = Membership.decode(batch.values()[0])
            self.memberships.append(MembershipEntry(batch.first_index, batch.term, membership))
        self._pending.append(batch)
        # Once a group: its batches were not known to be committed when its header was written.
        if commit_end != self._commit_end or batch.end <= commit_end:
            self.apply(commit_end)

    def apply(self, commit_end: int) -> None:
        """Apply the batches that are known to be committed."""
        self._commit_end = commit_end
        self.applier.apply_to(self._pending, commit_end)

    def tail(self) -> list[Batch]:
        """Return the rest, copied, because a batch that was read from disk keeps the whole buffer of the read."""
        return [Batch.decode(bytearray(batch.buffer), verify=False) for batch in self._pending]


def _pair(stored: tuple[int, int] | None) -> tuple[Term, Index] | None:
    return None if stored is None else (Term(stored[0]), Index(stored[1]))


def _contradicted(wal: Wal, history: TermHistory, snapshot: StoredSnapshot) -> CorruptionError:
    """Return the error about a log that has another last record than a snapshot; nothing was changed."""
    last = Index(snapshot.end - 1)
    described = history.term_at(last) if history.starts[0].begin <= last else Term(0)
    found = f"term {wal.recovery.previous_term} by the log's headers, term {described} by the term history"
    return CorruptionError(
        f"the log in {wal.directory} contradicts the snapshot {snapshot.path}: the record of index {last} has term"
        f" {snapshot.term} in the snapshot, {found}, and the snapshot was not being installed",
        path=wal.directory,
        expected=f"term {snapshot.term} at index {last}",
        found=found,
        remedy="nothing was changed; keep the directory, the other members go on without this one. If a snapshot or the"
        " log was put here from elsewhere, take it out again",
    )
