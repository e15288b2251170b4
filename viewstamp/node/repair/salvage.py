"""The records that a member can send to others while it repairs its own log.

Members that are damaged at different places help each other, so that a record is lost only if all copies of it are. A
member sends only batches that its repaired log will certainly have: intact ones below an end that is known to be
committed.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import UnavailableError
from viewstamp.host.interfaces import Disk
from viewstamp.node.peers.peer_client import LostError
from viewstamp.node.repair.refetch import is_described
from viewstamp.wal.assessment import SegmentAssessment, salvage
from viewstamp.wire.batch import Batch

__all__ = ["SalvagedLog"]


class SalvagedLog:
    """The intact parts of a damaged log, readable during the repair.

    Invariants:
      * it returns no batch from ``commit_end`` on, and none that the history does not describe
    """

    def __init__(
        self, disk: Disk, parts: Sequence[SegmentAssessment], *, commit_end: int, history: TermHistory
    ) -> None:
        """Prepare reads of the parts; nothing is read yet.

        Args:
          disk: of the log.
          parts: of the log; their readable contents do not contradict each other.
          commit_end: an end below which all records of this log are known to be committed.
          history: the terms of this log.
        """
        self._disk = disk
        self._parts = parts
        self._commit_end = commit_end
        self._history = history

    def read(self, start: int, end: int, bytes_max: int) -> list[Batch]:
        """Return batches from index ``start`` on, at least one, none beyond ``end``; blocking.

        Raises:
          LostError: they are not here.
          UnavailableError: they are not known to be committed.
          StorageError: a file cannot be read.
        """
        parts = [part for part in self._parts if any(first <= start < behind for first, behind in part.runs)]
        if not parts:
            raise LostError(f"this member repairs its log too, and has lost index {start}", remedy="ask another member")
        batches = [] if end > self._commit_end else self._read(parts[-1], start, end, bytes_max)
        if not batches:
            raise UnavailableError(
                f"this member repairs its log too, and does not know whether index {start} is committed",
                remedy="ask another member",
            )
        return batches

    def _read(self, part: SegmentAssessment, start: int, end: int, bytes_max: int) -> list[Batch]:
        batches: list[Batch] = []
        at, size = start, 0
        try:
            for batch in salvage(self._disk, part, start, end):
                size += batch.size
                is_next = batch.first_index == at and batch.end <= end and is_described(batch, self._history)
                if not is_next or (batches and size > bytes_max):
                    break
                batches.append(batch)
                at = batch.end
        except FileNotFoundError:
            pass  # The repair has set the file aside since.
        return batches
