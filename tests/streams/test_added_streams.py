"""Streams that are added to a topic: they have no slots, and get those of a stream that ends into them."""

from __future__ import annotations

import msgpack
import pytest

from tests.streams.log import Log, pieces, restored
from tests.streams.test_placement import established
from tests.streams.test_spread import spread_over, topics
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, TopicExistsError, UnknownTopicError
from viewstamp.ids import GroupId, Position, Stream
from viewstamp.node.order_queries import MovedStreamsQuery
from viewstamp.node.placement_queries import SpreadTopic, SpreadTopicQuery
from viewstamp.node.state_machine import Answered
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.ordering import StreamReport, encode_order
from viewstamp.wire.sealing import encode_close, encode_sealed
from viewstamp.wire.spreading import encode_add_stream


@pytest.fixture
def log() -> Log:
    """A log of group 0 with the topic "orders" over two streams of group 2."""
    log = Log(Streams())
    group = established(log, "s1")
    log.run(spread_over("orders", group, group))
    return log


def topic(log: Log) -> SpreadTopic:
    return log.machine.query(SpreadTopicQuery("orders"))


def refused(log: Log, record: Batch, why: str, error: type[RequestError] = RequestError) -> None:
    """Check that a record is refused before the log, and when it is applied, and changes nothing."""
    before = topics(log)
    for attempt in (log.propose, log.enter):
        with pytest.raises(error, match=why):
            attempt(record)
    assert topics(log) == before


def test_an_added_stream_has_no_slots_and_changes_no_route(log: Log) -> None:
    before = topic(log).describe()
    other = established(log, "s2")
    answer = log.run(encode_add_stream("orders", 3, other, by="ops"))
    assert isinstance(answer, dict)
    after = answer["topic"]
    assert after == {**before, "groups": [*before["groups"], other]}, "the ranges of slots stay"  # type: ignore[misc]
    assert topic(log).streams_of(GroupId(other)) == ["orders.3"]
    assert topic(log).open_streams()[0] == 3, "it has the fewest slots"


def test_a_copy_finds_the_stream_by_its_number_and_one_in_another_group_is_refused(log: Log) -> None:
    own, other = topic(log).groups[0], established(log, "s2")
    log.run(encode_add_stream("orders", 3, other, is_named=True))
    before, again = topics(log), encode_add_stream("orders", 3, other, is_named=True)
    for copy in (again, encode_add_stream("orders", 3, own), encode_add_stream("orders", 1, other)):
        assert isinstance(log.propose(copy), Answered)
        log.enter(copy)
        assert topics(log) == before
    refused(log, encode_add_stream("orders", 3, own, is_named=True), f"is in group {other}, not {own}")


def test_a_stream_that_makes_no_sense_is_refused(log: Log) -> None:
    own = topic(log).groups[0]
    refused(log, encode_add_stream("none", 3, own), "no topic with streams is named", UnknownTopicError)
    for number in (0, 4):
        refused(log, encode_add_stream("orders", number, own), f"so the next one is 3, not {number}")
    refused(log, encode_add_stream("orders", 3, own + 1000), "was never placed, so it cannot have a stream")
    taken = established(log, "orders.3")
    refused(log, encode_add_stream("orders", 3, own), f"stream 'orders.3' .* belongs to group {taken} already")
    fields = {"name": "orders", "stream": 3, "group": own, "is_named": False, "weight": 2}
    with pytest.raises(OutdatedCodeError, match="'weight'"):
        log.enter(build_batch([msgpack.packb(fields)], kind=Kind.ADD_STREAM))


def test_a_topic_has_at_most_256_streams_and_no_more_than_slots(log: Log) -> None:
    group = established(log, "s2")
    log.run(spread_over("few", group, group, slots=2))
    refused(log, encode_add_stream("few", 3, group), "has 2 streams already, which is the limit")
    log.run(spread_over("many", *[group] * 255))
    log.run(encode_add_stream("many", 256, group))
    refused(log, encode_add_stream("many", 257, group), "has 256 streams already")


def test_a_late_copy_of_the_creation_still_finds_the_topic(log: Log) -> None:
    own = topic(log).groups[0]
    log.run(encode_add_stream("orders", 3, established(log, "s2")))
    before = topics(log)
    for copy in (spread_over("orders", own, own), spread_over("orders", own, own, are_named=True)):
        assert isinstance(log.propose(copy), Answered)
        log.enter(copy)
        assert topics(log) == before
    refused(log, spread_over("orders", own, own, own), "exists with 2 streams, not 3", TopicExistsError)


def test_a_stream_that_ends_gives_its_slots_to_the_added_one_in_another_group(log: Log) -> None:
    other = established(log, "s2")
    log.run(encode_add_stream("orders", 3, other))
    log.run(encode_close("orders", 1, 3))
    log.run(encode_sealed("orders", 1, 1))
    assert topic(log).describe()["ranges"] == [[0, 3], [2046, 2]]
    moved = StreamReport(Stream(GroupId(other), "orders.3"), Position(5), Position(1))
    assert log.machine.query(MovedStreamsQuery([moved])) == [moved]
    log.run(encode_order([moved]))
    assert log.machine.query(SpreadTopicQuery("orders")) == topic(log)


def test_a_snapshot_has_the_added_streams_and_is_as_before_without_one(log: Log) -> None:
    without = Log(Streams())
    group = established(without, "s1")
    without.run(spread_over("orders", group))
    assert msgpack.unpackb(next(pieces(without.machine.begin_snapshot())))[1][0] == 7
    other = established(log, "s2")
    log.run(encode_add_stream("orders", 3, other))
    whole = list(pieces(log.machine.begin_snapshot()))
    kind, header = msgpack.unpackb(whole[0])
    assert header[0] == 20
    log.machine._cut = None
    loaded = restored(log.machine)
    assert loaded.query(SpreadTopicQuery("orders")) == topic(log)
    assert loaded.query(SpreadTopicQuery("orders")).added == 1
    assert loaded.digest() == log.machine.digest()
    for added in ([], [7], 7, ["x"]):
        header[9][0][6] = {"added": added}
        with pytest.raises(CorruptionError):
            Streams().prepare([msgpack.packb([kind, header]), *whole[1:]])


def test_two_members_with_different_streams_have_different_digests(log: Log) -> None:
    other = Log(Streams())
    group = established(other, "s1")
    other.run(spread_over("orders", group, group))
    third = established(other, "s2")
    assert established(log, "s2") == third
    assert other.machine.digest() == log.machine.digest()
    log.run(encode_add_stream("orders", 3, group))
    other.run(encode_add_stream("orders", 3, third))
    assert other.machine.digest() != log.machine.digest()
