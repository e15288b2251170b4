"""Spread topics in the state of group 0: each stream belongs to one group, and each name to one topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutants.mutants import patched
from tests.streams.log import Log, command, create_topic, pieces, restored
from tests.streams.test_placement import cancel, established, hosted, place, placed
from tests.streams.test_tokens import READER, create
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, TopicExistsError, UnknownTopicError
from viewstamp.ids import GroupId, Position, Stream
from viewstamp.node.placement_queries import (
    FreeGroupsQuery,
    SpreadingQuery,
    SpreadTopic,
    SpreadTopicQuery,
    SpreadTopicsQuery,
)
from viewstamp.node.state_machine import Answered, AuditQuery, TopicsQuery
from viewstamp.streams import Streams, spread
from viewstamp.streams.spread import ALL_STREAMS_MAX, SPREAD_STREAMS_MAX
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.ordering import StreamReport, encode_order
from viewstamp.wire.spreading import (
    SLOTS,
    encode_configure_spread,
    encode_spread,
    encode_trim_spread,
    slot_ranges,
    stream_name,
)


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def spread_over(name: str, *groups: int, **more: Any) -> Batch:
    return encode_spread(name, groups, **more)


def fields(**more: object) -> Batch:
    """Return a record with fields of any type."""
    whole: dict[str, object] = {"name": "orders", "retain_bytes": 0, "retain_seconds": 0.0, "slots": SLOTS}
    return command(Kind.SPREAD_TOPIC, **{**whole, "groups": [1], "are_named": False, **more})


def topics(log: Log) -> list[SpreadTopic]:
    return log.machine.query(SpreadTopicsQuery())


def test_a_spread_topic_has_a_group_for_each_stream_and_its_id_is_the_index_of_its_record(log: Log) -> None:
    first, second = established(log, "s1"), established(log, "s2")
    record = spread_over("orders", first, second, first, retain_bytes=7, retain_seconds=2)
    index = log.next_index
    result = log.run(record)
    assert result == {
        "topic": {
            "id": index,
            "name": "orders",
            "retain_bytes": 7,
            "retain_seconds": 2.0,
            "groups": [first, second, first],
            "slots": 4093,
            "ranges": [[0, 1], [1364, 2], [2728, 3]],
            "configured": 0,
            "first_position": 1,
        }
    }
    (topic,) = topics(log)
    assert topic == log.machine.query(SpreadTopicQuery("orders"))
    assert topic.streams_of(GroupId(first)) == ["orders.1", "orders.3"]
    assert topic.streams_of(GroupId(second)) == ["orders.2"]
    assert topic.streams_of(GroupId(99)) == []


def test_an_earlier_release_sees_no_spread_topic_and_cannot_create_one_of_the_name(log: Log) -> None:
    group = established(log, "s1")
    log.run(spread_over("orders", group))
    assert log.machine.query(TopicsQuery()) == []
    with pytest.raises(UnknownTopicError, match="topic 'orders' is spread over streams"):
        log.describe("orders")
    for attempt in (log.propose, log.enter):
        with pytest.raises(TopicExistsError, match="topic 'orders' exists, and is spread over 1 streams"):
            attempt(create_topic("orders"))
    log.topic("orders.1")  # Another topic: that of group 0.
    log.topic("bills")
    for attempt in (log.propose, log.enter):
        with pytest.raises(TopicExistsError, match="topic 'bills' exists, and has no streams"):
            attempt(spread_over("bills", group))
    with pytest.raises(UnknownTopicError, match="no topic with streams is named 'bills'"):
        log.machine.query(SpreadTopicQuery("bills"))


def test_a_second_copy_finds_the_topic_and_a_late_one_does_not_change_its_groups(log: Log) -> None:
    first, second = established(log, "s1"), established(log, "s2")
    result = log.run(spread_over("orders", first, second, retain_bytes=7))
    before = topics(log)
    for copy in (
        spread_over("orders", first, second, retain_bytes=7),
        spread_over("orders", first, second, retain_bytes=7, are_named=True),
        spread_over("orders", second, second, retain_bytes=7),
        spread_over("orders", second, first),
    ):
        admission = log.propose(Batch.decode(bytearray(copy.buffer)))
        assert isinstance(admission, Answered)
        assert admission.result == result == log.enter(copy)
        assert topics(log) == before
        assert log.machine.query(FreeGroupsQuery(1)) == [first]
    for other, message in (
        (spread_over("orders", first), "exists with 2 streams, not 1"),
        (spread_over("orders", first, second, slots=9), "exists with 4093 slots, not 9"),
        (spread_over("orders", second, first, are_named=True), r"exists with the groups \[1, 5\], not \[5, 1\]"),
        (spread_over("orders", first, second, retain_seconds=9), "retain_seconds 0, not 0 and 9"),
    ):
        for attempt in (log.propose, log.enter):
            with pytest.raises(TopicExistsError, match=message):
                attempt(Batch.decode(bytearray(other.buffer)))
        assert topics(log) == before


def test_a_stream_of_a_spread_topic_belongs_to_no_other_group(log: Log) -> None:
    first, second = established(log, "s1", "bills.2"), established(log, "s2")
    log.run(spread_over("orders", first))
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match=f"the name 'orders.1' belongs to group {first}"):
            attempt(place("orders.1"))
        with pytest.raises(RequestError, match=f"stream 'bills.2' of topic 'bills' belongs to group {first} already"):
            attempt(spread_over("bills", second, second))
    assert placed(log, "orders.2") > 0, "it is no stream of the topic"


def test_streams_go_to_the_established_groups_with_the_fewest(log: Log) -> None:
    with pytest.raises(RequestError, match="no group is established") as refused:
        log.machine.query(FreeGroupsQuery(1))
    assert "viewstamp group place" in refused.value.remedy
    first = established(log, "s1")
    second = established(log, "s2", "s3", "s4")
    third = established(log, "s5")
    placed(log, "s6")
    assert log.machine.query(FreeGroupsQuery(5)) == [first, third, first, third, first]
    log.run(spread_over("orders", first, first, first))
    assert log.machine.query(FreeGroupsQuery(4)) == [third, third, second, third]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (spread_over("orders", 9), "group 9 was never placed, so it cannot have a stream of topic 'orders'"),
        (spread_over("orders", 1, 5), "group 5 is not established yet"),
        (spread_over("orders"), "a topic cannot have 0 streams"),
        (spread_over("orders", *[1] * (SPREAD_STREAMS_MAX + 1)), "cannot have 257 streams"),
        (spread_over("orders", 1, 1, slots=1), "2 streams cannot have 1 slots"),
        (spread_over("orders", 1, slots=1 << 40), "cannot have 1099511627776 slots"),
        (fields(groups=["1"]), r"in the groups \['1'\]"),
        (fields(groups=[True]), r"in the groups \[True\]"),
        (fields(groups=[0]), r"in the groups \[0\]"),
        (fields(groups=1), "whose groups is 1"),
        (fields(slots=None), "whose slots is None"),
        (fields(are_named=0), "whose are_named is 0"),
        (fields(name=7), "whose name is 7"),
        (fields(name="-a"), "cannot be named '-a'"),
        (fields(name="a b"), "cannot be named 'a b'"),
        (fields(name="a" * 127), "cannot be named 'a"),
        (fields(retain_bytes=-1), "cannot keep -1 bytes"),
        (fields(retain_seconds="1"), "for '1' seconds"),
        (build_batch([b"\xc1"], kind=Kind.SPREAD_TOPIC), "not valid MessagePack"),
        (build_batch([msgpack.packb([1])], kind=Kind.SPREAD_TOPIC), "no map"),
    ],
)
def test_bad_records_are_refused_with_their_values_and_change_nothing(log: Log, record: Batch, message: str) -> None:
    established(log, "s1")
    placed(log, "s2")
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match=message) as refused:
            attempt(Batch.decode(bytearray(record.buffer)))
        assert refused.value.remedy or "no map" in message or "MessagePack" in message
    assert topics(log) == []


def test_there_is_a_limit_of_streams_that_each_group_can_hold(log: Log) -> None:
    assert ALL_STREAMS_MAX <= 10_000, "[streams] TOPICS_MAX of a group"
    group = established(log, "s1")
    with patched(spread, ALL_STREAMS_MAX=3):
        log.run(spread_over("orders", group, group))
        for attempt in (log.propose, log.enter):
            with pytest.raises(RequestError, match="would exceed the limit of 3 streams"):
                attempt(spread_over("bills", group, group))
        log.run(spread_over("bills", group))


def test_a_field_of_a_newer_release_stops_the_member(log: Log) -> None:
    group = established(log, "s1")
    for attempt in (log.propose, log.enter):
        with pytest.raises(OutdatedCodeError, match="'weight', which this release does not know"):
            attempt(fields(groups=[group], weight=1))


def test_a_snapshot_has_the_topics_and_older_releases_can_read_one_without_any(log: Log) -> None:
    def version() -> int:
        cut = log.machine.begin_snapshot()
        header = msgpack.unpackb(next(pieces(cut)))
        cut.close()
        return int(header[1][0])

    group = established(log, "s1")
    assert version() == 5
    log.run(spread_over("orders", group, group, retain_bytes=7, retain_seconds=2.5))
    assert version() == 7
    other = restored(log.machine)
    assert other.query(SpreadTopicsQuery()) == topics(log)
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
    copy = Log(other, first_index=log.next_index)
    with pytest.raises(RequestError, match=r"the name 'orders\.2' belongs to group"):
        copy.enter(place("orders.2"))


def test_members_with_other_groups_for_a_topic_have_other_chains() -> None:
    chains = set()
    for choice in ((1, 5), (5, 1)):
        log = Log(Streams())
        established(log, "s1")
        established(log, "s2")
        log.run(spread_over("orders", *choice))
        chains.add(log.machine.chain)
    assert len(chains) == 2


def test_a_fork_leaves_the_spread_topics_to_the_old_cluster(log: Log) -> None:
    group = established(log, "s1")
    log.run(spread_over("orders", group))
    log.enter(command(Kind.FORK, **{"from": "c0", "end": 7}))
    assert topics(log) == []
    log.topic("orders")


def test_the_audit_log_has_the_creation_once(log: Log) -> None:
    group = established(log, "s1")
    log.run(create(READER, "read"))
    log.run(spread_over("orders", group, group, by="token ops"))
    log.enter(spread_over("orders", group, group, by="token ops"))
    entries = [each[2:] for each in log.machine.query(AuditQuery(0)) if each[3] == "topic create"]
    assert entries == [["token ops", "topic create", "orders: 2 streams"]]


@pytest.mark.parametrize(
    "image",
    [
        7,
        [7],
        [[9, "orders", 0, 0.0, 4093]],
        [["9", "orders", 0, 0.0, 4093, [1]]],
        [[0, "orders", 0, 0.0, 4093, [1]]],
        [[9, 7, 0, 0.0, 4093, [1]]],
        [[9, "-", 0, 0.0, 4093, [1]]],
        [[9, "orders", -1, 0.0, 4093, [1]]],
        [[9, "orders", 0, -1.0, 4093, [1]]],
        [[9, "orders", 0, 0, 4093, [1]]],
        [[9, "orders", 0, 0.0, "4093", [1]]],
        [[9, "orders", 0, 0.0, 4093, []]],
        [[9, "orders", 0, 0.0, 4093, [2]]],
        [[9, "orders", 0, 0.0, 4093, ["1"]]],
        [[9, "bills", 0, 0.0, 4093, [1]]],
        [[9, "s", 0, 0.0, 4093, [1]]],
        [[9, "orders", 0, 0.0, 4093, [1]], [9, "parcels", 0, 0.0, 4093, [1]]],
        [[9, "orders", 0, 0.0, 4093, [1]], [10, "orders", 0, 0.0, 4093, [1]]],
    ],
)
def test_an_image_that_breaks_an_invariant_is_damage(log: Log, image: object) -> None:
    group = established(log, "s.1")
    log.topic("bills")
    log.run(spread_over("orders", group))
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    _, header = msgpack.unpackb(whole[0])
    assert header[9] == [[6, "orders", 0, 0.0, 4093, [1]]]
    header[9] = image
    whole[0] = msgpack.packb(["state", header])
    with pytest.raises(CorruptionError):
        Streams().prepare(whole)


# Changes.


def configure(since: int, **settings: Any) -> Batch:
    return encode_configure_spread("orders", since=since, **settings)


def test_a_spread_topic_is_configured_and_a_late_copy_does_not_undo_a_later_change(log: Log) -> None:
    log.run(spread_over("orders", established(log, "s1"), retain_bytes=7))
    index = log.next_index
    before = topics(log)[0].describe()
    assert log.run(configure(0, retain_bytes=9)) == {"topic": {**before, "retain_bytes": 9, "configured": index}}
    copy = log.propose(configure(0, retain_bytes=9))
    assert isinstance(copy, Answered), "it changes nothing, so it is not written"
    log.run(configure(index, retain_seconds=60))
    (topic,) = topics(log)
    assert (topic.retain_bytes, topic.retain_seconds, topic.configured) == (9, 60.0, index + 1)
    log.run(configure(index + 1, retain_bytes=0))
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match=rf"was configured at index {index + 2}, after this request was made"):
            attempt(configure(0, retain_bytes=9))
    assert topics(log)[0].retain_bytes == 0


def test_a_configuration_that_is_none_is_refused(log: Log) -> None:
    log.run(spread_over("orders", established(log, "s1")))
    for record, why in (
        (encode_configure_spread("bills", since=0, retain_bytes=1), "no topic with streams is named 'bills'"),
        (configure(0, retain_bytes=-1), "cannot keep -1 bytes"),
        (configure(0, retain_seconds=1e99), "cannot keep records for"),
        (command(Kind.CONFIGURE_SPREAD, name="orders", retain_bytes=1), "whose since is None"),
        (command(Kind.CONFIGURE_SPREAD, name=7, since=0), "whose name is 7"),
    ):
        for attempt in (log.propose, log.enter):
            with pytest.raises((RequestError, UnknownTopicError), match=why):
                attempt(record)
    with pytest.raises(OutdatedCodeError, match="'weight', which this release does not know"):
        log.enter(command(Kind.CONFIGURE_SPREAD, name="orders", retain_bytes=1, since=0, weight=1))


def test_a_snapshot_has_the_configuration_and_older_releases_can_read_one_without_it(log: Log) -> None:
    log.run(spread_over("orders", established(log, "s1")))
    before = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    log = Log(restored(log.machine), first_index=log.next_index)
    log.run(configure(0, retain_bytes=9))
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    versions = [msgpack.unpackb(each[0])[1][0] for each in (before, whole)]
    assert versions == [7, 11]
    other = restored(log.machine)
    assert other.query(SpreadTopicsQuery()) == topics(log)
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
    _, header = msgpack.unpackb(whole[0])
    for changes in ({"configured": 1}, {"configured": "9"}, {"weight": 9}, {}, 7):
        header[9][0][6] = changes
        with pytest.raises(CorruptionError):
            Streams().prepare([msgpack.packb(["state", header]), *whole[1:]])


def ordered(log: Log, group: int, *ends: int) -> None:
    """Order the streams of the topic up to these ends."""
    reports = [
        StreamReport(Stream(GroupId(group), stream_name("orders", number)), Position(end), Position(1))
        for number, end in enumerate(ends, 1)
    ]
    log.run(encode_order([each for each in reports if each.end > 1]))


def test_a_spread_topic_is_trimmed_to_a_global_position_and_never_back(log: Log) -> None:
    group = established(log, "s1")
    log.run(spread_over("orders", group, group))
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match="end at global position 0, so it cannot be trimmed to 2"):
            attempt(encode_trim_spread("orders", 2))
    ordered(log, group, 4, 3)
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match="end at global position 5, so it cannot be trimmed to 7"):
            attempt(encode_trim_spread("orders", 7))
    assert isinstance(log.propose(encode_trim_spread("orders", 1)), Answered)
    assert log.run(encode_trim_spread("orders", 4))["topic"]["first_position"] == 4  # type: ignore[index]
    for earlier in (4, 2):
        assert isinstance(log.propose(encode_trim_spread("orders", earlier)), Answered)
        log.enter(encode_trim_spread("orders", earlier))
        assert topics(log)[0].first_position == 4
    log.run(encode_trim_spread("orders", 6))
    (topic,) = topics(log)
    assert (topic.first_position, topic.configured, topic.has_change(Kind.TRIM_SPREAD)) == (6, 0, True)
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    other = Streams()
    other.adopt(other.prepare(whole))
    assert other.query(SpreadTopicsQuery()) == [topic]
    assert other.digest() == log.machine.digest()
    _, header = msgpack.unpackb(whole[0])
    for position in (7, 1, "6", 1 << 63):
        header[9][0][6] = {"first_position": position}
        with pytest.raises(CorruptionError):
            Streams().prepare([msgpack.packb(["state", header]), *whole[1:]])


def test_a_trim_that_is_none_is_refused(log: Log) -> None:
    log.run(spread_over("orders", established(log, "s1")))
    for record, why in (
        (encode_trim_spread("bills", 1), "no topic with streams is named 'bills'"),
        (encode_trim_spread("orders", -1), "whose position is -1"),
        (command(Kind.TRIM_SPREAD, name="orders"), "whose position is None"),
    ):
        for attempt in (log.propose, log.enter):
            with pytest.raises((RequestError, UnknownTopicError), match=why):
                attempt(record)
    with pytest.raises(OutdatedCodeError, match="'weight', which this release does not know"):
        log.enter(command(Kind.TRIM_SPREAD, name="orders", position=1, weight=1))


@pytest.mark.parametrize("streams", [1, 2, 3, 7, 256])
@pytest.mark.parametrize("slots", [256, 257, 4093, 4096])
def test_ranges_of_slots_are_equally_long_and_cover_all(slots: int, streams: int) -> None:
    ranges = slot_ranges(slots, streams)
    starts = [first for first, _ in ranges]
    lengths = [end - start for start, end in zip(starts, [*starts[1:], slots], strict=True)]
    assert [stream for _, stream in ranges] == list(range(1, streams + 1))
    assert starts[0] == 0
    assert sum(lengths) == slots
    assert max(lengths) - min(lengths) <= 1


# Histories.

GROUPS = st.integers(1, 14)
RECORDS = st.one_of(
    st.builds(place, st.sampled_from(["a.1", "b.2", "s", "t"]), members=st.just({"n1": "a:1"}), since=st.just(30)),
    st.builds(hosted, GROUPS, st.just("n1"), st.just("0" * 16)),
    st.builds(hosted, GROUPS, st.just("n1"), st.just("0" * 16)),
    st.builds(cancel, GROUPS),
    st.builds(create_topic, st.sampled_from(["a", "b", "a.1"])),
    st.builds(
        lambda name, groups, are_named: encode_spread(name, groups, are_named=are_named),
        st.sampled_from(["a", "b", "a.1"]),
        st.lists(GROUPS, min_size=1, max_size=3),
        st.booleans(),
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(RECORDS, max_size=30), st.integers(0, 30))
def test_in_every_history_a_stream_has_one_group_and_a_name_one_topic(history: Sequence[Batch], cut: int) -> None:
    """A leader refuses or answers in advance exactly where applying has no effect; a snapshot changes nothing."""
    log = Log(Streams())
    owners: dict[str, int] = {}
    known: dict[str, SpreadTopic] = {}
    for number, record in enumerate(history):
        record = Batch.decode(bytearray(record.buffer))
        is_spread = record.kind is Kind.SPREAD_TOPIC
        ahead = outcome(log.machine.query, SpreadingQuery(record)) if is_spread else None
        before = topics(log)
        result = outcome(log.enter, record)
        after = topics(log)
        if is_spread:
            assert (ahead is None) == (len(after) == len(before) + 1)
            assert not isinstance(ahead, str) or result == ahead
        assert after[: len(before)] == before, "no topic changes, or goes"
        for topic in after:
            assert known.setdefault(topic.name, topic) == topic
            for stream, group in enumerate(topic.groups, 1):
                assert owners.setdefault(stream_name(topic.name, stream), group) == group
        state = log.machine._state
        for group in state.placements.groups.values():
            for stream in group.streams:
                assert stream not in owners or owners[stream] == group.id
        assert not {topic.name for topic in after} & state.names.keys()
        for stream, group in owners.items():
            assert state.placements.group_of(stream) == group
            assert state.placements.groups[GroupId(group)].is_established
        if number == cut:
            log = Log(restored(log.machine), first_index=log.next_index)


def outcome(call: Callable[[Any], object], argument: object) -> object:
    """Return the result of a call, or the text of its refusal."""
    try:
        return call(argument)
    except RequestError as error:
        return str(error)
