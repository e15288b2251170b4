"""Recovery, verify and repair look at the same bytes, and must say the same of them, whatever was done to these."""

from __future__ import annotations

import os
import random

import pytest

from tests.wal.logs import DIRECTORY, IDENTITY, contents, names_of, new_disk, open_wal
from tests.wal.test_repair import TINY, _is_blank, _restored, _ruin, write
from viewstamp.errors import CorruptionError
from viewstamp.ids import Index
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.assessment import assess
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.format import NO_LOG_ID
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import verify
from viewstamp.wal.verdict import known_end, snapshot_names

RUNS = 400 if os.environ.get("VIEWSTAMP_SOAK") else 40


def lose_end(disk: SimulatedDisk, entropy: random.Random) -> None:
    """Cut the last written segment, or put zeros or other bytes there up to its end."""
    written = [name for name in names_of(disk, "segment") if not _is_blank(disk, name)]
    path = f"{DIRECTORY}/{written[-1]}"
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


def make(entropy: random.Random) -> tuple[SimulatedDisk, list[bytes], int]:
    """Return a log that was damaged, what it held, and the end that is known."""
    disk = new_disk()
    batches = write(disk, entropy.randrange(8, 30), closed=entropy.random() < 0.7)
    ends = [1, *(batch.end for batch in batches)]
    installing = None
    if entropy.random() < 0.5:
        end = entropy.choice(ends[1:])
        if entropy.random() < 0.3:
            end, installing = ends[-1] + 10, (2, ends[-1] + 10)
        disk.make_directory("/data/snapshots")
        disk.open(f"/data/snapshots/{end:020d}-2.snapshot", create=True).close()
        disk.sync_directory("/data/snapshots")
    hint = entropy.choice((0, entropy.choice(ends), ends[-1]))
    state = ControlState(**IDENTITY, commit_hint=hint, installing=installing)  # type: ignore[arg-type]
    ControlFile.open(disk, "/data").write(state)
    for _ in range(entropy.choice((0, 1, 1, 2))):
        entropy.choice((lose_end, _ruin))(disk, entropy)
    return disk, contents(batches), known_end(disk, "/data", state)


@pytest.mark.parametrize("seed", range(4))
def test_recovery_verify_and_repair_agree(seed: int) -> None:
    entropy = random.Random(seed)
    verdicts = {"opened": 0, "refused": 0}
    for run in range(RUNS):
        disk, held, known = make(entropy)
        image = disk.volume.after_cut(disk.entropy)
        first_index = Index(max((end for end, _ in snapshot_names(disk, "/data")), default=1))
        seen = verify(_restored(image), "/data")
        left = assess(_restored(image), DIRECTORY, begin_max=first_index, commit_hint=known, log_id=NO_LOG_ID)
        opened, error = _opened(_restored(image), known, first_index)
        if opened is None:
            verdicts["refused"] += 1
            assert seen.verdict == "corruption", (run, error)
            assert left.is_damaged or left.contradiction, (run, error)
            assert (seen.damage[0].location, seen.damage[0].expected) == error
            continue
        verdicts["opened"] += 1
        wal, found = opened
        assert seen.verdict != "corruption", (run, seen.damage)
        assert not left.is_damaged, (run, left)
        start = held.index(found[0]) if found else 0  # Files that a snapshot covers may be missing from the beginning.
        assert found == held[start : start + len(found)]
        assert wal.end == seen.last_index + 1 == left.end
        assert wal.end >= known, "what is known to have been there is there"
    assert min(verdicts.values()) > RUNS // 10, verdicts


def _opened(
    disk: SimulatedDisk, known: int, first_index: Index
) -> tuple[tuple[Wal, list[bytes]] | None, tuple[int, str]]:
    """Return the log, or None and where the damage is."""
    try:
        return open_wal(disk, TINY, must_exist=True, commit_hint=known, first_index=first_index), (0, "")
    except CorruptionError as error:
        return None, (error.location, error.expected)
