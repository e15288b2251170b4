"""The stream of each append to a spread topic."""

from __future__ import annotations

from typing import Any

import pytest

from viewstamp.client.batches import OpenBatch
from viewstamp.client.results import SpreadRecord, SpreadTopicInfo
from viewstamp.client.send_queue import Ticket
from viewstamp.client.stream_choice import StreamChoice
from viewstamp.errors import RequestError
from viewstamp.ids import GroupId, Index, Position, Term, TopicId
from viewstamp.wire.batch import Record
from viewstamp.wire.spreading import SLOTS, slot_of, slot_ranges

TOPIC = SpreadTopicInfo(
    id=Index(9),
    name="orders",
    groups=tuple(map(GroupId, (7, 8, 7, 8))),
    slots=SLOTS,
    ranges=tuple(slot_ranges(SLOTS, 4)),
    retain_bytes=0,
    retain_seconds=0.0,
)


def choose(
    *keys: bytes | None, choice: StreamChoice | None = None, stream: int | None = None, expects_position: bool = False
) -> int:
    choice = choice or StreamChoice(TOPIC, 3, 1000)
    return choice.choose(keys, 100, stream=stream, expects_position=expects_position)


def key_of(stream: int) -> bytes:
    """Return a key of a stream."""
    return next(b"%d" % n for n in range(1000) if TOPIC.stream_of(slot_of(b"%d" % n, SLOTS)) == stream)


def ticket(*, held: int, is_open: bool = True) -> Ticket:
    """Return an append in a batch that takes 1,000 bytes."""
    batch: OpenBatch[Any] = OpenBatch(TopicId(1))
    batch.bytes, batch.bytes_max, batch.is_open = held, 1000, is_open
    made = Ticket("orders.1", 100, None, lambda _: None)  # type: ignore[arg-type]  # its future is not looked at
    made.batch = batch
    return made


@pytest.mark.parametrize("stream", [1, 2, 3, 4])
def test_a_key_decides_the_stream_by_its_slot(stream: int) -> None:
    key = key_of(stream)
    assert choose(key) == choose(None, key, None, key) == choose(key, stream=stream) == stream


def test_keys_of_several_streams_are_refused_in_one_atomic_append() -> None:
    with pytest.raises(RequestError, match=r"belong to the streams 1 and 2 of topic 'orders'; nothing was written"):
        choose(key_of(1), None, key_of(2))


def test_a_key_of_another_stream_than_the_named_one_is_refused() -> None:
    with pytest.raises(RequestError, match=r"belongs to stream 2 of topic 'orders', not to stream 4; nothing was"):
        choose(key_of(2), stream=4)


def test_a_stream_that_does_not_exist_is_refused() -> None:
    for stream in (0, 5):
        with pytest.raises(RequestError, match=f"no stream {stream}"):
            choose(stream=stream)


def test_an_expected_position_needs_a_stream() -> None:
    with pytest.raises(RequestError, match="a position belongs to a stream; nothing was written"):
        choose(key_of(1), expects_position=True)
    assert choose(stream=2, expects_position=True) == 2


def test_records_without_a_key_fill_one_batch_and_the_next_batch_is_for_the_next_stream() -> None:
    choice = StreamChoice(TOPIC, 3, 1000)
    assert choose(choice=choice) == 3
    choice.joined(3, ticket(held=900))
    assert choose(choice=choice) == 3, "the batch takes 100 further bytes"
    choice.joined(3, ticket(held=901))
    assert choose(choice=choice) == 4
    choice.joined(4, ticket(held=0, is_open=False))
    assert choose(choice=choice) == 1, "the batch was sent"


def test_records_without_a_key_wait_with_one_that_waits_until_they_would_fill_a_batch() -> None:
    """The topic of the stream may be unknown yet; or the group has no majority, and the next stream does better."""
    choice = StreamChoice(TOPIC, 3, 1000)
    waiting = ticket(held=0)
    waiting.batch = None
    for _ in range(10):
        assert choose(choice=choice) == 3
        choice.joined(3, waiting)
    assert choose(choice=choice) == 4
    choice.joined(4, waiting)
    assert choose(choice=choice) == 4
    assert choose(key_of(1), choice=choice) == 1


def test_a_record_of_a_stream_is_printed_with_its_stream() -> None:
    record = Record(Position(3), Term(1), Index(9), 5, b"text", None, None)
    shown = repr(SpreadRecord.of(record, Position(7), 2))
    assert shown.startswith("SpreadRecord(position=7, term=1, index=9, ")
    assert shown.endswith(", headers=None, stream=2, stream_position=3)")
