"""Decides whether a log is clean, has a torn tail, or is corrupt. The only place that decides it.

The decision table (:data:`DECISIONS`) is used through :func:`decide`. One of its facts is that the log ends below an
end that it must reach; the second part of this module finds that end (:func:`known_end`).

Two files beside the log have it. Each is written only after the log was synced up to there on this disk:

* the control file's commit hint (``LogStore`` decides when it is written);
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
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from viewstamp.enums import fast_members
from viewstamp.errors import FrameError
from viewstamp.host.interfaces import Disk
from viewstamp.value_class import value_class
from viewstamp.wal.control_file import ControlState
from viewstamp.wal.format import parse_segment_name, segment_name
from viewstamp.wal.scan import Rest, ScanState, SegmentScan, why_not_next
from viewstamp.wal.truncation import MARK_NAME, Mark, read_mark

__all__ = [
    "DECISIONS",
    "Corruption",
    "Decision",
    "Fact",
    "Known",
    "LogJudgement",
    "LogScan",
    "LogVerdict",
    "decide",
    "is_being_installed",
    "judge",
    "judge_files",
    "known_end",
    "reached_end",
    "snapshot_names",
]

LogVerdict = Literal["clean", "torn-tail", "corruption"]


@fast_members
class Fact(Enum):
    """A fact about the first place that a forward pass does not understand."""

    MISSING = "a file that must be there is not"
    UNREADABLE_MARK = "the mark of an unfinished truncation or reset is not readable"
    CONTRADICTS = "intact bytes, written for this place, do not follow from those before them"
    FOLLOWED = "a later segment was written, or a truncation decided: this segment was complete and synced before"
    CALLED_DURABLE = "a later intact group calls this place durable"
    BELOW_HINT = "the log would end here, below an end that is known to be committed"
    ENDS = "a group ended before it, and nothing but zeros or the end of the file follows"


@value_class(kw_only=False)
class Decision:
    """One row: if all of ``facts`` hold and no row above matches, this is the verdict and the consequence."""

    facts: frozenset[Fact]
    verdict: LogVerdict
    action: str


_HEADER = "a segment header that follows the segment before"
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
"""The recovery table, in the order of the one in ``docs/wal-format.md``; the first match wins."""


def decide(facts: Iterable[Fact]) -> Decision:
    """Return the first row of :data:`DECISIONS` whose facts all hold."""
    held = frozenset(facts)
    return next(row for row in DECISIONS if row.facts <= held)


@value_class
class Corruption:
    """One place that was durable and is wrong or missing: file name, byte, expected and found content."""

    segment: str
    location: int
    expected: str
    found: str


@dataclass(slots=True, kw_only=True)
class LogScan:
    """The content of the files of a log: up to the first segment that is not whole, or all of it.

    ``present`` are the numbers of all segment files, ``segments`` the scans of those that belong to the log and were
    written, in order. ``unused`` is the number of a zero-filled segment after them, None = there is none. ``mark`` is
    an unfinished truncation or reset; ``mark_problem`` is the reason why it is not readable.
    """

    present: list[int] = field(default_factory=list)
    mark: Mark | None = None
    mark_problem: str = ""
    unused: int | None = None
    segments: list[SegmentScan] = field(default_factory=list)

    @classmethod
    def of(cls, disk: Disk, directory: str) -> LogScan:
        """List the segments and read the mark; no segment is read yet. Blocking."""
        names = disk.list_directory(directory)
        found = cls(present=sorted(number for name in names if (number := parse_segment_name(name)) is not None))
        try:
            found.mark = read_mark(disk, directory)
        except FrameError as error:
            found.mark_problem = error.message
        return found

    @property
    def numbers(self) -> list[int]:
        """The segments that belong to the log: not those that a truncation has decided to drop."""
        mark = self.mark
        return [n for n in self.present if mark is None or mark.resets or n <= mark.segment]

    @property
    def written(self) -> list[int]:
        """The segments that belong to the log, without the unused one."""
        return [number for number in self.numbers if number != self.unused]

    def limit(self, number: int) -> int | None:
        """Return up to which byte a segment counts; None = all of it."""
        mark = self.mark
        return mark.length if mark is not None and not mark.resets and mark.segment == number else None


@value_class
class Known:
    """Facts about a log from other files.

    ``end``: an end below which all is known to be committed; a log that ends below it has lost records. ``must_exist``:
    there is a log. It may begin at or below ``first_index_max`` (None = anywhere); above it, files are missing.
    ``only``: the number of the only segment that is read, independent of the others; None = all are.
    """

    end: int = 0
    must_exist: bool = False
    first_index_max: int | None = 1
    only: int | None = None

    @classmethod
    def of(cls, disk: Disk, data_dir: str, state: ControlState | None) -> Known:
        """Return the facts from the control file and the names of the snapshots in a data directory; blocking."""
        return cls(
            end=known_end(disk, data_dir, state),
            must_exist=state is not None,
            first_index_max=max((end for end, _ in snapshot_names(disk, data_dir)), default=1),
        )

    def allows(self, first_index: int) -> bool:
        """Return whether the log may begin there."""
        return self.only is not None or self.first_index_max is None or first_index <= self.first_index_max


@value_class
class LogJudgement:
    """The verdict on the files of a log.

    ``first_index`` and ``end`` (exclusive) are those of the records before the first damage. ``torn_bytes`` are to be
    cut; ``torn_number`` is the number of a segment of which not even the header was written whole, None = there is
    none. ``corruption`` None = there is none.
    """

    decision: Decision
    first_index: int
    end: int
    torn_bytes: int = 0
    torn_number: int | None = None
    corruption: Corruption | None = None

    @property
    def verdict(self) -> LogVerdict:
        """The verdict of the table."""
        return self.decision.verdict


def judge(scan: LogScan, known: Known) -> LogJudgement:
    """Return the verdict on the files of a log, by :data:`DECISIONS`; the same for a strict and for a tolerant scan."""
    return _Judge(scan, known).judgement()


def judge_files(scan: LogScan, known: Known) -> LogJudgement | None:
    """Return the judgement where the mark and the names of the files decide alone; None = the segments do."""
    return _Judge(scan, known).judge_files()


def reached_end(scan: LogScan, judged: LogJudgement, known: Known) -> int | None:
    """Return the index after the last record that the log ever held, None = unknown; for a tolerant scan of all.

    If anything is damaged, an apparent torn tail may be damage too, so the end is unknown.
    """
    mark = scan.mark
    if judged.corruption is None:
        return judged.end
    if scan.mark_problem or mark is not None:
        is_there = mark is not None and (mark.resets or mark.segment in scan.present)
        return mark.end if mark is not None and is_there and mark.end >= known.end else None
    segments = list(scan.segments)
    is_followed = scan.unused is not None
    if segments and segments[-1].end is None:
        is_followed = True
        if not segments.pop().is_blank:
            return None
    if not segments or segments[-1].number + is_followed != max(scan.present):
        return None
    last = segments[-1]
    if last.end is None or last.has_torn_end or (last.is_sealed and not is_followed):
        return None
    return last.end if last.end >= max(known.end, *(segment.commit_hint for segment in segments)) else None


class _Judge:
    """Goes through the segments in order up to the first that is not whole.

    ``_end`` is the end of the records so far, ``_has_begun`` is whether a segment of the log was met.
    """

    def __init__(self, scan: LogScan, known: Known) -> None:
        self._scan = scan
        self._known = known
        self._state = ScanState()
        self._first_index = self._end = known.first_index_max or 1
        self._has_begun = False

    def judgement(self) -> LogJudgement:
        judged = self.judge_files()
        for segment in self._scan.segments if judged is None else ():
            if (judged := self._judge_segment(segment)) is not None:
                return judged
        return judged or self._judge_behind()

    def judge_files(self) -> LogJudgement | None:
        scan, known, mark = self._scan, self._known, self._scan.mark
        if scan.mark_problem:
            return self._corrupt({Fact.UNREADABLE_MARK}, MARK_NAME, 0, "a truncation mark", scan.mark_problem)
        if mark is not None and not mark.resets and mark.segment not in scan.present:
            return self._missing(mark.segment, "the segment that was cut")
        if mark is not None and mark.resets and known.only is None:
            return self._judge_reset(mark)
        return self._find_missing_number() if known.only is None else None

    def _judge_reset(self, mark: Mark) -> LogJudgement:
        """Use the log as a reset has left it, or is about to leave it."""
        if not self._known.allows(mark.end):
            return self._missing(mark.segment - 1, self._beginning(mark.end))
        self._first_index = self._end = mark.end
        if mark.end < self._known.end:
            expected = "a reset to what is committed"
            return self._corrupt({Fact.BELOW_HINT}, MARK_NAME, 0, expected, f"one to {mark.end}")
        return self._decided({Fact.ENDS})

    def _find_missing_number(self) -> LogJudgement | None:
        numbers = self._scan.numbers
        if not numbers and (self._known.must_exist or self._known.end > self._end):
            return self._missing(1, "the first segment")
        for expected, number in enumerate(numbers, numbers[0] if numbers else 1):
            if number != expected:
                return self._missing(expected, f"segment {expected}, between {expected - 1} and {number}")
        return None

    def _judge_segment(self, segment: SegmentScan) -> LogJudgement | None:
        """Decide about the place at which the pass over a segment stopped; None = the log continues."""
        scan, state, header, stop = self._scan, self._state, segment.header, segment.stop
        assert stop is not None, "a pass ends with a reason"
        if header is not None:
            wrong = why_not_next(header, segment.number, state)
            if not wrong and not self._has_begun and not self._known.allows(header.first_index):
                return self._missing(segment.number - 1, self._beginning(header.first_index))
            if wrong and not stop.contradicts:
                stop = replace(stop, location=0, complete=True, contradicts=True, expected=_HEADER, found=wrong)
            if not wrong:
                self._first_index = self._first_index if self._has_begun else header.first_index
                self._has_begun = True
                state.enter(header)
                state.end, state.term, state.number = stop.end, stop.term, stop.group
                self._end = stop.end if stop.end is not None else header.first_index
        state.commit_hint = max(state.commit_hint, segment.commit_hint)
        facts: set[Fact] = {Fact.CONTRADICTS} if stop.contradicts else set()
        is_followed = segment.number != scan.written[-1] or (stop.location == 0 and scan.unused is not None)
        mark = scan.mark
        if mark is not None and mark.segment == segment.number:
            if stop.location == mark.length and self._end == mark.end and self._end >= self._known.end:
                return None
            is_followed = True
        elif is_followed and segment.is_whole and not facts:
            return None
        if is_followed:
            facts.add(Fact.FOLLOWED)
        elif segment.rest is Rest.BYTES:
            if not facts and self._is_called_durable(segment):
                facts.add(Fact.CALLED_DURABLE)
        elif stop.complete:
            facts.add(Fact.ENDS)
        if not is_followed and self._lacks_end and self._known.only is None:
            facts.add(Fact.BELOW_HINT)
        judged = self._decided(facts)
        if judged.verdict == "corruption":
            return self._corrupt(facts, segment_name(segment.number), stop.location, stop.expected, stop.found)
        if judged.verdict == "clean":
            return None
        return replace(judged, torn_bytes=segment.used, torn_number=segment.number if segment.header is None else None)

    def _is_called_durable(self, segment: SegmentScan) -> bool:
        later = segment.later
        if later is None or segment.header is not None:
            return later is not None
        return later.generation > self._state.generation and later.number > self._state.number

    @property
    def _lacks_end(self) -> bool:
        """Whether the log ends below an end that it has reached once.

        A log without any written record ends where a snapshot allows it to begin, whatever it held before.
        """
        end = self._end if self._has_begun else 1
        return end < max(self._known.end, self._state.commit_hint)

    def _judge_behind(self) -> LogJudgement:
        """Look for missing files after the last segment."""
        scan, known = self._scan, self._known
        if not self._has_begun:
            is_hidden = scan.unused is not None and scan.unused != 1
            if known.only is None and (is_hidden or self._lacks_end):
                return self._missing(max(1, (scan.present[0] if scan.present else 1) - 1), "a written segment")
            return self._decided({Fact.ENDS})
        last = scan.segments[-1]
        if last.is_sealed and scan.mark is None and last.number + 1 not in scan.present:
            return self._missing(last.number + 1, f"a file, as segment {last.number} says that another one follows")
        return self._decided({Fact.ENDS})

    def _beginning(self, first_index: int) -> str:
        return (
            f"a log that begins at index {self._known.first_index_max} or below; this one begins at {first_index}, so a"
            f" snapshot that reaches index {first_index} is needed"
        )

    def _missing(self, number: int, expected: str) -> LogJudgement:
        return self._corrupt({Fact.MISSING}, segment_name(number), 0, expected, "no such file")

    def _corrupt(self, facts: set[Fact], segment: str, location: int, expected: str, found: str) -> LogJudgement:
        """Return the judgement of a damage, with the reason why it is no torn tail."""
        reasons = {
            Fact.FOLLOWED: "where everything had been synced before the log went on elsewhere",
            Fact.CALLED_DURABLE: "and a later group calls this place durable",
            Fact.BELOW_HINT: f"and the log would end at index {self._end}, below what is known to be committed",
        }
        found = ", ".join([found, *(text for fact, text in reasons.items() if fact in facts)])
        corruption = Corruption(segment=segment, location=location, expected=expected, found=found)
        return replace(self._decided(facts), corruption=corruption)

    def _decided(self, facts: set[Fact]) -> LogJudgement:
        return LogJudgement(decision=decide(facts), first_index=self._first_index, end=self._end)


_SNAPSHOT = re.compile(r"(\d{20})-(\d+)\.snapshot", re.ASCII)
"""A snapshot's file name: the end that it covers, and the term of the record before that end."""


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
    """Return the end that the log of a data directory must reach; 0 = unknown. Blocking, reads names only.

    Args:
      disk: the disk with the files.
      data_dir: the node's directory.
      state: the content of its control file; None = there is none.
    """
    ends = [end for end, term in snapshot_names(disk, data_dir) if not is_being_installed(state, end, term)]
    return max([state.commit_hint if state is not None else 0, *ends])
