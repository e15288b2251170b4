"""Damage, torn tails and losses in one replica, and their repair from the others."""

from __future__ import annotations

import random

import pytest

from tests.replay.members import (
    NAMES,
    SMALL,
    Log,
    change_control,
    cluster,
    flip,
    opened,
    orders,
    places_of,
    replayed,
    segments,
    shown,
    visible,
    write_control,
    write_member,
)
from viewstamp.errors import CorruptionError, NoQuorumError
from viewstamp.ids import Index, Term
from viewstamp.replay import OfflineReplay
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.format import GROUP_MAGIC
from viewstamp.wal.log import Wal
from viewstamp.wal.truncation import MARK_NAME, Mark, place_mark
from viewstamp.wire.batch import Batch, Kind

LONG = 40
"""Batches of a log of several segments."""


def long_log() -> Log:
    return orders(LONG, size=200)


def kinds(replay: OfflineReplay) -> set[str]:
    return {finding.kind for finding in replay.findings}


def group_headers(disk: SimulatedDisk, path: str) -> list[int]:
    data = bytes(disk.volume.find(path).data)
    places = []
    at = data.find(GROUP_MAGIC)
    while at >= 0:
        places.append(at)
        at = data.find(GROUP_MAGIC, at + 1)
    return places


def records(batch: Batch) -> bool:
    return batch.kind is Kind.RECORDS


# One bit.


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_flipped_bit_anywhere_in_one_replica_changes_nothing(name: str) -> None:
    """Header, body, group header, segment header, the zeros behind, the control file: two others are enough."""
    log = orders(12, size=60)
    disk = cluster(log)
    expected = visible(log)
    entropy = random.Random(7)
    paths = [*segments(disk, name), f"/{name}/control-a"]
    for path in paths:
        size = min(len(disk.volume.find(path).data), 4096)
        for location in range(0, size, 13):
            bit = entropy.randrange(8)
            flip(disk, path, location, bit)
            assert replayed(disk) == expected, f"{path} at byte {location}"
            flip(disk, path, location, bit)


@pytest.mark.slow
def test_flipped_bit_never_changes_the_records_of_a_single_replica() -> None:
    """A single replica cannot be repaired: its records are correct, or there is an error, or a torn tail."""
    log = orders(12, size=60)
    disk = SimulatedDisk()
    write_member(disk, "n1", log)
    expected = visible(log)
    (path, *_) = segments(disk, "n1")
    for location in range(0, 4096, 7):
        flip(disk, path, location)
        replay = opened(disk, "n1", unsafe=True)
        if replay.problem is None:
            found = shown(disk, replay)
            assert found == expected[: len(found)], f"byte {location}"
            assert len(found) == len(expected) or "torn tail" in kinds(replay), f"byte {location}"
        flip(disk, path, location)


def test_each_replica_is_repaired_from_the_others() -> None:
    log = long_log()
    disk = cluster(log)
    for at, name in enumerate(NAMES):
        places = list(places_of(disk, name, records))
        flip(disk, *_body(places[3 + 5 * at]))
        flip(disk, *_body(places[4 + 5 * at]))
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert replay.summary().repaired == 6
    assert replay.is_majority, "damage in the middle does not hide how far a log had come"
    assert kinds(replay) == {"damage"}


def test_a_damaged_group_header_costs_none_of_its_batches() -> None:
    log = long_log()
    disk = SimulatedDisk()
    write_member(disk, "n1", log)
    path = segments(disk, "n1")[1]
    flip(disk, path, group_headers(disk, path)[2] + 20)
    replay = opened(disk, "n1", unsafe=True)
    assert shown(disk, replay) == visible(log)
    assert kinds(replay) == {"damage"}


def test_a_damaged_batch_header_costs_this_batch_alone() -> None:
    log = long_log()
    disk = cluster(log, group=4)
    path, at = list(places_of(disk, "n1", records))[10]
    flip(disk, path, at + 30)
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert replay.summary().repaired == 1


def test_a_batch_that_is_damaged_everywhere_is_named() -> None:
    log = long_log()
    disk = cluster(log)
    for name in NAMES:
        flip(disk, *_body(list(places_of(disk, name, records))[9]))
    replay = opened(disk)
    assert isinstance(replay.problem, CorruptionError)
    assert "no replica has indices 21 to 22" in replay.problem.message
    assert replay.summary().corrupt == 1


def test_a_damaged_batch_of_no_record_is_no_loss() -> None:
    """For batches of sessions and actors the header is enough to know that they hold no record to show."""
    log = orders(3)
    log.command(Kind.COMMANDS, anything="at all")
    log.records(b"behind it")
    log.records(b"and more")
    disk = cluster(log, group=1)
    for name in NAMES:
        flip(disk, *_body(next(places_of(disk, name, lambda batch: batch.kind is Kind.COMMANDS))))
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert replay.summary().commands == 1


# Tails.


@pytest.mark.parametrize("cut", [1, 60, 100, 250])
def test_a_torn_tail_of_one_replica_is_no_damage(cut: int) -> None:
    log = orders(12, size=100)
    disk = cluster(log)
    path = segments(disk, "n2")[-1]
    at = group_headers(disk, path)[-1]
    data = disk.volume.find(path).data
    data[at + cut :] = bytes(len(data) - at - cut)
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert kinds(replay) == {"torn tail"}
    assert replay.is_majority
    assert replay.summary().repaired == 0, "what a crash took before it was acknowledged was never this node's"


def test_records_only_in_torn_tails_are_not_shown() -> None:
    """They were not acknowledged: each member would cut them off when it starts."""
    log = orders(12, size=100)
    disk = cluster(log)
    for name in NAMES:
        path = segments(disk, name)[-1]
        flip(disk, path, group_headers(disk, path)[-1] + 200)
    found = replayed(disk)
    assert found == visible(log)[: len(found)]
    assert len(visible(log)) - 4 <= len(found) < len(visible(log))


def test_a_torn_tail_below_what_was_committed_is_damage() -> None:
    log = orders(12, size=100)
    disk = SimulatedDisk()
    for name in NAMES:
        write_member(disk, name, log, hint=log.end if name == "n2" else 0)
    path = segments(disk, "n2")[-1]
    flip(disk, path, group_headers(disk, path)[-1] + 200)
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert kinds(replay) == {"damage"}


# Files.


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_segment_of_one_replica_is_repaired(name: str) -> None:
    log = long_log()
    expected = visible(log)
    count = len(segments(cluster(log), name))
    assert count >= 4
    for lost in range(count):
        disk = cluster(log)
        disk.remove(segments(disk, name)[lost])
        replay = opened(disk)
        assert shown(disk, replay) == expected, f"segment {lost + 1}"
        assert "missing" in kinds(replay), f"segment {lost + 1}"
        assert (replay.summary().repaired > 0) == (lost not in (0, count - 1)), f"segment {lost + 1}"


def test_different_segments_lost_by_each_replica_are_repaired() -> None:
    log = long_log()
    disk = cluster(log)
    for at, name in enumerate(NAMES):
        disk.remove(segments(disk, name)[1 + at])
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert replay.is_majority


def test_segment_lost_by_all_replicas_is_named() -> None:
    log = long_log()
    disk = cluster(log)
    for name in NAMES:
        disk.remove(segments(disk, name)[1])
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    lost = cluster(log)
    (first,) = {at.first_index for at in _batches_in(lost, segments(lost, "n1")[1])[:1]}
    (last,) = {at.last_index for at in _batches_in(lost, segments(lost, "n1")[1])[-1:]}
    assert f"no replica has indices {first} to {last}" in problem.message


def test_without_its_last_segment_the_end_of_a_log_is_unknown() -> None:
    log = long_log()
    disk = cluster(log)
    for name in ("n1", "n2"):
        disk.remove(segments(disk, name)[-1])
    with pytest.raises(NoQuorumError, match=r"the end of the log of n1 is lost; .* of n2 is lost"):
        opened(disk)
    assert replayed(disk, unsafe=True) == visible(log)


def test_a_lost_control_file_is_a_finding_and_its_batches_are_used() -> None:
    log = long_log()
    disk = cluster(log)
    for copy in ("control-a", "control-b"):
        disk.remove(f"/n1/{copy}")
    for name in ("n2", "n3"):
        flip(disk, *_body(list(places_of(disk, name, records))[9]))
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert kinds(replay) == {"no control file", "damage"}
    assert replay.summary().repaired == 1
    for copy in ("control-a", "control-b"):
        disk.remove(f"/n2/{copy}")
    with pytest.raises(NoQuorumError):
        opened(disk)


def test_one_copy_of_the_control_file_is_enough() -> None:
    log = orders()
    disk = cluster(log)
    disk.remove("/n1/control-a")
    disk.volume.find("/n2/control-b").data[:] = b"x" * 100
    replay = opened(disk, "n1", "n2")
    assert shown(disk, replay) == visible(log)


def test_a_history_that_contradicts_the_log_has_no_vote() -> None:
    log = orders()
    log.term = 2
    log.records(b"of term 2")
    disk = cluster(log)
    for copy in ("control-a", "control-b"):
        disk.remove(f"/n1/{copy}")
    write_control(disk, "n1", [(0, 1), (1, 1), (7, 5)])
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert kinds(replay) == {"contradiction"}
    with pytest.raises(NoQuorumError):
        opened(disk, "n1", "n2")


def test_a_directory_of_segments_alone_gives_its_batches() -> None:
    """The log may be all that is left of a node."""
    log = orders()
    disk = cluster(log)
    disk.make_directory("/rest")
    for path in segments(disk, "n3"):
        disk.rename(path, f"/rest/{path.rpartition('/')[2]}")
    assert replayed(disk, "n1", "n2", "rest") == visible(log)
    assert replayed(disk, "rest", unsafe=True) == visible(log)


# Logs that were truncated or reset.


def test_log_that_was_truncated_and_rewritten_has_its_new_records() -> None:
    log = long_log()
    other = long_log()
    keep = 20
    log.batches = log.batches[:keep]
    log._positions[1] = 1 + sum(b.count for b in log.batches if records(b))
    log.term = 2
    for number in range(30):
        log.records(b"new %d" % number, size=150)
    disk = SimulatedDisk()
    write_member(disk, "n1", log)
    write_member(disk, "n2", log)
    wal = write_member(disk, "n3", other)
    disk.remove("/n3/control-a")
    disk.remove("/n3/control-b")
    write_control(disk, "n3", log.history)
    reopened = Wal.open(disk, "/n3/wal", SMALL, on_batch=lambda batch, hint: None)
    assert reopened.end == wal.end
    reopened.truncate(Index(log.batches[keep].first_index), _raise)
    reopened._work_now()
    for batch in log.batches[keep:]:
        reopened.append_now([batch])
    reopened.abandon()
    replay = opened(disk, "n2", "n3")
    assert shown(disk, replay) == visible(log)
    assert replay.summary().dropped_divergent == 0
    assert replayed(disk, "n3", unsafe=True) == visible(log)
    assert replay.findings == []


def test_truncation_that_was_decided_counts_as_done() -> None:
    """The mark exists, and the files are not cut yet: the log ends at the mark."""
    log = long_log()
    disk = cluster(log)
    kept = log.batches[25]
    path, at = next(places_of(disk, "n3", lambda batch: batch.first_index == kept.first_index))
    number = int(path.rpartition("/")[2][:20])
    place_mark(disk, "/n3/wal", Mark(end=kept.first_index, segment=number, length=at, group=99, generation=99))
    replay = opened(disk, "n2", "n3")
    assert shown(disk, replay) == visible(log)
    assert replay.replicas[1].end == kept.first_index
    shorter = replayed(disk, "n3", unsafe=True)
    assert shorter == visible(log)[: len(shorter)]
    assert len(shorter) == 2 * (25 - 2)


def test_damage_below_an_unfinished_truncation_is_no_torn_tail() -> None:
    """The mark holds the end of the log, so the member still counts, and the others provide the batch."""
    log = orders(6)
    disk = cluster(log)
    *_, last, (_, at), _ = places_of(disk, "n3", records)
    end = log.batches[-2].first_index  # the last group has two batches
    place_mark(disk, "/n3/wal", Mark(end=end, segment=1, length=at - 80, group=99, generation=9))
    flip(disk, *_body(last))
    replay = opened(disk, "n1", "n3")
    assert "torn tail" not in kinds(replay)
    assert (replay.replicas[1].is_certain, replay.replicas[1].end) == (True, end)
    assert shown(disk, replay) == visible(log)


def test_log_of_zeros_only_does_not_vote() -> None:
    """The control file shows that there were records, so the member may have acknowledged some."""
    log = orders(6)
    disk = cluster(log)
    for path in segments(disk, "n3"):
        file = disk.open(path)
        file.write(0, [bytes(file.size())])
    change_control(disk, "n3", commit_hint=5)
    with pytest.raises(NoQuorumError, match="the end of the log of n3 is lost"):
        opened(disk, "n1", "n3")


def test_reset_that_was_decided_leaves_no_record_of_the_log() -> None:
    log = long_log()
    disk = cluster(log)
    place_mark(
        disk, "/n3/wal", Mark(end=log.end, segment=90, length=0, group=99, generation=99, resets=True, term=Term(1))
    )
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert len(replay.replicas[2].rows) == 0


def test_unreadable_mark_costs_the_vote() -> None:
    log = orders()
    disk = cluster(log)
    place_mark(disk, "/n3/wal", Mark(end=3, segment=1, length=500, group=99, generation=99))
    flip(disk, f"/n3/wal/{MARK_NAME}", 20)
    assert replayed(disk) == visible(log)
    with pytest.raises(NoQuorumError):
        opened(disk, "n1", "n3")


def test_records_that_hold_a_log_are_records() -> None:
    """A copy of a log inside of records is never taken for the log, even behind damage."""
    inner = orders(3)
    log = Log()
    log.membership()
    log.topic()
    disk = cluster(inner)
    image = bytes(disk.volume.find(segments(disk, "n1")[0]).data).rstrip(b"\0")
    for _ in range(4):
        log.records(image, image)
    for damaged in range(4):
        disk = cluster(log, group=1)
        path, at = list(places_of(disk, "n1", lambda batch: records(batch) and batch.size > len(image)))[damaged]
        flip(disk, path, at + 4)
        assert replayed(disk) == visible(log)


def _batches_in(disk: SimulatedDisk, path: str) -> list[Batch]:
    data = bytes(disk.volume.find(path).data)
    return [Batch.decode_header(data[at:]) for where, at in places_of(disk, "n1", lambda batch: True) if where == path]


def _body(place: tuple[str, int]) -> tuple[str, int]:
    path, at = place
    return path, at + 110


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def test_a_directory_that_a_node_has_open_is_read_and_reported() -> None:
    log = long_log()
    disk = cluster(log)
    lock = disk.lock("/n2")
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert [(each.kind, each.path) for each in replay.findings] == [("running", "/n2/lock")]
    lock.release()
    assert opened(disk).findings == []
