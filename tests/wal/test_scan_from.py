"""A log with a snapshot of its beginning: its allowed first index, and the part that is read."""

from __future__ import annotations

import pytest

from tests.wal.logs import DIRECTORY, IDENTITY, contents, make_batch, new_disk, open_wal, write_log
from viewstamp.errors import CorruptionError
from viewstamp.ids import Index
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.format import segment_name
from viewstamp.wal.offline import inspect, read_batches, verify

BATCHES = [make_batch(1 + 2 * i, 2, term=1 + i // 4, size=2500) for i in range(12)]
"""Three terms, and three batches in a segment."""


@pytest.fixture
def disk() -> SimulatedDisk:
    """Return a log of four segments in which each batch is a group."""
    disk = new_disk()
    wal = write_log(disk, [[batch] for batch in BATCHES])
    assert [segment.first_index for segment in wal.segments()] == [1, 7, 13, 19]
    return disk


def path_of(number: int) -> str:
    return f"{DIRECTORY}/{segment_name(number)}"


def from_index(index: int) -> list[bytes]:
    return contents([batch for batch in BATCHES if batch.first_index >= index])


@pytest.mark.parametrize("scan_from", [1, 3, 7, 9, 13, 19, 23, 25])
def test_recovered_batches_and_counts_begin_at_the_start_of_the_scan(disk: SimulatedDisk, scan_from: int) -> None:
    wal, found = open_wal(disk, scan_from=Index(scan_from))
    assert found == from_index(scan_from)
    recovery = wal.recovery
    assert (recovery.batches, recovery.records) == (len(found), 2 * len(found))
    assert (recovery.first_index, recovery.end, wal.first_index, wal.end) == (1, 25, 1, 25)
    kept = [batch for batch in BATCHES if batch.first_index >= scan_from]
    runs: dict[int, int] = {}
    for batch in kept:
        runs.setdefault(batch.term, batch.first_index)
    assert recovery.term_starts == tuple(runs.items())
    before = [batch.term for batch in BATCHES if batch.end == scan_from]
    assert recovery.previous_term == (before[0] if before else 0)


@pytest.mark.parametrize("scan_from", [4, 26, 100])
def test_the_term_before_a_scan_that_begins_inside_a_batch_or_behind_the_end_is_not_held(
    disk: SimulatedDisk, scan_from: int
) -> None:
    wal, found = open_wal(disk, scan_from=Index(scan_from))
    assert (found, wal.recovery.previous_term) == (from_index(scan_from), 0)


def test_a_log_continues_after_a_partial_scan_and_all_of_it_can_be_read(disk: SimulatedDisk) -> None:
    wal, _ = open_wal(disk, scan_from=Index(25))
    wal.append_now([make_batch(25, term=3)])
    expected = [*contents(BATCHES), bytes(make_batch(25, term=3).buffer)]
    assert contents(wal.read(Index(1), 1 << 30)) == expected
    assert contents(wal.read(Index(9), 1)) == contents([BATCHES[4]])
    assert open_wal(disk)[1] == expected


def test_of_segments_wholly_below_the_scan_only_the_headers_are_read(disk: SimulatedDisk) -> None:
    """A restart reads only the part that the snapshot does not cover, however long the log is."""
    for number in (1, 2):
        disk.flip(path_of(number), 300)
    assert open_wal(disk, scan_from=Index(13))[1] == from_index(13)
    with pytest.raises(CorruptionError):
        open_wal(disk, scan_from=Index(11))
    wal, _ = open_wal(disk, scan_from=Index(13))
    with pytest.raises(CorruptionError, match="cannot be read"):
        wal.read(Index(1), 1)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_segment_header_is_checked_although_the_segment_is_not_read(disk: SimulatedDisk, number: int) -> None:
    disk.flip(path_of(number), 20)
    with pytest.raises(CorruptionError) as caught:
        open_wal(disk, scan_from=Index(25))
    assert caught.value.path == path_of(number)


def test_segments_in_each_other_s_place_are_found_below_the_scan_too(disk: SimulatedDisk) -> None:
    one, two = (bytes(disk.volume.find(path_of(number)).data) for number in (1, 2))
    disk.volume.adopt(path_of(1), two)
    disk.volume.adopt(path_of(2), one)
    with pytest.raises(CorruptionError, match="segment 2 in the file of segment 1"):
        open_wal(disk, scan_from=Index(25))


def test_a_missing_segment_is_damage_below_the_scan_too(disk: SimulatedDisk) -> None:
    disk.remove(path_of(2))
    with pytest.raises(CorruptionError, match="segment 2, between 1 and 3"):
        open_wal(disk, scan_from=Index(25))


# -- the first index ---------------------------------------------------------------------------------------------


def test_a_log_may_begin_at_or_below_the_end_of_a_snapshot(disk: SimulatedDisk) -> None:
    disk.remove(path_of(1))
    for first_index in (7, 8, 20):
        wal, found = open_wal(disk, first_index=Index(first_index))
        assert (wal.first_index, wal.recovery.first_index, found) == (7, 7, from_index(7))
    assert open_wal(disk, first_index=Index(7), scan_from=Index(7))[0].recovery.previous_term == 1


def test_a_log_that_begins_above_it_lacks_files_and_names_the_snapshot_that_it_needs(disk: SimulatedDisk) -> None:
    disk.remove(path_of(1))
    disk.remove(path_of(2))
    with pytest.raises(CorruptionError, match="a snapshot that reaches index 13 is needed") as caught:
        open_wal(disk, first_index=Index(12), scan_from=Index(12))
    assert caught.value.path == path_of(2)


def test_an_empty_log_begins_at_the_given_index_after_a_record_of_the_given_term() -> None:
    disk = new_disk()
    begin = {"first_index": Index(40), "previous_term": 7, "scan_from": Index(40)}
    wal, _ = open_wal(disk, **begin)
    assert (wal.first_index, wal.end, wal.durable_end, wal.recovery.previous_term) == (40, 40, 40, 7)
    wal, _ = open_wal(disk, **begin)
    wal.append_now([make_batch(40, term=7)])
    assert open_wal(disk, **begin)[0].recovery.previous_term == 7, "the segment header now contains it"
    with pytest.raises(CorruptionError, match="a snapshot that reaches index 40 is needed"):
        open_wal(disk)


def test_the_tools_read_a_log_that_a_snapshot_of_the_data_directory_reaches(disk: SimulatedDisk) -> None:
    ControlFile.open(disk, "/data").write(ControlState(**IDENTITY, commit_hint=9))
    disk.remove(path_of(1))
    assert verify(disk, "/data").verdict == "corruption"
    disk.make_directory("/data/snapshots")
    disk.volume.adopt(f"/data/snapshots/{6:020d}-1.snapshot", b"")
    assert "snapshot that reaches index 7" in verify(disk, "/data").damage[0].expected
    disk.volume.adopt(f"/data/snapshots/{9:020d}-1.snapshot", b"")
    found = verify(disk, "/data")
    assert (found.verdict, found.first_index, found.last_index) == ("clean", 7, 24)
    assert contents(list(read_batches(disk, "/data"))) == from_index(7)
    assert next(iter(inspect(disk, DIRECTORY))).fields["first_index"] == 7


def test_a_log_alone_is_read_wherever_it_begins(disk: SimulatedDisk) -> None:
    for number in (1, 2, 3, 4):
        disk.make_directory("/copy")
        disk.volume.adopt(f"/copy/{segment_name(number)}", bytes(disk.volume.find(path_of(number)).data))
    disk.remove(f"/copy/{segment_name(1)}")
    assert (verify(disk, "/copy").verdict, verify(disk, "/copy").first_index) == ("clean", 7)
