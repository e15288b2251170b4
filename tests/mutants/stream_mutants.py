"""Planted mistakes in sessions, and in the answers to clients."""

from __future__ import annotations

from collections.abc import Container
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, both, patched
from viewstamp.client.appends import Appends
from viewstamp.client.results import Outcome
from viewstamp.ids import Index, Position
from viewstamp.node.access import Credentials
from viewstamp.node.placement_queries import PlacedGroup, SpreadTopic
from viewstamp.node.state_machine import Admission, Answered, Result
from viewstamp.streams import admission, leadership, placement
from viewstamp.streams.admission import AdmissionView
from viewstamp.streams.cut import StateCut
from viewstamp.streams.leadership import Leadership
from viewstamp.streams.machine import Streams
from viewstamp.streams.placement import Placements
from viewstamp.streams.session import SessionState
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.staged import decode_fields

__all__ = ["STREAM_MUTANTS"]


def expire_by_oneself() -> AbstractContextManager[None]:
    """Each member ends sessions by its own settings, when they seem idle to it."""
    original = Streams.apply

    def apply(self: Streams, batch: Batch) -> Result:
        sessions = self._state.sessions
        for session in list(sessions.idle(batch.log_time - self._limits.session_us)):
            sessions.forget(session)
        return original(self, batch)

    return patched(Streams, apply=apply)


def trim_by_the_applied_end() -> AbstractContextManager[None]:
    """A leader refuses a trim of records that it has not applied itself yet."""

    def check_trim(self: Leadership, name: str, position: Position) -> None:
        self._state.trimmable(name, position)

    return patched(Leadership, _check_trim=check_trim)


def expire_what_is_used() -> AbstractContextManager[None]:
    """A session ends although a batch of it is in the log."""

    def expire(self: AdmissionView, sessions: Any) -> None:
        self.victims = frozenset(sessions)

    return patched(AdmissionView, expire=expire)


def append_behind_the_end() -> AbstractContextManager[None]:
    return patched(AdmissionView, check_kept=lambda self, session: None)


def use_only_here() -> AbstractContextManager[None]:
    original = SessionState.image
    return patched(SessionState, image=lambda self: [*original(self)[:4], 0])


def snapshot_without_sessions() -> AbstractContextManager[None]:
    original = StateCut.__init__

    def __init__(self: StateCut, state: State) -> None:  # noqa: N807
        original(self, state)
        self._sessions = {}
        self._sections[0] = ("sessions", self._sessions, iter(self._sessions))
        assert self._header is not None
        self._header[-1] = 0

    return patched(StateCut, __init__=__init__)


def refuse_at_once() -> AbstractContextManager[None]:
    """A conditional append is refused by the records in the leader's log, which may still be cut."""

    def refusal(batch: Batch) -> Batch:
        raise admission.mismatch(str(batch.topic), batch.first_position, Position(1))

    return patched(leadership, refusal=refusal)


def fence_at_once() -> AbstractContextManager[None]:
    """A client gets "not applied" for a batch that is not applied yet, but may be in the log or arrive later."""
    original = Leadership._admit_fence

    def admit_fence(self: Leadership, batch: Batch, caller: Credentials | None) -> Admission:
        session = self._state.sessions.find(batch.session)
        return Answered(None) if batch.sequence > session.last else original(self, batch, caller)

    return patched(Leadership, _admit_fence=admit_fence)


def expired_is_not_applied() -> AbstractContextManager[None]:
    original = Appends.outcome

    async def outcome(self: Appends, *arguments: Any, **named: Any) -> Outcome:
        found = await original(self, *arguments, **named)
        return Outcome(answer="not applied") if found.expired else found

    return patched(Appends, outcome=outcome)


def retry_enters_again() -> AbstractContextManager[None]:
    """A retry of a batch that is in the log but not applied enters it again."""
    return patched(AdmissionView, last=lambda self, session: session.last)


def take_a_second_disk() -> AbstractContextManager[None]:
    """The newest incarnation of a founder replaces the recorded one, as if an empty disk were the founder."""
    original = Placements.apply

    def apply(self: Placements, batch: Batch) -> PlacedGroup:
        if batch.kind is Kind.HOSTED:
            number, node, _ = decode_fields(batch, group=int, node=str, incarnation=str)
            group = self.groups.get(number)
            if group is not None and node in group.incarnations:
                kept = {other: each for other, each in group.incarnations.items() if other != node}
                self.groups[group.id] = replace(group, incarnations=kept)
        return original(self, batch)

    return patched(Placements, apply=apply, find_settled=lambda self, batch: None)


def establish_by_majority() -> AbstractContextManager[None]:
    is_established = property(lambda self: 2 * len(self.incarnations) > len(self.members))
    return patched(PlacedGroup, is_established=is_established)


def cancel_what_is_established() -> AbstractContextManager[None]:
    def check(self: Placements, batch: Batch) -> PlacedGroup:
        (number,) = decode_fields(batch, group=int)
        return self._group(number)

    return patched(Placements, _check_end=check)


def place_again_by_a_late_copy() -> AbstractContextManager[None]:
    """A group that was cancelled is placed again by a copy of its request that arrives late."""
    original = Placements._find

    def find(self: Placements, batch: Batch, members: Any, streams: Any) -> PlacedGroup | None:
        with patched(placement, decode_optional=lambda batch, name, default: default):
            return original(self, batch, members, streams)

    return patched(Placements, _find=find)


def forget_cancellations() -> AbstractContextManager[None]:
    original = Placements._end

    def end(self: Placements, group: PlacedGroup, index: Index) -> None:
        original(self, group, index)
        self.cancelled.clear()

    return patched(Placements, _end=end)


def snapshot_without_groups() -> AbstractContextManager[None]:
    return patched(Placements, image=lambda self: [])


def change_groups_by_a_late_copy() -> AbstractContextManager[None]:
    """The newest record of a spread topic decides about its groups, so a late copy moves its streams."""
    original = SpreadTopics.apply

    def apply(self: SpreadTopics, batch: Batch, placements: Placements, names: Container[str]) -> SpreadTopic:
        topic = original(self, batch, placements, names)
        (groups,) = decode_fields(batch, groups=list)
        self.topics[topic.name] = replace(topic, groups=tuple(groups))
        return topic

    return patched(SpreadTopics, apply=apply)


def two_topics_of_a_name() -> AbstractContextManager[None]:
    return patched(SpreadTopics, check_free=lambda self, name: None)


def stream_of_two_groups() -> AbstractContextManager[None]:
    """A group is placed with a stream that a spread topic has in another group."""
    return patched(Placements, add_stream=lambda self, stream, group: None)


def spread_over_what_may_be_cancelled() -> AbstractContextManager[None]:
    original = SpreadTopics._check_new

    def check_new(self: SpreadTopics, topic: SpreadTopic, placements: Placements, names: Container[str]) -> None:
        with patched(PlacedGroup, is_established=True):
            original(self, topic, placements, names)

    def add_stream(self: Placements, stream: str, group: Any) -> None:
        self._by_stream[stream] = group

    return both(patched(SpreadTopics, _check_new=check_new), patched(Placements, add_stream=add_stream))


def snapshot_without_spread_topics() -> AbstractContextManager[None]:
    return patched(SpreadTopics, image=lambda self: [])


STREAM_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "expire-by-oneself",
            "sessions end by each member's own settings, not by the log",
            expire_by_oneself,
            rule="§4",
        ),
        Mutant(
            "expire-what-is-used", "a session ends although a batch in the log uses it", expire_what_is_used, rule="§4"
        ),
        Mutant(
            "append-behind-the-end", "a batch enters the log behind its session's end", append_behind_the_end, rule="§4"
        ),
        Mutant(
            "use-only-here",
            "a snapshot does not contain the times at which sessions were used",
            use_only_here,
            rule="§4",
        ),
        Mutant("snapshot-without-sessions", "a snapshot holds no sessions", snapshot_without_sessions, rule="§4"),
        Mutant(
            "refuse-at-once",
            "an append at an expected position is rejected without a record in the log",
            refuse_at_once,
            rule="rule 12",
        ),
        Mutant("fence-at-once", '"not applied" is answered without a record in the log', fence_at_once, rule="rule 12"),
        Mutant(
            "expired-is-not-applied",
            '"not applied" is answered for a session that has ended',
            expired_is_not_applied,
            rule="rule 12",
        ),
        Mutant("retry-enters-again", "a retry is written to the log a second time", retry_enters_again, rule="§4"),
        Mutant(
            "take-a-second-disk",
            "a founder's empty disk takes the place of the recorded one",
            take_a_second_disk,
            rule="rule 18",
        ),
        Mutant(
            "establish-by-majority",
            "a group is established when a majority of its founders have reported",
            establish_by_majority,
            rule="rule 18",
        ),
        Mutant(
            "cancel-what-is-established",
            "a group that may hold acknowledged records is cancelled",
            cancel_what_is_established,
            rule="§4",
        ),
        Mutant(
            "place-again-by-a-late-copy",
            "a late copy of a request places a cancelled group again",
            place_again_by_a_late_copy,
            rule="§4",
        ),
        Mutant(
            "forget-cancellations",
            "a second copy of a cancellation gets an error",
            forget_cancellations,
            rule="§4",
        ),
        Mutant(
            "trim-by-the-applied-end",
            "a leader refuses a trim of records that only other members have applied yet",
            trim_by_the_applied_end,
            rule="§5",
        ),
        Mutant("snapshot-without-groups", "a snapshot holds no groups", snapshot_without_groups, rule="§4"),
        Mutant(
            "change-groups-by-a-late-copy",
            "a late copy of a request changes the groups of a spread topic",
            change_groups_by_a_late_copy,
            rule="§4",
        ),
        Mutant("two-topics-of-a-name", "a topic gets the name of a spread topic", two_topics_of_a_name, rule="§4"),
        Mutant(
            "stream-of-two-groups", "a stream of a topic is placed in a second group", stream_of_two_groups, rule="§4"
        ),
        Mutant(
            "spread-over-what-may-be-cancelled",
            "a stream is assigned to a group that can still be cancelled",
            spread_over_what_may_be_cancelled,
            rule="§4",
        ),
        Mutant(
            "snapshot-without-spread-topics",
            "a snapshot holds no spread topics",
            snapshot_without_spread_topics,
            rule="§4",
        ),
    )
}
"""The mutants by name."""
