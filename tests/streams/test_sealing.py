"""The end of a stream: closing and sealed in the state of group 0, sealed in that of its group."""

from __future__ import annotations

import msgpack
import pytest

from tests.streams.log import Log, command, create_topic, open_session, pieces, records, restored
from tests.streams.test_placement import established
from tests.streams.test_spread import ordered, spread_over, topics
from viewstamp.errors import (
    CorruptionError,
    OutdatedCodeError,
    RequestError,
    StreamSealedError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.node.order_queries import MovedStreamsQuery, StreamReportsQuery
from viewstamp.node.placement_queries import ClosedStream, SealableQuery, SealedStreamQuery
from viewstamp.node.state_machine import Answered
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import StreamReport, encode_order
from viewstamp.wire.sealing import (
    encode_close,
    encode_gone,
    encode_lose,
    encode_lose_sealed,
    encode_seal,
    encode_sealed,
)
from viewstamp.wire.spreading import encode_trim_spread


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def three_streams(log: Log) -> int:
    """Create "orders" with three streams in one group, and return the group."""
    group = established(log, "s1")
    log.run(spread_over("orders", group, group, group))
    return group


def report(group: int, number: int, end: int, *, is_sealed: bool = True) -> StreamReport:
    return StreamReport(Stream(GroupId(group), f"orders.{number}"), Position(end), Position(1), is_sealed)


def refused(log: Log, record: Batch, why: str) -> None:
    """Check that a record is refused before the log, and when it is applied, and changes nothing."""
    before = topics(log)
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match=why):
            attempt(record)
    assert topics(log) == before


def settled(log: Log, record: Batch) -> None:
    """Check that a record is answered without an entry, and changes nothing behind another one."""
    before = topics(log)
    assert isinstance(log.propose(record), Answered)
    log.enter(record)
    assert topics(log) == before


def test_a_stream_is_closing_and_then_sealed_at_its_ordered_end(log: Log) -> None:
    group = three_streams(log)
    ordered(log, group, 4, 3)
    answer = log.run(encode_close("orders", 1, 2))
    assert answer["topic"]["closed"] == [[1, 2, 0]]  # type: ignore[index]
    assert answer["topic"]["ranges"] == [[0, 1], [1364, 2], [2728, 3]], "the slots stay until the stream is sealed"  # type: ignore[index]
    for named in (encode_close("orders", 1, 2, is_named=True), encode_close("orders", 1, 3)):
        settled(log, named)
    refused(log, encode_close("orders", 1, 3, is_named=True), "is closing, and its slots go to stream 2, not 3")
    for end in (3, 5):
        refused(log, encode_sealed("orders", 1, end), f"closing and ordered up to 4, so it cannot be sealed at {end}")
    answer = log.run(encode_sealed("orders", 1, 4))
    assert answer["topic"]["closed"] == [[1, 2, 4]]  # type: ignore[index]
    assert answer["topic"]["ranges"] == [[0, 2], [1364, 2], [2728, 3]]  # type: ignore[index]
    settled(log, encode_sealed("orders", 1, 4))
    settled(log, encode_close("orders", 1, 2))
    refused(log, encode_sealed("orders", 1, 5), "sealed at 4 and ordered up to 4")
    refused(log, encode_sealed("orders", 2, 3), "stream 2 of topic 'orders' is open")


def test_nothing_of_a_sealed_stream_is_ordered_any_more(log: Log) -> None:
    group = three_streams(log)
    ordered(log, group, 4)
    log.run(encode_close("orders", 1, 2))
    log.run(encode_sealed("orders", 1, 4))
    late = report(group, 1, 9)
    assert log.machine.query(MovedStreamsQuery([late])) == []
    assert isinstance(log.propose(encode_order([late])), Answered)
    version = log.enter(encode_order([late]))["version"]  # type: ignore[index]
    assert restored(log.machine).query(MovedStreamsQuery([late])) == [], "the seal is in the snapshot"
    assert log.run(encode_order([report(group, 2, 2)]))["version"] == version + 1  # type: ignore[index]


def test_slots_go_on_with_the_next_seal_and_one_stream_stays_open(log: Log) -> None:
    three_streams(log)
    log.run(encode_close("orders", 1, 2))
    assert topics(log)[0].open_streams() == [3, 2], "that with the fewest slots first"
    refused(log, encode_close("orders", 3, 1), "cannot go to stream 1, which is not open")
    refused(log, encode_close("orders", 3, 3), "which is the same one")
    refused(log, encode_close("orders", 4, 2), "has no stream 4")
    refused(log, encode_close("orders", 3, 0), "has no stream 0")
    refused(log, encode_close("bills", 1, 2), "no topic with streams is named 'bills'")
    log.run(encode_close("orders", 2, 3))
    for into in (1, 2, 3):
        refused(log, encode_close("orders", 3, into), "stream 3 is the last open stream of topic 'orders'")
    log.run(encode_sealed("orders", 1, 1))
    (topic,) = topics(log)
    assert [topic.successor_of(stream) for stream in (1, 2, 3)] == [2, 2, 3], "stream 2 is closing, and has its slots"
    log.run(encode_sealed("orders", 2, 1))
    (topic,) = topics(log)
    assert [topic.successor_of(stream) for stream in (1, 2, 3)] == [3, 3, 3]
    assert topic.closed == (ClosedStream(1, 2, Position(1)), ClosedStream(2, 3, Position(1)))


def test_only_a_report_of_a_sealed_stream_that_is_closing_leads_to_its_end(log: Log) -> None:
    group = three_streams(log)
    ordered(log, group, 4)
    ask = [report(group, 1, 4), report(group, 2, 1)]
    assert log.machine.query(SealableQuery(ask)) == []
    log.run(encode_close("orders", 1, 3))
    (found,) = log.machine.query(SealableQuery(ask))
    assert (found.report, found.topic, found.number, found.is_ordered) == (ask[0], "orders", 1, True)
    (found,) = log.machine.query(SealableQuery([report(group, 1, 5)]))
    assert not found.is_ordered
    assert log.machine.query(SealableQuery([report(group, 1, 4, is_sealed=False)])) == []
    log.run(encode_sealed("orders", 1, 4))
    assert log.machine.query(SealableQuery(ask)) == []


def test_a_snapshot_has_ended_streams_in_a_version_of_its_own(log: Log) -> None:
    group = three_streams(log)
    ordered(log, group, 4)
    before = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    log.run(encode_close("orders", 1, 2))
    log.run(encode_sealed("orders", 1, 4))
    log.run(encode_close("orders", 2, 3))
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    assert [msgpack.unpackb(each[0])[1][0] for each in (before, whole)] == [8, 12]
    other = restored(log.machine)
    assert topics(Log(other)) == topics(log)
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
    _, header = msgpack.unpackb(whole[0])
    for closed in ([], [[1, 2, 5]], [[1, 2, 4], [1, 3, 0]], [[1, 1, 4]], [[1, 2, 4], [3, 1, 0]], [[4, 1, 0]], 7):
        header[9][0][6] = {"closed": closed}
        with pytest.raises(CorruptionError):
            Streams().prepare([msgpack.packb(["state", header]), *whole[1:]])


def test_a_lost_stream_ends_where_its_order_ends_when_the_record_is_applied(log: Log) -> None:
    group = three_streams(log)
    ordered(log, group, 4, 3)
    log.propose(encode_order([report(group, 1, 6, is_sealed=False)]))
    log.propose(encode_lose("orders", 1, 2))  # The ORDER counts, although the leader has not applied it.
    log.apply()
    answer = log.apply()
    assert answer["topic"]["closed"] == [[1, 2, 6]]  # type: ignore[index]
    assert answer["topic"]["lost"] == [[1, 8]], "the topic has 5 + 2 records with a position"  # type: ignore[index]
    assert answer["topic"]["ranges"] == [[0, 2], [1364, 2], [2728, 3]]  # type: ignore[index]
    late = report(group, 1, 9)
    assert log.machine.query(MovedStreamsQuery([late])) == []
    assert log.machine.query(SealableQuery([late])) == [], "its group may seal it when it lives"
    assert isinstance(log.propose(encode_order([late])), Answered)
    for again in (
        encode_lose("orders", 1, 2),
        encode_close("orders", 1, 2),
        encode_lose("orders", 1, 3),
        encode_sealed("orders", 1, 6),
    ):
        settled(log, again)
    refused(log, encode_lose("orders", 1, 3, is_named=True), "is sealed, and its slots go to stream 2, not 3")
    assert log.run(encode_order([report(group, 2, 4, is_sealed=False)]))["version"]
    (topic,) = topics(log)
    assert topic.closed == (ClosedStream(1, 2, Position(6), GlobalPosition(8)),), (
        "what is ordered later changes nothing"
    )


def test_a_closing_stream_is_lost_into_the_stream_of_its_seal(log: Log) -> None:
    three_streams(log)
    log.run(encode_close("orders", 1, 2))
    log.run(encode_close("orders", 2, 3))
    answer = log.run(encode_lose("orders", 1, 3))
    assert answer["topic"]["closed"] == [[1, 2, 1], [2, 3, 0]]  # type: ignore[index]
    assert answer["topic"]["lost"] == [[1, 1]], "it has no record"  # type: ignore[index]
    refused(log, encode_lose("orders", 3, 2), "stream 3 is the last open stream")
    refused(log, encode_lose("orders", 4, 3), "has no stream 4")
    refused(log, encode_lose("bills", 1, 2), "no topic with streams is named 'bills'")
    log.run(encode_sealed("orders", 2, 1))
    settled(log, encode_lose("orders", 2, 3))
    assert [topics(log)[0].successor_of(stream) for stream in (1, 2, 3)] == [3, 3, 3]
    assert topics(Log(restored(log.machine))) == topics(log)


def test_a_sealed_stream_whose_group_is_lost_later_is_given_up_without_losing_a_position(log: Log) -> None:
    group = three_streams(log)
    refused(log, encode_lose_sealed("orders", 1), "stream 1 of topic 'orders' is open, and not sealed")
    refused(log, encode_lose_sealed("orders", 4), "has no stream 4")
    ordered(log, group, 4, 3)
    log.run(encode_close("orders", 1, 2))
    refused(log, encode_lose_sealed("orders", 1), "stream 1 of topic 'orders' is closing, and not sealed")
    log.run(encode_sealed("orders", 1, 4))
    log.propose(encode_order([report(group, 3, 3, is_sealed=False)]))
    log.propose(encode_lose_sealed("orders", 1))  # The leader has not applied the ORDER.
    log.apply()
    answer = log.apply()
    assert answer["topic"]["closed"] == [[1, 2, 4]], "it ends where it was sealed"  # type: ignore[index]
    assert answer["topic"]["lost"] == [[1, 8]], "the topic has 3 + 2 + 2 records"  # type: ignore[index]
    for again in (encode_lose_sealed("orders", 1), encode_lose("orders", 1, 2), encode_close("orders", 1, 2)):
        settled(log, again)
    log.run(encode_order([report(group, 2, 7, is_sealed=False)]))
    settled(log, encode_lose_sealed("orders", 1))
    assert topics(Log(restored(log.machine))) == topics(log)
    refused(log, encode_gone("orders", 1, 4), "is lost, and has records from global position 1 on; it was not removed")
    log.run(encode_trim_spread("orders", 8))
    log.run(encode_gone("orders", 1, 1))
    assert topics(log)[0].closed[0].gone_at == 8
    settled(log, encode_lose_sealed("orders", 1))


def test_a_snapshot_has_lost_streams_in_a_version_of_its_own(log: Log) -> None:
    group = three_streams(log)
    ordered(log, group, 4, 3)
    log.run(encode_lose("orders", 1, 2))
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    assert msgpack.unpackb(whole[0])[1][0] == 15
    other = restored(log.machine)
    assert topics(Log(other)) == topics(log)
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
    assert other.query(MovedStreamsQuery([report(group, 1, 9)])) == []
    _, header = msgpack.unpackb(whole[0])
    for lost in ([1, 2, 4, 7], [1, 2, 4, 0], [1, 2, 0, 6], [1, 2, 4, 6, 1], [1, 2, 4, "6"], [1, 2, 4, True]):
        header[9][0][6] = {"closed": [lost]}
        with pytest.raises(CorruptionError):
            Streams().prepare([msgpack.packb(["state", header]), *whole[1:]])


def writing(log: Log) -> int:
    """Create the stream "orders.1" as in its group, and return a session."""
    log.run(create_topic("orders.1"))
    return log.run(open_session())["session"]  # type: ignore[index, no-any-return]


def test_a_group_admits_nothing_behind_the_seal(log: Log) -> None:
    session = writing(log)
    log.run(records(1, session, 1, 3))
    assert [each.is_sealed for each in log.machine.query(StreamReportsQuery(GroupId(7)))] == [False]
    log.propose(records(1, session, 2, 2))
    log.propose(encode_seal("orders.1"))
    with pytest.raises(UnavailableError, match="is being sealed"):
        log.propose(records(1, session, 3))
    log.apply()
    log.apply()
    for sequence in (3, 5):
        with pytest.raises(StreamSealedError, match=r"stream 'orders\.1' is sealed; nothing was written"):
            log.propose(records(1, session, sequence))
    assert isinstance(log.propose(records(1, session, 2, 2)), Answered), "a batch before the seal has its receipt"
    assert isinstance(log.propose(encode_seal("orders.1")), Answered)
    log.enter(encode_seal("orders.1"))
    assert log.machine.query(StreamReportsQuery(GroupId(7))) == [
        StreamReport(Stream(GroupId(7), "orders.1"), Position(6), Position(1), True)
    ]
    other = restored(log.machine)
    assert other.query(SealedStreamQuery("orders.1"))
    assert not other.query(SealedStreamQuery("orders.2"))
    with pytest.raises(StreamSealedError):
        Log(other).propose(records(1, session, 3))
    log._append(records(1, session, 3), Position(6))
    with pytest.raises(CorruptionError, match=r"records behind the end of 'orders\.1' 0 expected, 1 found"):
        log.apply()


def test_an_empty_stream_that_is_sealed_is_reported(log: Log) -> None:
    writing(log)
    assert log.machine.query(StreamReportsQuery(GroupId(7))) == []
    log.run(encode_seal("orders.1"))
    assert [each.is_sealed for each in log.machine.query(StreamReportsQuery(GroupId(7)))] == [True]


def test_a_seal_that_is_none_is_refused(log: Log) -> None:
    writing(log)
    for attempt in (log.propose, log.enter):
        with pytest.raises(UnknownTopicError, match="is no stream of this group"):
            attempt(encode_seal("orders.2"))
    for kind, fields in (
        (Kind.SEAL_STREAM, {"stream": "orders.1", "weight": 1}),
        (Kind.CLOSE_STREAM, {"name": "orders", "stream": 1, "into": 2, "is_named": True, "weight": 1}),
        (Kind.LOSE_STREAM, {"name": "orders", "stream": 1, "into": 2, "is_named": True, "weight": 1}),
        (Kind.LOSE_SEALED_STREAM, {"name": "orders", "stream": 1, "weight": 1}),
        (Kind.SEALED_STREAM, {"name": "orders", "stream": 1, "end": 2, "weight": 1}),
    ):
        three = Log(Streams())
        three_streams(three)
        with pytest.raises(OutdatedCodeError, match="'weight', which this release does not know"):
            three.enter(command(kind, **fields))
