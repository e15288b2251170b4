"""Streams that are removed: group 0 forgets their order, and their groups drop them."""

from __future__ import annotations

import msgpack
import pytest

from tests.streams.log import (
    Log,
    command,
    configure_topic,
    create_topic,
    fence,
    open_session,
    pieces,
    records,
    restored,
)
from tests.streams.test_placement import established
from tests.streams.test_sealing import refused, report, settled, three_streams, writing
from tests.streams.test_spread import ordered, spread_over, topics
from viewstamp.errors import (
    CorruptionError,
    OutdatedCodeError,
    RequestError,
    StreamSealedError,
    UnknownTopicError,
)
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream, TopicId
from viewstamp.node.order_queries import (
    HomeCutQuery,
    MissingRunsQuery,
    MovedStreamsQuery,
    OrderStatusQuery,
    StreamReportsQuery,
    TopicOrderQuery,
)
from viewstamp.node.placement_queries import FreeGroupsQuery, SealedStreamQuery, SpreadTopic
from viewstamp.node.state_machine import Answered, LocationQuery, TopicQuery
from viewstamp.streams import Streams
from viewstamp.streams.joint_cut import contradictions, ends_before
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import GlobalRun, StreamReport, encode_context, encode_order
from viewstamp.wire.sealing import (
    encode_close,
    encode_drop,
    encode_gone,
    encode_lose,
    encode_seal,
    encode_sealed,
)
from viewstamp.wire.spreading import encode_add_stream, encode_trim_spread


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def trim(name: str, position: int) -> Batch:
    return command(Kind.TRIM_TOPIC, name=name, position=position)


def sealed(log: Log) -> int:
    """Create "orders" with three streams, of which stream 1 is sealed behind its 3 records; return their group."""
    group = three_streams(log)
    ordered(log, group, 4, 3)
    log.run(encode_close("orders", 1, 2))
    log.run(encode_sealed("orders", 1, 4))
    return group


def version(log: Log) -> int:
    """Return the version of a snapshot."""
    return int(msgpack.unpackb(next(iter(list(pieces(log.machine.begin_snapshot())))))[1][0])


def orders(log: Log) -> SpreadTopic:
    return topics(log)[0]


def test_a_removed_stream_keeps_its_number_its_successor_and_its_end_and_loses_its_runs(log: Log) -> None:
    group = sealed(log)
    stream = Stream(GroupId(group), "orders.1")
    before = orders(log).describe()
    assert log.machine.query(MissingRunsQuery(stream, Position(1), 9))
    answer = log.run(encode_gone("orders", 1, 4, by="ops"))
    assert answer["topic"] == {**before, "gone": [[1, 4]]}, "the route stays"  # type: ignore[index]
    assert log.machine.query(MissingRunsQuery(stream, Position(1), 9)) == []
    assert log.machine.query(OrderStatusQuery())[0] == StreamReport(stream, Position(4), Position(4))
    assert log.machine.query(TopicOrderQuery("orders")) == (6, [4, 3, 1])
    late = report(group, 1, 9)
    assert log.machine.query(MovedStreamsQuery([late])) == []
    log.propose(encode_order([late, report(group, 2, 5, is_sealed=False)]))
    assert log.apply() == {"version": 2}, "an ORDER that names it goes on for the others"
    assert log.machine.query(TopicOrderQuery("orders")) == (8, [4, 5, 1])


def test_a_copy_finds_the_removed_stream_whatever_it_says_of_its_end(log: Log) -> None:
    sealed(log)
    log.run(encode_gone("orders", 1, 4))
    for again in (
        encode_gone("orders", 1, 5),
        encode_gone("orders", 1, 1),
        encode_close("orders", 1, 2),
        encode_lose("orders", 1, 2),
        encode_sealed("orders", 1, 4),
    ):
        settled(log, again)


def test_a_stream_that_may_have_records_is_not_removed(log: Log) -> None:
    group = three_streams(log)
    ordered(log, group, 4, 3)
    refused(log, encode_gone("orders", 1, 4), "stream 1 of topic 'orders' is open; it was not removed")
    log.run(encode_close("orders", 1, 2))
    refused(log, encode_gone("orders", 1, 4), "is closing; it was not removed")
    log.run(encode_sealed("orders", 1, 4))
    for behind in (0, 1, 3, 7):
        refused(log, encode_gone("orders", 1, behind), f"cannot have its last record before global position {behind}")
    refused(log, encode_gone("orders", 4, 4), "topic 'orders' has no stream 4")
    with pytest.raises(UnknownTopicError):
        log.propose(encode_gone("bills", 1, 4))
    with pytest.raises(OutdatedCodeError, match="'weight'"):
        log.enter(command(Kind.GONE_STREAM, name="orders", stream=1, behind=4, weight=1))


def test_a_lost_stream_is_removed_when_its_topic_is_trimmed_above_it(log: Log) -> None:
    group = three_streams(log)
    ordered(log, group, 4, 3)
    log.run(encode_lose("orders", 1, 2))
    for first in (1, 5):
        log.enter(encode_trim_spread("orders", first))
        refused(log, encode_gone("orders", 1, 4), f"is lost, and has records from global position {first} on")
    log.run(encode_trim_spread("orders", 6))
    log.run(encode_gone("orders", 1, 1))
    (closed,) = orders(log).closed
    assert (closed.lost_at, closed.gone_at) == (6, 6), "what the record says of its end has no effect"
    assert log.machine.query(MissingRunsQuery(Stream(GroupId(group), "orders.1"), Position(1), 9)) == []


def test_the_limit_of_streams_counts_no_removed_ones_and_their_numbers_are_not_used_again(log: Log) -> None:
    group = established(log, "s1")
    log.run(spread_over("few", *[group] * 2, slots=2))
    refused(log, encode_add_stream("few", 3, group), "has 2 streams already, which is the limit")
    log.run(encode_close("few", 1, 2))
    log.run(encode_sealed("few", 1, 1))
    refused(log, encode_add_stream("few", 3, group), "has 2 streams already, which is the limit")
    log.run(encode_gone("few", 1, 1))
    refused(log, encode_add_stream("few", 4, group), "so the next one is 3, not 4")
    log.run(encode_add_stream("few", 3, group))
    assert topics(Log(restored(log.machine))) == topics(log)


def test_a_group_with_removed_streams_has_room_for_others(log: Log) -> None:
    first, other = established(log, "s1"), established(log, "s2")
    log.run(spread_over("orders", first, first, first))
    log.run(spread_over("bills", other, other))
    assert log.machine.query(FreeGroupsQuery(1)) == [other]
    for stream in (1, 2):
        log.run(encode_close("orders", stream, 3))
        log.run(encode_sealed("orders", stream, 1))
        log.run(encode_gone("orders", stream, 1))
    assert log.machine.query(FreeGroupsQuery(1)) == [first]
    assert restored(log.machine).query(FreeGroupsQuery(1)) == [first]


def test_a_snapshot_of_group_0_has_removed_streams_in_a_version_of_its_own(log: Log) -> None:
    sealed(log)
    assert version(log) == 12
    log.run(encode_gone("orders", 1, 4))
    index = orders(log).closed[0].gone
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    _, header = msgpack.unpackb(whole[0])
    assert header[0] == 21
    assert header[9][0][6] == {"closed": [[1, 2, 4, 0, 4, index]]}
    other = restored(log.machine)
    assert topics(Log(other)) == topics(log)
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
    for gone in ([0, 0, 9], [0, 4, 0], [0, 4], [6, 4, 9], [0, 4, 9, 1], [0, "4", 9], [0, True, 9]):
        header[9][0][6] = {"closed": [[1, 2, 4, *gone]]}
        with pytest.raises(CorruptionError):
            Streams().prepare([msgpack.packb(["state", header]), *whole[1:]])


# In the group of the stream.


def dropped(log: Log) -> int:
    """Create and drop "orders.1" with 3 records, as in its group, beside "orders.2"; return the session."""
    session = writing(log)
    log.run(create_topic("orders.2"))
    log.run(records(1, session, 1, 3))
    log.run(encode_context("orders.1", [GlobalRun(1, GlobalPosition(1), Position(1), 3)]))
    log.run(encode_seal("orders.1"))
    log.run(trim("orders.1", 4))
    log.run(encode_drop("orders.1", 4, 50))
    return session


def test_a_dropped_stream_leaves_its_name_and_its_id_and_answers_that_it_was_removed(log: Log) -> None:
    session = dropped(log)
    machine = log.machine
    for query in (TopicQuery("orders.1"), LocationQuery(TopicId(1), Position(1))):
        with pytest.raises(StreamSealedError, match=r"stream 'orders\.1' was removed"):
            machine.query(query)  # type: ignore[arg-type]
    assert machine.query(SealedStreamQuery("orders.1"))
    assert [each.stream.name for each in machine.query(StreamReportsQuery(GroupId(7)))] == []
    for sequence in (2, 5):  # A client that knows the topic as it was: its session fences, and takes the next route.
        with pytest.raises(StreamSealedError):
            log.propose(records(1, session, sequence))
    again = log.propose(records(1, session, 1, 3))
    assert isinstance(again, Answered), "the receipt of an earlier batch stays"
    log.run(fence(session, 2))
    assert machine.status()["topics"] == 1
    assert machine.keep_from() is None


def test_nothing_brings_a_dropped_stream_back(log: Log) -> None:
    dropped(log)
    for record, error in (
        (create_topic("orders.1"), StreamSealedError),
        (configure_topic("orders.1", retain_bytes=7), StreamSealedError),
        (trim("orders.1", 4), StreamSealedError),
        (encode_seal("orders.1"), UnknownTopicError),
        (encode_context("orders.1", [GlobalRun(1, GlobalPosition(1), Position(1), 3)]), RequestError),
    ):
        for attempt in (log.propose, log.enter):
            with pytest.raises(error):
                attempt(record)
    digest = log.machine.digest()
    assert isinstance(log.propose(encode_drop("orders.1", 4, 50)), Answered)
    assert digest == log.machine.digest()
    log.enter(encode_drop("orders.1", 4, 50))
    assert log.topic("orders.3") == 3, "its id is not used again"


def test_a_stream_with_records_that_have_a_position_is_not_dropped(log: Log) -> None:
    session = writing(log)
    log.run(records(1, session, 1, 3))

    def refuses(end: int, why: str, stream: str = "orders.1") -> None:
        for attempt in (log.propose, log.enter):
            with pytest.raises(RequestError, match=why):
                attempt(encode_drop(stream, end, 50))
        assert log.describe("orders.1")["last_position"] == 3

    refuses(4, "was not dropped: it is not sealed")
    log.run(trim("orders.1", 2))
    log.run(encode_seal("orders.1"))
    refuses(4, "was not dropped: it keeps 2 records with a position")
    refuses(3, "was not dropped: it keeps 1 records with a position")
    refuses(1, "is no stream of this group", "bills.1")
    log.run(trim("orders.1", 3))
    log.run(encode_drop("orders.1", 3, 50))  # The record behind the end never had a position.
    with pytest.raises(StreamSealedError):
        log.describe("orders.1")
    with pytest.raises(OutdatedCodeError, match="'weight'"):
        log.enter(command(Kind.DROP_STREAM, stream="orders.2", end=1, gone=50, weight=1))


def test_a_snapshot_of_the_group_has_the_dropped_streams(log: Log) -> None:
    writing(log)
    log.run(encode_seal("orders.1"))
    assert version(log) == 12
    other_log = Log(Streams())
    dropped(other_log)
    machine = other_log.machine
    whole = list(pieces(machine.begin_snapshot(), 1 << 20))
    _, header = msgpack.unpackb(whole[0])
    assert header[0] == 21
    assert header[10][2] == [[[1, "orders.1"]], "orders.1"]
    other = restored(machine)
    assert (other.digest(), other.chain) == (machine.digest(), machine.chain)
    with pytest.raises(StreamSealedError):
        other.query(TopicQuery("orders.1"))
    assert Log(other).topic("orders.3") == 3
    for sealed_image in (
        [[], "orders.1"],
        [[[3, "orders.1"]], "orders.1"],
        [[[1, "orders.9"]], "orders.1"],
        [[[2, "orders.1"]], "orders.1"],
        [[[1, "orders.2"]], "orders.2"],
        [[[1, "orders.1"], [1, "orders.1"]], "orders.1"],
        [[["1", "orders.1"]], "orders.1"],
    ):
        header[10][2] = sealed_image
        with pytest.raises(CorruptionError):
            Streams().prepare([msgpack.packb(["state", header]), *whole[1:]])


def test_a_snapshot_that_was_begun_before_the_drop_has_the_stream(log: Log) -> None:
    session = writing(log)
    log.run(records(1, session, 1, 3))
    log.run(encode_seal("orders.1"))
    log.run(trim("orders.1", 4))
    digest = log.machine.digest()
    cut = log.machine.begin_snapshot()
    log.run(encode_drop("orders.1", 4, 50))
    other = Streams()
    other.adopt(other.prepare(list(pieces(cut))))
    assert other.digest() == digest
    assert other.query(TopicQuery("orders.1"))["last_position"] == 3


def test_members_with_and_without_a_dropped_stream_differ(log: Log) -> None:
    writing(log)
    log.run(encode_seal("orders.1"))
    before = log.machine.chain
    log.run(encode_drop("orders.1", 1, 50))
    assert log.machine.chain != before


# Both together, in a backup.


def test_a_joint_cut_has_no_drop_without_the_removal(log: Log) -> None:
    sealed(log)
    home = log.machine.query(HomeCutQuery())
    log.run(encode_gone("orders", 1, 4))
    index = orders(log).closed[0].gone
    group = Log(Streams())
    writing(group)
    group.run(encode_seal("orders.1"))
    drop = encode_drop("orders.1", 1, index)
    group.run(drop)
    assert ends_before(drop, home, floor=1), "group 0 would have a stream that its group lacks"
    assert not ends_before(drop, log.machine.query(HomeCutQuery()), floor=1)


def test_a_removed_stream_contradicts_no_state_of_its_group_dropped_or_not(log: Log) -> None:
    number = GroupId(sealed(log))
    group = Log(Streams())
    session = writing(group)
    group.run(create_topic("orders.2"))
    group.run(records(1, session, 1, 3))
    group.run(records(2, session, 2, 2))
    group.run(encode_context("orders.1", [GlobalRun(1, GlobalPosition(1), Position(1), 3)]))
    group.run(encode_seal("orders.1"))
    home, own = log.machine._state, group.machine._state
    assert contradictions(home, {number: own}) == []
    group.run(trim("orders.1", 4))
    group.run(encode_drop("orders.1", 4, 50))
    assert contradictions(home, {number: own}) == [
        "orders.1 ends at position 0, and the order has it up to 3",
    ]
    log.run(encode_gone("orders", 1, 4))
    assert contradictions(home, {number: own}) == []
    assert contradictions(home, {number: restored(group.machine)._state}) == []
    before = Log(Streams())
    session = before.run(open_session())["session"]  # type: ignore[index]
    for stream in ("orders.1", "orders.2"):
        before.run(create_topic(stream))
    before.run(records(1, session, 1, 3))
    before.run(records(2, session, 2, 2))
    before.run(encode_context("orders.1", [GlobalRun(1, GlobalPosition(1), Position(1), 3)]))
    assert contradictions(home, {number: before.machine._state}) == []


def test_a_fork_keeps_what_was_removed(log: Log) -> None:
    first, other = established(log, "s1"), established(log, "s2")
    log.run(spread_over("orders", first, first))
    log.run(encode_close("orders", 1, 2))
    log.run(encode_sealed("orders", 1, 1))
    log.run(encode_gone("orders", 1, 1))
    log.run(spread_over("bills", other, other))
    before = topics(log)
    groups = [[group, {"m1": ["m1:7000", f"{group:016x}"]}] for group in (first, other)]
    log.enter(command(Kind.FORK_GROUPS, **{"from": "c", "end": log.next_index, "groups": groups}))
    assert topics(log) == before
    assert log.machine.query(FreeGroupsQuery(1)) == [first]
    refused(log, encode_add_stream("orders", 1, other, is_named=True), f"is in group {first}, not {other}")
