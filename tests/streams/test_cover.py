"""What nodes may send to readers by global position: any states of nodes, and readers that never skip."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import NamedTuple

import pytest

from viewstamp.client.merge import Merge, Piece
from viewstamp.errors import TrimmedError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream, TopicId
from viewstamp.streams import state
from viewstamp.streams.order import Order
from viewstamp.streams.stream_map import StreamMaps
from viewstamp.streams.topic import Topic
from viewstamp.wire.ordering import StreamReport, encode_context, encode_order

STREAMS = {number: Stream(GroupId(number), f"orders.{number}") for number in (1, 2, 3)}

TOPICS = dict.fromkeys(STREAMS.values(), "orders")


class GroupState(NamedTuple):
    """The state of a group with one stream, at one index."""

    topic: Topic
    maps: StreamMaps


class History:
    """A topic of three streams: all states of group 0 and of the groups, and the records by global position."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.topics = {number: Topic(TopicId(number), stream.name) for number, stream in STREAMS.items()}
        self.order = Order()
        self.maps = {number: StreamMaps() for number in STREAMS}
        self.orders = [deepcopy(self.order)]
        self.groups = {number: [self.state(number)] for number in STREAMS}
        self.places: list[tuple[int, int]] = []
        """The stream and the local position of each global one, from 1 on."""

    def state(self, number: int) -> GroupState:
        return deepcopy(GroupState(self.topics[number], self.maps[number]))

    def step(self) -> None:
        """Change one state."""
        number = self.entropy.choice(list(STREAMS))
        topic, stream = self.topics[number], STREAMS[number]
        match self.entropy.choice(["append", "append", "order", "order", "context", "trim"]):
            case "append":
                topic.next_position = Position(topic.next_position + self.entropy.randint(1, 4))
            case "order":
                self.give_positions()
            case "context":
                runs = self.order.missing(stream, self.maps[number].mapped_end(stream.name), self.entropy.randint(1, 3))
                if runs:
                    self.maps[number].apply(encode_context(stream.name, runs), {stream.name: topic})
            case "trim":
                if self.entropy.random() < 0.3:
                    kept = self.entropy.randint(topic.first_position, topic.next_position)
                    topic.first_position = Position(kept)
                    self.maps[number].trim(stream.name, topic.first_position)
        self.groups[number].append(self.state(number))

    def give_positions(self) -> None:
        """Apply an ORDER for some of the streams, whose reports may be old."""
        reports = []
        for number, stream in STREAMS.items():
            if self.entropy.random() < 0.6:
                state = self.entropy.choice(self.groups[number][-3:])
                reports.append(StreamReport(stream, state.topic.next_position, state.maps.mapped_end(stream.name)))
        numbers = {stream: number for number, stream in STREAMS.items()}
        if reports:
            for stream, run in self.order.apply(encode_order(reports), TOPICS):
                self.places += [(numbers[stream], local) for local in range(run.local, run.end)]
            self.orders.append(deepcopy(self.order))


class Reader:
    """A reader that asks nodes with any states, which answer with any number of records."""

    def __init__(self, history: History, position: int) -> None:
        self.history = history
        self.entropy = history.entropy
        self.merge = Merge[tuple[int, int]](3, GlobalPosition(position), None, exists_to=GlobalPosition(1))
        self.found: dict[int, tuple[int, int]] = {}
        self.is_trimmed = False

    def ask(self, number: int, group_0: Order, group: GroupState) -> None:
        """Ask a node in these states."""
        lane = self.merge.lanes[number]
        begin, runs_max = lane.covered_to, self.entropy.randint(1, 5)
        stream = STREAMS[number]
        tail = group_0.tail(stream, "orders", begin, runs_max)
        answer = state.cover(group.topic, group.maps.get(stream.name), tail, begin, runs_max)
        if answer is None:
            return
        end = Position(self.entropy.randint(answer.start, answer.end))
        pieces = [
            Piece(GlobalPosition(position + at), 1, 1, (number, local + at))
            for position, local, length in answer.runs_to(end)
            for at in range(length)
        ]
        known_to, has_more = answer.known_at(end), end < answer.end
        self.merge.put(number, begin, pieces, known_to=known_to, kept_from=answer.kept_from, has_more=has_more)

    def read(self) -> None:
        """Take what can be taken, and check it."""
        history = self.history
        while not self.is_trimmed:
            before = self.merge.position
            taken = self.merge.take()
            for at, (number, piece) in enumerate(taken):
                assert piece.item[0] == number
                assert piece.position == before + at, "a position is left out, or repeated"
                assert piece.item == history.places[piece.position - 1], "a record is not at its position"
            self.found |= {piece.position: piece.item for _, piece in taken}
            if not taken:
                break
        first = self.merge.position
        try:
            self.merge.check()
        except TrimmedError as error:
            self.is_trimmed, first = True, GlobalPosition(error.first)
        if self.is_trimmed:
            number, local = history.places[self.merge.position - 1]
            assert local < history.topics[number].first_position, "the next record is not trimmed"
            assert self.merge.position < first <= len(history.places) + 1


def run_history(seed: int) -> int:
    """Run a history with readers; return the number of records that they have read."""
    history = History(seed)
    readers = [Reader(history, 1) for _ in range(2)]
    for _ in range(60):
        history.step()
        if history.entropy.random() < 0.2:
            readers.append(Reader(history, history.entropy.randint(1, len(history.places) + 1)))
        for reader in readers:
            number = history.entropy.choice(list(STREAMS))
            reader.ask(number, history.entropy.choice(history.orders), history.entropy.choice(history.groups[number]))
            reader.read()
    for reader in readers:
        for _ in range(1000):
            if reader.is_trimmed or reader.merge.position > len(history.places):
                break
            for number in STREAMS:
                reader.ask(number, history.orders[-1], history.groups[number][-1])
            reader.read()
        assert reader.is_trimmed or reader.merge.position == len(history.places) + 1, "the reader stands still"
    return sum(len(reader.found) for reader in readers)


def test_readers_of_any_nodes_see_one_order_without_holes() -> None:
    assert sum(run_history(seed) for seed in range(30)) > 1000


def test_a_trimmed_reader_is_told_the_first_position_from_which_everything_is_kept() -> None:
    history = History(1)
    for number, count in ((1, 2), (2, 3), (1, 4)):
        topic = history.topics[number]
        topic.next_position = Position(topic.next_position + count)
        reports = [StreamReport(STREAMS[number], topic.next_position, Position(1))]
        history.order.apply(encode_order(reports), TOPICS)
        history.places += [(number, local) for local in range(topic.next_position - count, topic.next_position)]
    assert [number for number, _ in history.places] == [1, 1, 2, 2, 2, 1, 1, 1, 1]
    history.topics[1].first_position = Position(3)
    reader = Reader(history, 1)
    for number in STREAMS:
        begin = GlobalPosition(1)
        tail = history.order.tail(STREAMS[number], "orders", begin, 10)
        answer = state.cover(history.topics[number], None, tail, begin, 10)
        assert answer is not None
        pieces = [
            Piece(GlobalPosition(position), length, 1, (number, local))
            for position, local, length in answer.runs_to(answer.end)
        ]
        reader.merge.put(number, begin, pieces, known_to=answer.known_to, kept_from=answer.kept_from, has_more=False)
    assert reader.merge.take() == []
    with pytest.raises(TrimmedError, match="position 1 has been trimmed") as caught:
        reader.merge.check()
    assert caught.value.first == 3, "positions 3 to 5 are those of the other stream, and all are kept"
    reader.merge.skip_to(GlobalPosition(3))
    assert [piece.position for _, piece in reader.merge.take()] == [3, 6]


def test_a_trim_of_an_idle_stream_hides_no_record_of_the_others() -> None:
    """The first run of stream 1 is trimmed away, and its next record comes long after it."""
    history = History(1)
    for number, count in ((1, 1), (2, 5), (1, 1)):
        topic = history.topics[number]
        topic.next_position = Position(topic.next_position + count)
        history.order.apply(encode_order([StreamReport(STREAMS[number], topic.next_position, Position(1))]), TOPICS)
    topic, maps = history.topics[1], history.maps[1]
    maps.apply(encode_context(STREAMS[1].name, history.order.missing(STREAMS[1], Position(1), 9)), {topic.name: topic})
    topic.first_position = Position(2)
    maps.trim(topic.name, topic.first_position)
    tail = history.order.tail(STREAMS[1], "orders", GlobalPosition(1), 10)
    answer = state.cover(topic, maps.get(topic.name), tail, GlobalPosition(1), 10)
    assert answer is not None
    assert (answer.start, answer.kept_from, answer.known_to) == (2, 2, 8)
