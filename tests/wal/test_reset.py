"""A log is emptied and begins at another index after a snapshot was installed; for a crash, this is one step."""

from __future__ import annotations

import asyncio
import struct

import pytest

from tests.wal.logs import (
    DIRECTORY,
    Journal,
    contents,
    make_batch,
    make_batches,
    names_of,
    new_disk,
    open_wal,
    simulated,
    swallow,
    write_log,
)
from viewstamp.errors import CorruptionError, FrameError, StorageFullError, TrimmedError
from viewstamp.ids import Index, Term
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.wal import truncation
from viewstamp.wal.format import replaced_name, segment_name
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import inspect, read_batches, verify
from viewstamp.wal.truncation import MARK_NAME, Mark, place_mark

BATCHES = make_batches(1, 9, count=2, size=2500)


@pytest.fixture
def wal(disk: SimulatedDisk) -> Wal:
    """Return a log of three segments up to index 19, of term 1."""
    return write_log(disk, [[batch] for batch in BATCHES])


def test_a_reset_log_is_empty_and_begins_after_a_record_of_that_term(disk: SimulatedDisk, wal: Wal) -> None:
    wal.reset_now(Index(100), Term(7))
    assert (wal.first_index, wal.end, wal.durable_end) == (100, 100, 100)
    assert names_of(disk, "segment") == [segment_name(4)]
    disk.crash()
    for _ in range(2):
        again, found = open_wal(disk, first_index=Index(100), scan_from=Index(100), must_exist=True, commit_hint=100)
        assert (again.first_index, again.end, found, again.recovery.previous_term) == (100, 100, [], 7)
    again.append_now([make_batch(100, term=7)])
    disk.crash()
    assert open_wal(disk, first_index=Index(100))[1] == contents([make_batch(100, term=7)])


@pytest.mark.parametrize("end", [1, 5, 19, 1000])
def test_a_log_is_reset_to_any_index(disk: SimulatedDisk, wal: Wal, end: int) -> None:
    wal.reset_now(Index(end), Term(3))
    more = make_batches(end, 8, term=3, size=3000)
    for batch in more:
        wal.append_now([batch])
    assert contents(wal.read(Index(end), 1 << 30)) == contents(more)
    disk.crash()
    assert open_wal(disk, first_index=Index(end))[1] == contents(more)


def test_group_numbers_generations_and_segment_numbers_go_on_rising(disk: SimulatedDisk, wal: Wal) -> None:
    """Because they rise, no leftover bytes of the old log can be read as part of the new one."""
    before = [entry.fields for entry in inspect(disk, DIRECTORY) if entry.kind in ("group", "segment")]
    wal.reset_now(Index(5), Term(1))
    segment, group, *_ = inspect(disk, DIRECTORY)
    assert segment.fields["number"] == 4
    assert int(str(segment.fields["generation"])) > max(int(str(fields.get("generation", 0))) for fields in before)
    assert int(str(group.fields["number"])) > max(int(str(fields["number"])) for fields in before)
    assert group.fields["closes"] == "group"


def test_reading_below_a_reset_is_reported_as_trimmed(wal: Wal) -> None:
    wal.reset_now(Index(100), Term(1))
    with pytest.raises(TrimmedError) as caught:
        wal.read(Index(18), 1)
    assert caught.value.first == 100
    assert wal.read(Index(100), 1) == []


@simulated
async def test_a_reset_keeps_its_place_in_the_order_and_nothing_before_it_counts_as_durable(
    disk: SimulatedDisk,
) -> None:
    wal, _ = open_wal(disk)
    wal.start(swallow)
    ends: list[tuple[int, int, int]] = []

    def note(error: BaseException | None) -> None:
        assert error is None
        ends.append((wal.first_index, wal.durable_end, wal.end))

    wal.fill(wal.reserve(9999), make_batches(1, 5), note)
    wal.reset(Index(50), Term(2), note)
    wal.fill(wal.reserve(9999), make_batches(50, 4, term=2), note)
    assert (wal.durable_end, wal.end) == (1, 54)
    await asyncio.sleep(1)
    assert [end for _, *end in ends[:2]] == [[1, 54], [50, 54]]
    assert ends[2] == (50, 54, 54)
    await wal.close()
    disk.crash()
    assert open_wal(disk, first_index=Index(50))[1] == contents(make_batches(50, 4, term=2))


@simulated
async def test_a_reset_log_has_a_whole_segment_and_makes_the_next_one_ready(disk: SimulatedDisk) -> None:
    wal, _ = open_wal(disk)
    wal.start(swallow)
    journal = Journal()
    journal.append(wal, BATCHES)
    journal.reset(wal, 50, 1)
    await journal.settle()
    await asyncio.sleep(0.1)
    [segment] = wal.segments()
    assert len(disk.volume.find(segment.path).data) == 16 * 1024
    assert names_of(disk, "prepared")


def test_a_reset_on_a_full_disk_succeeds_and_only_writing_waits_for_room(disk: SimulatedDisk, wal: Wal) -> None:
    disk.capacity_bytes = 1
    disk.capacity_bytes = disk.volume.bytes_used() + 200
    wal.reset_now(Index(100), Term(1))
    assert wal.end == 100
    disk.capacity_bytes = 1
    disk.crash()
    again, _ = open_wal(disk, first_index=Index(100))
    assert again.end == 100
    with pytest.raises(StorageFullError):
        again.check_room(50_000)


def test_the_old_segments_are_set_aside_until_the_next_reset_or_until_they_are_dropped(disk: SimulatedDisk) -> None:
    wal = write_log(disk, [[batch] for batch in BATCHES])
    old = {name: bytes(disk.volume.find(f"{DIRECTORY}/{name}").data) for name in names_of(disk, "segment")}
    before = wal.bytes_allocated
    wal.reset_now(Index(100), Term(7))
    kept = {name.replace("replaced", "segment"): name for name in names_of(disk, "replaced")}
    assert {name: bytes(disk.volume.find(f"{DIRECTORY}/{kept[name]}").data) for name in kept} == old
    assert wal.bytes_allocated < before, "they do not count; otherwise a bounded log could accept nothing"
    wal.append_now([make_batch(100, term=7)])
    wal.abandon()
    again, found = open_wal(disk, first_index=Index(100))
    assert found == contents([make_batch(100, term=7)])
    assert len(names_of(disk, "replaced")) == len(old)
    again.reset_now(Index(200), Term(8))
    assert names_of(disk, "replaced") == [replaced_name(len(old) + 1)]
    again.drop_replaced()
    again._work_now()
    assert names_of(disk, "replaced") == []
    assert again.failure is None


def test_a_disk_that_needs_the_room_removes_the_segments_set_aside(disk: SimulatedDisk) -> None:
    wal = write_log(disk, [[batch] for batch in BATCHES])
    wal.reset_now(Index(100), Term(7))
    assert names_of(disk, "replaced")
    disk.capacity_bytes = disk.volume.bytes_used() + 100
    for batch in make_batches(100, 6, term=7, size=4000):
        wal.append_now([batch])
    assert names_of(disk, "replaced") == []


# -- the mark: a file that lets the next start finish a reset which a crash interrupted ---------------------------


def test_an_unfinished_reset_is_finished_at_the_next_start_and_the_tools_show_it_before(
    disk: SimulatedDisk, wal: Wal
) -> None:
    group, generation = wal._writer._group, wal._writer._generation
    disk.kill()
    mark = Mark(end=100, segment=4, length=0, group=group, generation=generation, resets=True, term=9)
    place_mark(disk, DIRECTORY, mark)
    found = verify(disk, DIRECTORY)
    assert (found.verdict, found.first_index, found.last_index, found.records) == ("clean", 100, 99, 0)
    assert list(read_batches(disk, DIRECTORY)) == []
    assert str(list(inspect(disk, DIRECTORY))[-1]).endswith(
        "verdict=clean end=100 torn_bytes=0 unfinished_reset_to=100"
    )
    again, batches = open_wal(disk, first_index=Index(100), scan_from=Index(100))
    assert (again.end, batches, again.recovery.previous_term) == (100, [], 9)
    assert not disk.exists(f"{DIRECTORY}/{MARK_NAME}")
    assert names_of(disk, "segment") == [segment_name(4)]


def test_a_reset_that_no_snapshot_reaches_is_refused(disk: SimulatedDisk, wal: Wal) -> None:
    disk.kill()
    place_mark(disk, DIRECTORY, Mark(end=100, segment=4, length=0, group=99, generation=9, resets=True, term=9))
    with pytest.raises(CorruptionError, match="a snapshot that reaches index 100 is needed"):
        open_wal(disk, first_index=Index(99))
    with pytest.raises(CorruptionError, match="below what is known to be committed"):
        open_wal(disk, first_index=Index(100), commit_hint=101)
    assert len(names_of(disk, "segment")) == 3, "no file was changed"


def test_a_death_at_any_call_of_a_reset_leaves_the_old_log_or_the_empty_new_one() -> None:
    outcomes = set()
    for call in range(1, 100):
        disk = new_disk()
        wal = write_log(disk, [[batch] for batch in BATCHES])
        disk.crash_at(disk.calls + call)
        try:
            wal.reset_now(Index(100), Term(7))
        except SimulatedCrash:
            disk.crash()
        else:
            break
        seen = verify(disk, DIRECTORY)
        again, found = open_wal(disk, first_index=Index(100), commit_hint=19)
        outcome = (again.first_index, again.end, len(found))
        outcomes.add(outcome)
        assert (seen.first_index, seen.last_index + 1, seen.batches) == outcome
        assert outcome in ((1, 19, 9), (100, 100, 0))
    assert len(outcomes) == 2
    assert call > 20


def test_a_mark_of_the_first_layout_is_a_truncation() -> None:
    """Version 1 had no kinds; its last 16 bytes were zeros."""
    mark = Mark(end=7, segment=2, length=640, group=30, generation=4)
    packed = bytearray(mark.encode())
    packed[3] = 1
    struct.pack_into("<I", packed, 4, truncation._checksum(packed))
    assert Mark.decode(bytes(packed)) == mark
    reset = Mark(end=7, segment=2, length=0, group=30, generation=4, resets=True, term=3)
    assert Mark.decode(reset.encode()) == reset
    packed = bytearray(reset.encode())
    packed[48] = 2
    struct.pack_into("<I", packed, 4, truncation._checksum(packed))
    with pytest.raises(FrameError):
        Mark.decode(bytes(packed))
