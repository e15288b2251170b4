"""What holds of the cores after every event (design §11, protocol-rules §5).

| invariant | sentence |
| --- | --- |
| OneLeader | a term has one leader |
| HistoryTrue | a member's history gives every record in its log the term in the record's header |
| OneRecord | a viewstamp belongs to one record |
| CommittedStays | what one member knows to be committed at an index is what every other one does |
| NoCutBelowCommit | a member's log never ends below its own commit index |
| DurableIsDurable | what a core believes to be durable is on its disk |
| AckDurable | what a leader counts for a member is on that member's disk |

Looked at are the members that changed since the last event, and of their logs only what is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewstamp.consensus.progress import ProgressState
from viewstamp.ids import Index, NodeId, Term
from viewstamp.sim.checkers.violation import Violation
from viewstamp.wire.batch import Batch

if TYPE_CHECKING:
    from viewstamp.consensus.core import Core
    from viewstamp.node.node import Node
    from viewstamp.sim.world import World

__all__ = ["ConsensusChecker"]

_Record = tuple[Term, bytes]


class _Seen:
    """What was seen of one process of a member."""

    __slots__ = ("accept_term", "commit_end", "core", "end", "state")

    def __init__(self, core: Core) -> None:
        self.core = core
        self.accept_term = Term(0)
        self.state: tuple[object, ...] = ()
        self.end = Index(0)
        self.commit_end = Index(0)


class ConsensusChecker:
    """Watches every core of a world."""

    def __init__(self, world: World) -> None:
        self.leaders: dict[Term, NodeId] = {}
        self.records: dict[tuple[Term, Index], bytes] = {}
        """The body checksum of every batch seen in a log, by the viewstamp of its first record."""
        self.committed: dict[Index, _Record] = {}
        """The batch that is committed at each first index."""
        self._world = world
        self._seen: dict[NodeId, _Seen] = {}

    def after_event(self) -> None:
        """Look at what changed. Raises Violation."""
        for member in self._world.members:
            node = member.node
            if node is None or node.replica is None:
                continue
            core = node.replica.raft.core
            log = core.log
            state = (core.term, log.end, log.durable_end, log.commit_end, core.leader, core.installing, core.history)
            seen = self._seen.get(member.id)
            if seen is None or seen.core is not core:
                seen = self._seen[member.id] = _Seen(core)
            elif seen.state == state:
                continue
            self._check(node, core, seen)
            seen.state = state

    def _check(self, node: Node, core: Core, seen: _Seen) -> None:
        log = core.log
        assert node.wal is not None, "a replica has a log"
        if log.durable_end > node.wal.durable_end:
            raise Violation(
                "DurableIsDurable", f"{core.me} believes {log.durable_end}, its disk {node.wal.durable_end}"
            )
        if core.leader == core.me:
            leader = self.leaders.setdefault(core.term, core.me)
            if leader != core.me:
                raise Violation("OneLeader", f"{leader} and {core.me} lead term {core.term}")
            self._check_acknowledged(core)
        if log.commit_end > log.end or log.commit_end < seen.commit_end:
            raise Violation(
                "NoCutBelowCommit",
                f"{core.me}: committed up to {seen.commit_end}, now {log.commit_end}, the log ends at {log.end}",
            )
        # After a cut, or in a new term, everything that is not committed may be other than it was.
        is_same = seen.accept_term == core.accept_term and log.end >= seen.end
        for batch in log.since(seen.end if is_same else log.commit_end):
            self._check_batch(core, batch)
        for batch in log.since(seen.commit_end):
            if seen.commit_end < batch.end <= log.commit_end:
                self._check_committed(core, batch)
        seen.end = log.end
        seen.accept_term = core.accept_term
        seen.commit_end = log.commit_end

    def _check_batch(self, core: Core, batch: Batch) -> None:
        if core.history.term_at(batch.first_index) != batch.term:
            raise Violation("HistoryTrue", f"{core.me} has {batch!r}, its history is {core.history}")
        checksum = bytes(batch.buffer[48:52])
        known = self.records.setdefault((batch.term, batch.first_index), checksum)
        if known != checksum:
            raise Violation("OneRecord", f"{core.me} has another {batch.term}.{batch.first_index} than was seen before")

    def _check_committed(self, core: Core, batch: Batch) -> None:
        record = (batch.term, bytes(batch.buffer[48:52]))
        known = self.committed.setdefault(batch.first_index, record)
        if known != record:
            raise Violation(
                "CommittedStays", f"{core.me} has {batch!r} committed, term {known[0]} was committed at that index"
            )

    def _check_acknowledged(self, core: Core) -> None:
        """Compare what the leader counts with what the member, if it lives, has durable in the same term."""
        for member in self._world.members:
            progress = core.progress.get(member.id)
            node = member.node
            if progress is None or progress.state is not ProgressState.REPLICATING or node is None:
                continue
            if node.replica is None or node.wal is None or node.replica.raft.core.accept_term != core.term:
                continue
            durable_end = node.wal.durable_end
            if progress.durable_end > durable_end:
                raise Violation(
                    "AckDurable",
                    f"{core.me} counts {member.id} up to {progress.durable_end}, on its disk is {durable_end}",
                )
