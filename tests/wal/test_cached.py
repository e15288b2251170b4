"""Which segments of a log stay in the memory of the operating system."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.wal.logs import SMALL, contents, make_batches, open_wal, write_log
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.format import parse_segment_name

BATCHES = make_batches(1, 20, count=2, size=2500)
"""Three batches in a segment: seven segments."""


class AdvisedDisk(SimulatedDisk):
    """Notes the numbers of the segments whose memory is given up."""

    def __init__(self) -> None:
        super().__init__()
        self.make_directory("/data")
        self.advised: list[int | None] = []

    def uncache(self, path: str) -> None:
        self.advised.append(parse_segment_name(Path(path).name))


@pytest.mark.parametrize(("cached_segments", "advised"), [(0.5, [1, 2, 3, 4, 5, 6]), (2, [1, 2, 3, 4]), (9, [])])
def test_a_full_segment_leaves_the_memory_when_newer_ones_fill_the_bound(
    cached_segments: float, advised: list[int]
) -> None:
    disk = AdvisedDisk()
    options = replace(SMALL, cached_bytes=round(cached_segments * SMALL.segment_bytes))
    wal = write_log(disk, [[batch] for batch in BATCHES], options)
    assert [segment.number for segment in wal.segments()] == [1, 2, 3, 4, 5, 6, 7]
    assert disk.advised == advised
    assert contents(wal.read(wal.first_index, 1 << 20)) == contents(BATCHES)


def test_the_operating_system_decides_by_default() -> None:
    disk = AdvisedDisk()
    write_log(disk, [[batch] for batch in BATCHES])
    assert disk.advised == []


def test_a_log_that_is_opened_again_goes_on_with_the_bound() -> None:
    disk = AdvisedDisk()
    options = replace(SMALL, cached_bytes=2 * SMALL.segment_bytes)
    write_log(disk, [[batch] for batch in BATCHES[:15]], options)
    assert disk.advised == [1, 2]
    wal, _ = open_wal(disk, options)
    for batch in BATCHES[15:]:
        wal.append_now([batch])
    assert disk.advised == [1, 2, 3, 4]
