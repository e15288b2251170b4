"""Dropping the beginning of a log: whole segments in order, the reuse of their files, and the effect on readers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.wal.logs import (
    DIRECTORY,
    SMALL,
    Journal,
    contents,
    make_batch,
    make_batches,
    names_of,
    open_wal,
    simulated,
    swallow,
    write_log,
)
from viewstamp.errors import ClosedError, StorageError, TrimmedError
from viewstamp.ids import Index
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.wal import catalogue
from viewstamp.wal import log as wal_module
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.format import segment_name
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import inspect, read_batches, verify
from viewstamp.wal.recovery import Survey
from viewstamp.wal.verdict import Known
from viewstamp.wire.batch import Batch

BATCHES = make_batches(1, 20, count=2, size=2500)
"""Three batches in a segment: segments begin at 1, 7, 13, 19, ..."""


@pytest.fixture
def wal(disk: SimulatedDisk) -> Wal:
    """Return a log of seven segments that is not started."""
    wal = write_log(disk, [[batch] for batch in BATCHES])
    assert [segment.first_index for segment in wal.segments()] == [1, 7, 13, 19, 25, 31, 37]
    return wal


def trim(wal: Wal, first_index: int) -> None:
    wal.trim(Index(first_index), swallow)
    wal._work_now()


def from_index(index: int) -> list[bytes]:
    return contents([batch for batch in BATCHES if batch.first_index >= index])


@pytest.mark.parametrize(
    ("asked", "first_index"), [(1, 1), (6, 1), (7, 7), (12, 7), (13, 13), (30, 25), (41, 37), (10_000, 37)]
)
def test_only_whole_segments_go_and_at_least_one_stays(
    disk: SimulatedDisk, wal: Wal, asked: int, first_index: int
) -> None:
    """A segment is dropped if all its records are below the index, except the open one (checklist B2, line 10)."""
    trim(wal, asked)
    assert (wal.first_index, wal.end) == (first_index, 41)
    assert contents(wal.read(wal.first_index, 1 << 30)) == from_index(first_index)
    assert len(names_of(disk, "segment")) == len(wal.segments()) == 7 - (first_index - 1) // 6
    disk.crash()
    again, found = open_wal(disk, first_index=Index(asked))
    assert (again.first_index, found) == (first_index, from_index(first_index))


def test_a_read_below_the_trim_fails_with_the_first_index_that_is_left(wal: Wal) -> None:
    trim(wal, 20)
    for index in (1, 18):
        with pytest.raises(TrimmedError, match="the log begins at 19") as caught:
            wal.read(Index(index), 1)
        assert caught.value.first == 19
    assert contents(wal.read(Index(19), 1)) == contents([BATCHES[9]])


@pytest.mark.parametrize("call", range(1, 9))
def test_a_trim_is_durable_segment_by_segment_the_first_one_first(disk: SimulatedDisk, wal: Wal, call: int) -> None:
    """Four segments, with a rename and a sync each: a power cut at any of these calls leaves a log without gaps."""
    disk.crash_at(disk.calls + call)
    with pytest.raises(SimulatedCrash):
        trim(wal, 25)
    disk.crash()
    found = Survey(disk=disk, directory=DIRECTORY, known=Known(first_index_max=25)).run()
    assert (found.judgement.verdict, found.judgement.end) == ("clean", 41)
    gone = (call - 1) // 2
    assert found.judgement.first_index in ((1, 7, 13, 19, 25)[gone], (1, 7, 13, 19, 25)[gone + 1])


@simulated
async def test_a_trim_keeps_its_place_in_the_order(disk: SimulatedDisk) -> None:
    wal, _ = open_wal(disk)
    wal.start(swallow)
    journal = Journal()
    for batch in BATCHES[:12]:
        journal.append(wal, [batch])
        await journal.settle()
    journal.append(wal, [BATCHES[12]])
    step = journal.trim(wal, 15)
    journal.append(wal, [BATCHES[13]])
    assert wal.first_index == 1
    await journal.settle()
    assert step.is_done
    assert wal.first_index == 13
    assert journal.error is None


@simulated
async def test_appends_go_on_between_the_segments_of_a_long_trim(disk: SimulatedDisk) -> None:
    """Each segment costs a sync of the directory; hundreds of syncs must not delay an append."""
    wal, _ = open_wal(disk)
    wal.start(swallow)
    for batch in BATCHES:
        await wal.append([batch])
    done: list[str] = []
    await asyncio.sleep(0.01)
    wal.trim(Index(41), lambda error: done.append("trim"))
    wal.fill(wal.reserve(5000), [make_batch(41)], lambda error: done.append("append"))
    await asyncio.sleep(1)
    assert done == ["append", "trim"]
    assert wal.first_index == 37


@simulated
async def test_a_trim_that_a_stop_interrupts_fails(disk: SimulatedDisk) -> None:
    wal, _ = open_wal(disk)
    wal.start(swallow)
    for batch in BATCHES:
        await wal.append([batch])
    outcomes: list[BaseException | None] = []
    wal.trim(Index(41), outcomes.append)
    await wal.close()
    [outcome] = outcomes
    assert isinstance(outcome, ClosedError)
    disk.crash()
    again, found = open_wal(disk, first_index=Index(41))
    assert again.first_index == 7
    assert found == from_index(7)


# -- reuse of the files ------------------------------------------------------------------------------------------


def test_a_dropped_segment_is_overwritten_with_zeros_before_it_is_the_next_one(disk: SimulatedDisk, wal: Wal) -> None:
    """No old byte may follow the written ones, because recovery would have to distinguish it from a torn tail."""
    inode = disk.volume.find(f"{DIRECTORY}/{segment_name(1)}")
    wal._prepare_next = lambda: None  # type: ignore[method-assign]
    trim(wal, 7)
    [dropped] = names_of(disk, "dropped")
    assert disk.volume.find(f"{DIRECTORY}/{dropped}") is inode
    assert len(inode.data.strip(b"\0")) > 7000
    del wal._prepare_next
    wal._prepare_next()
    assert names_of(disk, "dropped") == []
    assert inode in [disk.volume.find(f"{DIRECTORY}/{name}") for name in names_of(disk, "prepared")]
    assert inode.data == bytes(SMALL.segment_bytes)
    assert inode.is_synced
    more = make_batches(41, 9, count=2, size=2500)
    for batch in more:
        wal.append_now([batch])
    assert any(disk.volume.find(segment.path) is inode for segment in wal.segments()), "the same blocks are used again"
    disk.crash()
    assert open_wal(disk, first_index=Index(7))[1] == [*from_index(7), *contents(more)]


def test_a_log_without_a_bound_keeps_two_spares_at_most(disk: SimulatedDisk, wal: Wal) -> None:
    trim(wal, 41)
    assert len(names_of(disk, "prepared")) == 2
    assert names_of(disk, "dropped") == []
    assert wal.bytes_allocated == 3 * SMALL.segment_bytes


def test_dropped_segments_are_overwritten_after_a_restart(disk: SimulatedDisk, wal: Wal) -> None:
    wal._prepare_next = lambda: None  # type: ignore[method-assign]
    trim(wal, 7)
    assert len(names_of(disk, "dropped")) == 1
    disk.kill()
    again, _ = open_wal(disk, first_index=Index(7))
    again._prepare_next()
    assert names_of(disk, "dropped") == []
    assert all(not any(disk.volume.find(f"{DIRECTORY}/{name}").data) for name in names_of(disk, "prepared"))


def test_the_last_written_segment_does_not_go_before_the_open_one_has_a_header(disk: SimulatedDisk, wal: Wal) -> None:
    """Otherwise, after a crash between a roll and the first group behind it, the next start would miss a file."""
    disk.volume.adopt(f"{DIRECTORY}/{segment_name(8)}", bytes(SMALL.segment_bytes))
    disk.kill()
    wal, _ = open_wal(disk)
    assert wal.segments()[-1].length == 0
    trim(wal, 41)
    assert (wal.first_index, wal.end, len(wal.segments())) == (41, 41, 1)
    disk.crash()
    again, found = open_wal(disk, first_index=Index(41), scan_from=Index(41), must_exist=True, commit_hint=41)
    assert (again.first_index, again.end, found, again.recovery.previous_term) == (41, 41, [], 1)
    again.append_now([make_batch(41)])
    assert open_wal(disk, first_index=Index(41))[1] == contents([make_batch(41)])


def test_a_trimmed_log_is_truncated_down_to_its_first_index(disk: SimulatedDisk, wal: Wal) -> None:
    trim(wal, 20)
    wal.truncate(Index(19), swallow)
    wal._work_now()
    assert (wal.first_index, wal.end) == (19, 19)
    wal.append_now([make_batch(19, term=2)])
    disk.crash()
    assert open_wal(disk, first_index=Index(19))[1] == contents([make_batch(19, term=2)])


@simulated
async def test_a_trim_that_fails_is_final(disk: SimulatedDisk) -> None:
    failures: list[StorageError] = []
    wal, _ = open_wal(disk)
    wal.start(failures.append)
    for batch in BATCHES[:8]:
        await wal.append([batch])
    outcomes: list[BaseException | None] = []
    await asyncio.sleep(0.01)
    disk.fail("sync")
    wal.trim(Index(7), outcomes.append)
    await asyncio.sleep(1)
    assert outcomes == failures
    assert len(failures) == 1
    await wal.close()
    disk.crash()
    assert open_wal(disk, first_index=Index(7))[1] in (contents(BATCHES[:8]), contents(BATCHES[3:8]))


# -- readers -----------------------------------------------------------------------------------------------------


def test_a_reader_whose_segment_was_trimmed_gets_an_error(disk: SimulatedDisk, wal: Wal) -> None:
    """The segment goes between the lookup and the opening of its file."""
    read = disk.open_read

    def open_read(path: str) -> Any:
        if path.endswith(segment_name(2)) and wal.first_index < 13:
            trim(wal, 13)
        return read(path)

    disk.open_read = open_read  # type: ignore[method-assign]
    with pytest.raises(TrimmedError) as caught:
        wal.read(Index(7), 1)
    assert caught.value.first == 13


@pytest.mark.parametrize("writes_on", [False, True])
def test_a_reader_whose_segment_was_overwritten_gets_an_error_and_none_of_its_bytes(
    disk: SimulatedDisk, wal: Wal, monkeypatch: pytest.MonkeyPatch, writes_on: bool
) -> None:
    """The reader has the file open while it is overwritten with zeros and then with newer batches."""
    file = disk.open_read(f"{DIRECTORY}/{segment_name(1)}")
    trim(wal, 13)
    if writes_on:
        for batch in make_batches(41, 9, count=2, size=2500):
            wal.append_now([batch])
        assert bytes(disk.volume.find(wal.segments()[-3].path).data[:3]) == b"VSS"
    open_read = disk.open_read
    disk.open_read = lambda path: file if path.endswith(segment_name(1)) else open_read(path)  # type: ignore[method-assign, assignment]
    place = wal._catalogue.find(13)
    assert place is not None
    stale = place._replace(path=f"{DIRECTORY}/{segment_name(1)}", number=1, location=64)

    def late(*arguments: Any) -> list[Batch]:
        found: list[Batch] = []
        catalogue._read_segment(disk, stale, 1, 1, 0, found, [])
        return found

    monkeypatch.setattr(wal_module, "read", late)
    with pytest.raises(TrimmedError):
        wal.read(Index(1), 1)


def test_a_read_fills_the_sparse_index_for_the_next_one(disk: SimulatedDisk) -> None:
    """A segment that was not scanned at the opening of the log has no sparse index before its first read."""
    options = WalOptions(segment_bytes=1 << 20, reserve_bytes=0)
    batches = make_batches(1, 1400, size=1000)
    write_log(disk, [batches[i : i + 20] for i in range(0, 1400, 20)], options)
    wal, _ = open_wal(disk, options, scan_from=Index(1400))
    assert not wal.segments()[0].indices
    assert contents(wal.read(Index(700), 1)) == contents([batches[699]])
    segment = wal.segments()[0]
    assert len(segment.indices) > 8
    assert 700 - segment.indices[-1] < 100
    for index in range(1, 1401, 37):
        assert contents(wal.read(Index(index), 1)) == contents([batches[index - 1]])


# -- the tools, beside a running node ----------------------------------------------------------------------------


def test_the_tools_read_a_trimmed_log(disk: SimulatedDisk, wal: Wal) -> None:
    trim(wal, 20)
    found = verify(disk, DIRECTORY)
    assert (found.verdict, found.first_index, found.last_index, found.records) == ("clean", 19, 40, 22)
    assert contents(list(read_batches(disk, DIRECTORY))) == from_index(19)
    assert str(next(iter(inspect(disk, DIRECTORY)))).endswith("number=4 generation=4 first_index=19")


def test_reading_the_files_of_a_node_that_trims_meanwhile_reports_the_trim(disk: SimulatedDisk, wal: Wal) -> None:
    batches = read_batches(disk, DIRECTORY)
    assert next(batches).first_index == 1
    trim(wal, 20)
    with pytest.raises(TrimmedError, match="was trimmed while it was read; the log begins at 19 now") as caught:
        list(batches)
    assert caught.value.first == 19
    assert verify(disk, DIRECTORY).verdict == "clean"


def test_a_file_that_was_overwritten_while_it_was_read_is_no_damage(
    disk: SimulatedDisk, wal: Wal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewstamp.wal.scan.CHUNK_BYTES", 64)
    batches = read_batches(disk, DIRECTORY)
    assert next(batches).first_index == 1
    [inode] = [disk.volume.find(f"{DIRECTORY}/{segment_name(1)}")]
    trim(wal, 13)
    assert not any(inode.data)
    with pytest.raises(TrimmedError):
        list(batches)


def test_a_truncation_that_removes_a_listed_file_is_not_reported_as_damage_either(
    disk: SimulatedDisk, wal: Wal
) -> None:
    batches = read_batches(disk, DIRECTORY)
    assert next(batches).first_index == 1
    wal.truncate(Index(9), swallow)
    wal._work_now()
    with pytest.raises(StorageError, match="was deleted after"):
        list(batches)
