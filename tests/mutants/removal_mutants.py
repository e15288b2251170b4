"""Planted mistakes in the removal of streams."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.client.ended_stream import StreamEnds
from viewstamp.ids import GlobalPosition, Position, TopicId
from viewstamp.node import stream_topics
from viewstamp.node.order_queries import HomeCut
from viewstamp.node.placement_queries import ClosedStream, SpreadTopic
from viewstamp.streams import joint_cut, sealing
from viewstamp.streams.order import Order
from viewstamp.streams.sealing import SealedStreams, decode_drop
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.state import State
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Kind

__all__ = ["REMOVAL_MUTANTS"]


def remove_a_closing_stream() -> AbstractContextManager[None]:
    """A stream is removed before its group has sealed it."""
    original = sealing.gone_topic

    def gone_topic(batch: Batch, topic: SpreadTopic, next_position: GlobalPosition) -> SpreadTopic | None:
        ended = tuple(replace(each, end=each.end or Position(1)) for each in topic.closed)
        return original(batch, replace(topic, closed=ended), next_position)

    return everywhere(original, gone_topic)


def remove_a_lost_stream_early() -> AbstractContextManager[None]:
    """A lost stream is removed while its topic keeps positions of it."""
    original = sealing.gone_topic

    def gone_topic(batch: Batch, topic: SpreadTopic, next_position: GlobalPosition) -> SpreadTopic | None:
        gone = original(batch, replace(topic, first_position=next_position), next_position)
        return None if gone is None else replace(gone, first_position=topic.first_position)

    return everywhere(original, gone_topic)


def keep_the_order_of_a_removed_stream() -> AbstractContextManager[None]:
    return patched(Order, forget=lambda self, stream: None)


def count_removed_streams() -> AbstractContextManager[None]:
    return patched(SpreadTopic, kept_streams=property(lambda self: len(self.groups)))


def remove_a_stream_unprobed() -> AbstractContextManager[None]:
    """A stream that was added shows that all members read ADD_STREAM, and is taken for more."""
    original = SpreadTopic.has_change

    def has_change(self: SpreadTopic, kind: Kind) -> bool:
        return bool(self.added) or original(self, kind)

    return patched(SpreadTopic, has_change=has_change)


def removed_streams_in_an_old_snapshot() -> AbstractContextManager[None]:
    return patched(SpreadTopics, has_gone=property(lambda self: False))


def drop_what_is_kept() -> AbstractContextManager[None]:
    """A group deletes a stream although it keeps records with a position."""

    def droppable(self: SealedStreams, batch: Batch, topics: Mapping[str, Topic]) -> Topic | None:
        return topics.get(decode_drop(batch)[0])

    return patched(SealedStreams, droppable=droppable)


def create_a_dropped_stream_again() -> AbstractContextManager[None]:
    """A leader with an old state of group 0 brings a stream back."""
    return patched(SealedStreams, check_kept=lambda self, name: None)


def use_the_id_of_a_dropped_stream() -> AbstractContextManager[None]:
    """Appends to a stream that was removed go to another one."""
    return patched(State, next_topic_id=property(lambda self: TopicId(len(self.topics) + 1)))


def keep_a_lost_stream_that_is_found() -> AbstractContextManager[None]:
    """A group that is found again keeps its removed stream, because group 0 has forgotten its positions."""
    original: Any = stream_topics._removal

    def removal(stream: str, settings: Mapping[str, Any], closed: ClosedStream) -> Batch | None:
        record: Batch | None = original(stream, settings, closed)
        return None if record is None or record.kind is Kind.TRIM_TOPIC else record

    return everywhere(original, removal)


def back_up_a_drop_alone() -> AbstractContextManager[None]:
    """A backup has the drop of a stream that its group 0 has not removed."""
    original: Any = joint_cut._is_beyond

    def is_beyond(batch: Batch, home: HomeCut) -> bool:
        return batch.kind is not Kind.DROP_STREAM and bool(original(batch, home))

    return everywhere(original, is_beyond)


def ask_for_a_removed_stream() -> AbstractContextManager[None]:
    """A reader asks for a stream that nobody has."""
    original = StreamEnds.can_pass

    def can_pass(self: StreamEnds, stream: int, position: int) -> bool:
        return not self.gone_at(stream) and original(self, stream, position)

    return patched(StreamEnds, can_pass=can_pass)


REMOVAL_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "remove-a-closing-stream",
            "a stream is removed before all its records are ordered",
            remove_a_closing_stream,
            rule="§7",
        ),
        Mutant(
            "remove-a-lost-stream-early",
            "positions of a lost stream vanish that were not trimmed",
            remove_a_lost_stream_early,
            rule="§7",
        ),
        Mutant(
            "keep-the-order-of-a-removed-stream",
            "group 0 keeps the runs of a removed stream for ever",
            keep_the_order_of_a_removed_stream,
            rule="§7",
        ),
        Mutant(
            "count-removed-streams",
            "a topic gets no further stream although it has removed some",
            count_removed_streams,
            rule="§7",
        ),
        Mutant(
            "remove-a-stream-unprobed",
            "a member gets a record about a removed stream that it cannot read",
            remove_a_stream_unprobed,
            rule="§7",
        ),
        Mutant(
            "removed-streams-in-an-old-snapshot",
            "an older release reads a topic with removed streams",
            removed_streams_in_an_old_snapshot,
            rule="§7",
        ),
        Mutant(
            "drop-what-is-kept",
            "a group deletes records that have a position",
            drop_what_is_kept,
            rule="§4",
        ),
        Mutant(
            "create-a-dropped-stream-again",
            "a removed stream comes back, empty",
            create_a_dropped_stream_again,
            rule="§4",
        ),
        Mutant(
            "use-the-id-of-a-dropped-stream",
            "a topic gets the appends of a removed stream",
            use_the_id_of_a_dropped_stream,
            rule="§4",
        ),
        Mutant(
            "keep-a-lost-stream-that-is-found",
            "a group that is found again keeps its log for a removed stream",
            keep_a_lost_stream_that_is_found,
            rule="§7",
        ),
        Mutant(
            "back-up-a-drop-alone",
            "a restored group lacks a stream that group 0 has",
            back_up_a_drop_alone,
            rule="§7",
        ),
        Mutant(
            "ask-for-a-removed-stream",
            "a reader waits for the group of a removed stream",
            ask_for_a_removed_stream,
            rule="§10",
        ),
    )
}
"""The mutants by name."""
