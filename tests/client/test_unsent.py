"""The order in which batches are sent, and the batches that wait until others are answered."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from viewstamp.client.batches import COMMANDS, RECORD_COST, OpenBatch
from viewstamp.client.options import ClientOptions
from viewstamp.client.unsent import OpenBatches
from viewstamp.ids import TopicId
from viewstamp.wire.batch import build_batch

FIRST, SECOND = TopicId(1), TopicId(2)
SIZE = RECORD_COST + len(b"value")


def unsent(*, eager: int, in_flight: int) -> OpenBatches[Future[Any]]:
    options = ClientOptions(batches_eager=eager, batches_in_flight=in_flight, batches_in_flight_far=64)
    return OpenBatches(options, lambda batch: None)


def add(batches: OpenBatches[Future[Any]], topic: TopicId) -> OpenBatch[Future[Any]]:
    return batches.add(topic, b"value", SIZE, Future())


def test_a_topic_does_not_wait_for_the_batches_of_another() -> None:
    """Because records of two topics cannot share a batch, waiting would fill neither."""
    batches = unsent(eager=1, in_flight=1)
    first, second = add(batches, FIRST), add(batches, SECOND)
    assert batches.take({FIRST: 1}) is second
    assert batches.take({FIRST: 1, SECOND: 1}) is None
    assert batches.take({SECOND: 1}) is first


def test_a_long_way_allows_more_unanswered_batches() -> None:
    batches = unsent(eager=2, in_flight=8)
    allowed = []
    for seconds in (1.0, 0.02, 0.001):
        batches.note_answer(seconds)
        allowed.append(batches.sent_max)
    assert allowed == [64, 32, 8]


def test_an_open_batch_waits_where_a_full_one_is_sent() -> None:
    batches = unsent(eager=1, in_flight=2)
    batches.batch_bytes = 2 * SIZE
    full = add(batches, FIRST)
    assert add(batches, FIRST) is full
    still_open = add(batches, FIRST)
    assert batches.take({FIRST: 1}) is full
    assert batches.take({FIRST: 1}) is None
    assert batches.take({}) is still_open


def test_a_full_batch_grows_while_the_leader_is_far_away() -> None:
    full: list[bool] = []
    options = ClientOptions(batches_eager=1, batches_in_flight=2, batches_in_flight_far=64)
    batches: OpenBatches[Future[Any]] = OpenBatches(options, lambda batch: None, lambda: full.append(True))
    batches.batch_bytes = 2 * SIZE
    batches.note_answer(1.0)
    grown = add(batches, FIRST)
    assert add(batches, FIRST) is grown
    assert batches.take({FIRST: 1}) is None
    for _ in range(6):
        assert add(batches, FIRST) is grown
    assert full == [True]
    another = add(batches, FIRST)
    assert another is not grown
    assert batches.take({FIRST: 63}) is grown
    assert batches.take({FIRST: 1}) is None
    assert batches.take({}) is another
    assert add(batches, FIRST) not in (grown, another)


def test_batches_of_commands_and_of_a_near_leader_do_not_grow() -> None:
    batches = unsent(eager=1, in_flight=2)
    batches.batch_bytes = 2 * SIZE
    batches.note_answer(1.0)
    commands = {add(batches, COMMANDS) for _ in range(4)}
    batches.note_answer(0.001)
    records = {add(batches, FIRST) for _ in range(4)}
    assert len(commands) == len(records) == 2


def test_blocks_of_attempts_keep_the_order_of_the_calls_whatever_their_topics() -> None:
    batches = unsent(eager=1, in_flight=1)
    columns = build_batch([b"value"]).columns()
    first, second = (batches.add_block(topic, columns, 7, Future()) for topic in (FIRST, SECOND))
    assert batches.take({first.lane: 1}) is None
    assert batches.take({}) is first
    assert batches.take({}) is second
