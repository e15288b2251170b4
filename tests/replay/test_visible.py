"""The records of a log that readers see: with sinks, trims, snapshots, and lost pieces without retained records."""

from __future__ import annotations

import pytest

from tests.replay.members import (
    NAMES,
    Log,
    Shown,
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
    write_member,
    write_snapshot,
)
from viewstamp.errors import CorruptionError, NoQuorumError, RequestError
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wire.batch import Kind


def sinks(size: int = 0) -> tuple[Log, list[Shown]]:
    """A log in which sinks stage, commit twice, are rejected and leave staged records; and its visible records.

    Each value is padded to ``size`` bytes: with 64 KiB and more each batch begins an entry of its topic's sparse map.
    """

    def long(value: bytes) -> bytes:
        return value.ljust(size, b".")

    log = Log()
    log.membership()
    log.topic("orders")
    log.topic("bills")
    log.records(long(b"o1"), long(b"o2"), topic=1)
    first, second = log.begin(0, name="first"), log.begin(0, name="second")
    late = log.stage(second, long(b"s3"), long(b"s4"), topic=1)
    early = log.stage(first, long(b"s1"), long(b"s2"), topic=1)
    bill = log.stage(first, long(b"b1"), topic=2)
    left = log.begin(0, name="left behind")
    log.stage(left, b"never seen")
    log.records(long(b"o3"), topic=1)
    parts = (first, log.seal(first, early, bill)), (second, log.seal(second, late))
    log.seconds += 10
    log.commit(*parts)
    log.placed(4, 1)
    log.placed(1, 2)
    log.records(long(b"o4"), topic=1)
    log.commit(*parts)  # A second copy of it: a duplicate.
    log.commit((left, b""), batch=0, sink="nobody")  # Refused: there is no such sink.
    third = log.begin(1, name="third")
    log.records(long(b"b2"), topic=2)
    more = log.stage(third, long(b"b3"), topic=2), log.stage(third, long(b"s5"), topic=1)
    packed = log.seal(third, *more)
    log.seconds += 10
    log.commit((third, packed), batch=1)
    log.placed(1, 1)
    log.placed(1, 2)
    log.records(long(b"o5"), topic=1)
    expected = [
        ("orders", 1, long(b"o1")),
        ("orders", 2, long(b"o2")),
        ("orders", 3, long(b"o3")),
        ("orders", 4, long(b"s1")),
        ("orders", 5, long(b"s2")),
        ("bills", 1, long(b"b1")),
        ("orders", 6, long(b"s3")),
        ("orders", 7, long(b"s4")),
        ("orders", 8, long(b"o4")),
        ("bills", 2, long(b"b2")),
        ("bills", 3, long(b"b3")),
        ("orders", 9, long(b"s5")),
        ("orders", 10, long(b"o5")),
    ]
    return log, expected


def prefix(log: Log, batches: int) -> Log:
    shorter = log.copy()
    del shorter.batches[batches:]
    return shorter


def test_staged_batches_stand_where_their_commit_stands() -> None:
    log, expected = sinks()
    disk = cluster(log)
    replay = opened(disk)
    assert shown(disk, replay) == expected
    assert replay.summary().topics == {"orders": 10, "bills": 3}
    times = {}
    assert replay.plan is not None
    for item in replay.plan:
        assert item.log_time >= times.get(item.topic, 0), "times never fall along positions"
        times[item.topic] = item.log_time


def test_a_snapshot_anywhere_changes_nothing() -> None:
    """The log below the snapshot is complete, but the state comes from the snapshot, because index 1 is missing."""
    log, expected = sinks()
    for taken in range(1, len(log.batches) + 1):
        disk = SimulatedDisk()
        for name in NAMES:
            write_member(disk, name, log, first=1)
        write_snapshot(disk, "n2", prefix(log, taken))
        assert replayed(disk) == expected, f"a snapshot after batch {taken}"


def test_a_snapshot_of_another_group_is_left_out() -> None:
    log = orders()
    disk = cluster(log)
    expected = replayed(disk)
    path = write_snapshot(disk, "n2", prefix(sinks()[0], 3))
    for name in NAMES:
        change_control(disk, name, group=7)
    assert replayed(disk) == expected
    (found,) = opened(disk).findings
    assert (found.kind, found.path) == ("contradiction", path)
    assert "the snapshot is of group 0, the directory of group 7" in found.text


@pytest.mark.parametrize("later", [1, 3], ids=["behind the trims", "before the trims"])
def test_a_log_dropped_up_to_what_is_kept_gives_what_is_kept(later: int) -> None:
    """A trim lets members delete log at once, so the newest snapshot may still have the deleted records."""
    dropped: list[int] = []
    for trimmed_to in (2, 3, 4, 5, 6, 8, 9, 10):
        log, expected = sinks(70_000)
        log.command(Kind.TRIM_TOPIC, name="orders", position=trimmed_to)
        log.command(Kind.TRIM_TOPIC, name="bills", position=2)
        log.records(b"o6", topic=1)
        kept = [each for each in expected if each[1] >= (trimmed_to if each[0] == "orders" else 2)]
        keep_from = prefix(log, len(log.batches) - 1).state().keep_from
        assert keep_from is not None
        first = next(at for at, batch in enumerate(log.batches) if batch.first_index >= keep_from)
        dropped.append(first)
        disk = SimulatedDisk()
        for name in NAMES:
            write_member(disk, name, log, first=first)
        write_snapshot(disk, "n3", prefix(log, len(log.batches) - later))
        assert replayed(disk) == [*kept, ("orders", 11, b"o6")], f"trimmed to {trimmed_to}"
    assert dropped[0] < dropped[-1], "the log gets shorter, down to what a COMMIT names that is kept"


def test_staged_batches_that_were_dropped_after_a_trim_are_no_loss() -> None:
    """The COMMIT that gave them positions is still there, and so is a snapshot from before it."""
    log, expected = sinks(70_000)
    commit = next(at for at, batch in enumerate(log.batches) if batch.kind is Kind.COMMIT)
    log.command(Kind.TRIM_TOPIC, name="orders", position=8)
    log.command(Kind.TRIM_TOPIC, name="bills", position=2)
    for taken in (commit, commit + 1):
        disk = SimulatedDisk()
        for name in NAMES:
            write_member(disk, name, log, first=commit)
        write_snapshot(disk, "n1", prefix(log, taken))
        assert replayed(disk) == [each for each in expected if each[1] >= (8 if each[0] == "orders" else 2)]


def test_kept_records_below_a_log_that_begins_at_its_snapshot_are_missed() -> None:
    log = orders()
    taken = len(log.batches) - 1
    disk = SimulatedDisk()
    for name in NAMES:
        write_member(disk, name, log, first=taken)
    write_snapshot(disk, "n1", prefix(log, taken))
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    assert "positions 1 to 10 of topic 'orders'" in problem.message


def test_a_trim_behind_the_snapshot_is_honoured() -> None:
    log, expected = sinks()
    taken = len(log.batches)
    log.command(Kind.TRIM_TOPIC, name="orders", position=6)
    disk = SimulatedDisk()
    for name in NAMES:
        write_member(disk, name, log, first=1)
    write_snapshot(disk, "n1", prefix(log, taken))
    assert replayed(disk) == [each for each in expected if each[0] == "bills" or each[1] >= 6]


def test_a_trim_in_the_middle_of_a_batch_shows_the_rest_of_it() -> None:
    log = orders(3)
    log.command(Kind.TRIM_TOPIC, name="orders", position=4)
    disk = cluster(log)
    assert replayed(disk) == [("orders", 4, b"2b"), ("orders", 5, b"3a"), ("orders", 6, b"3b")]


def test_retention_is_the_logs() -> None:
    log = Log()
    log.membership()
    log.topic("orders", retain_seconds=60.0)
    log.records(b"old")
    log.seconds += 100
    log.records(b"new")
    log.seconds += 50
    log.records(b"newer")
    disk = cluster(log)
    assert [value for _, _, value in replayed(disk)] == [b"new", b"newer"]


def test_without_a_snapshot_a_log_without_its_beginning_is_not_guessed() -> None:
    log = orders()
    disk = SimulatedDisk()
    for name in NAMES:
        write_member(disk, name, log, first=4)
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    assert "no replica has indices 1 to 6" in problem.message


def test_a_damaged_snapshot_is_replaced_by_another_members() -> None:
    log = orders(10)
    disk = SimulatedDisk()
    for name in NAMES:
        write_member(disk, name, log, first=1)
    newest = write_snapshot(disk, "n1", prefix(log, 8))
    write_snapshot(disk, "n2", prefix(log, 6))
    flip(disk, newest, len(disk.volume.find(newest).data) // 2)
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert [finding.kind for finding in replay.findings].count("damaged snapshot") == 1
    oldest = f"/n2/snapshots/{disk.list_directory('/n2/snapshots')[0]}"
    flip(disk, oldest, len(disk.volume.find(oldest).data) // 2)
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    assert "no intact snapshot" in problem.message


def test_a_snapshot_that_was_being_installed_counts_as_the_log() -> None:
    """A member that died before its log was reset starts from the snapshot, which its state has reached."""
    log = orders(10)
    behind = log.copy()
    behind.batches = behind.batches[:3]
    behind.term = 2
    behind.records(b"divergent", b"divergent")
    disk = SimulatedDisk()
    write_member(disk, "n1", behind, history=[(0, 1), (1, 1), (2, 5)])
    write_snapshot(disk, "n1", prefix(log, 9))
    write_member(disk, "n2", prefix(log, 9))
    with pytest.raises(NoQuorumError):  # Without that note it is proof that the log has lost its end.
        opened(disk, "n1", "n2")
    change_control(disk, "n1", installing=(1, prefix(log, 9).end))
    replay = opened(disk, "n1", "n2")
    assert replay.replicas[0].pair == (1, prefix(log, 9).end)
    assert shown(disk, replay) == visible(prefix(log, 9))
    assert replay.summary().dropped_divergent == 1


# Lost pieces below a snapshot.


def test_a_lost_piece_that_held_nothing_kept_is_no_loss() -> None:
    """The lost part has only calls of actors, which the snapshot covers.

    The positions of the topics show that no record is missing.
    """
    log = orders(2)
    for _ in range(30):
        log.command(Kind.COMMANDS, text="x" * 200)
    log.records(b"3a", b"3b")
    log.command(Kind.COMMANDS, text="y")
    taken = len(log.batches)
    log.records(b"4a")
    log.records(b"4b")
    disk = cluster(log)
    write_snapshot(disk, "n1", prefix(log, taken))
    for name in NAMES:
        disk.remove(segments(disk, name)[1])
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert replay.chain is not None
    assert len(replay.chain.gaps) == 1


def test_a_lost_piece_that_held_a_kept_record_names_its_positions() -> None:
    log = orders(40, size=200)
    disk = cluster(log)
    write_snapshot(disk, "n1", prefix(log, 38))
    for name in NAMES:
        disk.remove(segments(disk, name)[1])
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    assert "of topic 'orders'" in problem.message


def test_a_lost_piece_of_what_was_trimmed_is_no_loss() -> None:
    log = orders(40, size=200)
    log.command(Kind.TRIM_TOPIC, name="orders", position=70)
    taken = len(log.batches)
    log.records(b"new")
    disk = cluster(log)
    write_snapshot(disk, "n1", prefix(log, taken))
    for name in NAMES:
        disk.remove(segments(disk, name)[1])
    assert replayed(disk) == [each for each in visible(log) if each[1] >= 70]


def test_a_staged_batch_that_nobody_has_is_named() -> None:
    log, _ = sinks()
    disk = cluster(log)
    for name in NAMES:
        path, at = next(places_of(disk, name, lambda batch: batch.kind is Kind.STAGED))
        flip(disk, path, at + 110)
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    assert "no replica has indices" in problem.message


def test_what_was_staged_and_left_may_be_damaged() -> None:
    log, expected = sinks()
    disk = cluster(log)
    left = [batch for batch in log.batches if batch.kind is Kind.STAGED][3]
    for name in NAMES:
        path, at = next(places_of(disk, name, lambda batch: batch.first_index == left.first_index))
        flip(disk, path, at + 110)
    assert replayed(disk) == expected


# Some topics.


def test_one_topic_alone() -> None:
    log, expected = sinks()
    disk = cluster(log)
    bills = opened(disk).only(["bills"])
    assert shown(disk, bills) == [each for each in expected if each[0] == "bills"]
    assert bills.summary().records == 3
    with pytest.raises(RequestError, match="no topic 'loans'; it has: orders, bills"):
        opened(disk).only(["loans"])


def test_the_records_of_a_removed_stream_are_not_shown_whatever_snapshot_there_is() -> None:
    log = Log()
    log.membership()
    log.topic("orders.1")
    log.topic("orders.2")
    for number in range(3):
        log.records(b"one", topic=1)
        log.records(b"two %d" % number, topic=2)
    log.command(Kind.SEAL_STREAM, stream="orders.1")
    log.command(Kind.TRIM_TOPIC, name="orders.1", position=4)
    log.command(Kind.DROP_STREAM, stream="orders.1", end=4, gone=9)
    log.records(b"two 3", topic=2)
    expected = [("orders.2", number + 1, b"two %d" % number) for number in range(4)]
    assert replayed(cluster(log)) == expected
    for taken in range(1, len(log.batches) + 1):
        disk = SimulatedDisk()
        for name in NAMES:
            write_member(disk, name, log, first=1)
            write_snapshot(disk, name, prefix(log, taken))
        assert replayed(disk) == expected, f"a snapshot of {taken} batches"
