"""A repairing member sends other members only intact, committed batches that agree with its history."""

from __future__ import annotations

import pytest

from tests.wal.logs import DIRECTORY, contents, make_batches, new_disk, write_log
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import UnavailableError
from viewstamp.node.repair.salvage import SalvagedLog
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.assessment import assess
from viewstamp.wire.batch import Batch

ONE_TERM = TermHistory(((0, 1), (1, 1)))
ALL = 1_000_000


def damaged_log() -> tuple[SimulatedDisk, list[Batch], int]:
    """Return a disk with a log of indices 1 to 400 in several segments, and the first index of the lost segment."""
    disk = new_disk()
    batches = make_batches(1, 200, count=2)
    write_log(disk, [batches[at : at + 4] for at in range(0, 200, 4)])
    whole = assess(disk, DIRECTORY)
    assert len(whole.parts) > 3
    lost = whole.parts[1]
    disk.remove(lost.path)
    return disk, batches, lost.first_index or 0


def remains(disk: SimulatedDisk, *, commit_end: int = 401, history: TermHistory = ONE_TERM) -> SalvagedLog:
    return SalvagedLog(disk, assess(disk, DIRECTORY).parts, commit_end=commit_end, history=history)


def test_intact_batches_are_sent_in_pieces() -> None:
    disk, batches, lost = damaged_log()
    left = remains(disk)
    assert contents(left.read(3, lost, ALL)) == contents([batch for batch in batches[1:] if batch.end <= lost])
    assert contents(left.read(1, 9, 1)) == contents(batches[:1]), "at least one batch"
    assert contents(left.read(1, 9, 2 * batches[0].size)) == contents(batches[:2])
    assert contents(left.read(1, 401, ALL))[-1] == contents([b for b in batches if b.end <= lost])[-1]
    assert contents(left.read(399, 401, ALL)) == contents(batches[-1:])


def test_lost_batches_are_not_sent() -> None:
    disk, _, lost = damaged_log()
    with pytest.raises(UnavailableError, match=f"has lost index {lost}"):
        remains(disk).read(lost, lost + 2, ALL)


def test_batches_not_known_to_be_committed_are_not_sent() -> None:
    disk, _, _ = damaged_log()
    assert remains(disk, commit_end=9).read(7, 9, ALL)
    with pytest.raises(UnavailableError, match="index 7"):
        remains(disk, commit_end=8).read(7, 9, ALL)


def test_batches_that_contradict_the_history_are_not_sent() -> None:
    disk, batches, _ = damaged_log()
    history = TermHistory(((0, 1), (1, 1), (2, 5)))
    assert contents(remains(disk, history=history).read(1, 9, ALL)) == contents(batches[:2])
    with pytest.raises(UnavailableError, match="index 5"):
        remains(disk, history=history).read(5, 9, ALL)


def test_batches_set_aside_meanwhile_are_not_sent() -> None:
    disk, _, _ = damaged_log()
    left = remains(disk)
    disk.rename(assess(disk, DIRECTORY).parts[0].path, "/data/aside")
    with pytest.raises(UnavailableError, match="index 1"):
        left.read(1, 9, ALL)
