"""What the files of a log mean after whatever happened to them: the decision table, and the survey that asks it.

The survey only reads. What follows from its verdict (cutting a torn tail, refusing to start) is done by
``wal.Wal.open``; ``verify`` stops at the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from viewstamp.errors import CorruptionError
from viewstamp.host.seam import Disk, File
from viewstamp.ids import Index
from viewstamp.wal.catalogue import Segment
from viewstamp.wal.format import GroupHeader, parse_segment_name, segment_name
from viewstamp.wal.segment import Chain, Pass, Rest, Stop, later_durable, rest_of
from viewstamp.wire.batch import Batch

__all__ = ["DECISIONS", "Damage", "Decision", "Fact", "Recovery", "Survey", "Verdict", "decide", "survey"]

Verdict = Literal["clean", "torn-tail", "corruption"]


class Fact(Enum):
    """What can be true of the first place that a forward pass does not understand."""

    MISSING = "a file that must be there is not"
    CONTRADICTS = "intact bytes, tied to this place, do not follow from those before them"
    FOLLOWED = "a later segment was written: this one was complete and synced before"
    CALLED_DURABLE = "a later intact group calls this place durable"
    BELOW_HINT = "the log ends here, below an end that is known to be committed"
    ENDS = "a group ended before it, and nothing but zeros or the end of the file follows"


@dataclass(frozen=True, slots=True)
class Decision:
    """One row: if all of ``facts`` hold and no row above matches, this is the verdict and what is done."""

    facts: frozenset[Fact]
    verdict: Verdict
    action: str


DECISIONS = (
    Decision(frozenset({Fact.MISSING}), "corruption", "refuse"),
    Decision(frozenset({Fact.CONTRADICTS}), "corruption", "refuse"),
    Decision(frozenset({Fact.FOLLOWED}), "corruption", "refuse"),
    Decision(frozenset({Fact.CALLED_DURABLE}), "corruption", "refuse"),
    Decision(frozenset({Fact.BELOW_HINT}), "corruption", "refuse"),
    Decision(frozenset({Fact.ENDS}), "clean", "go on from here"),
    Decision(frozenset(), "torn-tail", "cut from here, sync, go on from here"),
)
"""The recovery table, in the order of the one in the docstring of ``viewstamp.wal``; the first match wins."""


def decide(facts: Iterable[Fact]) -> Decision:
    """Return the first row of :data:`DECISIONS` all of whose facts hold."""
    held = frozenset(facts)
    return next(row for row in DECISIONS if row.facts <= held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One place that was durable and is wrong or missing: file name, byte, what should and what does stand there."""

    segment: str
    location: int
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What opening the log found. ``end`` is exclusive; ``torn_bytes`` were cut off.

    ``commit_hint`` is the highest in any group header: an end below which all was known to be committed.
    ``term_starts`` are the runs of terms in the batch headers, as (term, index of its first record here).
    """

    verdict: Verdict
    segments: int
    batches: int
    records: int
    first_index: Index
    end: Index
    commit_hint: int
    torn_bytes: int
    term_starts: tuple[tuple[int, int], ...]


@dataclass(slots=True, kw_only=True)
class Survey:
    """Everything a forward pass over a log directory learnt.

    ``segments`` are those that were written, each with the length that is intact. ``unused`` is the number of a
    zero-filled segment behind them, ``torn_number`` that of one in which not even the segment header was written
    whole; None = there is none. ``last_group`` is the last group header in the last of ``segments``, None = there is
    none.
    """

    decision: Decision | None = None
    segments: list[Segment] = field(default_factory=list)
    unused: int | None = None
    chain: Chain = field(default_factory=Chain)
    torn_number: int | None = None
    last_group: GroupHeader | None = None
    batches: int = 0
    records: int = 0
    torn_bytes: int = 0
    first_index: int = 1
    term_starts: list[tuple[int, int]] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the table."""
        return self.decision.verdict if self.decision is not None else "clean"

    @property
    def end(self) -> int:
        """The index after the last intact record."""
        return self.chain.end if self.chain.end is not None else self.first_index

    def recovery(self) -> Recovery:
        """Return the result as a value."""
        return Recovery(
            verdict=self.verdict,
            segments=len(self.segments),
            batches=self.batches,
            records=self.records,
            first_index=Index(self.first_index),
            end=Index(self.end),
            commit_hint=self.chain.commit_hint,
            torn_bytes=self.torn_bytes,
            term_starts=tuple(self.term_starts),
        )

    def refuse(self, directory: str) -> CorruptionError:
        """Return the error that says where the damage is."""
        damage = self.damage[0]
        path = f"{directory}/{damage.segment}"
        return CorruptionError(
            f"{path} is damaged at byte {damage.location}: expected {damage.expected}, found {damage.found}",
            path=path,
            location=damage.location,
            expected=damage.expected,
            found=damage.found,
            remedy="nothing was changed; look with `viewstamp wal inspect`, then restore the file from a copy, or "
            "replace this node by a new one with an empty data directory",
        )


def survey(
    disk: Disk,
    directory: str,
    on_batch: Callable[[Batch], None],
    *,
    commit_hint: int = 0,
    must_exist: bool = False,
    first_index: int = 1,
) -> Survey:
    """Read a log directory once, forward, and decide what it is. Changes nothing.

    Args:
      disk: where the files are.
      directory: holds the segments.
      on_batch: called for each intact batch, in order. Its buffer is a view of a piece that was read: valid as
        long as it is held, but holding it keeps the whole piece (1 MiB) alive, so copy what is to be kept.
      commit_hint: an end below which all is known to be committed (from the control file).
      must_exist: no segment at all is damage, not an empty log.
      first_index: the log may begin at or below this; beginning above it means that files are missing.

    Raises:
      ConfigError: a segment has a newer format.
      StorageError: a file cannot be read.
    """
    result = Survey(first_index=first_index)
    numbers = sorted(n for n in map(parse_segment_name, disk.list_directory(directory)) if n is not None)
    if not numbers:
        if must_exist or commit_hint > first_index:
            _missing(result, 1, "the first segment")
        return result
    for expected, number in enumerate(numbers, numbers[0]):
        if number != expected:
            _missing(result, expected, f"segment {expected} between {expected - 1} and {number}")
            return result
    written = numbers[:-1]
    if _is_unused(disk, directory, numbers[-1]):
        result.unused = numbers[-1]
    else:
        written = numbers
    for number in written:
        if not _survey_segment(disk, directory, number, number != written[-1], on_batch, commit_hint, result):
            return result
    if not written:
        if numbers[0] != 1 or commit_hint > first_index:
            _missing(result, numbers[0], "a written segment")
    elif result.segments and result.segments[-1].sealed and result.segments[-1].number == numbers[-1]:
        _missing(result, written[-1] + 1, f"segment {written[-1] + 1}, as segment {written[-1]} is sealed")
    return result


def _survey_segment(
    disk: Disk,
    directory: str,
    number: int,
    followed: bool,
    on_batch: Callable[[Batch], None],
    commit_hint: int,
    result: Survey,
) -> bool:
    """Read one segment into ``result``; say whether the next may be read."""
    name = segment_name(number)
    file = disk.open_read(f"{directory}/{name}")
    try:
        first = not result.segments
        reading = Pass(file, result.chain)
        if reading.read_header(number):
            header = reading.header
            assert header is not None
            if first:
                if header.first_index > result.first_index:
                    _missing(result, number - 1, f"a log that begins at index {result.first_index}")
                    return False
                result.first_index = header.first_index
            segment = Segment(
                number=number, generation=header.generation, path=file.path, first_index=header.first_index
            )
            result.segments.append(segment)
            _take(reading, segment, on_batch, result)
        stop = reading.stop
        assert stop is not None, "a pass ends with a reason"
        facts = _facts(file, stop, reading, followed, max(commit_hint, result.chain.commit_hint), result)
        if followed and facts == {Fact.ENDS}:
            return True
        result.decision = decide(facts)
        if result.verdict == "corruption":
            result.damage.append(
                Damage(segment=name, location=stop.location, expected=stop.expected, found=_found(facts, stop, result))
            )
            return False
        if reading.header is None:
            result.torn_number = number
        return True
    finally:
        file.close()


def _take(reading: Pass, segment: Segment, on_batch: Callable[[Batch], None], result: Survey) -> None:
    """Run the pass: hand out its batches, fill the sparse index, count."""
    batches = records = 0
    last_term = result.term_starts[-1][0] if result.term_starts else 0
    boundary = 0
    for item in reading.items():
        if isinstance(item, GroupHeader):
            boundary = item.location
            continue
        location, batch = item
        segment.note(batch.first_index, boundary or location)
        boundary = 0
        batches += 1
        records += batch.count
        if batch.term != last_term:
            last_term = batch.term
            result.term_starts.append((batch.term, batch.first_index))
        on_batch(batch)
    result.batches += batches
    result.records += records
    assert reading.stop is not None, "a pass ends with a reason"
    result.last_group = reading.last_group
    segment.length = reading.stop.location
    segment.sealed = reading.last_group is not None and reading.last_group.seals


def _facts(file: File, stop: Stop, reading: Pass, followed: bool, commit_hint: int, result: Survey) -> set[Fact]:
    """Establish what holds at the place where the pass stopped."""
    facts: set[Fact] = set()
    if stop.contradicts:
        facts.add(Fact.CONTRADICTS)
    rest, used = rest_of(file, stop.location)
    if reading.header is None and result.unused is not None:
        followed = True  # the segment behind got its name only after this one had been written
    if followed:
        if stop.complete and rest is Rest.NOTHING and reading.header is not None:
            return facts | {Fact.ENDS}
        return facts | {Fact.FOLLOWED}
    if rest is Rest.BYTES:
        generation = reading.header.generation if reading.header is not None else None
        if later_durable(file, stop.location, reading.chain, generation) is not None:
            facts.add(Fact.CALLED_DURABLE)
    elif stop.complete:
        facts.add(Fact.ENDS)
    if result.end < commit_hint:
        facts.add(Fact.BELOW_HINT)
    result.torn_bytes = used
    return facts


def _found(facts: set[Fact], stop: Stop, result: Survey) -> str:
    """Say what stands at a damaged place, and why it is damage and no torn tail."""
    reasons = {
        Fact.FOLLOWED: "and a later segment was written",
        Fact.CALLED_DURABLE: "and a later group calls this place durable",
        Fact.BELOW_HINT: f"and the log would end at {result.end}, below what is known to be committed",
    }
    return ", ".join([stop.found, *(text for fact, text in reasons.items() if fact in facts)])


def _missing(result: Survey, number: int, expected: str) -> None:
    result.decision = decide({Fact.MISSING})
    result.damage.append(Damage(segment=segment_name(number), location=0, expected=expected, found="no such file"))


def _is_unused(disk: Disk, directory: str, number: int) -> bool:
    """Say whether a segment holds nothing but zeros: made ready, and never written to."""
    file = disk.open_read(f"{directory}/{segment_name(number)}")
    try:
        return not file.read(0, 4).strip(b"\0") and rest_of(file, 0)[0] is not Rest.BYTES
    finally:
        file.close()
