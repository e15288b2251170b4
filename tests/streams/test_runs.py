"""The catalogue of runs: the eleven lines that a metadata log has to keep, in their form here (design note 0022)."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.log import Log, command, pieces, restored, trim_topic
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, UnknownTopicError
from viewstamp.ids import Index, Position, RunId, Term, TopicId
from viewstamp.streams import Streams
from viewstamp.streams.runs import RUNS_MAX, RunCatalogue, RunRule, RunState, TopicRun
from viewstamp.streams.stream_map import StreamMaps
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Kind, build_batch

DIGEST = bytes(range(32))


def prepare(first: object, end: object, topic: object = 1, **more: object) -> Batch:
    return command(Kind.PREPARE_RUN, topic=topic, first=first, end=end, **more)


def commit(run: object, records: object, **changed: object) -> Batch:
    fields: dict[str, object] = {"size": 7, "digest": DIGEST, "first_index": 1, "end_index": 2}
    return command(Kind.COMMIT_RUN, run=run, records=records, **(fields | {"first_time": 3, "last_time": 4} | changed))


def drop(run: object, **more: object) -> Batch:
    return command(Kind.DROP_RUN, run=run, **more)


def forget(run: object, **more: object) -> Batch:
    return command(Kind.FORGET_RUN, run=run, **more)


class Archive(Log):
    """A log with two topics, "orders" of 100 records and "trades" of 10."""

    def __init__(self) -> None:
        super().__init__(Streams())
        session = self.session()
        for sequence, (name, count) in enumerate({"orders": 100, "trades": 10}.items(), 1):
            self.append(self.topic(name), session, sequence, count=count)

    @property
    def runs(self) -> RunCatalogue:
        return self.machine._state.runs

    def prepared(self, first: int, end: int, topic: int = 1) -> int:
        """Prepare a run, and return its id."""
        return self.entered(prepare(first, end, topic))

    def entered(self, record: Batch) -> int:
        """Run a record, and return the id of its run."""
        result = self.run(record)
        assert isinstance(result, dict)
        run = result["run"]
        assert isinstance(run, dict)
        return int(run["id"])

    def committed(self, first: int, end: int, topic: int = 1) -> int:
        run = self.prepared(first, end, topic)
        return self.entered(commit(run, end - first))

    def refused(self, record: Batch, rule: RunRule) -> None:
        """Check that a record is refused by the leader and by each member, and changes nothing."""
        before, copy = self.runs.image(), Batch.decode(bytearray(record.buffer))
        with pytest.raises(RequestError, match=f"^{rule.value}: "):
            self.propose(record)
        with pytest.raises(RequestError, match=f"^{rule.value}: "):
            self.enter(copy)
        assert self.runs.image() == before

    def states(self) -> dict[int, RunState]:
        return {int(run.id): run.state for run in self.runs.runs.values()}

    def ranges(self, topic: int = 1) -> list[tuple[int, int]]:
        """Return the positions of the runs that may be read."""
        return [(run.first, run.end) for run in self.runs.committed(TopicId(topic))]

    def snapshot_version(self) -> int:
        cut = self.machine.begin_snapshot()
        header = msgpack.unpackb(next(pieces(cut)))
        cut.close()
        return int(header[1][0])


@pytest.fixture
def log() -> Archive:
    return Archive()


# Line 1: operations and ids.


def test_the_id_of_a_run_is_the_index_of_its_prepare_and_is_not_used_again(log: Archive) -> None:
    index = log.next_index
    assert log.prepared(1, 41) == index
    assert log.runs.runs[RunId(index)] == TopicRun(
        RunId(index), TopicId(1), Position(1), Position(41), RunState.PREPARED, 1000 + index
    )
    log.run(drop(index))
    log.run(forget(index))
    assert log.prepared(1, 41) > index


def test_a_committed_run_is_described_with_its_content(log: Archive) -> None:
    run = log.prepared(1, 41)
    log.seconds = 60
    assert log.run(commit(run, 40)) == {
        "run": {
            "id": run,
            "topic": 1,
            "first": 1,
            "last": 40,
            "state": "committed",
            "origin": "",
            "changed_at": 60_001_000 + run + 1,
            "size": 7,
            "digest": DIGEST.hex(),
            "first_index": 1,
            "end_index": 2,
            "first_time": 3,
            "last_time": 4,
        }
    }


# Line 2: a leader that dies at a step of writing a run.


def test_only_a_committed_run_is_read_whatever_was_done_before_the_leader_died(log: Archive) -> None:
    first = log.committed(1, 41)
    second = log.prepared(41, 61)
    log = continued(log)
    assert log.ranges() == [(1, 41)]
    assert [log.runs.find(TopicId(1), position) for position in (0, 41, 60, 101)] == [None] * 4
    log.run(drop(second))
    log = continued(log)
    assert log.ranges() == [(1, 41)]
    third = log.committed(41, 101)
    log = continued(log)
    found = [log.runs.find(TopicId(1), position) for position in (1, 40, 41, 100)]
    assert [run and run.id for run in found] == [first, first, third, third]
    assert log.states() == {first: RunState.COMMITTED, second: RunState.DROPPED, third: RunState.COMMITTED}


def test_objects_are_orphans_if_no_record_will_ever_prepare_them(log: Archive) -> None:
    committed, prepared = log.committed(1, 41), log.prepared(41, 61)
    dropped = log.prepared(1, 3, topic=2)
    forgotten = log.entered(drop(dropped))
    log.run(forget(forgotten))
    applied_end = log.machine._state.end
    never = applied_end - 1
    objects = [committed, prepared, forgotten, never, applied_end, applied_end + 5]
    assert log.runs.orphans(objects, applied_end) == [forgotten, never]


# Line 3: an object that could not be removed.


def test_a_dropped_run_stays_known_until_it_is_forgotten_and_is_not_read(log: Archive) -> None:
    run = log.prepared(1, 41)
    log.refused(forget(run), RunRule.FORGET_BEFORE_DROP)
    log.run(drop(run))
    log = continued(log)
    assert log.states() == {run: RunState.DROPPED}
    assert log.ranges() == []
    assert log.runs.orphans([run], 10**9) == []
    assert log.runs.find(TopicId(1), 1) is None
    log.run(forget(run))
    assert log.states() == {}
    assert log.runs.orphans([run], 10**9) == [run]


# Line 4: the size of the catalogue.


def test_the_catalogue_is_as_large_as_the_runs_that_live(log: Archive) -> None:
    sizes = set()
    for first in range(1, 91):
        run = log.committed(first, first + 1)
        log.run(trim_topic("orders", first + 1))
        log.run(drop(run))
        log.run(forget(run))
        assert log.runs.runs == {}
        sizes.add(len(msgpack.packb([0, log.runs.image()])))
    assert len(sizes) == 1
    assert log.runs.ends == {1: 91}


# Line 5: state and marker are one index.


def test_a_snapshot_has_the_catalogue_of_its_index_while_later_records_are_applied(log: Archive) -> None:
    run = log.committed(1, 41)
    before = dict(log.runs.runs)
    cut = log.machine.begin_snapshot()
    log.run(trim_topic("orders", 41))
    log.run(drop(run))
    log.committed(41, 61)
    other = Streams()
    other.adopt(other.prepare(list(pieces(cut))))
    assert other._state.runs.runs == before
    assert [(each.id, each.first, each.end) for each in other._state.runs.committed(TopicId(1))] == [(run, 1, 41)]
    assert log.ranges() == [(41, 61)]


def test_snapshots_of_a_cluster_without_runs_are_as_before(log: Archive) -> None:
    assert log.snapshot_version() == 3
    run = log.prepared(1, 41)
    assert log.snapshot_version() == 6
    log.run(drop(run))
    log.run(forget(run))
    assert log.snapshot_version() == 3
    log.committed(1, 41)
    other = restored(log.machine)
    assert other._state.runs.runs == log.runs.runs
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)


# Line 6: two runs for the same records.


def test_two_runs_of_the_same_positions_are_told_apart(log: Archive) -> None:
    first = log.prepared(1, 41)
    log.refused(prepare(1, 41), RunRule.PREPARED_TWICE)
    log.run(drop(first))
    second = log.prepared(1, 41)
    log.run(commit(second, 40))
    log.refused(commit(first, 40), RunRule.COMMIT_AFTER_DROP)
    assert [run.id for run in log.runs.committed(TopicId(1))] == [second]
    assert log.committed(1, 5, topic=2) > second


# Line 7: lost, doubled and late records.


def test_a_record_that_was_lost_is_missed_by_the_next_one(log: Archive) -> None:
    log.refused(commit(log.next_index + 50, 40), RunRule.UNKNOWN_RUN)
    log.refused(drop(log.next_index), RunRule.UNKNOWN_RUN)
    log.refused(forget(log.next_index), RunRule.UNKNOWN_RUN)
    run = log.prepared(1, 41)
    log.refused(prepare(41, 61), RunRule.PREPARED_TWICE)
    log.refused(forget(run), RunRule.FORGET_BEFORE_DROP)
    log.run(commit(run, 40))
    other = log.prepared(41, 61)
    log.run(drop(other))
    log.refused(commit(other, 20), RunRule.COMMIT_AFTER_DROP)  # The PREPARE_RUN of the next attempt was lost.
    assert log.ranges() == [(1, 41)]


def test_a_doubled_or_late_record_has_no_effect(log: Archive) -> None:
    run = log.prepared(1, 41)
    log.run(commit(run, 40))
    log.refused(prepare(1, 41), RunRule.OVERLAP)
    log.refused(commit(run, 40), RunRule.COMMITTED_TWICE)
    log.refused(commit(run, 40, digest=bytes(32)), RunRule.COMMITTED_TWICE)
    log.run(trim_topic("orders", 41))
    log.run(drop(run))
    log.refused(drop(run), RunRule.DROPPED_TWICE)
    log.refused(commit(run, 40), RunRule.COMMIT_AFTER_DROP)
    log.run(forget(run))
    for record in (forget(run), drop(run), commit(run, 40)):
        log.refused(record, RunRule.UNKNOWN_RUN)
    log.refused(prepare(1, 41), RunRule.OVERLAP)
    assert log.runs.ends == {1: 41}


# Line 8: the strict checks, and the force mode.


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        (prepare(1, 1), RunRule.EMPTY_RANGE),
        (prepare(5, 1), RunRule.EMPTY_RANGE),
        (prepare(1, 102), RunRule.BEYOND_END),
        (prepare(0, 41), RunRule.OVERLAP),
        (prepare(2, 41), RunRule.GAP),
        (prepare(1, 2, topic=2), RunRule.PREPARED_TWICE),
        (commit(10**6, 3), RunRule.UNKNOWN_RUN),
        (commit(7, 2), RunRule.WRONG_CONTENT),
        (commit(7, 4), RunRule.WRONG_CONTENT),
        (commit(7, 3, digest=bytes(31)), RunRule.WRONG_CONTENT),
        (commit(7, 3, size=0), RunRule.WRONG_CONTENT),
        (commit(7, 3, first_index=0), RunRule.WRONG_CONTENT),
        (commit(7, 3, first_index=2), RunRule.WRONG_CONTENT),
        (commit(7, 3, end_index=10**6), RunRule.WRONG_CONTENT),
        (commit(7, 3, first_time=5), RunRule.WRONG_CONTENT),
        (forget(7), RunRule.FORGET_BEFORE_DROP),
    ],
)
def test_a_record_that_breaks_a_rule_is_refused_by_name(log: Archive, record: Batch, rule: RunRule) -> None:
    run = log.prepared(1, 4, topic=2)
    fields = msgpack.unpackb(record.values()[0])
    if fields.get("run") == 7:
        record = command(record.kind, **{**fields, "run": run})
    log.refused(record, rule)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (prepare("1", 41), "whose first is '1'"),
        (prepare(-1, 41), "whose first is -1"),
        (prepare(1, None), "whose end is None"),
        (prepare(1, 1 << 63), "whose end is"),
        (commit(None, 3), "whose run is None"),
        (commit(1, 3, digest="x"), "whose digest is 'x'"),
        (drop(True), "whose run is True"),
        (forget([]), "whose run is"),
        (build_batch([b"\xc1"], kind=Kind.DROP_RUN), "not valid MessagePack"),
        (build_batch([msgpack.packb(7)], kind=Kind.PREPARE_RUN), "no map"),
    ],
)
def test_a_malformed_record_is_refused(log: Archive, record: Batch, message: str) -> None:
    copy, before = Batch.decode(bytearray(record.buffer)), log.runs.image()
    with pytest.raises(RequestError, match=message):
        log.propose(record)
    with pytest.raises(RequestError, match=message):
        log.enter(copy)
    assert log.runs.image() == before


def test_a_topic_that_does_not_exist_is_not_archived(log: Archive) -> None:
    with pytest.raises(UnknownTopicError, match="no topic has the id 3"):
        log.propose(prepare(1, 2, topic=3))


def test_a_field_of_a_newer_release_stops_the_member(log: Archive) -> None:
    run = log.prepared(1, 41)
    for record in (prepare(1, 2, 2, keys=1), commit(run, 40, keys=1), drop(run, keys=1), forget(run, keys=1)):
        copy = Batch.decode(bytearray(record.buffer))
        with pytest.raises(OutdatedCodeError, match="'keys', which this release does not know"):
            log.propose(record)
        with pytest.raises(OutdatedCodeError, match="keys"):
            log.enter(copy)


def test_there_is_a_limit_of_runs(log: Archive) -> None:
    for number in range(RUNS_MAX):
        run = TopicRun(RunId(1000 + number), TopicId(1), Position(1), Position(2), RunState.DROPPED, 0)
        log.runs.runs[run.id] = run
    log.refused(prepare(1, 41), RunRule.TOO_MANY)


CONTENT = [7, DIGEST, 1, 2, 3, 4]
PREPARED, COMMITTED, DROPPED = map(int, RunState)


def stored(number: object, first: object, end: object, state: object = COMMITTED, topic: object = 1) -> list[object]:
    return [number, topic, first, end, state, 5, "", CONTENT if state == COMMITTED else None]


IMAGES: list[tuple[list[Any], RunRule, list[int]]] = [
    ([[7], [[1, 41]]], RunRule.MALFORMED, []),
    ([[[8, 1]], [[1, 41]]], RunRule.MALFORMED, []),
    ([[stored("8", 1, 41)], [[1, 41]]], RunRule.MALFORMED, []),
    ([[stored(8, 1, 41, 4)], []], RunRule.MALFORMED, []),
    ([[[8, 1, 1, 41, COMMITTED, 5, "", None]], [[1, 41]]], RunRule.MALFORMED, []),
    ([[[8, 1, 1, 41, COMMITTED, 5, 7, CONTENT]], [[1, 41]]], RunRule.MALFORMED, []),
    ([[[8, 1, 1, 41, COMMITTED, 5, "", [7, b"short", 1, 2, 3, 4]]], [[1, 41]]], RunRule.WRONG_CONTENT, []),
    ([[stored(8, 1, 41), stored(8, 41, 61)], [[1, 41]]], RunRule.DUPLICATE_ID, [8]),
    ([[stored(8, 1, 41), stored(7, 41, 61)], [[1, 41]]], RunRule.DUPLICATE_ID, [8]),
    ([[stored(8, 41, 41)], []], RunRule.EMPTY_RANGE, []),
    ([[stored(8, 0, 41)], [[1, 41]]], RunRule.EMPTY_RANGE, []),
    ([[stored(8, 1, 41), stored(9, 42, 61)], [[1, 61]]], RunRule.GAP, [9]),
    ([[stored(8, 1, 41), stored(9, 40, 61)], [[1, 41]]], RunRule.OVERLAP, [8]),
    ([[stored(8, 41, 61), stored(9, 1, 41)], [[1, 61]]], RunRule.OVERLAP, [8]),
    ([[stored(8, 1, 41)], [[1, 61]]], RunRule.GAP, []),
    ([[stored(8, 1, 41)], []], RunRule.GAP, []),
    ([[stored(8, 1, 41, PREPARED), stored(9, 41, 61, PREPARED)], []], RunRule.PREPARED_TWICE, [8]),
    ([[stored(8, 1, 41, PREPARED)], [[1, 41]]], RunRule.OVERLAP, []),
]


@pytest.mark.parametrize(("image", "rule", "kept"), IMAGES)
def test_a_damaged_catalogue_is_refused_by_name_and_force_keeps_what_is_whole(
    image: list[Any], rule: RunRule, kept: list[int]
) -> None:
    image = [[*image[0], stored(90, 1, 11, topic=2)], [*image[1], [2, 11]]]
    with pytest.raises(RequestError, match=f"^{rule.value}: "):
        RunCatalogue.from_image(image)
    skipped: list[RequestError] = []
    forced = RunCatalogue.from_image(image, skipped=skipped)
    assert [error.message.partition(":")[0] for error in skipped] == [rule.value]
    assert list(forced.runs) == [*kept, 90]
    clean = RunCatalogue.from_image(msgpack.unpackb(msgpack.packb(forced.image())))
    assert clean.image() == forced.image()


@pytest.mark.parametrize("image", [7, [7], [[], 7], [[], [[1]]], [[], [["1", 2]]], *[each[0] for each in IMAGES]])
def test_a_snapshot_with_a_damaged_catalogue_is_damage(log: Archive, image: object) -> None:
    log.committed(1, 41)
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    _, header = msgpack.unpackb(whole[0])
    assert header[8] == log.runs.image()
    header[8] = image
    whole[0] = msgpack.packb(["state", header])
    with pytest.raises(CorruptionError):
        Streams().prepare(whole)


# Line 9: tiles.


def test_the_runs_of_a_topic_tile_and_the_archived_end_moves_by_commit_only(log: Archive) -> None:
    assert log.runs.next_first(log.machine._state.topics[TopicId(1)]) == 1
    log.refused(prepare(2, 41), RunRule.GAP)
    first = log.prepared(1, 41)
    assert log.runs.ends == {}
    log.run(drop(first))
    log.run(forget(first))
    assert log.runs.ends == {}
    log.committed(1, 41)
    log.refused(prepare(42, 61), RunRule.GAP)
    log.refused(prepare(40, 61), RunRule.OVERLAP)
    log.committed(41, 61)
    assert log.ranges() == [(1, 41), (41, 61)]
    assert log.runs.ends == {1: 61}


def test_deleted_records_are_not_archived_and_runs_of_deleted_records_go_first(log: Archive) -> None:
    first, second = log.committed(1, 21), log.committed(21, 41)
    log.refused(drop(first), RunRule.STILL_NEEDED)
    log.run(trim_topic("orders", 40))
    log.refused(drop(second), RunRule.STILL_NEEDED)
    log.run(trim_topic("orders", 51))
    log.refused(prepare(41, 61), RunRule.DELETED_RECORDS)
    log.refused(prepare(51, 61), RunRule.GAP)
    log.refused(prepare(52, 61), RunRule.GAP)
    log.refused(drop(second), RunRule.GAP)
    log.run(drop(first))
    log.run(drop(second))
    log.refused(prepare(41, 61), RunRule.DELETED_RECORDS)
    log.refused(prepare(52, 61), RunRule.GAP)
    assert log.runs.next_first(log.machine._state.topics[TopicId(1)]) == 51
    log.committed(51, 61)
    assert log.ranges() == [(51, 61)]


def test_a_trim_while_a_run_is_written_does_not_stop_it(log: Archive) -> None:
    run = log.prepared(1, 41)
    log.run(trim_topic("orders", 101))
    log.run(commit(run, 40))
    log.run(drop(run))
    assert log.runs.next_first(log.machine._state.topics[TopicId(1)]) == 101


# Line 10: a catalogue and a state of different moments.


def test_a_catalogue_that_is_ahead_of_its_topics_is_damage(log: Archive) -> None:
    for image in ([[], [[1, 102]]], [[], [[3, 1]]], [[stored(8, 1, 102, PREPARED)], []]):
        whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
        _, header = msgpack.unpackb(whole[0])
        header = [6, *header[1:6], [False, [], []], [], image, *header[-2:]]
        whole[0] = msgpack.packb(["state", header])
        with pytest.raises(CorruptionError, match="has not reached"):
            Streams().prepare(whole)


# The archive delay.


def kept_from(log: Archive) -> Index | None:
    return log.machine.keep_from()


def delayed(log: Archive, first: int, end: int, seconds: float | None, topic: int = 1) -> int:
    """Commit a run with an archive delay; None = without one, as the first release with runs wrote it."""
    run = log.prepared(first, end, topic)
    delay = {} if seconds is None else {"delay": round(seconds * 1e6)}
    return log.entered(commit(run, end - first, **delay))


def later(log: Archive, seconds: int) -> None:
    """Let log time go on, by a record that changes nothing else."""
    log.seconds += seconds
    log.session()


def test_the_log_is_needed_for_archived_records_until_the_archive_delay_is_over(log: Archive) -> None:
    orders, trades = (log.machine._state.topics[TopicId(each)].first_index for each in (1, 2))
    assert orders is not None
    assert trades is not None
    assert kept_from(log) == orders
    delayed(log, 1, 101, 60)
    assert kept_from(log) == orders
    later(log, 59)
    assert kept_from(log) == orders
    later(log, 2)
    assert kept_from(log) == trades, "only the log has these"
    assert log.machine._state.topics[TopicId(1)].first_index == orders, "readers find what the log still has"
    assert log.machine._state.topics[TopicId(1)].first_position == 1
    delayed(log, 1, 11, 0, topic=2)
    later(log, 1)
    assert kept_from(log) is None
    assert restored(log.machine).keep_from() is None


def test_only_a_committed_run_releases_the_log(log: Archive) -> None:
    begin = kept_from(log)
    run = log.prepared(1, 101)
    later(log, 60)
    assert kept_from(log) == begin
    log.run(drop(run))
    later(log, 60)
    assert kept_from(log) == begin


def test_a_run_without_a_delay_never_releases_the_log(log: Archive) -> None:
    begin = kept_from(log)
    delayed(log, 1, 101, None)
    later(log, 10**9)
    assert kept_from(log) == begin
    assert log.runs.image()[0][0][7:] == [[7, DIGEST, 1, 2, 3, 4]], "its image is as before"


def test_a_run_whose_delay_is_not_over_keeps_the_log_for_those_behind_it(log: Archive) -> None:
    topic = log.machine._state.topics[TopicId(1)]
    runs = log.runs
    for first, end, seconds in [(1, 41, 0), (41, 61, 100), (61, 101, 0)]:
        delayed(log, first, end, seconds)
    now = log.machine._state.log_time
    assert [run.end for run in runs.released(topic, now + 50_000_000)] == [41]
    assert [run.end for run in runs.released(topic, now + 150_000_000)] == [41, 61, 101]
    log.run(trim_topic("orders", 45))
    assert runs.released(topic, now + 50_000_000) == []
    assert [run.end for run in runs.released(topic, now + 150_000_000)] == [61, 101]


def test_a_gap_in_front_of_the_runs_keeps_the_log(log: Archive) -> None:
    """Of a damaged catalogue, of which force mode kept the last run only."""
    topic = log.machine._state.topics[TopicId(1)]
    delayed(log, 1, 41, 0)
    delayed(log, 41, 101, 0)
    image = log.runs.image()
    catalogue = RunCatalogue.from_image([image[0][1:], image[1]])  # type: ignore[index]
    assert len(catalogue.committed(TopicId(1))) == 1
    assert catalogue.released(topic, 1 << 60) == []


def test_the_log_of_a_fork_keeps_what_the_old_cluster_may_remove(log: Archive) -> None:
    topic = log.machine._state.topics[TopicId(1)]
    delayed(log, 1, 41, 0)
    delayed(log, 41, 101, 60)
    later(log, 2)
    log.run(command(Kind.FORK, **{"from": "c1", "end": 5}))
    later(log, 10**6)
    assert [run.end for run in log.runs.released(topic, log.machine._state.log_time)] == [41]
    assert [run.delay for run in log.runs.committed(TopicId(1))] == [0, None]
    assert restored(log.machine)._state.runs.image() == log.runs.image()


def test_the_origin_of_runs_in_a_restored_backup_is_the_id_of_the_cluster(log: Archive) -> None:
    """The FORK of a restore says more than the id, and readers find the object below the id."""
    run = log.committed(1, 41)
    log.run(command(Kind.FORK, **{"from": "c1, restored from backup 2026", "end": 5}))
    assert log.runs.runs[RunId(run)].origin == "c1"


def test_a_delay_that_is_no_number_is_refused(log: Archive) -> None:
    run = log.prepared(1, 101)
    for delay in (-1, "1", 1.5, None, 1 << 63):
        with pytest.raises(RequestError):
            log.propose(commit(run, 100, delay=delay))


# Line 11: forks.


def test_a_fork_reads_the_committed_runs_and_never_removes_their_objects(log: Archive) -> None:
    first = log.committed(1, 41)
    log.prepared(41, 61)
    dropped = log.prepared(1, 3, topic=2)
    log.run(drop(dropped))
    log.enter(command(Kind.FORK, **{"from": "c0", "end": 7}))
    assert log.states() == {first: RunState.COMMITTED}
    assert log.runs.runs[RunId(first)].origin == "c0"
    log = continued(log)
    log.enter(command(Kind.FORK, **{"from": "c1", "end": 9}))
    assert log.runs.runs[RunId(first)].origin == "c0"
    # An object with the same number below this cluster's name is not the one of the run.
    assert log.runs.orphans([first], 10**9) == [first]
    own = log.committed(41, 61)
    assert log.ranges() == [(1, 41), (41, 61)]
    assert log.runs.orphans([own], 10**9) == []


def continued(log: Archive) -> Archive:
    """Let another leader go on from a snapshot."""
    other = Archive.__new__(Archive)
    Log.__init__(other, restored(log.machine), first_index=log.next_index, term=log.term + 1)
    return other


# Histories.

NUMBERS = st.integers(1, 14)
RECORDS = st.one_of(
    st.builds(lambda topic, first, size: prepare(first, first + size, topic), st.integers(1, 2), NUMBERS, NUMBERS),
    st.builds(commit, st.integers(10, 40), st.integers(1, 9), end_index=st.integers(2, 10)),
    st.builds(drop, st.integers(10, 40)),
    st.builds(forget, st.integers(10, 40)),
    st.tuples(st.integers(1, 2), NUMBERS),
    st.sampled_from(["prepare", "commit", "drop", "forget"]),
)


class Model:
    """A model of one archive: a set of positions for each topic, and the objects that a leader has written."""

    def __init__(self) -> None:
        self.topics = {TopicId(number): Topic(TopicId(number), f"t{number}") for number in (1, 2)}
        for topic in self.topics.values():
            topic.extend(1, 12, 100, 1, 1, 1)
        self.readable: dict[int, set[int]] = {1: set(), 2: set()}
        self.known: dict[int, tuple[int, range]] = {}
        self.ids: set[int] = set()

    def next(self, catalogue: RunCatalogue, wish: str, at: int) -> Batch:
        """Return a record that a careful leader proposes."""
        runs = sorted(catalogue.runs.values(), key=lambda run: run.id)
        topic = self.topics[TopicId(at % 2 + 1)]
        first = catalogue.next_first(topic)
        match wish:
            case "commit":
                found = next((run for run in runs if run.state is RunState.PREPARED), None)
                return commit(found.id, found.end - found.first) if found else commit(9, 1)
            case "drop":
                found = next((run for run in runs if run.end <= self.topics[run.topic].first_position), None)
                return drop(found.id) if found else drop(9)
            case "forget":
                found = next((run for run in runs if run.state is RunState.DROPPED), None)
                return forget(found.id) if found else forget(9)
            case _:
                return prepare(first, min(first + at % 5 + 1, topic.next_position), topic.id)

    def applied(self, kind: Kind, run: TopicRun) -> None:
        """Follow an accepted record, and check that it is one of the four steps in their order."""
        positions = set(range(run.first, run.end))
        if kind is Kind.PREPARE_RUN:
            assert run.id not in self.ids, "an id is used twice"
            self.ids.add(run.id)
        elif kind is Kind.COMMIT_RUN:
            assert not positions & self.readable[run.topic], "two committed runs hold one position"
            self.readable[run.topic] |= positions
        elif kind is Kind.DROP_RUN and positions <= self.readable[run.topic]:
            assert run.end <= self.topics[run.topic].first_position, "a kept record is dropped"
            self.readable[run.topic] -= positions


@settings(max_examples=60, deadline=None)
@given(st.lists(RECORDS, max_size=40))
def test_no_history_of_records_breaks_the_promises_of_the_catalogue(history: list[Any]) -> None:
    catalogue, model = RunCatalogue(), Model()
    for index, step in enumerate(history, 10):
        if isinstance(step, tuple):
            model.topics[TopicId(step[0])].trim(Position(min(step[1], 13)))
            continue
        record = model.next(catalogue, step, index) if isinstance(step, str) else Batch.decode(bytearray(step.buffer))
        record.stamp(
            term=Term(1),
            first_index=Index(index),
            previous_term=Term(1),
            log_time=index,
            first_position=Position(0),
        )
        before, ends = catalogue.image(), dict(catalogue.ends)
        refusals = []
        for call in (catalogue.check, catalogue.apply):
            try:
                found = call(record, model.topics, StreamMaps())
            except RequestError as error:
                refusals.append(str(error))
        if refusals:
            assert refusals == [refusals[0]] * 2, "the leader and the members decide alike"
            assert catalogue.image() == before
        else:
            assert isinstance(found, TopicRun)
            model.applied(record.kind, found)
        if record.kind is not Kind.COMMIT_RUN or refusals:
            assert catalogue.ends == ends, "the archived end moves by COMMIT_RUN only"
        for number, topic in model.topics.items():
            archived = catalogue.ends.get(number, Position(1))
            assert archived >= ends.get(number, 1), "the archived end moved back"
            # Runs tile, and a position is found in the run that holds it, and in no other state.
            held = {at: run for at in range(15) if (run := catalogue.find(number, at)) is not None}
            assert held.keys() == model.readable[number]
            assert all(run.first <= at < run.end and run.state is RunState.COMMITTED for at, run in held.items())
            assert sorted(held) == list(range(min(held, default=archived), archived))
            # Each kept record below the archived end can be read from a run.
            assert held.keys() >= set(range(topic.first_position, archived))
            prepared = [run for run in catalogue.runs.values() if (run.topic, run.state) == (number, RunState.PREPARED)]
            assert prepared == ([catalogue.prepared(number)] if catalogue.prepared(number) else [])
            assert len(prepared) <= 1
        copy = RunCatalogue.from_image(msgpack.unpackb(msgpack.packb(catalogue.image())))
        assert copy.image() == catalogue.image()
        catalogue = copy if index % 2 else catalogue
