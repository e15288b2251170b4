"""Planted mistakes in the loss of streams whose groups are gone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.client.ended_stream import StreamEnds
from viewstamp.client.lost_streams import LostStreamCalls, StreamLoss
from viewstamp.client.sender import Sender
from viewstamp.client.stream_moves import StreamMoves
from viewstamp.ids import GlobalPosition, Position
from viewstamp.node.ordering import Ordering
from viewstamp.node.placement_queries import ClosedStream, SpreadTopic
from viewstamp.streams import sealing
from viewstamp.streams.spread import SpreadTopics
from viewstamp.wire.batch import Batch

__all__ = ["LOST_MUTANTS"]


def lose_a_position_early() -> AbstractContextManager[None]:
    original = sealing.lost_topic

    def lost_topic(batch: Batch, topic: SpreadTopic, ends: Sequence[Position], following: GlobalPosition) -> Any:
        return original(batch, topic, ends, GlobalPosition(following - 1))

    return everywhere(original, lost_topic)


def lose_a_sealed_stream_early() -> AbstractContextManager[None]:
    original = sealing.lost_sealed_topic

    def lost_sealed_topic(batch: Batch, topic: SpreadTopic, following: GlobalPosition) -> SpreadTopic | None:
        return original(batch, topic, GlobalPosition(following - 1))

    return everywhere(original, lost_sealed_topic)


def lose_a_closing_stream_as_sealed() -> AbstractContextManager[None]:
    """A stream that is closing is noted as lost, although its group may order more of its records."""
    original = sealing.lost_sealed_topic

    def lost_sealed_topic(batch: Batch, topic: SpreadTopic, following: GlobalPosition) -> SpreadTopic | None:
        sealed = tuple(replace(each, end=each.end or Position(1)) for each in topic.closed)
        return original(batch, replace(topic, closed=sealed), following)

    return everywhere(original, lost_sealed_topic)


def lose_into_another() -> AbstractContextManager[None]:
    """A stream that is closing is lost into the stream of the record, not into that of its seal."""
    original = sealing._find_closed

    def find_closed(batch: Batch, topic: SpreadTopic) -> tuple[ClosedStream | None, ClosedStream]:
        found, closed = original(batch, topic)
        if found is None or found.end:
            return found, closed
        (into,) = sealing.decode_known(batch, sealing.SEALING_FIELDS, into=int)
        return found, replace(closed, into=into)

    return everywhere(original, find_closed)


def lose_in_an_old_version() -> AbstractContextManager[None]:
    return patched(SpreadTopics, has_lost=property(lambda self: False))


def pass_a_lost_stream_early() -> AbstractContextManager[None]:
    return patched(StreamEnds, can_pass=lambda self, stream, position: self.lost_at(stream) > 0)


def never_pass_a_lost_stream() -> AbstractContextManager[None]:
    return patched(StreamEnds, can_pass=lambda self, stream, position: False)


def give_up_a_living_group() -> AbstractContextManager[None]:
    original = LostStreamCalls._describe

    async def describe(self: LostStreamCalls, *arguments: Any) -> StreamLoss:
        return (await original(self, *arguments))._replace(is_led=False)

    return patched(LostStreamCalls, _describe=describe)


def keep_what_was_not_sent() -> AbstractContextManager[None]:
    return patched(Sender, give_back=lambda self, topic, error: None)


def never_look_for_a_loss() -> AbstractContextManager[None]:
    return patched(StreamMoves, look=lambda self, topic: None)


def leave_reports_to_leaders() -> AbstractContextManager[None]:
    return patched(Ordering, _tell=lambda self, hosted: None)


LOST_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "lose-a-position-early",
            "readers pass the last record of a lost stream",
            lose_a_position_early,
            rule="§7",
        ),
        Mutant(
            "lose-into-another",
            "the slots of a closing stream go to another stream than some members have read",
            lose_into_another,
            rule="§7",
        ),
        Mutant(
            "lose-in-an-old-version",
            "a snapshot with a lost stream is written in a version that releases before read",
            lose_in_an_old_version,
            rule="§8",
        ),
        Mutant(
            "pass-a-lost-stream-early",
            "a reader passes the records of a lost stream that were not trimmed",
            pass_a_lost_stream_early,
            rule="§10",
        ),
        Mutant(
            "never-pass-a-lost-stream",
            "a reader waits for a lost stream whose records are all behind it",
            never_pass_a_lost_stream,
            rule="§10",
        ),
        Mutant(
            "give-up-a-living-group",
            "a stream whose group has a leader with a majority is given up",
            give_up_a_living_group,
            rule="§7",
        ),
        Mutant(
            "keep-what-was-not-sent",
            "appends that were never sent to a lost group wait for it",
            keep_what_was_not_sent,
            rule="§10",
        ),
        Mutant(
            "never-look-for-a-loss",
            "a client goes on appending to a stream that is lost",
            never_look_for_a_loss,
            rule="§10",
        ),
        Mutant(
            "leave-reports-to-leaders",
            "a member that knows of committed records in a group without a leader reports none",
            leave_reports_to_leaders,
            rule="§7",
        ),
        Mutant(
            "lose-a-sealed-stream-early",
            "readers pass the last record of a sealed stream that is given up",
            lose_a_sealed_stream_early,
            rule="§7",
        ),
        Mutant(
            "lose-a-closing-stream-as-sealed",
            "a stream that may get further positions is given up as a sealed one",
            lose_a_closing_stream_as_sealed,
            rule="§7",
        ),
    )
}
"""The mutants by name."""
