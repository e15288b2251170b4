"""The log as its owner uses it, on the simulated disk and in simulated time."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from tests.wal.logs import (
    DIRECTORY,
    SMALL,
    Journal,
    bytes_on,
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
from viewstamp.errors import (
    ClosedError,
    CorruptionError,
    OverloadedError,
    StorageError,
    StorageFullError,
)
from viewstamp.ids import Index
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal import catalogue
from viewstamp.wal import log as wal_module
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import inspect, verify
from viewstamp.wire.batch import Batch


def started(disk: SimulatedDisk, options: WalOptions = SMALL, failures: list[StorageError] | None = None) -> Wal:
    wal, _ = open_wal(disk, options)
    wal.start(swallow if failures is None else failures.append)
    return wal


def groups(disk: SimulatedDisk) -> list[int]:
    """Return the number of batches in each group."""
    return [int(str(entry.fields["batches"])) for entry in inspect(disk, DIRECTORY) if entry.kind == "group"]


def recovered(disk: SimulatedDisk) -> list[bytes]:
    disk.crash()
    return open_wal(disk)[1]


# -- order ---------------------------------------------------------------------------------------------------------


@simulated
async def test_the_order_of_reservation_is_the_order_on_disk_and_of_completion(disk: SimulatedDisk) -> None:
    """A hundred writers reserve in turn and fill their reservations after random delays (checklist B2, line 1)."""
    wal = started(disk, WalOptions(segment_bytes=1 << 20, reserve_bytes=0))
    entropy = random.Random(1)
    completed: list[int] = []

    async def write(number: int) -> None:
        batch = make_batch(number + 1)
        reservation = wal.reserve(batch.size)
        await asyncio.sleep(entropy.random() / 10)
        done = asyncio.get_running_loop().create_future()
        wal.fill(reservation, [batch], lambda error: (completed.append(number), done.set_result(error)))
        assert await done is None

    tasks = []
    for number in range(100):
        tasks.append(asyncio.create_task(write(number)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert completed == list(range(100))
    assert wal.durable_end == wal.end == 101
    assert recovered(disk) == contents(make_batches(1, 100))


@simulated
async def test_a_reservation_that_is_not_filled_holds_back_those_behind_it(disk: SimulatedDisk) -> None:
    wal = started(disk)
    journal = Journal()
    first = wal.reserve(1000)
    step = journal.append(wal, [make_batch(2)])
    await asyncio.sleep(1)
    assert not step.is_done
    assert wal.end == 1
    wal.fill(first, [make_batch(1)], lambda error: None)
    await journal.settle()
    assert wal.durable_end == 3


@simulated
async def test_a_write_keeps_its_place_behind_a_reservation_that_is_not_filled(disk: SimulatedDisk) -> None:
    wal = started(disk)
    completed: list[int] = []
    before, after = make_batch(1), make_batch(2)
    reservation = wal.reserve(before.size)
    wal.write([after], after.size, lambda _: completed.append(2))
    await asyncio.sleep(1)
    assert (completed, wal.end) == ([], 1)
    wal.fill(reservation, [before], lambda _: completed.append(1))
    assert wal.end == 3
    await asyncio.sleep(1)
    assert (completed, wal.queued_bytes) == ([1, 2], 0)
    assert recovered(disk) == contents([before, after])


@simulated
async def test_a_write_is_refused_where_a_reservation_would_be(disk: SimulatedDisk) -> None:
    wal = started(disk)
    await wal.append([make_batch(1)])
    await wal.close()
    with pytest.raises(ClosedError):
        wal.write([make_batch(2)], 500, swallow)
    assert (wal.end, wal.queued_bytes) == (2, 0)


@simulated
async def test_a_cancelled_reservation_is_a_skip_and_blocks_no_other(disk: SimulatedDisk) -> None:
    wal = started(disk)
    journal = Journal()
    skipped = wal.reserve(1000)
    journal.append(wal, [make_batch(1)])
    held = wal.queued_bytes
    wal.cancel(skipped)
    assert wal.queued_bytes < held - 999
    await journal.settle()
    assert wal.queued_bytes == 0
    assert recovered(disk) == contents([make_batch(1)])


@simulated
async def test_a_cancelled_append_may_still_become_durable_and_blocks_no_other(disk: SimulatedDisk) -> None:
    wal = started(disk)
    task = asyncio.create_task(wal.append([make_batch(1)]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await wal.append([make_batch(2)])
    assert task.cancelled()
    assert recovered(disk) == contents(make_batches(1, 2))


@simulated
async def test_jobs_run_between_appends_once_those_before_them_are_durable(disk: SimulatedDisk) -> None:
    wal = started(disk)
    order: list[str] = []
    seen: list[int] = []

    def job() -> None:
        seen.append(verify(disk, DIRECTORY).last_index)

    def note(name: str, error: BaseException | None) -> None:
        assert error is None
        order.append(name)

    wal.fill(wal.reserve(500), [make_batch(1)], partial(note, "append 1"))
    wal.run(job, partial(note, "job"))
    wal.fill(wal.reserve(500), [make_batch(2)], partial(note, "append 2"))
    await asyncio.sleep(1)
    assert order == ["append 1", "job", "append 2"]
    assert seen == [1]


# -- group commit --------------------------------------------------------------------------------------------------


@simulated
async def test_many_concurrent_appends_cost_far_fewer_syncs(disk: SimulatedDisk) -> None:
    """Batches that wait during a sync become one group (checklist B2, line 2)."""
    wal = started(disk, WalOptions(segment_bytes=1 << 20, reserve_bytes=0))
    await asyncio.sleep(1)
    calls = disk.calls
    await asyncio.gather(*(wal.append([make_batch(i + 1)]) for i in range(500)))
    assert wal.groups <= 3
    assert disk.calls - calls == 2 * wal.groups, "one write and one sync each"
    calls = disk.calls
    await wal.append([make_batch(501)])
    assert disk.calls - calls == 2, "an append on an idle log is one write and one sync"


@simulated
async def test_a_group_is_bounded_in_batches_and_in_bytes(disk: SimulatedDisk) -> None:
    """One call takes at most 1,000 buffers, and a sync of more than 8 MiB would delay the next groups."""
    wal = started(disk, WalOptions(segment_bytes=16 << 20, reserve_bytes=0))
    await wal.append(make_batches(1, 2500, size=1))
    assert groups(disk) == [999, 999, 502]
    big = make_batches(2501, 3, size=4 << 20)
    await wal.append(big)
    assert groups(disk)[3:] == [1, 1, 1]
    assert recovered(disk)[2500:] == contents(big)


@simulated
async def test_a_sync_is_cheap_inside_the_zero_filled_length_and_whole_beyond_it(disk: SimulatedDisk) -> None:
    """``sync_data`` does not make a new length durable, so ``sync`` is needed beyond it (checklist B2, line 5)."""
    wal, _ = open_wal(disk)
    wal._prepare_next = lambda: None  # type: ignore[method-assign]
    trace: list[str] = []
    file = wal._writer._file
    for name in ("sync", "sync_data"):
        method = getattr(file, name)
        setattr(file, name, lambda name=name, method=method: (trace.append(name), method()))
    wal.append_now([make_batch(1, size=8000)])
    wal.append_now([make_batch(2, size=6000)])
    wal.append_now([make_batch(3, size=6000)])
    wal.append_now([make_batch(4, size=10)])
    assert trace == ["sync_data", "sync_data", "sync", "sync"]
    assert len(recovered(disk)) == 4


# -- segments ------------------------------------------------------------------------------------------------------


@simulated
async def test_the_next_segment_is_made_ready_in_the_background_while_appends_go_on(disk: SimulatedDisk) -> None:
    """No append waits for the preparation: until the next segment is ready, the open one grows."""
    wal = started(disk)
    await asyncio.gather(*(wal.append([batch]) for batch in make_batches(1, 30, size=3000)))
    assert wal.durable_end == 31
    await wal.append([make_batch(31)])
    await asyncio.sleep(0.01)
    assert len(wal.segments()) > 1
    assert len(names_of(disk, "prepared")) == 1
    sealed = wal.segments()[0]
    assert sealed.sealed
    assert len(disk.volume.find(sealed.path).data) == sealed.length, "no zeros are left behind the seal"
    assert recovered(disk) == [*contents(make_batches(1, 30, size=3000)), bytes(make_batch(31).buffer)]


@simulated
async def test_a_batch_larger_than_a_segment_is_written_all_the_same(disk: SimulatedDisk) -> None:
    wal = started(disk)
    batches = [make_batch(1), make_batch(2, size=100_000), make_batch(3)]
    for batch in batches:
        await wal.append([batch])
    assert recovered(disk) == contents(batches)


@simulated
async def test_a_segment_that_cannot_be_made_ready_fails_the_log_and_does_not_hang(disk: SimulatedDisk) -> None:
    failures: list[StorageError] = []
    wal = started(disk, failures=failures)
    disk.fail("rename")
    await asyncio.sleep(1)
    assert len(failures) == 1
    with pytest.raises(StorageError, match="cannot rename"):
        await wal.append([make_batch(1)])


# -- closing -------------------------------------------------------------------------------------------------------


@simulated
async def test_a_clean_stop_closes_the_last_group_and_cuts_the_zeros_off(disk: SimulatedDisk) -> None:
    """Checklist B2, line 6: the file is as long as its contents."""
    wal = started(disk)
    await wal.append([make_batch(1)])
    await wal.close()
    assert groups(disk) == [1, 0]
    [segment] = wal.segments()
    assert len(disk.volume.find(segment.path).data) == segment.length < SMALL.segment_bytes
    again, found = open_wal(disk)
    assert (found, again.recovery.verdict) == (contents([make_batch(1)]), "clean")
    assert len(disk.volume.find(segment.path).data) == SMALL.segment_bytes, "zero-filled again for writing"


@simulated
async def test_closing_writes_queued_batches_and_skips_unfilled_reservations(disk: SimulatedDisk) -> None:
    wal = started(disk)
    journal = Journal()
    wal.reserve(100)
    step = journal.append(wal, [make_batch(1)])
    await wal.close()
    assert step.is_done
    await wal.close()
    for refused in (lambda: wal.reserve(1), lambda: wal.truncate(Index(1), swallow), lambda: wal.run(int, swallow)):
        with pytest.raises(ClosedError):
            refused()
    assert recovered(disk) == contents([make_batch(1)])


@simulated
async def test_an_idle_log_closes_its_last_group_once(disk: SimulatedDisk) -> None:
    wal = started(disk)
    await wal.append([make_batch(1)])
    await asyncio.sleep(10)
    assert groups(disk) == [1, 0]
    calls = disk.calls
    await asyncio.sleep(10)
    assert disk.calls == calls, "an idle log does nothing"
    await wal.append([make_batch(2)])
    await asyncio.sleep(10)
    assert groups(disk) == [1, 0, 1, 0]


@simulated
async def test_a_busy_log_writes_no_empty_groups(disk: SimulatedDisk) -> None:
    wal = started(disk)
    for i in range(200):
        await wal.append([make_batch(i + 1)])
        await asyncio.sleep(0.01)
    assert [entry for entry in inspect(disk, DIRECTORY) if entry.fields.get("closes") == "group"] == []


# -- truncation ----------------------------------------------------------------------------------------------------


@simulated
async def test_after_a_truncation_a_read_gives_the_newer_records_also_after_a_restart(disk: SimulatedDisk) -> None:
    """Checklist B2, line 9, in our form: of two batches with the same index, the older one is physically gone."""
    wal = started(disk)
    old = make_batches(1, 10, size=2000)
    for batch in old:
        await wal.append([batch])
    done: list[BaseException | None] = []
    wal.truncate(Index(4), done.append)
    assert wal.end == 4, "the end falls at once"
    assert wal.durable_end == 4
    new = make_batches(4, 3, term=2, size=700)
    await wal.append(new)
    assert done == [None]
    expected = contents([*old[:3], *new])
    assert contents(wal.read(Index(1), 1 << 20)) == expected
    assert contents(wal.read(Index(4), 1 << 20)) == contents(new)
    everything = b"".join(bytes(disk.volume.find(segment.path).data) for segment in wal.segments())
    assert bytes(old[3].buffer) not in everything
    assert names_of(disk, "segment") == ["00000000000000000001.segment"]
    assert recovered(disk) == expected


@simulated
async def test_a_truncation_leaves_a_log_that_ends_cleanly_with_a_higher_group_number(disk: SimulatedDisk) -> None:
    """The same between two batches of one group, which then has fewer batches than its header lists."""
    wal = started(disk)
    await wal.append(make_batches(1, 5))
    done: list[BaseException | None] = []
    wal.truncate(Index(3), done.append)
    await asyncio.sleep(0.01)
    disk.kill()
    assert verify(disk, DIRECTORY).as_dict() | {"path": ""} == {
        "path": "", "verdict": "clean", "segments": 1, "batches": 2, "records": 2, "first_index": 1, "last_index": 2,
        "torn_bytes": 0, "damage": [],
    }  # fmt: skip
    numbers = [entry.fields["number"] for entry in inspect(disk, DIRECTORY) if entry.kind == "group"]
    assert numbers == [1, 2]


@simulated
async def test_batches_that_a_truncation_will_cut_no_longer_count_as_durable(disk: SimulatedDisk) -> None:
    """Older appends still complete between the hand-over of the truncation and its end; they must not count."""
    wal = started(disk)
    ends: list[tuple[int, int]] = []

    def note(error: BaseException | None) -> None:
        assert error is None
        ends.append((wal.durable_end, wal.end))

    wal.fill(wal.reserve(9999), make_batches(1, 5), note)
    wal.truncate(Index(3), note)
    wal.fill(wal.reserve(9999), make_batches(3, 4, term=2), note)
    assert (wal.durable_end, wal.end) == (1, 7)
    await asyncio.sleep(1)
    assert ends == [(3, 7), (3, 7), (7, 7)]


@simulated
async def test_a_truncation_to_the_end_changes_nothing(disk: SimulatedDisk) -> None:
    wal = started(disk)
    await wal.append([make_batch(1)])
    calls = disk.calls
    done: list[BaseException | None] = []
    wal.truncate(Index(2), done.append)
    await asyncio.sleep(0.01)
    assert done == [None]
    assert disk.calls == calls


@simulated
async def test_a_truncation_inside_a_batch_is_refused_and_final(disk: SimulatedDisk) -> None:
    """Every boundary in the system is a batch boundary, so such a call is a defect, and the log stops."""
    failures: list[StorageError] = []
    wal = started(disk, failures=failures)
    await wal.append([make_batch(1, 4)])
    done: list[BaseException | None] = []
    wal.truncate(Index(3), done.append)
    await asyncio.sleep(1)
    assert done == failures
    assert "inside <Batch" in str(failures[0])
    assert recovered(disk) == contents([make_batch(1, 4)])


@simulated
async def test_group_numbers_go_on_rising_over_truncations_and_restarts(disk: SimulatedDisk) -> None:
    wal = started(disk)
    await wal.append([make_batch(1)])
    for turn in range(5):
        await asyncio.gather(*(wal.append([batch]) for batch in make_batches(2, 9, term=turn + 1, size=3000)))
        wal.truncate(Index(2), swallow)
    await wal.append([make_batch(2)])
    await wal.close()
    wal = started(disk)
    await wal.append([make_batch(3)])
    numbers = [int(str(entry.fields["number"])) for entry in inspect(disk, DIRECTORY) if entry.kind == "group"]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] > 10


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.fixture
def long(disk: SimulatedDisk) -> tuple[Wal, list[Batch]]:
    """Return a log of several segments; the groups hold several batches of several records."""
    batches = make_batches(1, 60, count=3, size=400)
    return write_log(disk, [batches[i : i + 4] for i in range(0, 60, 4)]), batches


def test_a_read_begins_with_the_batch_that_holds_the_index(long: tuple[Wal, list[Batch]]) -> None:
    wal, batches = long
    assert len(wal.segments()) > 2
    for index in range(1, 181):
        [first, *_] = wal.read(Index(index), 1)
        assert first.first_index <= index < first.end
        assert contents([first]) == contents([batches[(index - 1) // 3]])


def test_a_read_is_limited_in_bytes_and_gives_at_least_one_batch(long: tuple[Wal, list[Batch]]) -> None:
    wal, batches = long
    assert len(wal.read(Index(1), 0)) == 1
    assert len(wal.read(Index(1), 2 * batches[0].size)) == 2
    assert contents(wal.read(Index(1), 1 << 30)) == contents(batches)
    assert wal.read(wal.end, 1 << 30) == []


def test_reading_on_from_the_last_end_gives_the_whole_log(long: tuple[Wal, list[Batch]]) -> None:
    wal, batches = long
    found: list[Batch] = []
    while more := wal.read(Index(found[-1].end if found else 1), 5000):
        found.extend(more)
    assert contents(found) == contents(batches)


def test_the_sparse_index_stays_small_and_leads_close_to_the_record() -> None:
    """One entry covers 64 KiB, so memory does not grow with the number of batches."""
    disk = new_disk()
    batches = make_batches(1, 600, size=1000)
    wal = write_log(disk, [batches[:300], *[[batch] for batch in batches[300:]]], WalOptions(segment_bytes=1 << 20))
    [segment] = wal.segments()
    assert len(segment.indices) <= segment.length // (64 * 1024) + 1
    for index in range(1, 601, 7):
        place = wal._catalogue.find(index)
        assert place is not None
        [held] = [
            entry
            for entry in inspect(disk, segment.path)
            if entry.fields.get("first_index") == index and entry.kind == "batch"
        ]
        assert 0 <= held.location - place.location < 64 * 1024 + 2000


@simulated
async def test_only_durable_batches_are_read(disk: SimulatedDisk) -> None:
    wal = started(disk)
    await wal.append([make_batch(1)])
    wal.fill(wal.reserve(500), [make_batch(2)], swallow)
    assert contents(wal.read(Index(1), 1 << 20)) == contents([make_batch(1)])
    assert wal.read(Index(2), 1 << 20) == []


def test_a_read_during_a_truncation_stops_where_the_log_will_end(long: tuple[Wal, list[Batch]]) -> None:
    """Readers see the new end before the first byte is removed."""
    wal, batches = long
    wal._catalogue.begin_truncation(100)
    assert contents(wal.read(Index(90), 1 << 30)) == contents([batch for batch in batches if 90 < batch.end <= 100])
    assert wal.read(Index(100), 1 << 30) == []


def test_a_read_that_meets_a_truncation_is_repeated(long: tuple[Wal, list[Batch]], disk: SimulatedDisk) -> None:
    """A segment disappears between the lookup and the opening of its file."""
    wal, batches = long
    place = wal._catalogue.find(100)
    assert place is not None
    read = disk.open_read

    def open_read(path: str) -> Any:
        if path == place.path and wal.end > 50:
            wal.truncate(Index(49), swallow)
            wal._work_now()
        return read(path)

    disk.open_read = open_read  # type: ignore[method-assign]
    assert contents(wal.read(Index(1), 1 << 30)) == contents(batches[:16])


def test_a_read_never_mixes_records_from_before_and_after_a_truncation(
    long: tuple[Wal, list[Batch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is cut and written again with batches of the same size while a read is in progress."""
    wal, batches = long
    rewritten = make_batches(46, 45, count=3, term=2, size=400)

    def and_then_cut(*arguments: Any) -> list[Batch]:
        found = catalogue.read(*arguments)
        if wal._catalogue.truncations == 0:
            wal.truncate(Index(46), swallow)
            wal.append_now(rewritten)
        return found

    monkeypatch.setattr(wal_module, "read", and_then_cut)
    assert contents(wal.read(Index(1), 1 << 30)) == contents([*batches[:15], *rewritten])


def test_rot_found_by_a_read_is_reported_and_never_returned(long: tuple[Wal, list[Batch]], disk: SimulatedDisk) -> None:
    wal, _ = long
    disk.flip(wal.segments()[1].path, 600)
    with pytest.raises(CorruptionError, match="cannot be read"):
        wal.read(Index(1), 1 << 30)


# -- bounds --------------------------------------------------------------------------------------------------------


async def append_until_refused(wal: Wal, written: list[Batch]) -> None:
    for batch in make_batches(1, 100, size=2000):
        await wal.append([batch])
        written.append(batch)


@simulated
async def test_the_queue_is_bounded_in_bytes(disk: SimulatedDisk) -> None:
    wal = started(disk, WalOptions(segment_bytes=1 << 20, queue_bytes_max=12_000, reserve_bytes=0))
    batches = make_batches(1, 8, size=1000)
    journal = Journal()
    for batch in batches:
        journal.append(wal, [batch])
    with pytest.raises(OverloadedError, match="bytes wait for the disk") as caught:
        wal.reserve(1000)
    assert caught.value.remedy
    wal.cancel(wal.reserve(1000, urgent=True))
    await journal.settle()
    assert wal.queued_bytes == 0
    wal.cancel(wal.reserve(50_000))  # A single batch may exceed the bound, because it could never be written otherwise.


@simulated
async def test_a_full_disk_is_refused_before_anything_is_harmed_and_goes_on_when_there_is_room(
    disk: SimulatedDisk,
) -> None:
    disk.capacity_bytes = 4 * SMALL.segment_bytes
    failures: list[StorageError] = []
    wal = started(disk, WalOptions(segment_bytes=SMALL.segment_bytes, reserve_bytes=SMALL.segment_bytes), failures)
    written: list[Batch] = []
    with pytest.raises(StorageFullError, match="stay in reserve") as caught:
        await append_until_refused(wal, written)
    assert "free space" in caught.value.remedy
    assert len(written) > 10
    assert disk.free_bytes("/") >= SMALL.segment_bytes // 2, "the reserve is not touched"
    with pytest.raises(StorageFullError):
        wal.check_room(2000)
    assert contents(wal.read(Index(1), 1 << 20)) == contents(written), "reads are still served"
    wal.cancel(wal.reserve(200, urgent=True))
    disk.capacity_bytes *= 10
    with pytest.raises(StorageFullError):
        wal.reserve(2000)  # this one makes the log ask the disk again
    await asyncio.sleep(0.01)
    journal = Journal()
    journal.append(wal, [make_batch(len(written) + 1, size=2000)])
    await journal.settle()
    assert failures == []
    assert len(recovered(disk)) == len(written) + 1


@simulated
async def test_the_log_keeps_within_its_size_limit(disk: SimulatedDisk) -> None:
    limit = 4 * SMALL.segment_bytes
    wal = started(disk, WalOptions(segment_bytes=SMALL.segment_bytes, reserve_bytes=0, bytes_max=limit))
    with pytest.raises(StorageFullError, match="bytes_max is 65536") as caught:
        await append_until_refused(wal, [])
    assert "raise [wal] bytes_max" in caught.value.remedy
    assert bytes_on(disk) <= limit
    assert wal.bytes_used > limit * 0.8


@simulated
async def test_a_log_on_a_full_disk_starts_and_is_read_and_refuses_to_write_until_there_is_room(
    disk: SimulatedDisk,
) -> None:
    wal = started(disk)
    await wal.append([make_batch(1)])
    await wal.close()
    for name in names_of(disk, "prepared"):
        disk.remove(f"{DIRECTORY}/{name}")
    disk.capacity_bytes = disk.volume.bytes_used() + 100
    wal = started(disk)
    assert contents(wal.read(Index(1), 1 << 20)) == contents([make_batch(1)])
    await asyncio.sleep(0.01)
    with pytest.raises(StorageFullError):
        wal.reserve(200)
    disk.capacity_bytes *= 100
    with pytest.raises(StorageFullError):
        wal.reserve(200)
    await asyncio.sleep(0.01)
    await wal.append([make_batch(2)])
    assert len(recovered(disk)) == 2


@simulated
async def test_a_batch_larger_than_the_prepared_files_is_accepted_once_the_disk_has_room_again(
    disk: SimulatedDisk,
) -> None:
    """Otherwise a member that is far behind and gets many batches at once would be refused the same bytes for ever.

    A spare is ready, so none is prepared, and only the refusals make the log ask the disk again.
    """
    wal = started(disk)
    await wal.append([make_batch(1)])
    await asyncio.sleep(0.01)
    disk.crash()
    assert len(names_of(disk, "prepared")) == 1
    disk.capacity_bytes = disk.volume.bytes_used() + 100
    wal = started(disk)
    with pytest.raises(StorageFullError, match="the disk has 100 bytes left"):
        wal.reserve(3 * SMALL.segment_bytes)
    await asyncio.sleep(0.01)
    disk.capacity_bytes *= 100
    with pytest.raises(StorageFullError):
        wal.reserve(3 * SMALL.segment_bytes)  # this one makes the log ask the disk again
    await asyncio.sleep(0.01)
    await wal.append([make_batch(2, size=3 * SMALL.segment_bytes)])
    assert len(recovered(disk)) == 2


def test_a_disk_without_room_for_the_first_segment_is_refused(disk: SimulatedDisk) -> None:
    disk.capacity_bytes = 1000
    with pytest.raises(StorageFullError):
        open_wal(disk)
    disk.capacity_bytes = 1 << 20
    assert open_wal(disk)[1] == []


# -- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync"])
@simulated
async def test_a_failed_write_or_sync_is_final(disk: SimulatedDisk, operation: str) -> None:
    """Checklist B2, line 3: every waiter of the group fails, the log refuses all later work, and nothing is retried."""
    failures: list[StorageError] = []
    wal = started(disk, failures=failures)
    await wal.append([make_batch(1)])
    await asyncio.sleep(0.03)
    outcomes: list[BaseException | None] = []
    disk.fail(operation)
    for i in range(3):
        wal.fill(wal.reserve(500), [make_batch(i + 2)], outcomes.append)
    wal.run(partial(outcomes.append, None), outcomes.append)
    await asyncio.sleep(1)
    [failure] = failures
    assert outcomes == [failure] * 4
    assert f"cannot {operation}" in str(failure)
    assert (wal.durable_end, wal.end) == (2, 5)
    calls = disk.calls
    for refused in (
        lambda: wal.reserve(1),
        lambda: wal.check_room(1),
        lambda: wal.truncate(Index(1), outcomes.append),
        lambda: wal.run(int, outcomes.append),
    ):
        with pytest.raises(StorageError):
            refused()
    await asyncio.sleep(5)
    await wal.close()
    assert disk.calls == calls, "nothing is written after a failure, not even at the end"
    assert contents(wal.read(Index(1), 1 << 20)) == contents([make_batch(1)])


@simulated
async def test_no_waiter_hangs_when_a_failed_log_is_closed(disk: SimulatedDisk) -> None:
    failures: list[StorageError] = []
    wal = started(disk, failures=failures)
    await asyncio.sleep(0.01)
    disk.fail("write")
    outcomes: list[BaseException | None] = []
    wal.fill(wal.reserve(500), [make_batch(1)], outcomes.append)
    wal.reserve(500)
    wal.fill(wal.reserve(500), [make_batch(2)], outcomes.append)
    await asyncio.sleep(1)
    assert outcomes == failures
    await wal.close()
    assert outcomes == failures * 2


@simulated
async def test_groups_before_the_one_that_failed_stay_acknowledged(disk: SimulatedDisk) -> None:
    failures: list[StorageError] = []
    wal = started(disk, failures=failures)
    outcomes: list[BaseException | None] = []
    disk.fail("sync", after=2)
    wal.fill(wal.reserve(500), [make_batch(1)], outcomes.append)
    wal.run(int, outcomes.append)
    wal.fill(wal.reserve(500), [make_batch(2)], outcomes.append)
    wal.run(int, outcomes.append)
    wal.fill(wal.reserve(500), [make_batch(3)], outcomes.append)
    await asyncio.sleep(1)
    good = outcomes.count(None)
    assert outcomes == [None] * good + failures * (5 - good)
    assert wal.durable_end == good // 2 + good % 2 + 1


@simulated
async def test_a_job_that_fails_is_final_as_the_control_file_is_written_by_one(disk: SimulatedDisk) -> None:
    failures: list[StorageError] = []
    wal = started(disk, failures=failures)

    def job() -> None:
        raise StorageError("the control file failed")

    outcomes: list[BaseException | None] = []
    wal.run(job, outcomes.append)
    wal.fill(wal.reserve(500), [make_batch(1)], outcomes.append)
    await asyncio.sleep(1)
    assert outcomes == failures * 2
    assert recovered(disk) == []


@simulated
async def test_batches_that_do_not_continue_the_log_are_a_defect_that_stops_it(disk: SimulatedDisk) -> None:
    failures: list[StorageError] = []
    wal = started(disk, failures=failures)
    await wal.append([make_batch(1, term=3)])
    with pytest.raises(StorageError, match="where index 2 comes next"):
        await wal.append([make_batch(3, term=3)])
    assert len(failures) == 1
    assert recovered(disk) == contents([make_batch(1, term=3)])


@simulated
async def test_after_a_failed_sync_a_new_process_trusts_no_bytes_that_only_the_page_cache_holds(
    disk: SimulatedDisk,
) -> None:
    """The kernel has marked the pages clean, so another sync alone would do nothing: the last group is rewritten."""
    wal = started(disk, failures=[])
    await wal.append([make_batch(1)])
    disk.fail("sync")
    wal.fill(wal.reserve(9999), [make_batch(2, size=9000)], swallow)
    await asyncio.sleep(1)
    disk.kill()
    trace: list[tuple[int, int]] = []
    inode = disk.volume.find(wal.segments()[0].path)
    write = type(inode).write

    def noting(self: Any, offset: int, buffers: Any) -> None:
        trace.append((offset, sum(map(len, buffers))))
        write(self, offset, buffers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(inode), "write", noting)
        _, found = open_wal(disk)
    assert len(found) == 2
    group = [entry for entry in inspect(disk, DIRECTORY) if entry.kind == "group"][1]
    assert trace[0] == (group.location, group.fields["bytes"])
