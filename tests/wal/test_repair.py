"""Repair of a log's files: the intact parts beyond the damage, and the state after every step."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.wal.logs import DIRECTORY, contents, make_batch, names_of, new_disk, open_wal
from viewstamp.errors import CorruptionError
from viewstamp.ids import Index, Term
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.sim.volume import Volume, VolumeImage
from viewstamp.wal.assessment import Assessment, LostRange, Region, SegmentAssessment, assess
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.format import NO_LOG_ID, SEGMENT_HEADER_SIZE, segment_name
from viewstamp.wal.offline import inspect
from viewstamp.wal.repair import (
    Quarantine,
    SegmentRewriter,
    begin_anew,
    cut_behind,
    finish_truncation,
    set_everything_aside,
)
from viewstamp.wal.truncation import Mark, place_mark
from viewstamp.wire.batch import Batch

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
TINY = WalOptions(segment_bytes=4096, reserve_bytes=0, margin_bytes=512, idle_seconds=0.05)


def write(disk: SimulatedDisk, groups: int = 40, *, closed: bool = True, log_id: bytes = NO_LOG_ID) -> list[Batch]:
    """Write a log of about five segments, in groups of three batches and rising terms; return the batches.

    A clean stop leaves the log if ``closed``, else a kill.
    """
    wal, _ = open_wal(disk, TINY, log_id=log_id)
    batches = []
    for number in range(groups):
        index = 1 + 6 * number
        group = [make_batch(index + 2 * i, 2, term=1 + number // 15, size=60) for i in range(3)]
        wal.commit_hint = max(1, index - 6)
        wal.append_now(group)
        batches += group
    if closed:
        wal._writer.close_group()
    return batches


def path_of(number: int) -> str:
    return f"{DIRECTORY}/{segment_name(number)}"


def places(disk: SimulatedDisk, kind: str) -> list[tuple[int, int]]:
    """Return the (segment, byte) places of every segment, group or batch."""
    found, number = [], 0
    for entry in inspect(disk, DIRECTORY):
        if entry.kind == "segment":
            number = int(str(entry.fields["number"]))
        if entry.kind == kind:
            found.append((number, entry.location))
    return found


def mend(disk: SimulatedDisk, batches: list[Batch], *, end: int | None = None) -> Assessment:
    """Repair as a node with peers that hold ``batches``; cut at ``end``, or at an unknown end."""
    aside = Quarantine(disk, "/data")
    finish_truncation(disk, DIRECTORY)
    found = assess(disk, DIRECTORY)
    assert not found.contradiction
    for region in found.regions:
        cut = end
        if region.end is None:
            cut = region.gaps[-1].start
        if cut is not None:
            region = cut_behind(disk, found.parts, region, cut, aside)
        rebuilding = SegmentRewriter(disk, region, commit_end=1000, end=cut)
        while rebuilding.wanted is not None:
            start, stop = rebuilding.wanted
            rebuilding.add([batch for batch in batches if start <= batch.first_index < stop][:2])
        rebuilding.finish(aside)
    return found


def check_whole(disk: SimulatedDisk, batches: list[Batch]) -> None:
    """Check that the log opens, holds exactly ``batches``, and accepts appends."""
    wal, found = open_wal(disk, TINY)
    assert found == contents(batches)
    more = make_batch(batches[-1].end if batches else 1, term=9)
    wal.append_now([more])
    assert contents(wal.read(wal.first_index, 1 << 30)) == contents([*batches, more])
    wal.abandon()
    _, found = open_wal(disk, TINY)
    assert found == contents([*batches, more])


def flip(disk: SimulatedDisk, number: int, offset: int) -> None:
    disk.flip(path_of(number), offset)


def is_damaged(disk: SimulatedDisk) -> bool:
    try:
        wal, _ = open_wal(disk, TINY)
    except CorruptionError:
        return True
    wal.abandon()
    return False


def test_an_intact_log_has_nothing_to_repair() -> None:
    disk = new_disk()
    batches = write(disk)
    found = assess(disk, DIRECTORY)
    assert not found.is_damaged
    assert (found.begin, found.end, found.gaps) == (1, batches[-1].end, [])
    assert len(found.parts) >= 5


@pytest.mark.parametrize("kind", ["batch", "group"])
def test_a_flip_in_any_batch_or_group_header_is_one_gap_and_is_written_again(kind: str) -> None:
    disk = new_disk()
    batches = write(disk)
    before = disk.volume.after_cut(disk.entropy)
    at = places(disk, kind)
    mended = 0
    for number, location in at[::3]:
        disk = _restored(before)
        flip(disk, number, location + 20)
        if not is_damaged(disk):
            continue  # the last group: a torn tail
        disk = _restored(before)
        flip(disk, number, location + 20)
        found = mend(disk, batches)
        assert found.end == batches[-1].end
        assert all(gap.end is not None and gap.end - gap.start <= 12 for gap in found.gaps)
        assert len(found.regions) == 1
        check_whole(disk, batches)
        assert disk.list_directory("/data/damaged-1/wal") == [segment_name(number)]
        mended += 1
    assert mended >= 10


def _restored(image: VolumeImage) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.volume = Volume.from_image(image)
    return disk


Corruption = Callable[[SimulatedDisk, list[int]], None]
"""Damages the segments with the given numbers."""


def flips(*which: int, at: int = 500) -> Corruption:
    def do(disk: SimulatedDisk, numbers: list[int]) -> None:
        for i in which:
            flip(disk, numbers[i], at)

    return do


def removes(*which: int) -> Corruption:
    def do(disk: SimulatedDisk, numbers: list[int]) -> None:
        for i in which:
            disk.remove(path_of(numbers[i]))
        disk.sync_directory(DIRECTORY)

    return do


def shortens(which: int, size: int) -> Corruption:
    def do(disk: SimulatedDisk, numbers: list[int]) -> None:
        file = disk.open(path_of(numbers[which]))
        file.truncate(size)
        file.sync()

    return do


FIRST_GROUP = SEGMENT_HEADER_SIZE + 20

DAMAGES: dict[str, tuple[list[Corruption], bool]] = {
    "flip-first": ([flips(0)], True),
    "flip-middle": ([flips(2)], True),
    "flip-open": ([flips(-1)], True),
    "flip-three": ([flips(0, 1, 3)], True),
    "header-first": ([flips(0, at=20)], True),
    "header-middle": ([flips(2, at=20)], True),
    "header-open": ([flips(-1, at=20)], True),
    "header-and-group": ([flips(2, at=20), flips(2, at=FIRST_GROUP)], True),
    "header-and-group-of-the-open": ([flips(-1, at=20), flips(-1, at=FIRST_GROUP)], True),
    "lost-first": ([removes(0)], True),
    "lost-middle": ([removes(2)], True),
    "lost-two": ([removes(1, 2)], True),
    "lost-and-flipped-before": ([flips(1, at=3000), removes(2)], True),
    "lost-and-header-behind": ([removes(1), flips(2, at=20), flips(2, at=FIRST_GROUP)], True),
    "short-middle": ([shortens(2, 1500)], True),
    "empty-middle": ([shortens(2, 0)], True),
    "short-then-lost": ([shortens(1, 2500), removes(2)], True),
    "lost-last": ([removes(-1)], False),
    "lost-last-two": ([removes(-1, -2)], False),
    "flip-and-lost-last": ([flips(1), removes(-1)], False),
    "header-and-lost-last": ([flips(-2, at=20), removes(-1)], False),
}
"""The damage of each case, and whether the end of the log stays known."""


def _damaged(name: str) -> tuple[SimulatedDisk, list[Batch], bool]:
    disk = new_disk()
    batches = write(disk)
    disk = _restored(disk.volume.after_cut(disk.entropy))
    damages, is_known = DAMAGES[name]
    numbers = [int(each.split(".")[0]) for each in names_of(disk, "segment") if not _is_blank(disk, each)]
    for damage in damages:
        damage(disk, numbers)
    return disk, batches, is_known


def _is_blank(disk: SimulatedDisk, name: str) -> bool:
    return not any(disk.volume.find(f"{DIRECTORY}/{name}").data)


@pytest.mark.parametrize("name", DAMAGES)
def test_every_kind_of_damage_is_mended_or_cut_where_its_end_is_not_known(name: str) -> None:
    disk, batches, is_known = _damaged(name)
    image = disk.volume.after_cut(disk.entropy)
    assert is_damaged(disk)
    disk = _restored(image)
    found = mend(disk, batches)
    assert (found.end is not None) == is_known
    if is_known:
        assert found.end == batches[-1].end
        check_whole(disk, batches)
    else:
        kept = [batch for batch in batches if batch.end <= found.gaps[-1].start]
        assert 0 < len(kept) < len(batches)
        check_whole(disk, kept)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_death_at_any_call_of_a_repair_leaves_the_damaged_log_or_the_repaired_one(name: str) -> None:
    """The same for a power cut: the next repair can finish the work, and intact data is never changed."""
    disk, batches, is_known = _damaged(name)
    image = disk.volume.after_cut(disk.entropy)
    disk = _restored(image)
    mend(disk, batches)
    calls = disk.calls
    for call in range(1, calls + 1, 1 if SOAK else 2):
        disk = _restored(image)
        disk.crash_at(call)
        with pytest.raises(SimulatedCrash):
            mend(disk, batches)
        if call % 4 < 2:
            disk.crash()
        else:
            disk.kill()
        found = assess(disk, DIRECTORY)
        if is_known:
            assert found.end == batches[-1].end, f"at call {call} of {calls}"
        if found.is_damaged:
            mend(disk, batches)
        _, recovered = open_wal(disk, TINY)
        expected = contents(batches)
        assert recovered == (expected if is_known else expected[: len(recovered)])
        assert recovered


def _ruin(disk: SimulatedDisk, entropy: random.Random) -> None:
    """Damage one segment randomly, as a bad disk or a careless person might."""
    path = f"{DIRECTORY}/{entropy.choice([name for name in names_of(disk, 'segment') if not _is_blank(disk, name)])}"
    file = disk.open(path)
    at, size = entropy.randrange(file.size()), entropy.choice([1, 64, 512, 4096])
    match entropy.randrange(6):
        case 0:
            disk.remove(path)
            disk.sync_directory(DIRECTORY)
        case 1:
            file.truncate(at)
        case 2:
            file.write(at, [bytes(min(size, file.size() - at))])
        case 3:
            file.write(at, [entropy.randbytes(min(size, file.size() - at))])
        case _:
            disk.flip(path, at, entropy.randrange(8))
    file.sync()


@pytest.mark.parametrize("seed", range(4))
def test_after_any_damage_no_record_is_altered_and_a_known_end_is_the_end(seed: int) -> None:
    """The end decides which acknowledgements the node may have given: too low an end loses acknowledged records."""
    entropy = random.Random(seed)
    verdicts = {"opened": 0, "mended": 0, "cut": 0}
    for _ in range(25):
        disk = new_disk()
        batches = write(disk, entropy.randrange(8, 40), closed=entropy.random() < 0.7)
        for _ in range(entropy.choice([1, 1, 2, 3])):
            _ruin(disk, entropy)
        image = disk.volume.after_cut(disk.entropy)
        verdict = "opened"
        disk = _restored(image)
        if is_damaged(disk):
            disk = _restored(image)
            if not assess(disk, DIRECTORY).parts:
                continue
            verdict = "cut" if mend(disk, batches).end is None else "mended"
        _, found = open_wal(disk, TINY)
        assert found == contents(batches)[: len(found)]
        assert verdict != "mended" or len(found) == len(batches)
        verdicts[verdict] += 1
    assert verdicts["mended"] > verdicts["cut"] > 0


def test_damage_below_an_unfinished_truncation_is_no_torn_tail() -> None:
    """Once the mark is gone, only the closing group shows that the last records were durable."""
    disk = new_disk()
    batches = write(disk, 20)
    number, location = places(disk, "group")[9]
    (entry,) = (each for each in inspect(disk, path_of(number)) if each.location == location)
    end = int(str(entry.fields["first_index"]))
    mark = Mark(end=end, segment=number, length=location, group=1000, generation=1000)
    place_mark(disk, DIRECTORY, mark)
    flip(disk, number, location - 40)
    assert is_damaged(disk)
    found = mend(disk, [batch for batch in batches if batch.end <= end])
    assert (found.end, [region.end for region in found.regions]) == (end, [end])
    check_whole(disk, [batch for batch in batches if batch.end <= end])


def test_a_gap_is_cut_at_its_beginning_and_everything_behind_is_set_aside() -> None:
    disk = new_disk()
    batches = write(disk)
    numbers = [int(name.split(".")[0]) for name in names_of(disk, "segment")]
    image = disk.volume.after_cut(disk.entropy)
    disk = _restored(image)
    flip(disk, numbers[1], 500)
    found = assess(disk, DIRECTORY)
    gap = found.gaps[0]
    mend(disk, [], end=gap.start)
    check_whole(disk, [batch for batch in batches if batch.end <= gap.start])
    aside = disk.list_directory("/data/damaged-1/wal")
    assert aside[: len(numbers) - 1] == [segment_name(number) for number in numbers[1:]]


def test_batches_that_were_never_there_do_not_fit_before_a_log() -> None:
    """After a reset, few numbers precede the log's own, so contradicting batches must not be placed there."""
    disk = new_disk()
    wal, _ = open_wal(disk, TINY)
    wal.append_now([make_batch(1)])
    wal.reset_now(Index(41), Term(1))
    wal.append_now([make_batch(41)])
    wal.abandon()
    (region,) = assess(disk, DIRECTORY, begin_max=1).regions
    assert (region.start, region.end) == (1, 41)
    rebuilding = SegmentRewriter(disk, region, commit_end=41)
    for index in range(1, 41):
        rebuilding.add([make_batch(index)])
    assert not rebuilding.fits
    rebuilding.abandon()
    wal, found = open_wal(disk, TINY, first_index=Index(41))
    assert len(found) == 1


@pytest.mark.parametrize("groups", [3, 40])
@pytest.mark.parametrize("power", [False, True])
def test_a_first_file_that_was_rewritten_from_a_snapshot_on_takes_earlier_batches(groups: int, power: bool) -> None:
    """There is no number for a file before it.

    A crash at any call leaves the old beginning or the whole repaired log.
    """
    disk = new_disk()
    batches = write(disk, groups)
    begin = batches[4].first_index
    aside = Quarantine(disk, "/data")
    (part, *others) = assess(disk, DIRECTORY).parts
    lost = Region(
        parts=(SegmentAssessment(number=1, path=part.path),),
        start=begin,
        end=part.end,
        before=None,
        behind=others[0] if others and others[0].header is not None else None,
        is_followed=bool(others),
    )
    late = SegmentRewriter(disk, lost, commit_end=1000)
    late.add([batch for batch in batches if part.end is not None and begin <= batch.first_index < part.end])
    late.finish(aside)
    assert assess(disk, DIRECTORY, begin_max=begin).begin == begin
    image = disk.volume.after_cut(disk.entropy)
    disk = _restored(image)
    mend(disk, batches)
    calls = disk.calls
    check_whole(disk, batches)
    for call in range(1, calls + 1):
        disk = _restored(image)
        disk.crash_at(call)
        with pytest.raises(SimulatedCrash):
            mend(disk, batches)
        disk.crash() if power else disk.kill()
        assert not assess(disk, DIRECTORY, begin_max=begin).is_damaged, f"at call {call} of {calls}"
        if assess(disk, DIRECTORY).is_damaged:
            mend(disk, batches)
        check_whole(disk, batches)


def test_an_unreadable_mark_makes_the_end_unknown() -> None:
    disk = new_disk()
    write(disk)
    file = disk.open(f"{DIRECTORY}/truncation.mark", create=True)
    file.write(0, [b"rot" * 20])
    file.sync()
    found = assess(disk, DIRECTORY)
    assert found.is_damaged
    assert found.mark_is_lost
    assert found.end is None


def test_a_log_that_ends_below_the_commit_index_has_an_unknown_end() -> None:
    disk = new_disk()
    batches = write(disk)
    end = batches[-1].end
    found = assess(disk, DIRECTORY, commit_hint=end + 5)
    assert found.gaps == [LostRange(end, None)]
    assert found.end is None


def test_a_lost_log_begins_anew_and_its_remains_are_set_aside() -> None:
    disk = new_disk()
    write(disk)
    for name in names_of(disk, "segment")[:-2]:
        disk.remove(f"{DIRECTORY}/{name}")
    left = names_of(disk, "segment")
    begin_anew(disk, DIRECTORY, Quarantine(disk, "/data"))
    check_whole(disk, [])
    assert disk.list_directory("/data/damaged-1/wal") == left


def test_everything_is_set_aside_and_nothing_removed_whatever_dies_on_the_way() -> None:
    def prepare() -> SimulatedDisk:
        disk = new_disk()
        write(disk)
        disk.make_directory("/data/snapshots")
        for path in ("/data/control-a", "/data/control-b", "/data/snapshots/1"):
            file = disk.open(path, create=True)
            file.write(0, [path.encode()])
            file.sync()
        disk.sync_directory("/data")
        disk.sync_directory("/data/snapshots")
        return _restored(disk.volume.after_cut(disk.entropy))

    disk = prepare()
    before = sorted(_files(disk))
    calls = disk.calls
    assert set_everything_aside(disk, "/data") == "/data/damaged-1"
    assert disk.list_directory("/data/wal") == disk.list_directory("/data/snapshots") == []
    assert not disk.exists("/data/control-a")
    for call in range(1, disk.calls - calls + 1):
        disk = prepare()
        disk.crash_at(disk.calls + call)
        with pytest.raises(SimulatedCrash):
            set_everything_aside(disk, "/data")
        disk.crash()
        set_everything_aside(disk, "/data")
        assert disk.list_directory("/data/wal") == []
        assert sorted(_files(disk)) == before


def _files(disk: SimulatedDisk) -> list[bytes]:
    found: list[bytes] = []

    def look(directory: str) -> None:
        for name in disk.list_directory(directory):
            path = f"{directory}/{name}"
            if path in disk.volume.directories:
                look(path)
            else:
                found.append(bytes(disk.volume.find(path).data))

    look("/data")
    return found
