"""What the state of a log's files means: clean, torn tail or corruption. The only place that decides it.

The decision table (:data:`DECISIONS`) is asked through :func:`decide`. One of its facts is that the log ends below an
end that it must reach; the second part of this module says which end that is (:func:`known_end`).

Two files beside the log say it. Each is written only after the log was synced up to there on this disk:

* the control file's commit hint (``LogStore`` says when it is written);
* the name of a snapshot. A node gives its own snapshot a name after the log it covers is synced, and a leader's
  snapshot after the control file says that it is being installed (``ControlState.installing``).

So a log that ends below that end has lost records that it may have acknowledged. That is damage (protocol rule 17) and
never a torn tail. The exception is a snapshot of a leader that the node did not finish to install: the log ends below
it because the log has not been reset yet.

| snapshot file | commit hint at or above its end | the mark names it, or a later one | meaning |
| --- | --- | --- | --- |
| any | yes | either | the log held it: an end below is damage |
| any | no | yes | it was being installed |
| any | no | no | the log held it (an older version wrote no hint): an end below is damage |

The mark names a snapshot that has the same end and term or lower ones, because a member may fetch a newer snapshot
while the first one waits to be installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from viewstamp.enums import fast_members
from viewstamp.host.interfaces import Disk
from viewstamp.wal.control_file import ControlState

__all__ = [
    "DECISIONS",
    "Corruption",
    "Decision",
    "Fact",
    "LogVerdict",
    "decide",
    "is_being_installed",
    "known_end",
    "snapshot_names",
]

LogVerdict = Literal["clean", "torn-tail", "corruption"]


@fast_members
class Fact(Enum):
    """What can be true of the first place that a forward pass does not understand."""

    MISSING = "a file that must be there is not"
    UNREADABLE_MARK = "the mark of an unfinished truncation or reset is not readable"
    CONTRADICTS = "intact bytes, written for this place, do not follow from those before them"
    FOLLOWED = "a later segment was written, or a truncation decided: this segment was complete and synced before"
    CALLED_DURABLE = "a later intact group calls this place durable"
    BELOW_HINT = "the log would end here, below an end that is known to be committed"
    ENDS = "a group ended before it, and nothing but zeros or the end of the file follows"


@dataclass(frozen=True, slots=True)
class Decision:
    """One row: if all of ``facts`` hold and no row above matches, this is the verdict and what is done."""

    facts: frozenset[Fact]
    verdict: LogVerdict
    action: str


_REFUSE = "refuse to start, change nothing"
DECISIONS = (
    Decision(frozenset({Fact.MISSING}), "corruption", _REFUSE),
    Decision(frozenset({Fact.UNREADABLE_MARK}), "corruption", _REFUSE),
    Decision(frozenset({Fact.CONTRADICTS}), "corruption", _REFUSE),
    Decision(frozenset({Fact.FOLLOWED}), "corruption", _REFUSE),
    Decision(frozenset({Fact.CALLED_DURABLE}), "corruption", _REFUSE),
    Decision(frozenset({Fact.BELOW_HINT}), "corruption", _REFUSE),
    Decision(frozenset({Fact.ENDS}), "clean", "go on writing here"),
    Decision(frozenset(), "torn-tail", "cut here, sync, go on writing here"),
)
"""The recovery table, in the order of the one in the docstring of ``viewstamp.wal``; the first match wins."""


def decide(facts: Iterable[Fact]) -> Decision:
    """Return the first row of :data:`DECISIONS` all of whose facts hold."""
    held = frozenset(facts)
    return next(row for row in DECISIONS if row.facts <= held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """One place that was durable and is wrong or missing: file name, byte, what should and what does stand there."""

    segment: str
    location: int
    expected: str
    found: str


_SNAPSHOT = re.compile(r"(\d{20})-(\d+)\.snapshot", re.ASCII)
"""A snapshot's file: the end of what it covers, and the term of the record before that."""


def snapshot_names(disk: Disk, data_dir: str) -> list[tuple[int, int]]:
    """Return (end, term) of each snapshot in a data directory, by the names of the files; blocking."""
    names = disk.list_directory(f"{data_dir}/snapshots")
    return [(int(found[1]), int(found[2])) for name in names if (found := _SNAPSHOT.fullmatch(name))]


def is_being_installed(state: ControlState | None, end: int, term: int) -> bool:
    """Return whether a snapshot is a leader's whose installation did not finish, by the table above."""
    if state is None or state.installing is None or end <= state.commit_hint:
        return False
    marked_term, marked_end = state.installing
    return end <= marked_end and term <= marked_term


def known_end(disk: Disk, data_dir: str, state: ControlState | None) -> int:
    """Return the end that the log of a data directory must reach; 0 = nothing is known. Blocking, reads names only.

    Args:
      disk: where the files are.
      data_dir: the node's directory.
      state: what its control file holds; None = there is none.
    """
    ends = [end for end, term in snapshot_names(disk, data_dir) if not is_being_installed(state, end, term)]
    return max([state.commit_hint if state is not None else 0, *ends])
