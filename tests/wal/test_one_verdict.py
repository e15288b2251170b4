"""All readers of a log's files reach the same verdict about the same files.

The readers are recovery (a start), ``wal verify``, ``wal inspect``, ``wal read``, the scrubber, the assessment for a
repair, and the replay.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.wal.logs import DIRECTORY, IDENTITY, contents, names_of, new_disk, open_wal
from tests.wal.test_repair import TINY, _is_blank, _restored, _ruin, write
from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.ids import Index
from viewstamp.replay.replica import ReplicaFiles, read_replica
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.volume import VolumeImage
from viewstamp.wal.assessment import assess
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.offline import inspect, read_batches, scrub_segment, verify
from viewstamp.wal.repair import finish_truncation
from viewstamp.wal.truncation import Mark, place_mark
from viewstamp.wal.verdict import known_end, snapshot_names
from viewstamp.wire.batch import Batch

RUNS = 2500 if os.environ.get("VIEWSTAMP_SOAK") else 100
LOG_ID = bytes(range(16))
FOREIGN_ID = bytes(range(16, 32))


@dataclass(frozen=True, slots=True)
class Opinion:
    """One reader's verdict: "clean", "torn-tail", "corruption" or "foreign"; and the end of an undamaged log."""

    verdict: str
    end: int = 0


@dataclass(slots=True)
class Case:
    """A damaged data directory; ``held`` are the batches of the log before the damage."""

    image: VolumeImage
    held: list[bytes]
    known: int
    first_index: int

    def disk(self) -> SimulatedDisk:
        return _restored(self.image)


# -- damages ------------------------------------------------------------------------------------------------------


def written(disk: SimulatedDisk) -> list[str]:
    return [name for name in names_of(disk, "segment") if not _is_blank(disk, name)]


def overwrite(disk: SimulatedDisk, path: str, at: int, data: bytes) -> None:
    file = disk.open(path)
    file.write(at, [data])
    file.sync()


def lose_end(disk: SimulatedDisk, entropy: random.Random) -> None:
    """Cut the last written segment, or overwrite its end with zeros or other bytes."""
    path = f"{DIRECTORY}/{written(disk)[-1]}"
    file = disk.open(path)
    size = file.size()
    at = entropy.choice((0, entropy.randrange(size), entropy.randrange(size)))
    match entropy.randrange(3):
        case 0:
            file.truncate(at)
        case 1:
            file.write(at, [bytes(size - at)])
        case _:
            file.write(at, [entropy.randbytes(size - at)])
    file.sync()


def put_another_segment(disk: SimulatedDisk, entropy: random.Random) -> None:
    """Copy the bytes of one segment of this log into the file of another."""
    names = written(disk)
    source, target = entropy.choice(names), entropy.choice(names)
    data = bytes(disk.volume.find(f"{DIRECTORY}/{source}").data)
    disk.remove(f"{DIRECTORY}/{target}")
    file = disk.open(f"{DIRECTORY}/{target}", create=True)
    file.write(0, [data])
    file.sync()
    disk.sync_directory(DIRECTORY)


def put_foreign_segment(disk: SimulatedDisk, entropy: random.Random) -> None:
    """Replace a segment by the one of the same number of another log."""
    other = new_disk()
    write(other, 8, closed=True, log_id=FOREIGN_ID)
    name = entropy.choice(written(disk))
    if not other.exists(f"{DIRECTORY}/{name}"):
        return
    data = bytes(other.volume.find(f"{DIRECTORY}/{name}").data)
    file = disk.open(f"{DIRECTORY}/{name}")
    file.truncate(0)
    file.write(0, [data])
    file.sync()


def leave_garbage_behind(disk: SimulatedDisk, entropy: random.Random) -> None:
    """Write bytes of an earlier life behind the end: those of another segment, at the same place."""
    names = written(disk)
    old = bytes(disk.volume.find(f"{DIRECTORY}/{names[0]}").data)
    last = disk.volume.find(f"{DIRECTORY}/{names[-1]}")
    end = len(bytes(last.data).rstrip(b"\0"))
    at = (end + 8) // 8 * 8
    if at < len(old):
        overwrite(disk, f"{DIRECTORY}/{names[-1]}", at, old[at:])


def lose_a_header(disk: SimulatedDisk, entropy: random.Random) -> None:
    overwrite(disk, f"{DIRECTORY}/{entropy.choice(written(disk))}", entropy.randrange(64), b"\xff")


def remove_a_file(disk: SimulatedDisk, entropy: random.Random) -> None:
    disk.remove(f"{DIRECTORY}/{entropy.choice(names_of(disk, 'segment'))}")
    disk.sync_directory(DIRECTORY)


def leave_a_mark(disk: SimulatedDisk, entropy: random.Random) -> None:
    """Leave the mark of an unfinished truncation, or a mark with a wrong bit."""
    number, ends = 0, []
    for entry in inspect(disk, DIRECTORY):
        if entry.kind == "segment":
            number = int(str(entry.fields["number"]))
        elif entry.kind == "batch":
            first, count = int(str(entry.fields["first_index"])), int(str(entry.fields["count"]))
            ends.append((number, entry.location + int(str(entry.fields["bytes"])), first + count))
    if ends:
        segment, length, end = entropy.choice(ends)
        place_mark(disk, DIRECTORY, Mark(end=end, segment=segment, length=length, group=1000, generation=1000))
        if entropy.random() < 0.2:
            disk.flip(f"{DIRECTORY}/truncation.mark", entropy.randrange(64))


DAMAGES: list[Callable[[SimulatedDisk, random.Random], None]] = [
    _ruin,
    _ruin,
    lose_end,
    lose_end,
    put_another_segment,
    put_foreign_segment,
    leave_garbage_behind,
    lose_a_header,
    remove_a_file,
]


# -- cases --------------------------------------------------------------------------------------------------------


def history_of(batches: list[Batch]) -> tuple[tuple[int, int], ...]:
    history = [(0, 1)]
    for batch in batches:
        if batch.term != history[-1][0]:
            history.append((batch.term, batch.first_index))
    return tuple(history)


def make(entropy: random.Random) -> Case:
    """Return a damaged log, its former contents, and the known end."""
    disk = new_disk()
    batches = write(disk, entropy.randrange(1, 30), closed=entropy.random() < 0.7, log_id=LOG_ID)
    hint = entropy.choice((0, entropy.choice([1, *(batch.end for batch in batches)]), batches[-1].end))
    state = ControlState(
        **IDENTITY,  # type: ignore[arg-type]
        commit_hint=hint,
        log_id=LOG_ID,
        history=history_of(batches),
        term=batches[-1].term,
    )
    ControlFile.open(disk, "/data").write(state)
    if entropy.random() < 0.15:
        leave_a_mark(disk, entropy)
    for _ in range(entropy.choice((0, 1, 1, 1, 2, 3))):
        if written(disk):
            entropy.choice(DAMAGES)(disk, entropy)
    image = disk.volume.after_cut(disk.entropy)
    first_index = max((end for end, _ in snapshot_names(disk, "/data")), default=1)
    return Case(image, contents(batches), known_end(disk, "/data", state), first_index)


# -- each reader's verdict ----------------------------------------------------------------------------------------


def of_recovery(case: Case) -> tuple[Opinion, list[bytes], str]:
    """Return a start's verdict, the batches that it finds, and the place of the damage."""
    disk = case.disk()
    try:
        wal, found = open_wal(
            disk,
            TINY,
            must_exist=True,
            commit_hint=case.known,
            first_index=Index(case.first_index),
            log_id=LOG_ID,
        )
    except CorruptionError as error:
        return Opinion("corruption"), [], f"{error.path.rpartition('/')[2]} {error.location} {error.expected}"
    except ConfigError:
        return Opinion("foreign"), [], ""
    for segment in wal.segments():
        if segment.sealed:
            list(scrub_segment(disk, segment))  # The scrubber accepts each log that a start accepts.
    return Opinion(wal.recovery.verdict, wal.recovery.end), found, ""


def of_verify(case: Case) -> tuple[Opinion, str]:
    try:
        seen = verify(case.disk(), "/data")
    except ConfigError:
        return Opinion("foreign"), ""
    if seen.verdict == "corruption":
        first = seen.damage[0]
        return Opinion("corruption"), f"{first.segment} {first.location} {first.expected}"
    return Opinion(seen.verdict, seen.last_index + 1), ""


def of_inspect(case: Case) -> Opinion:
    try:
        last = list(inspect(case.disk(), "/data"))[-1]
    except ConfigError:
        return Opinion("foreign")
    verdict = str(last.fields["verdict"])
    return Opinion(verdict, 0 if verdict == "corruption" else int(str(last.fields["end"])))


def of_reading(case: Case) -> tuple[str, list[bytes]]:
    found: list[bytes] = []
    try:
        for batch in read_batches(case.disk(), "/data"):
            found.append(bytes(batch.buffer))
    except CorruptionError:
        return "corruption", found
    except ConfigError:
        return "foreign", found
    return "whole", found


def of_assessment(case: Case) -> tuple[str, int | None]:
    """Return "whole" or "corruption", and the highest end that the log ever had; None = unknown."""
    disk = case.disk()
    try:
        finish_truncation(disk, DIRECTORY, LOG_ID)
        left = assess(disk, DIRECTORY, begin_max=case.first_index, commit_hint=case.known, log_id=LOG_ID)
    except ConfigError:
        return "foreign", None
    if left.contradiction:
        return "corruption", None
    return ("corruption" if left.is_damaged else "whole"), left.end


def of_replay(case: Case) -> tuple[Opinion, ReplicaFiles | None]:
    try:
        files = read_replica(case.disk(), "/data")
    except ConfigError:
        return Opinion("foreign"), None
    kinds = {finding.kind for finding in files.findings}
    if kinds - {"torn tail"} or not files.is_certain:
        return Opinion("corruption"), files
    return Opinion("torn-tail" if kinds else "clean", files.end), files


def check(case: Case) -> str:
    verdict, found, place = of_recovery(case)
    assert of_verify(case) == (verdict, place)
    assert of_inspect(case) == verdict
    read, batches = of_reading(case)
    assert read == {"clean": "whole", "torn-tail": "whole"}.get(verdict.verdict, verdict.verdict)
    replayed, files = of_replay(case)
    assert replayed == verdict, (replayed, verdict, place, files and files.findings)
    left, end = of_assessment(case)
    assert left == read
    if verdict.end:
        assert found == batches == case.held[: len(found)]
        assert end == verdict.end >= case.known, "the known end is reached"
    if files is not None and files.is_certain:
        assert end == files.end, "a replay and a repair know the same end"
    return verdict.verdict


@pytest.mark.parametrize("seed", range(4))
def test_every_reader_reaches_the_same_verdict_about_the_same_files(seed: int) -> None:
    entropy = random.Random(seed)
    verdicts = Counter(check(make(entropy)) for _ in range(RUNS))
    assert len(verdicts) == 4, verdicts
    assert min(verdicts.values()) >= RUNS // 30, verdicts
