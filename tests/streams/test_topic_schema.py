"""The schema of a topic in the replicated state: the changes that are accepted, and its part of a snapshot."""

from __future__ import annotations

import msgpack
import pytest

from tests.streams.log import Log, command, pieces, restored
from tests.streams.test_placement import established
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, UnknownTopicError
from viewstamp.node.placement_queries import SpreadTopicQuery
from viewstamp.node.schema_queries import HasSchemaQuery
from viewstamp.node.state_machine import Answered
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.spreading import encode_configure_spread, encode_spread, encode_spread_schema


def schema(text: object, name: object = "orders", **fields: object) -> Batch:
    return command(Kind.CONFIGURE_SCHEMA, name=name, schema=text, **fields)


def logged(*texts: str) -> Log:
    log = Log(Streams())
    log.topic()
    for text in texts:
        log.run(schema(text))
    return log


def test_a_schema_is_described_in_its_canonical_form_and_becomes_wider() -> None:
    log = logged()
    assert "schema" not in log.describe()
    assert log.machine.query(HasSchemaQuery()) is False
    answer = log.run(schema("id:int32,  name:string ?"))
    assert isinstance(answer, dict)
    assert answer["topic"]["schema"] == log.describe()["schema"] == "id: int32, name: string?"
    log.run(schema("id: int64, name: string?, at: timestamp?"))
    assert log.describe()["schema"] == "id: int64, name: string?, at: timestamp?"
    assert log.machine.query(HasSchemaQuery()) is True


@pytest.mark.parametrize("text", ["id: string", "name: string?", "id: int64, name: string", "no schema", ""])
def test_a_schema_that_rows_do_not_fit_is_refused_by_the_leader_and_by_each_member(text: str) -> None:
    log = logged("id: int64")
    before = log.describe()
    with pytest.raises(RequestError):
        log.propose(schema(text))
    with pytest.raises(RequestError):
        log.enter(schema(text))
    assert log.describe() == before


def test_a_copy_changes_nothing_and_a_late_one_is_refused() -> None:
    log = logged("id: int64", "id: int64")
    log.run(schema("id: int64, name: string?"))
    with pytest.raises(RequestError, match="field name would be gone"):
        log.enter(schema("id: int64"))
    assert log.describe()["schema"] == "id: int64, name: string?"


def test_a_record_of_another_shape_is_refused() -> None:
    log = logged()
    for wrong in (schema(7), schema(b"id: int64"), schema(None), schema("id: int64", name=7)):
        with pytest.raises(RequestError):
            log.enter(wrong)
    with pytest.raises(UnknownTopicError):
        log.propose(schema("id: int64", "unknown"))
    with pytest.raises(OutdatedCodeError, match="'since'"):
        log.enter(schema("id: int64", since=3))


def test_a_snapshot_has_the_schema_and_one_without_schemas_is_as_before() -> None:
    log = logged("id: int64")
    log.topic("plain")
    whole = list(pieces(log.machine.begin_snapshot()))
    log.machine._cut = None
    assert msgpack.unpackb(whole[0])[1][0] == 13
    other = restored(log.machine)
    assert other.digest() == log.machine.digest()
    assert other._state.describe(other._state.names["orders"]) == log.describe()
    without = Log(Streams())
    without.topic()
    assert msgpack.unpackb(next(pieces(without.machine.begin_snapshot())))[1][0] < 12


def test_a_snapshot_that_was_begun_before_a_change_has_the_schema_of_before() -> None:
    log = logged("id: int64")
    cut = log.machine.begin_snapshot()
    log.run(schema("id: int64, name: string?"))
    topics = [msgpack.unpackb(piece) for piece in pieces(cut)]
    images = next(content for section, content in topics if section == "topics")
    assert images[0][-1] == "id: int64"


def test_a_topic_with_an_archive_and_a_schema_has_both_in_a_snapshot() -> None:
    log = logged("id: int64")
    log.run(command(Kind.CONFIGURE_ARCHIVE, name="orders", is_on=True, delete_seconds=86_400))
    other = restored(log.machine)
    assert other._state.describe(other._state.names["orders"]) == log.describe()
    assert other.digest() == log.machine.digest()


# Topics with streams.


def spread(*texts: str) -> Log:
    """Return the log of group 0 with the topic "orders" over two streams."""
    log = Log(Streams())
    group = established(log, "s1")
    log.run(encode_spread("orders", [group, group]))
    for text in texts:
        log.run(encode_spread_schema("orders", text))
    return log


def of_spread(log: Log) -> str:
    return log.machine.query(SpreadTopicQuery("orders")).schema


def test_a_topic_with_streams_gets_a_schema_that_becomes_wider_only() -> None:
    log = spread()
    assert "schema" not in log.machine.query(SpreadTopicQuery("orders")).describe()
    answer = log.run(encode_spread_schema("orders", "id:int32", by="ops"))
    assert isinstance(answer, dict)
    assert answer["topic"]["schema"] == of_spread(log) == "id: int32"
    assert isinstance(log.propose(encode_spread_schema("orders", " id : int32 ")), Answered), "it changes nothing"
    log.run(encode_spread_schema("orders", "id: int64, name: string?"))
    for wrong in ("id: int32", "id: int64, name: string", "id: long", "", "name: string?"):
        for attempt in (log.propose, log.enter):
            with pytest.raises(RequestError):
                attempt(encode_spread_schema("orders", wrong))
    assert of_spread(log) == "id: int64, name: string?"
    assert log.machine.query(HasSchemaQuery()) is False, "the probe before the first schema of a plain topic is apart"


def test_a_schema_of_a_topic_with_streams_is_not_that_of_one_without_and_names_its_topic() -> None:
    log = spread()
    log.topic("plain")
    for attempt in (log.propose, log.enter):
        with pytest.raises(UnknownTopicError, match="'orders' is spread over streams"):
            attempt(schema("id: int64"))
        with pytest.raises(UnknownTopicError, match="no topic with streams is named 'plain'"):
            attempt(encode_spread_schema("plain", "id: int64"))
        with pytest.raises(RequestError, match="whose schema is 7"):
            attempt(command(Kind.CONFIGURE_SPREAD_SCHEMA, name="orders", schema=7))
    with pytest.raises(OutdatedCodeError, match="'since'"):
        log.enter(command(Kind.CONFIGURE_SPREAD_SCHEMA, name="orders", schema="id: int64", since=3))


def test_a_change_of_the_retention_keeps_the_schema_and_no_change_of_a_schema_undoes_one() -> None:
    log = spread("id: int64")
    log.run(encode_configure_spread("orders", since=0, retain_bytes=9))
    log.run(encode_spread_schema("orders", "id: int64, name: string?"))
    topic = log.machine.query(SpreadTopicQuery("orders"))
    assert (topic.retain_bytes, topic.schema) == (9, "id: int64, name: string?")


def test_a_snapshot_has_the_schema_of_streams_and_is_as_before_without_one() -> None:
    without = spread()
    assert msgpack.unpackb(next(pieces(without.machine.begin_snapshot())))[1][0] == 7
    log = spread("id: int64")
    whole = list(pieces(log.machine.begin_snapshot()))
    assert msgpack.unpackb(whole[0])[1][0] == 19
    log.machine._cut = None
    other = restored(log.machine)
    assert other.query(SpreadTopicQuery("orders")) == log.machine.query(SpreadTopicQuery("orders"))
    assert other.digest() == log.machine.digest()
    _, header = msgpack.unpackb(whole[0])
    for changes in ({"schema": ""}, {"schema": "id: long"}, {"schema": 7}):
        header[9][0][6] = changes
        with pytest.raises(CorruptionError):
            Streams().prepare([msgpack.packb(["state", header]), *whole[1:]])


def test_two_members_with_different_schemas_have_different_digests() -> None:
    assert spread("id: int64").machine.digest() != spread("id: int32").machine.digest()
