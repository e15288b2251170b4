"""Planted mistakes in the end of streams."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.client.stream_moves import StreamMoves
from viewstamp.ids import Position
from viewstamp.node.order_queries import StreamReportsQuery
from viewstamp.node.placement_queries import SpreadTopic
from viewstamp.node.state_machine import Query
from viewstamp.streams import sealing
from viewstamp.streams.admission import AdmissionView
from viewstamp.streams.order import Order
from viewstamp.streams.sealing import SealedStreams
from viewstamp.streams.state import State

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
    )
}
"""The mutants by name."""
