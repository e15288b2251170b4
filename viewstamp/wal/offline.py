"""Reading a log from its files, without the node: in order, one forward pass, changing nothing.

Works on the files of a dead node and of a running one; concurrent writes of a running node may be included or not.
"""

from __future__ import annotations

import posixpath
from collections.abc import Generator, Iterator
from dataclasses import asdict

from viewstamp.errors import ConfigError, CorruptionError, StorageError, TrimmedError
from viewstamp.host.interfaces import Disk
from viewstamp.value_class import value_class
from viewstamp.wal.catalogue import Segment
from viewstamp.wal.control_file import CONTROL_NAMES, read_control_state
from viewstamp.wal.format import NO_LOG_ID, GroupHeader, parse_segment_name
from viewstamp.wal.recovery import Found, Survey
from viewstamp.wal.scan import ScanState, SegmentScanner
from viewstamp.wal.truncation import MARK_NAME
from viewstamp.wal.verdict import Corruption, Known, LogVerdict
from viewstamp.wire.batch import Batch

__all__ = ["InspectedItem", "Verification", "inspect", "read_batches", "scrub_segment", "survey_of", "verify"]

WAL_DIRECTORY = "wal"
"""The log's directory inside a data directory."""


def survey_of(disk: Disk, path: str) -> Survey:
    """Return a survey, not yet walked, of a data directory, a log directory or one segment file.

    If there is a control file, it is read too, because it proves that a log must exist, and gives, with the names of
    the snapshots, the end that it must reach (``known_end``). The log of a data directory must begin at or below the
    end of one of its snapshots; a log alone may begin anywhere.

    Raises:
      ConfigError: ``path`` is none of these; or a newer format.
      CorruptionError: no copy of the control file is readable.
    """
    path = posixpath.normpath(path)
    parent = posixpath.dirname(path)
    number = parse_segment_name(posixpath.basename(path))
    if number is not None and disk.exists(path):
        return Survey(disk=disk, directory=parent or ".", known=Known(only=number))
    names = disk.list_directory(path)
    if WAL_DIRECTORY in names or _has_control_file(disk, path):
        return _survey_with_control(disk, path, f"{path}/{WAL_DIRECTORY}")
    if posixpath.basename(path) == WAL_DIRECTORY and _has_control_file(disk, parent):
        return _survey_with_control(disk, parent, path)
    if MARK_NAME in names or any(parse_segment_name(name) is not None for name in names):
        return Survey(disk=disk, directory=path, known=Known(first_index_max=None))
    raise ConfigError(
        f"{path} is no log",
        remedy="name a node's data directory (it holds control-a, control-b and wal), its wal directory, or a segment",
    )


def _has_control_file(disk: Disk, path: str) -> bool:
    return any(disk.exists(f"{path}/{name}") for name in CONTROL_NAMES)


def _survey_with_control(disk: Disk, data: str, directory: str) -> Survey:
    state = read_control_state(disk, data)
    return Survey(
        disk=disk,
        directory=directory,
        known=Known.of(disk, data, state),
        log_id=state.log_id if state is not None else None,
    )


def read_batches(disk: Disk, path: str) -> Iterator[Batch]:
    """Yield the batches of a log in order, from its first to the last intact one; a torn tail ends it quietly.

    Batches above the commit point are yielded too, because the log of one node does not show whether they are
    committed. Buffers are views: each keeps the piece (1 MiB) that it was read with in memory.

    Args:
      disk: the disk with the files.
      path: a data directory, a log directory or a segment file.

    Raises:
      CorruptionError: at the first damage, after everything before it was yielded.
      ConfigError: no log, or one of a newer format.
      TrimmedError: the node runs, and trimmed the log at the place of reading: read again, or from ``first`` on.
      StorageError: a file cannot be read.
    """
    survey = survey_of(disk, path)
    for item in _walk(survey):
        if isinstance(item, tuple):
            yield item[1]
    if survey.judgement.verdict == "corruption":
        raise survey.error()


def _walk(survey: Survey) -> Iterator[Found]:
    """Walk over the files of a node that may run, and distinguish a segment that it dropped meanwhile from damage."""
    try:
        yield from survey.walk()
    except FileNotFoundError as error:
        _check_kept(survey, posixpath.basename(error.filename or ""))
        raise StorageError(
            f"{error.filename} was deleted after {survey.directory} was listed",
            remedy="read again: the node is running, and drops old segments",
        ) from error
    if (damage := survey.judgement.corruption) is not None:
        _check_kept(survey, damage.segment)  # it may have been overwritten while it was read


def _check_kept(survey: Survey, name: str) -> None:
    """Raise TrimmedError where segment ``name`` has gone, and those behind it are there."""
    number = parse_segment_name(name)
    if number is None or not survey.segments or survey.disk.exists(f"{survey.directory}/{name}"):
        return
    kept = Survey(disk=survey.disk, directory=survey.directory, known=Known(first_index_max=None))
    first = next((item for item in kept.walk() if isinstance(item, Segment)), None)
    if first is not None and first.number > number:
        raise TrimmedError(
            f"{survey.directory}/{name} was trimmed while it was read; the log begins at {first.first_index} now",
            first=first.first_index,
            remedy="read again, or from there on",
        )


@value_class(kw_only=False)
class InspectedItem:
    """One line of the tree that :func:`inspect` draws.

    ``kind`` is "segment" (depth 0), "group" (1), "batch" (2) or "end" (0); ``location`` is its byte in the segment;
    ``fields`` are the fields of its header, by name.
    """

    kind: str
    depth: int
    location: int
    fields: dict[str, object]

    def __str__(self) -> str:
        fields = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{'  ' * self.depth}{self.kind} @{self.location} {fields}"


def inspect(disk: Disk, path: str) -> Iterator[InspectedItem]:
    """Yield a log as a tree: segments, their groups, their batches, and at the end the verdict of recovery.

    Raises:
      ConfigError: no log, or one of a newer format.
      TrimmedError: as :func:`read_batches`.
      StorageError: a file cannot be read. Damage is no error here: it is the last entry.
    """
    survey = survey_of(disk, path)
    for item in _walk(survey):
        if isinstance(item, Segment):
            yield InspectedItem("segment", 0, 0, _segment_fields(item))
        elif isinstance(item, GroupHeader):
            yield InspectedItem("group", 1, item.location, _group_fields(item))
        else:
            yield InspectedItem("batch", 2, item[0], _batch_fields(item[1]))
    judged = survey.judgement
    fields: dict[str, object] = {"verdict": judged.verdict, "end": judged.end, "torn_bytes": judged.torn_bytes}
    if (mark := survey.scan.mark) is not None:
        fields["unfinished_reset_to" if mark.resets else "unfinished_truncation_to"] = mark.end
    location = survey.segments[-1].length if survey.segments else 0
    if (damage := judged.corruption) is not None:
        fields |= {"segment": damage.segment, "expected": damage.expected, "found": damage.found}
        location = damage.location
    yield InspectedItem("end", 0, location, fields)


def _segment_fields(segment: Segment) -> dict[str, object]:
    fields: dict[str, object] = {
        "file": posixpath.basename(segment.path),
        "number": segment.number,
        "generation": segment.generation,
        "first_index": segment.first_index,
    }
    if segment.log_id != NO_LOG_ID:
        fields["log_id"] = segment.log_id.hex()
    return fields


def _group_fields(group: GroupHeader) -> dict[str, object]:
    fields: dict[str, object] = {
        "number": group.number,
        "durable": group.durable,
        "commit_hint": group.commit_hint,
        "first_index": group.first_index,
        "batches": len(group.checksums),
        "bytes": group.size + group.body_size,
    }
    if group.is_empty:
        fields["closes"] = "segment" if group.seals else "group"
    return fields


def _batch_fields(batch: Batch) -> dict[str, object]:
    return {
        "kind": batch.kind.name,
        "term": batch.term,
        "first_index": batch.first_index,
        "count": batch.count,
        "topic": batch.topic,
        "first_position": batch.first_position,
        "session": batch.session,
        "sequence": batch.sequence,
        "bytes": batch.size,
    }


_LOOKS_MAX = 10
"""The largest number of further passes over a running node's log, while each finds damage at another place."""


@value_class
class Verification:
    """The verdict on every byte of a log. ``last_index`` is inclusive; ``first_index - 1`` if there is no record."""

    path: str
    verdict: LogVerdict
    segments: int
    batches: int
    records: int
    first_index: int
    last_index: int
    torn_bytes: int
    damage: tuple[Corruption, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the keys and values that ``--output json`` prints."""
        return {**asdict(self), "damage": [asdict(damage) for damage in self.damage]}


def verify(disk: Disk, path: str) -> Verification:
    """Read all of a data directory, a log directory or one segment file, and check every checksum; blocking.

    Works beside a running node. A place that the node is just writing can look damaged, so damage counts only if it is
    found twice at the same place.

    Raises:
      ConfigError: ``path`` is no log, or one of a newer format.
      StorageError: a file cannot be read.
    """
    found = _look(disk, path)
    for _ in range(_LOOKS_MAX):
        if found.verdict != "corruption":
            break
        before, found = found, _look(disk, path)
        if found.damage == before.damage:
            break
    return found


def _look(disk: Disk, path: str) -> Verification:
    survey: Survey | None = None
    damage: Corruption | None
    try:
        survey = survey_of(disk, path).run()
        damage = survey.judgement.corruption
    except FileNotFoundError as error:
        # A running node has truncated its log after the directory was listed. The next pass reads the new state.
        survey = None
        name = posixpath.basename(error.filename or path)
        damage = Corruption(segment=name, location=0, expected="a file that was listed", found="no such file")
    except CorruptionError as error:
        name = posixpath.basename(error.path)
        damage = Corruption(segment=name, location=error.location, expected=error.expected, found=error.found)
    return Verification(
        path=path,
        verdict=survey.judgement.verdict if survey is not None else "corruption",
        segments=len(survey.segments) if survey is not None else 0,
        batches=survey.batches if survey is not None else 0,
        records=survey.records if survey is not None else 0,
        first_index=survey.judgement.first_index if survey is not None else 1,
        last_index=survey.judgement.end - 1 if survey is not None else 0,
        torn_bytes=survey.judgement.torn_bytes if survey is not None else 0,
        damage=() if damage is None else (damage,),
    )


_PIECE_BYTES = 64 * 1024


def scrub_segment(disk: Disk, segment: Segment) -> Generator[int, None, None]:
    """Read a sealed segment; yield regularly the number of bytes that were checked since the last time. Blocking.

    Raises:
      CorruptionError: a byte has changed; or the segment was trimmed or cut meanwhile, which the caller can check.
      FileNotFoundError: the file does not exist any more.
      StorageError: it cannot be read.
    """
    file = disk.open_read(segment.path)
    try:
        scanner = SegmentScanner(file, segment.number, ScanState(generation=segment.generation - 1))
        scan = scanner.scan
        checked = 0
        if scanner.read_header():
            for item in scanner.items():
                at = item.location if isinstance(item, GroupHeader) else item[0]
                if at - checked >= _PIECE_BYTES:
                    yield at - checked
                    checked = at
        stop = scan.stop
        assert stop is not None, "a pass ends with a reason"
        if not scan.is_whole or not scan.is_sealed:
            raise CorruptionError(
                f"{segment.path} is damaged at byte {stop.location}: expected {stop.expected}, found {stop.found}",
                path=segment.path,
                location=stop.location,
                expected=stop.expected,
                found=stop.found,
                remedy="wait: the node repairs it from the other members, if there are any",
            )
        yield stop.location - checked
    finally:
        file.close()
