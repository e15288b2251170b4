"""Archives of streams: the catalogue of a group's runs with their global positions, and the settings in group 0."""

from __future__ import annotations

import msgpack
import pytest

from tests.streams.log import Log, command, pieces, restored, trim_topic
from tests.streams.test_placement import established
from tests.streams.test_runs import Archive, commit, drop, forget, prepare
from tests.streams.test_spread import spread_over, topics
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError
from viewstamp.ids import GlobalPosition, GroupId, Index, Position, TopicId
from viewstamp.node.archive_queries import ArchiveQuery, DueRunsQuery, IsArchivingQuery, RunsQuery
from viewstamp.node.placement_queries import SpreadTopicQuery, StreamArchive
from viewstamp.node.state_machine import Answered
from viewstamp.streams import Streams
from viewstamp.streams.runs import RunRule
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import GlobalRun, encode_context
from viewstamp.wire.sealing import encode_drop, encode_seal
from viewstamp.wire.spreading import encode_configure_spread, encode_spread_archive


def context(*runs: tuple[int, int, int, int], stream: str = "orders") -> Batch:
    packed = [GlobalRun(version, GlobalPosition(at), Position(local), length) for version, at, local, length in runs]
    return encode_context(stream, packed)


@pytest.fixture
def log() -> Archive:
    """The log of a group with the stream "orders" of 100 records, of which 60 have global positions that it knows."""
    log = Archive()
    log.machine._state.runs.group = GroupId(7)
    log.run(context((1, 11, 1, 40), (3, 71, 41, 20)))
    return log


def test_a_run_of_a_stream_holds_only_records_whose_global_positions_the_group_knows(log: Archive) -> None:
    log.refused(prepare(1, 62), RunRule.BEYOND_ORDER)
    run = log.prepared(1, 51)
    log.refused(commit(run, 50), RunRule.WRONG_CONTENT)
    log.refused(commit(run, 50, first_global=11, end_global=82), RunRule.WRONG_CONTENT)
    log.refused(commit(run, 50, first_global=12, end_global=81), RunRule.WRONG_CONTENT)
    log.refused(commit(run, 50, first_global=81, end_global=11), RunRule.WRONG_CONTENT)
    assert log.entered(commit(run, 50, first_global=11, end_global=81)) == run
    log.refused(prepare(51, 62), RunRule.BEYOND_ORDER)
    found = log.machine.query(ArchiveQuery("orders"))
    assert (found.archivable_end, found.next_first) == (61, 51)
    assert [(each.group, each.first_global, each.end_global) for each in found.runs] == [(7, 11, 81)]
    described = log.runs.runs[found.runs[0].id].describe()
    assert (described["first_global"], described["end_global"]) == (11, 81)


def test_records_that_were_trimmed_meanwhile_are_not_committed(log: Archive) -> None:
    run = log.prepared(1, 51)
    log.run(trim_topic("orders", 51))
    log.refused(commit(run, 50, first_global=11, end_global=81), RunRule.DELETED_RECORDS)


def test_a_topic_without_an_order_has_no_global_positions(log: Archive) -> None:
    run = log.prepared(1, 11, topic=2)
    log.refused(commit(run, 10, first_global=1, end_global=11), RunRule.WRONG_CONTENT)
    log.entered(commit(run, 10))
    assert "end_global" not in log.runs.runs[log.machine.query(ArchiveQuery("trades")).runs[0].id].describe()
    assert log.machine.query(ArchiveQuery("trades")).archivable_end == 1, "a stream that was never ordered"
    log.machine._state.runs.group = GroupId(0)
    assert log.machine.query(ArchiveQuery("trades")).archivable_end == 11


def test_a_snapshot_has_the_global_positions_and_keeps_the_group(log: Archive) -> None:
    run = log.prepared(1, 51)
    assert log.snapshot_version() < 22
    log.entered(commit(run, 50, first_global=11, end_global=81))
    assert log.snapshot_version() == 22
    other = restored(log.machine)
    assert other._state.runs.image() == log.runs.image()
    assert other.digest() == log.machine.digest()
    other.follow(GroupId(7), Streams())
    assert {each.group for each in other.query(ArchiveQuery("orders")).runs} == {7}
    other.adopt(other.prepare(list(pieces(log.machine.begin_snapshot()))))
    assert {each.group for each in other.query(ArchiveQuery("orders")).runs} == {7}, "also behind a snapshot"


def test_a_run_of_a_stream_is_due_up_to_the_end_of_its_map(log: Archive) -> None:
    log.run(command(Kind.CONFIGURE_ARCHIVE, name="orders", is_on=True))
    log.run(command(Kind.CONFIGURE_ARCHIVE, name="trades", is_on=True))
    due = log.machine.query(DueRunsQuery(now=1 << 60, is_pressed=False, run_bytes=1, wait=1))
    assert [(each.topic, each.end) for each in due] == [("orders", 61)]


def test_a_removed_stream_is_dropped_when_its_runs_are_forgotten(log: Archive) -> None:
    """Otherwise nobody would remove their objects."""
    run = log.prepared(1, 51)
    log.entered(commit(run, 50, first_global=11, end_global=81))
    log.run(command(Kind.CONFIGURE_ARCHIVE, name="orders", is_on=True))
    log.run(encode_seal("orders"))
    log.run(trim_topic("orders", 101))
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match=f"its archived run {run} is committed"):
            attempt(encode_drop("orders", 61, 9))
    log.entered(drop(run))
    with pytest.raises(RequestError, match=f"its archived run {run} is dropped"):
        log.propose(encode_drop("orders", 61, 9))
    log.entered(forget(run))
    log.run(encode_drop("orders", 61, 9))
    assert log.machine.query(RunsQuery()) == []
    assert not log.machine.query(IsArchivingQuery())
    assert restored(log.machine).digest() == log.machine.digest()


# The settings, in group 0.


def archive(since: int, **settings: object) -> Batch:
    return encode_spread_archive("orders", since=since, **settings)  # type: ignore[arg-type]


@pytest.fixture
def home() -> Log:
    """A log of group 0 with the topic "orders" over two streams."""
    log = Log(Streams())
    group = established(log, "s1")
    log.run(spread_over("orders", group, group))
    return log


def refused(log: Log, record: Batch, why: str) -> None:
    before = topics(log)
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match=why):
            attempt(record)
    assert topics(log) == before


def test_settings_of_the_archive_replace_those_before_and_a_late_copy_is_refused(home: Log) -> None:
    first = {"is_on": True, "delete_seconds": 90.0, "retain_seconds": 3.0}
    home.run(archive(0, **first))
    (topic,) = topics(home)
    assert topic.archive == StreamArchive(True, 0.0, 86_400.0, 90.0)
    assert (topic.retain_seconds, topic.configured) == (3.0, Index(home.next_index - 1))
    assert topic.describe()["archive"] == {
        "is_on": True,
        "after_seconds": 0.0,
        "delay_seconds": 86_400.0,
        "delete_seconds": 90.0,
    }
    assert topic.has_change(Kind.CONFIGURE_SPREAD_ARCHIVE)
    assert isinstance(home.propose(archive(0, **first)), Answered), "a second copy changes nothing"
    home.run(archive(topic.configured, delete_seconds=60.0))
    refused(home, archive(0, **first), "was configured at index")
    refused(home, archive(topics(home)[0].configured, after_seconds=60.0), "cannot be deleted after 60 s")
    refused(home, archive(topics(home)[0].configured, is_on=False, after_seconds=1.0), "would have no archive")
    with pytest.raises(OutdatedCodeError, match="'weight', which this release does not know"):
        home.enter(command(Kind.CONFIGURE_SPREAD_ARCHIVE, name="orders", since=0, weight=1))


def test_a_topic_that_had_the_archive_has_no_retention_without_it(home: Log) -> None:
    """Group 0 does not know which streams have archived records, which the retention would delete."""
    home.run(archive(0, is_on=True, retain_seconds=3.0))
    since = topics(home)[0].configured
    refused(home, archive(since, is_on=False), "the retention of topic 'orders' would delete archived records")
    home.run(archive(since, is_on=False, retain_seconds=0.0))
    (topic,) = topics(home)
    assert topic.archive is not None
    assert not topic.archive.is_on
    assert "archive" not in topic.describe()
    again = encode_configure_spread("orders", since=topic.configured, retain_bytes=7)
    refused(home, again, "the retention of topic 'orders' would delete archived records")
    home.run(archive(topic.configured, is_on=True, retain_bytes=7))
    home.run(encode_configure_spread("orders", since=topics(home)[0].configured, retain_bytes=9))


def test_a_snapshot_has_the_settings_and_older_releases_can_read_one_without_any(home: Log) -> None:
    def version() -> int:
        first, *_ = pieces(home.machine.begin_snapshot(), 1 << 20)
        return int(msgpack.unpackb(first)[1][0])

    refused(home, archive(0, after_seconds=1.0), "would have no archive")
    assert isinstance(home.propose(archive(0, is_on=False)), Answered), "it never had one"
    assert version() < 22
    home = Log(restored(home.machine), first_index=home.next_index)
    home.run(archive(0, is_on=True))
    for changes in ({"is_on": False}, {"is_on": True, "delete_seconds": 7.0}):
        whole = list(pieces(home.machine.begin_snapshot(), 1 << 20))
        _, header = msgpack.unpackb(whole[0])
        assert header[0] == 22
        other = Streams()
        other.adopt(other.prepare(whole))
        assert other.query(SpreadTopicQuery("orders")) == topics(home)[0]
        assert other.digest() == home.machine.digest()
        for image in ([False, 0.0, 1.0, 0.0], [True, -1.0, 0.0, 0.0], [True], 7):
            header[9][0][6]["archive"] = image
            with pytest.raises(CorruptionError):
                Streams().prepare([msgpack.packb(["state", header]), *whole[1:]])
        home = Log(other, first_index=home.next_index)
        home.run(archive(topics(home)[0].configured, **changes))
    assert TopicId(1) not in home.machine._state.topics
