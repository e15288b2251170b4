"""The catalogue of keyed topics: its rules, slices that tile at each index, and which runs are due (note 0028)."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from tests.streams.log import Log, command, pieces, restored, trim_topic
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, UnknownTopicError
from viewstamp.ids import Position, RunId, TopicId
from viewstamp.node.archive_queries import OrphansQuery
from viewstamp.node.keyed_queries import DueKeysQuery, KeyedView, KeyedViewQuery, UnneededKeysQuery
from viewstamp.streams import Streams
from viewstamp.streams.key_plan import FAN, due_slices, level_of
from viewstamp.streams.key_runs import KeyCatalogue, KeyRule
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.keying import (
    encode_commit_keys,
    encode_configure_keyed,
    encode_drop_keys,
    encode_forget_keys,
    encode_prepare_keys,
)

DIGEST = bytes(range(32))
TOPIC = TopicId(1)


def commit(run: int, records: int = 1, splits: tuple[bytes, ...] = (), **changed: Any) -> Batch:
    return encode_commit_keys(RunId(run), records=records, **({"size": 7, "digest": DIGEST} | changed), splits=splits)


class Keyed(Log):
    """A log with the keyed topic "prices" of 100 records."""

    def __init__(self) -> None:
        super().__init__(Streams())
        session = self.session()
        self.append(self.topic("prices"), session, 1, count=100)
        self.run(encode_configure_keyed("prices", is_on=True))

    @property
    def keys(self) -> KeyCatalogue:
        return self.machine._state.keys

    @property
    def view(self) -> KeyedView:
        return self.machine.query(KeyedViewQuery("prices"))

    def entered(self, record: Batch) -> int:
        result = self.run(record)
        assert isinstance(result, dict)
        return int(str(result["run"]))

    def prepared(self, first: int, end: int, merged: bytes | None = None) -> int:
        return self.entered(encode_prepare_keys(TOPIC, Position(first), Position(end), merged=merged))

    def committed(self, first: int, end: int, merged: bytes | None = None, splits: tuple[bytes, ...] = ()) -> int:
        return self.entered(commit(self.prepared(first, end, merged), splits=splits))

    def refused(self, record: Batch, rule: KeyRule) -> None:
        """Check that a record is refused by the leader and by each member, and changes nothing."""
        before, copy = self.keys.image(), Batch.decode(bytearray(record.buffer))
        with pytest.raises(RequestError, match=f"^{rule.value}: "):
            self.propose(record)
        with pytest.raises(RequestError, match=f"^{rule.value}: "):
            self.enter(copy)
        assert self.keys.image() == before

    def states(self) -> dict[int, str]:
        return {int(run.id): run.state.name for run in self.keys.runs.values()}

    def slices(self) -> list[tuple[bytes, list[tuple[int, int]]]]:
        return [(each.start, [(run.first, run.end) for run in each.runs]) for each in self.view.ranges]


def test_dumps_tile_and_a_merge_replaces_its_slices_in_one_record() -> None:
    log = Keyed()
    runs = [log.committed(first, first + 10) for first in (1, 11, 21)]
    assert log.slices() == [(b"", [(1, 11), (11, 21), (21, 31)])]
    merged = log.committed(1, 21, b"")
    assert log.slices() == [(b"", [(1, 21), (21, 31)])]
    assert log.states() == dict(zip([*runs, merged], ["DROPPED", "DROPPED", "COMMITTED", "COMMITTED"], strict=True))
    assert [run.id for run in log.machine.query(UnneededKeysQuery())["prices"]] == runs[:2]
    for run in runs[:2]:
        log.entered(encode_forget_keys(RunId(run)))
    assert log.states() == {runs[2]: "COMMITTED", merged: "COMMITTED"}
    assert log.view.dumped_end == 31


def test_a_merge_divides_its_range_and_a_run_lives_as_long_as_it_has_a_slice() -> None:
    log = Keyed()
    old = log.committed(1, 11)
    wide = log.committed(1, 11, b"", splits=(b"g", b"p"))
    assert log.slices() == [(b"", [(1, 11)]), (b"g", [(1, 11)]), (b"p", [(1, 11)])]
    new = log.committed(11, 21)
    for start in (b"g", b""):
        log.committed(1, 21, start)
        assert log.states()[wide] == log.states()[new] == "COMMITTED", "range p has their slices"
    assert log.states()[old] == "DROPPED"
    log.committed(1, 21, b"p", splits=(b"t",))
    assert log.states()[wide] == log.states()[new] == "DROPPED"
    assert [start for start, _ in log.slices()] == [b"", b"g", b"p", b"t"]
    assert {tuple(slices) for _, slices in log.slices()} == {((1, 21),)}


def test_each_rule_refuses_by_its_name() -> None:
    log = Keyed()
    log.refused(encode_prepare_keys(TopicId(9), Position(1), Position(2)), KeyRule.NOT_KEYED)
    log.refused(encode_prepare_keys(TOPIC, Position(1), Position(1)), KeyRule.EMPTY)
    log.refused(encode_prepare_keys(TOPIC, Position(2), Position(9)), KeyRule.GAP)
    log.refused(encode_prepare_keys(TOPIC, Position(1), Position(102)), KeyRule.BEYOND_END)
    log.refused(encode_prepare_keys(TOPIC, Position(1), Position(2), merged=b""), KeyRule.NO_SLICES)
    run = log.prepared(1, 11)
    log.refused(encode_prepare_keys(TOPIC, Position(1), Position(9)), KeyRule.PREPARED_TWICE)
    log.refused(encode_forget_keys(RunId(run)), KeyRule.FORGET_BEFORE_DROP)
    log.refused(commit(run, size=0), KeyRule.WRONG_CONTENT)
    log.refused(commit(run, digest=b"short"), KeyRule.WRONG_CONTENT)
    log.refused(commit(run, records=11), KeyRule.WRONG_CONTENT)
    log.refused(commit(run, splits=(b"g",)), KeyRule.WRONG_SPLIT)
    log.entered(commit(run))
    log.refused(commit(run), KeyRule.COMMITTED_TWICE)
    log.refused(encode_drop_keys(RunId(run)), KeyRule.STILL_NEEDED)
    log.refused(encode_prepare_keys(TOPIC, Position(1), Position(11), merged=b"g"), KeyRule.UNKNOWN_RANGE)
    log.refused(encode_prepare_keys(TOPIC, Position(1), Position(12), merged=b""), KeyRule.NO_SLICES)
    merge = log.prepared(1, 11, b"")
    for splits in ((b"",), (b"g", b"g"), (b"x" * 2000,)):
        log.refused(commit(merge, splits=splits), KeyRule.WRONG_SPLIT)
    log.entered(encode_drop_keys(RunId(merge)))
    log.refused(commit(merge), KeyRule.COMMIT_AFTER_DROP)
    log.refused(encode_drop_keys(RunId(merge)), KeyRule.DROPPED_TWICE)
    log.entered(encode_forget_keys(RunId(merge)))
    log.refused(encode_forget_keys(RunId(merge)), KeyRule.UNKNOWN_RUN)
    log.committed(1, 11, b"", splits=(b"g",))
    below = log.prepared(1, 11, b"")
    log.refused(commit(below, splits=(b"g",)), KeyRule.WRONG_SPLIT)


def test_a_field_of_a_newer_release_stops_the_member() -> None:
    log = Keyed()
    with pytest.raises(OutdatedCodeError, match="which this release does not know"):
        log.enter(command(Kind.DROP_KEYS, run=1, force=True))


def test_the_end_of_a_view_drops_its_runs_and_a_new_view_begins_with_what_is_kept() -> None:
    log = Keyed()
    done, prepared = log.committed(1, 11), log.prepared(11, 21)
    log.run(encode_configure_keyed("prices", is_on=True))
    assert log.states() == {done: "COMMITTED", prepared: "PREPARED"}, "the same request again changes nothing"
    log.run(trim_topic("prices", 6))
    log.run(encode_configure_keyed("prices", is_on=False))
    assert log.states() == {done: "DROPPED", prepared: "DROPPED"}
    log.refused(commit(prepared), KeyRule.COMMIT_AFTER_DROP)
    with pytest.raises(RequestError, match="is not keyed"):
        assert log.view
    log.run(encode_configure_keyed("prices", is_on=True))
    assert (log.view.first, log.view.dumped_end, log.slices()) == (6, 6, [(b"", [])])
    with pytest.raises(UnknownTopicError, match="no topic without streams"):
        log.run(encode_configure_keyed("nothing", is_on=True))


def test_a_trim_deletes_only_what_is_dumped() -> None:
    log = Keyed()
    with pytest.raises(RequestError, match="cannot be trimmed to 2"):
        log.run(trim_topic("prices", 2))
    log.committed(1, 11)
    log.run(trim_topic("prices", 11))
    with pytest.raises(RequestError, match="dumped up to position 10"):
        log.run(trim_topic("prices", 12))


def test_objects_of_both_sorts_of_runs_are_no_orphans() -> None:
    log = Keyed()
    run = log.committed(1, 11)
    assert log.machine.query(OrphansQuery((run, run - 1, run + 999))) == [run - 1]


def test_a_snapshot_has_the_views_and_a_damaged_one_is_refused() -> None:
    log = Keyed()
    log.committed(1, 11)
    log.committed(1, 11, b"", splits=(b"g",))
    log.prepared(11, 21)
    copy = restored(log.machine)
    assert copy._state.keys.image() == log.keys.image()
    assert copy.digest() == log.machine.digest()
    header = msgpack.unpackb(next(pieces(log.machine.begin_snapshot())))
    assert header[1][0] == 14
    image = log.keys.image()
    for damage in range(4):
        topics, runs = msgpack.unpackb(msgpack.packb(image))
        if damage == 0:
            topics[0][3][0][0] = b"a"  # The first range does not begin with b"".
        elif damage == 1:
            topics[0][3][1][1] = []  # A range lacks its slices.
        elif damage == 2:
            runs.append(runs[-1])
        else:
            topics[0][2] = 12  # The dumped end.
        with pytest.raises(RequestError):
            KeyCatalogue.from_image([topics, runs])


@pytest.mark.parametrize("trimmed", [0, 6])
def test_a_fork_begins_a_view_again_if_the_topic_keeps_all_its_records(trimmed: int) -> None:
    log = Keyed()
    run = log.committed(1, 11)
    log.committed(1, 11, b"", splits=(b"g",))
    if trimmed:
        log.run(trim_topic("prices", trimmed))
    log.run(command(Kind.FORK, **{"from": "c1", "end": log.next_index}))
    assert log.states() == {}, "the runs are those of the other cluster"
    log.refused(encode_forget_keys(RunId(run)), KeyRule.UNKNOWN_RUN)
    if trimmed:
        assert not log.keys.is_used
        return
    assert (log.view.first, log.view.dumped_end, log.slices()) == (1, 1, [(b"", [])])
    log.committed(1, 21)
    assert log.view.dumped_end == 21


def test_the_id_of_a_run_of_keys_is_the_index_of_its_prepare_and_is_not_used_again() -> None:
    log = Keyed()
    ids = []
    for _ in range(3):
        index = log.next_index
        ids.append(log.prepared(1, 11))
        assert ids[-1] == index
        log.entered(encode_drop_keys(RunId(ids[-1])))
        log.entered(encode_forget_keys(RunId(ids[-1])))
    assert len(set(ids)) == 3


def test_the_catalogue_of_keys_is_as_large_as_the_runs_that_live() -> None:
    log = Keyed()
    for round_number in range(20):
        first = 1 + 4 * round_number
        for at in range(4):
            log.committed(first + at, first + at + 1)
        log.committed(1, first + 4, b"")
        for run in log.machine.query(UnneededKeysQuery())["prices"]:
            log.entered(encode_forget_keys(run.id))
        assert list(log.states().values()) == ["COMMITTED"]
    assert len(msgpack.packb(log.keys.image())) < 200


def test_a_snapshot_has_the_views_of_its_index_while_later_records_are_applied() -> None:
    log = Keyed()
    log.committed(1, 11)
    before, snapshot = log.view, log.machine.begin_snapshot()
    log.committed(11, 21)
    log.committed(1, 21, b"", splits=(b"g",))
    copy = Streams()
    copy.adopt(copy.prepare(list(pieces(snapshot))))
    assert copy.query(KeyedViewQuery("prices")) == before


def test_two_runs_of_keys_of_the_same_positions_are_told_apart() -> None:
    log = Keyed()
    first = log.prepared(1, 11)
    log.refused(encode_prepare_keys(TOPIC, Position(1), Position(11)), KeyRule.PREPARED_TWICE)
    log.entered(encode_drop_keys(RunId(first)))
    second = log.committed(1, 11)
    log.refused(commit(first), KeyRule.COMMIT_AFTER_DROP)
    assert (log.states()[first], log.states()[second]) == ("DROPPED", "COMMITTED")


def test_a_record_of_keys_that_was_lost_is_missed_by_the_next_one() -> None:
    log = Keyed()
    log.refused(commit(log.next_index - 1), KeyRule.UNKNOWN_RUN)  # The PREPARE_KEYS was lost.
    run = log.prepared(1, 11)
    log.refused(encode_forget_keys(RunId(run)), KeyRule.FORGET_BEFORE_DROP)  # The DROP_KEYS was lost.
    log.refused(encode_prepare_keys(TOPIC, Position(11), Position(21)), KeyRule.PREPARED_TWICE)  # The COMMIT_KEYS was.
    log.entered(commit(run))
    log.refused(encode_prepare_keys(TOPIC, Position(12), Position(21)), KeyRule.GAP)  # That of the run before was.
    dropped = log.prepared(11, 21)
    log.entered(encode_drop_keys(RunId(dropped)))
    log.refused(commit(dropped), KeyRule.COMMIT_AFTER_DROP)  # The PREPARE_KEYS of the next attempt was lost.


def test_any_order_of_records_keeps_the_slices_whole() -> None:
    entropy = random.Random(3)
    log = Keyed()
    applied = 0
    for _ in range(1500):
        ids = list(log.keys.runs) or [RunId(1)]
        view = log.view
        run = RunId(entropy.choice(ids))
        start = entropy.choice([each.start for each in view.ranges])
        ends = sorted(entropy.sample(range(1, 101), 2))
        dumped = Position(view.dumped_end + entropy.choice([0, 0, 0, 1]))
        records = [
            encode_prepare_keys(TOPIC, dumped, Position(min(dumped + entropy.randint(1, 5), 101))),
            encode_prepare_keys(TOPIC, view.first, view.dumped_end, merged=start),
            encode_prepare_keys(TOPIC, Position(ends[0]), Position(ends[1]), merged=start),
            commit(run, splits=(start + entropy.choice([b"a", b"b"]),) if entropy.random() < 0.3 else ()),
            commit(max(ids)),
            encode_drop_keys(run),
            encode_forget_keys(run),
        ]
        try:
            log.run(entropy.choice(records))
            applied += 1
        except RequestError:
            continue
        assert KeyCatalogue.from_image(log.keys.image()).image() == log.keys.image(), "it obeys all rules"
    assert applied > 100
    assert len(log.view.ranges) > 1


def test_four_neighbours_of_a_level_are_merged_and_the_lowest_level_first() -> None:
    assert [level_of(size, 16) for size in (0, 16, 17, 64, 65, 257)] == [0, 0, 1, 1, 2, 3]
    assert due_slices([10, 10, 10], 16) is None
    assert due_slices([10, 10, 10, 10], 16) == (0, 0, 4)
    assert due_slices([1000, 10, 10, 10, 10], 16) == (0, 1, 5)
    assert due_slices([60, 60, 60, 60, 10], 16) == (1, 0, 5), "the newer small one goes with them"
    assert due_slices([60, 60, 60, 60, 10, 10, 10, 10], 16) == (0, 4, 8)
    assert due_slices([], 16) is None


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_each_record_is_written_again_about_once_for_each_level(share: float) -> None:
    """``share``: of the keys of a merge that are different ones."""
    sizes, written, slices_max = list[float](), 0.0, 0
    dumps = 1024
    for _ in range(dumps):
        sizes.append(16)
        while (due := due_slices([int(size) for size in sizes], 16)) is not None:
            _, low, high = due
            total = sum(sizes[low:high]) * share
            written += total
            sizes[low:high] = [max(total, 16)]
        slices_max = max(slices_max, len(sizes))
    assert written / (16 * dumps) <= 5.5, "log4(1024) = 5"
    assert slices_max <= 3 * 6, "three of each level"
    assert FAN == 4


def test_a_dump_is_due_when_there_is_enough_of_it_or_the_log_is_full() -> None:
    log = Keyed()
    due = log.machine.query(DueKeysQuery(0, 1, is_pressed=False))
    assert [(each.topic, each.first) for each in due] == [("prices", 1)]
    assert log.machine.query(DueKeysQuery(0, 1 << 30, is_pressed=False)) == []
    [pressed] = log.machine.query(DueKeysQuery(0, 1 << 30, is_pressed=True))
    assert (pressed.first, pressed.end, pressed.merged) == (1, 101, None)
    for first in (1, 11, 21, 31):
        log.committed(first, first + 10)
    [merge] = log.machine.query(DueKeysQuery(0, 1 << 30, is_pressed=False))
    assert (merge.first, merge.end, merge.merged) == (1, 41, b"")


def test_a_topic_that_is_written_faster_than_it_is_dumped_is_merged_all_the_same() -> None:
    """A dump is due for its size all the time. It waits for a merge of eight slices, unless the log cannot hold it."""
    log = Keyed()
    merges = 0
    for _ in range(60):
        log.append(TOPIC, log.session(), 1, count=20)
        [due] = log.machine.query(DueKeysQuery(0, 1, is_pressed=False))
        [pressed] = log.machine.query(DueKeysQuery(0, 1, is_pressed=True))
        assert (pressed.merged, pressed.first) == (None, log.keys.topics[TOPIC].end), "the log needs the room"
        slices = [len(each.runs) for each in log.view.ranges]
        assert (due.merged is None) == (max(slices) < 8)
        merges += due.merged is not None
        log.committed(due.first, due.end, due.merged)
    assert merges > 4


def test_views_that_are_ahead_of_their_topics_are_damage() -> None:
    log, longer = Keyed(), Keyed()
    longer.append(TOPIC, longer.session(), 1, count=100)
    for each in (log, longer):
        each.committed(1, 11)
    longer.committed(11, 151)
    first, *others = (bytes(piece) for piece in pieces(log.machine.begin_snapshot()))
    name, header = msgpack.unpackb(first)
    ahead = [longer.keys.image() if each == log.keys.image() else each for each in header]
    with pytest.raises(CorruptionError, match="dumped up to 150, which it has not reached"):
        log.machine.prepare([msgpack.packb([name, ahead]), *others])


def test_a_damaged_state_names_what_is_wrong() -> None:
    log = Keyed()
    log.committed(1, 11)
    found = [bytes(piece) for piece in pieces(log.machine.begin_snapshot())]
    name, header = msgpack.unpackb(found[0])
    keys = next(each for each in header if isinstance(each, list) and each == log.keys.image())
    keys[0][0][2] = 500
    with pytest.raises(CorruptionError, match=r"gap of keys|which it has not reached"):
        log.machine.prepare([msgpack.packb([name, header]), *found[1:]])
