"""Planted mistakes in the end of streams."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.client.merge import Merge
from viewstamp.client.spread_reader import SpreadReader, StreamPart
from viewstamp.client.stream_moves import StreamMoves
from viewstamp.client.stream_routes import StreamRoutes
from viewstamp.ids import Position
from viewstamp.node.order_queries import StreamReportsQuery
from viewstamp.node.placement_queries import SpreadTopic
from viewstamp.node.state_machine import Query
from viewstamp.streams import sealing, spread
from viewstamp.streams.admission import AdmissionView
from viewstamp.streams.order import Order
from viewstamp.streams.placement import Placements
from viewstamp.streams.sealing import SealedStreams
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.spreading import encode_add_stream, slot_ranges
from viewstamp.wire.staged import decode_fields

__all__ = ["SEAL_MUTANTS"]


def admit_behind_the_seal() -> AbstractContextManager[None]:
    return patched(SealedStreams, check=lambda self, name: None)


def admit_behind_an_admitted_seal() -> AbstractContextManager[None]:
    return patched(AdmissionView, check_not_sealing=lambda self, topic: None)


def seal_before_the_order() -> AbstractContextManager[None]:
    original = sealing.sealed_topic

    def sealed_topic(topic: SpreadTopic, number: int, end: Position, ordered_end: Position) -> SpreadTopic | None:
        return original(topic, number, end, end)

    return everywhere(original, sealed_topic)


def order_behind_the_seal() -> AbstractContextManager[None]:
    return patched(Order, seal=lambda self, streams: None)


def report_a_seal_that_is_none() -> AbstractContextManager[None]:
    """The leader of a stream reports that it is sealed as soon as it has records."""
    original = State.answer

    def answer(self: State, query: Query[Any]) -> object:
        found: Any = original(self, query)
        if isinstance(query, StreamReportsQuery):
            return [each._replace(is_sealed=True) for each in found]
        return found

    return patched(State, answer=answer)


def give_slots_away_early() -> AbstractContextManager[None]:
    """The slots of a stream that is closing belong to the next stream already."""
    original = SpreadTopic.successor_of

    def successor_of(self: SpreadTopic, stream: int) -> int:
        ended = tuple(replace(each, end=each.end or Position(1)) for each in self.closed)
        return original(replace(self, closed=ended), stream)

    return patched(SpreadTopic, successor_of=successor_of)


def overtake_what_is_undecided() -> AbstractContextManager[None]:
    return patched(StreamMoves, _undecided=lambda self, topic, streams: False)


def begin_the_newest_first() -> AbstractContextManager[None]:
    original = StreamMoves._release

    def release(self: StreamMoves, move: Any, streams: set[int]) -> None:
        move.moved, move.held = move.held, move.moved
        original(self, move, streams)

    return patched(StreamMoves, _release=release)


def add_a_stream_with_slots() -> AbstractContextManager[None]:
    """A stream that is added gets keys of the others at once."""
    return patched(SpreadTopic, _ranges=property(lambda self: slot_ranges(self.slots, len(self.groups))))


def add_a_stream_again() -> AbstractContextManager[None]:
    """A second copy of the record adds another stream."""
    original = SpreadTopics._extended

    def extended(self: SpreadTopics, batch: Batch, placements: Placements) -> Any:
        name, _, group, is_named = decode_fields(batch, name=str, stream=int, group=int, is_named=bool)
        number = len(self._named(name).groups) + 1
        return original(self, encode_add_stream(name, number, group, is_named=is_named), placements)

    return patched(SpreadTopics, _extended=extended)


def added_streams_in_no_snapshot() -> AbstractContextManager[None]:
    """A snapshot lacks the streams that were added."""
    original = spread._changes_of

    def changes_of(topic: SpreadTopic) -> dict[str, object]:
        return {name: value for name, value in original(topic).items() if name != "added"}

    return patched(spread, _changes_of=changes_of)


def added_streams_in_an_old_snapshot() -> AbstractContextManager[None]:
    return patched(SpreadTopics, has_added=property(lambda self: False))


def add_a_stream_unprobed() -> AbstractContextManager[None]:
    """The first ADD_STREAM is proposed without a probe of the members."""
    original = SpreadTopic.has_change

    def has_change(self: SpreadTopic, kind: Kind) -> bool:
        return kind is Kind.ADD_STREAM or original(self, kind)

    return patched(SpreadTopic, has_change=has_change)


def read_the_known_streams_only() -> AbstractContextManager[None]:
    """A reader that follows a topic ends with an error when a stream was added."""

    async def look(self: SpreadReader, merge: Merge[StreamPart]) -> bool:
        return False

    return patched(SpreadReader, _look_for_added=look)


def append_to_the_known_streams_only() -> AbstractContextManager[None]:
    """A client that has appended before refuses a stream that was added since."""
    original = StreamRoutes.knows

    def knows(self: StreamRoutes, topic: str, stream: int | None = None) -> bool:
        return original(self, topic)

    return patched(StreamRoutes, knows=knows)


SEAL_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "admit-behind-the-seal",
            "the leader of a group admits records of a stream that is sealed",
            admit_behind_the_seal,
            rule="§4",
        ),
        Mutant(
            "admit-behind-an-admitted-seal",
            "the leader of a group admits records of a stream whose seal is in its log",
            admit_behind_an_admitted_seal,
            rule="§4",
        ),
        Mutant(
            "seal-before-the-order",
            "the slots of a stream go to another one before all its records are ordered",
            seal_before_the_order,
            rule="§7",
        ),
        Mutant(
            "order-behind-the-seal",
            "an ORDER gives positions to records behind the end of a sealed stream",
            order_behind_the_seal,
            rule="§7",
        ),
        Mutant(
            "report-a-seal-that-is-none",
            "a stream is reported as sealed while its group admits records",
            report_a_seal_that_is_none,
            rule="§7",
        ),
        Mutant(
            "give-slots-away-early",
            "clients append to the next stream while the one before it is closing",
            give_slots_away_early,
            rule="§7",
        ),
        Mutant(
            "overtake-what-is-undecided",
            "a client takes a route while batches of a stream that is sealed in it have no outcome",
            overtake_what_is_undecided,
            rule="§10",
        ),
        Mutant(
            "begin-the-newest-first",
            "appends that were held go on before those that the sealed stream has refused",
            begin_the_newest_first,
            rule="§10",
        ),
        Mutant(
            "add-a-stream-with-slots",
            "keys go to an added stream without the order of their records",
            add_a_stream_with_slots,
            rule="§7",
        ),
        Mutant(
            "add-a-stream-again",
            "a copy of a record adds another stream",
            add_a_stream_again,
            rule="§4",
        ),
        Mutant(
            "added-streams-in-no-snapshot",
            "a member that loads a snapshot lacks a stream",
            added_streams_in_no_snapshot,
            rule="§7",
        ),
        Mutant(
            "added-streams-in-an-old-snapshot",
            "an older release reads a topic with added streams",
            added_streams_in_an_old_snapshot,
            rule="§7",
        ),
        Mutant(
            "add-a-stream-unprobed",
            "a member gets a record about an added stream that it cannot read",
            add_a_stream_unprobed,
            rule="§7",
        ),
        Mutant(
            "read-the-known-streams-only",
            "a reader ends at the first record of an added stream",
            read_the_known_streams_only,
            rule="§10",
        ),
        Mutant(
            "append-to-the-known-streams-only",
            "a client never finds an added stream",
            append_to_the_known_streams_only,
            rule="§10",
        ),
    )
}
"""The mutants by name."""
