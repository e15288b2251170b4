"""Recovery of several groups: what a new cluster makes of logs that are not those of majorities. Pure.

Each group goes on with the best log that is left of it, so the logs may contradict each other: the order may name
records that a stream lacks, and a stream may have runs of ORDERs that group 0 lacks. :func:`plan_recovery` compares the
states at the ends of these logs, and returns the records that bring them in step. docs/design/0033 has the reasons.

What is known of the order of a stream is the runs of its map, which were committed in group 0, and behind them the runs
in the log of group 0. The stream *keeps* its records up to the first one of which the record or the run is missing.

| what is left of a stream | it |
| --- | --- |
| runs up to its ordered end or beyond it, and all their records | goes on |
| fewer records than the order names | goes on behind its last record. The positions of the lost ones stay empty |
| records that were ordered, and nobody knows where | is given up at the end of what it keeps: they must not get a \
second position |
| a placed part of a batch of a sink that is dropped | is given up before the part |
| SEAL_STREAM, and group 0 has it open | is given up at its end; its records behind the order get positions first. If \
group 0 has lost ORDERs of this topic, these would come too late: then it is given up at its ordered end |
| nothing, because its group has no directory | is given up. Its group begins again, empty |
| nothing: its group has dropped it, and group 0 does not know that it was removed | is created again, and has no \
records |

A stream is given up by LOSE_STREAM, behind an ADD_STREAM if the topic has no other open one. No global position is
given twice: the next one of a topic is above all that any log names.

| record | in | does |
| --- | --- | --- |
| RECOVER_ORDER | group 0, behind FORK_GROUPS | sets the order of streams, notes where positions are lost, drops the \
attempts of sinks and the pending commits that it names |
| SET_ASIDE | another group, behind FORK | renames streams that group 0 does not know, and deletes their records |

A pending batch of a sink stays pending if all its parts are there. If one was released in the old cluster it is not
pending any more, and what is left of its parts is placed. Otherwise it is dropped as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from viewstamp.errors import CorruptionError, RequestError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.node.placement_queries import SpreadTopic
from viewstamp.node.sink_part_queries import GroupPart
from viewstamp.streams.spread import NUMBERS_MAX, SPREAD_STREAMS_MAX
from viewstamp.streams.state import State
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.recovering import (
    RecoveredOrder,
    RecoveredStream,
    RecoveredTopic,
    decode_recovered,
    decode_set_aside,
    encode_recovered,
    encode_set_aside,
)
from viewstamp.wire.sealing import encode_lose
from viewstamp.wire.sink_parts import AttemptPart, PartsCommit, encode_drop, encode_place
from viewstamp.wire.spreading import encode_add_stream
from viewstamp.wire.staged import decode_commit

__all__ = [
    "DroppedBatch",
    "LostPositions",
    "OldGroup",
    "OldHome",
    "RecoveryPlan",
    "StreamRest",
    "plan_recovery",
    "recover_order",
    "set_aside",
]

_ASIDE = "~"
"""Stands between the name and the id of a stream that was set aside. No stream of a topic has it in its name."""


# The records.


def recover_order(state: State, batch: Batch) -> None:
    """Apply a RECOVER_ORDER to the state of group 0.

    Raises:
      CorruptionError: it contradicts the state.
      OutdatedCodeError: it has a field that this release does not know.
    """
    try:
        found = decode_recovered(batch)
        order = state.order.recovered(found, state.spread.by_stream)
        state.spread.recover(found, order)
        order.seal(state.spread.sealed_streams())
        state.order = order
        for index in found.commits:
            del state.commits.pending[index]
        state.staging.recover(found.batches)
    except (RequestError, ValueError, TypeError, KeyError) as error:
        raise CorruptionError(
            f"{batch!r} contradicts the state: {error}",
            expected="a record as a recovery writes it",
            found=str(error),
            remedy="stop the node, keep its files, and recover the files of the old cluster again",
        ) from error


def set_aside(state: State, batch: Batch, before_topic: Callable[[Topic], None] | None) -> list[Topic]:
    """Apply a SET_ASIDE to the state of a group, and return the streams. Raises as :func:`recover_order`."""
    topics: list[Topic] = []
    for name in decode_set_aside(batch):
        topic = state.names.get(name)
        if topic is None and state.sealed.set_aside(name, _ASIDE):
            continue
        if topic is None:
            raise CorruptionError(
                f"{batch!r} names {name!r}, which is no stream of this group",
                expected="the name of a stream",
                found=str(name),
                remedy="stop the node, keep its files, and recover the files of the old cluster again",
            )
        if before_topic is not None:
            before_topic(topic)
        topic.trim(topic.next_position)
        del state.names[name]
        topic.name = f"{name}{_ASIDE}{topic.id}"
        state.names[topic.name] = topic
        state.maps.drop(name)
        state.sealed.names.discard(name)
        topics.append(topic)
    return topics


# The plan.


@dataclass(frozen=True, slots=True)
class OldHome:
    """What is left of group 0.

    Attributes:
      state: the state at the end of its log.
      runs: all runs of streams that its log has, rising.
      known: the next position of each topic by the part of its log that is known to be committed; a topic that is not
        there has all its positions by that part.
    """

    state: State
    runs: Mapping[Stream, Sequence[GlobalRun]]
    known: Mapping[str, GlobalPosition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OldGroup:
    """What is left of another group: the state at its end, and the attempts whose placed parts its log forgets."""

    state: State
    released: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class StreamRest:
    """What is left of one stream. Ends are the positions in the stream behind the last record.

    Attributes:
      topic, number: the spread topic, and the number of the stream there.
      group: its group.
      ordered_end: the order named the records below it.
      kept_end: the records below it keep their positions in the topic.
      next_position: the end of the stream.
      is_given_up: whether it gets no records any more.
    """

    topic: str
    number: int
    group: GroupId
    ordered_end: int
    kept_end: int
    next_position: int
    is_given_up: bool

    @property
    def lost(self) -> int:
        """The number of records that had a position in the topic, and are gone."""
        return max(0, self.ordered_end - max(self.next_position, self.kept_end))

    @property
    def unplaced(self) -> int:
        """The number of records that are there, and never get a position in the topic."""
        return self.next_position - self.kept_end if self.is_given_up else 0


@dataclass(frozen=True, slots=True)
class LostPositions:
    """Positions [first, end) of a topic, of which a recovery says that they belong to no record, or perhaps not."""

    topic: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class DroppedBatch:
    """A batch of a sink that was committed and not visible, and lacks a part. ``is_rewritable``: it can be repeated."""

    sink: str
    batch: int
    is_rewritable: bool


@dataclass(slots=True, kw_only=True)
class RecoveryPlan:
    """A plan.

    Attributes:
      streams: what is left of each stream, by topic and number.
      lost_positions: the positions of each topic that are lost, rising.
      doubtful: positions that are kept by ORDERs which may never have been committed. The old cluster may have given
        them to other records.
      dropped: the batches of sinks that are dropped.
      aside: the streams that group 0 does not know, each with its number of records.
    """

    streams: list[StreamRest] = field(default_factory=list)
    lost_positions: list[LostPositions] = field(default_factory=list)
    doubtful: list[LostPositions] = field(default_factory=list)
    dropped: list[DroppedBatch] = field(default_factory=list)
    aside: dict[Stream, int] = field(default_factory=dict)
    _home: list[Callable[[], Batch]] = field(default_factory=list)
    _groups: dict[GroupId, list[Callable[[], Batch]]] = field(default_factory=dict)

    def behind_home(self) -> Iterator[Batch]:
        """Yield the records of group 0 behind those of the fork."""
        for make in self._home:
            yield make()

    def behind_group(self, group: GroupId) -> Iterator[Batch]:
        """Yield the records of another group behind those of the fork."""
        for make in self._groups.get(group, ()):
            yield make()


class _Rest:
    """What is left of one stream, while it is found."""

    __slots__ = ("facts", "forgotten", "given_up", "next_position", "number", "ordered_end", "runs", "state", "stream")

    def __init__(self, stream: Stream, number: int, state: State | None) -> None:
        self.stream = stream
        self.number = number
        self.state = state
        topic = state.names.get(stream.name) if state is not None else None
        self.next_position = topic.next_position if topic is not None else Position(1)
        self.facts: list[GlobalRun] = []
        """The runs of its map: they were committed in group 0."""
        if state is not None and (found := state.maps.get(stream.name)) is not None:
            self.facts = [found.run(at) for at in range(len(found))]
        self.forgotten = self.facts[-1].end if self.facts else Position(1)
        self.runs: list[GlobalRun] = []
        """The runs behind the map that group 0 has and of which the records are there."""
        self.ordered_end = Position(1)
        self.given_up = state is None

    @property
    def end(self) -> Position:
        """The end of what the stream keeps."""
        return self.runs[-1].end if self.runs else self.forgotten

    @property
    def kept(self) -> list[GlobalRun]:
        """All runs that it keeps."""
        return [*self.facts, *self.runs]


def plan_recovery(home: OldHome, groups: Mapping[GroupId, OldGroup | None]) -> RecoveryPlan:
    """Compare what is left of all groups, and return how they are brought in step.

    Args:
      home: group 0.
      groups: each other established group; None = nothing is left of it.

    Raises:
      CorruptionError: two streams have the same global position, as no committed records can.
      RequestError: a topic cannot get a further stream.
    """
    return _Planner(home, groups).plan()


class _Planner:
    def __init__(self, home: OldHome, groups: Mapping[GroupId, OldGroup | None]) -> None:
        self._home = home
        self._state = home.state
        self._groups = groups
        spread = home.state.spread
        self._rests = {
            stream: _Rest(
                stream,
                spread.topics[topic].number_of(stream.name),
                old.state if (old := groups.get(stream.group)) is not None else None,
            )
            for stream, topic in spread.by_stream.items()
            if not spread.is_gone(stream)
        }
        """The streams that are not removed."""
        self._plan = RecoveryPlan()
        self._false_version: int | None = None
        self._dropped: dict[int, PartsCommit] = {}
        self._released: dict[int, PartsCommit] = {}
        self._positions = {
            name: max([self._state.order.next_position(name), *(_global_end(run) for run in self._facts_of(name))])
            for name in self._state.spread.topics
        }
        """The next global position of each topic."""
        self._version = max(
            [self._state.order.version, *(run.version for each in self._rests.values() for run in each.facts)]
        )

    def plan(self) -> RecoveryPlan:
        self._false_version = self._false_from()
        for rest in self._rests.values():
            self._extend(rest, self._false_version)
        for topic in self._state.spread.topics.values():
            self._end_sealed(topic)
        self._judge_commits()
        for group, old in self._groups.items():
            self._plan_group(group, old)
        self._plan_home()
        return self._plan

    # The order.

    def _streams_of(self, topic: str) -> list[_Rest]:
        return [self._rests[stream] for stream in self._state.spread.streams_of(topic) if stream in self._rests]

    def _facts_of(self, topic: str) -> list[GlobalRun]:
        return [run for rest in self._streams_of(topic) for run in rest.facts]

    def _false_from(self) -> int | None:
        """Return the version of the first ORDER in the log of group 0 that was never committed; None = there is none.

        The end of that log may be one that the old cluster has replaced. Then runs in it contradict the maps.
        """
        false: list[int] = []
        for topic in self._state.spread.topics:
            facts = sorted(
                ((run.position, run, rest) for rest in self._streams_of(topic) for run in rest.facts),
                key=lambda each: each[0],
            )
            for (_, run, rest), (position, _, other) in pairwise(facts):
                if _global_end(run) > position:
                    raise CorruptionError(
                        f"position {position} of topic {topic!r} is in the maps of {rest.stream.name} and"
                        f" {other.stream.name}",
                        expected="one stream",
                        found="two",
                        remedy="keep these files, and report this as a bug; the directories may be of two clusters",
                    )
            for rest in self._streams_of(topic):
                for run in self._home.runs.get(rest.stream, ()):
                    if _contradicts(run, rest, facts):
                        false.append(run.version)
        return min(false, default=None)

    def _extend(self, rest: _Rest, false_from: int | None) -> None:
        """Find how far the order of a stream is known, and what it was."""
        order = self._state.order
        known = [run for run in self._home.runs.get(rest.stream, ()) if false_from is None or run.version < false_from]
        ends = [rest.forgotten, *(run.end for run in known)]
        ends.append(order.ordered_end(rest.stream) if false_from is None else order.forgotten_end(rest.stream))
        rest.ordered_end = max(ends)
        if rest.state is None:
            return
        for run in known:
            part = _between(run, rest.end, rest.next_position)
            if part is not None:
                rest.runs.append(part)
        if rest.end < min(rest.next_position, rest.ordered_end):
            rest.given_up = True

    def _end_sealed(self, topic: SpreadTopic) -> None:
        """Give up the streams of a topic that are sealed in their groups, and open in group 0."""
        rests = self._streams_of(topic.name)
        for rest in rests:
            if (
                rest.state is None
                or topic.closed_stream(rest.number)
                or rest.stream.name not in rest.state.sealed.names
            ):
                continue
            is_behind = any(
                each is not rest and each.forgotten > self._state.order.ordered_end(each.stream) for each in rests
            )
            if rest.end < rest.next_position and not rest.given_up and not is_behind:
                self._version += 1
                position = self._positions[topic.name]
                run = GlobalRun(self._version, position, rest.end, rest.next_position - rest.end)
                rest.runs.append(run)
                self._positions[topic.name] = _global_end(run)
            rest.given_up = True

    # Batches of sinks.

    def _judge_commits(self) -> None:
        """Decide which pending batches are dropped, and which were released."""
        pending = self._state.commits.pending
        for index, commit in pending.items():
            if any(self._was_released(part) for part in commit.parts):
                self._released[index] = commit
        for group, old in self._groups.items():
            for part in old.state.staging.parts() if old is not None else ():
                if self._is_undecided(group, part):
                    self._give_up_placed(group, part)
        is_settled = False
        while not is_settled:
            is_settled = True
            for index, commit in pending.items():
                if index in self._dropped or index in self._released or self._is_whole(commit):
                    continue
                is_settled = False
                self._dropped[index] = commit
                for each in commit.parts:
                    found = self._part(each)
                    if found is not None and found.is_placed:
                        self._give_up_placed(each.group, found)
        for sink in dict.fromkeys(commit.sink for commit in self._dropped.values()):
            numbers = {commit.batch for commit in self._dropped.values() if commit.sink == sink}
            last = self._last_batch(sink)
            self._plan.dropped += [DroppedBatch(sink, number, number > last) for number in sorted(numbers)]

    def _last_batch(self, sink: str) -> int:
        """Return the number of the last batch of a sink that is not dropped; -1 = it has none."""
        present = self._state.staging.sinks.get(sink)
        if present is None:
            return -1
        numbers = {
            commit.batch for commit in self._dropped.values() if (commit.sink, commit.owner) == (sink, present.owner)
        }
        last = present.batch
        while last in numbers:
            last -= 1
        return last

    def _part(self, part: AttemptPart) -> GroupPart | None:
        """Return a part of a commit as its group has it."""
        old = self._groups.get(part.group)
        found = old.state.staging.parts() if old is not None else []
        return next((each for each in found if each.attempt == part.attempt), None)

    def _was_released(self, part: AttemptPart) -> bool:
        old, found = self._groups.get(part.group), self._part(part)
        if found is None:
            return old is not None and part.attempt in old.released
        return found.is_placed and self._is_mapped(part.group, found)

    def _is_mapped(self, group: GroupId, part: GroupPart) -> bool:
        """Return whether the map of a stream has records of a placed part: an ORDER has released it."""
        rests = (self._rests.get(Stream(group, name)) for name, _, _ in part.ranges)
        return any(
            rest is not None and rest.forgotten > first for rest, (_, first, _) in zip(rests, part.ranges, strict=True)
        )

    def _is_undecided(self, group: GroupId, part: GroupPart) -> bool:
        """Return whether a part is placed, and group 0 knows nothing of its batch, and no ORDER has released it."""
        state = self._state
        is_over = (
            part.attempt < state.end
            and part.attempt not in state.staging.attempts
            and part.attempt not in state.commits.attempts()
        )
        is_pending = part.attempt in state.commits.attempts()
        return part.is_placed and not is_over and not is_pending and not self._is_mapped(group, part)

    def _give_up_placed(self, group: GroupId, part: GroupPart) -> None:
        """Give up the streams of a placed part that nobody may see, because they cannot be ordered beyond it."""
        for name, first, count in part.ranges:
            rest = self._rests.get(Stream(group, name))
            if rest is not None and rest.end < first + count:
                rest.given_up = True

    def _is_whole(self, commit: PartsCommit) -> bool:
        """Return whether a pending batch can still become visible, as a whole and behind the earlier ones."""
        is_next = not any(other.sink == commit.sink and other.batch < commit.batch for other in self._dropped.values())
        is_ordered = not any(self._rests[stream].given_up for stream in commit.counts if stream in self._rests)
        return is_next and is_ordered and all(self._is_placeable(part, commit.sink) for part in commit.parts)

    def _is_placeable(self, part: AttemptPart, sink: str) -> bool:
        """Return whether the group of a part has placed it, or can place it."""
        found, old = self._part(part), self._groups.get(part.group)
        if found is None or old is None:
            return False
        if found.is_placed:
            return True
        try:
            old.state.staging.check_commit(decode_commit(encode_place(part, sink)))
        except RequestError:
            return False
        return True

    # The records.

    def _plan_group(self, group: GroupId, old: OldGroup | None) -> None:
        if old is None:
            return
        records = self._plan._groups.setdefault(group, [])
        kept = {
            part.attempt
            for index, commit in self._state.commits.pending.items()
            if index not in self._dropped and index not in self._released
            for part in commit.parts
        }
        for commit in self._released.values():
            for part in commit.parts:
                found = self._part(part) if part.group == group else None
                if found is not None and not found.is_placed and self._is_placeable(part, commit.sink):
                    records.append(partial(encode_place, part, commit.sink))
        for each in old.state.staging.parts():
            if each.attempt not in kept:
                records.append(partial(encode_drop, each.attempt))
        spread = self._state.spread
        dropped = [
            name
            for name in old.state.sealed.dropped.values()
            if not spread.is_gone(Stream(group, name)) and _ASIDE not in name
        ]
        unknown = [
            name for name in old.state.names if Stream(group, name) not in spread.by_stream and _ASIDE not in name
        ]
        if unknown or dropped:
            records.append(partial(encode_set_aside, [*unknown, *dropped]))
        for name in unknown:
            topic = old.state.names[name]
            self._plan.aside[Stream(group, name)] = topic.next_position - topic.first_position

    def _plan_home(self) -> None:
        state, plan = self._state, self._plan
        topics: list[RecoveredTopic] = []
        streams: list[RecoveredStream] = []
        lost: list[Callable[[], Batch]] = []
        for topic in state.spread.topics.values():
            rests = self._streams_of(topic.name)
            changed = [
                RecoveredStream(rest.stream, rest.forgotten, tuple(rest.runs))
                for rest in rests
                if self._is_changed(rest)
            ]
            holes = self._holes(topic, rests)
            plan.lost_positions += holes
            given = state.order.next_position(topic.name)
            known = self._home.known.get(topic.name, given)
            if known < given:
                plan.doubtful.append(LostPositions(topic.name, known, given))
            if changed or self._positions[topic.name] != state.order.next_position(topic.name):
                first, end = (holes[0].first, holes[-1].end) if holes else (0, 0)
                topics.append(RecoveredTopic(topic.name, self._positions[topic.name], first, end))
                streams += changed
            lost += self._give_up(topic, rests)
            for rest in rests:
                plan.streams.append(
                    StreamRest(
                        topic.name,
                        rest.number,
                        rest.stream.group,
                        rest.ordered_end,
                        rest.end,
                        rest.next_position,
                        rest.given_up,
                    )
                )
        sinks = dict.fromkeys(commit.sink for commit in self._dropped.values())
        found = RecoveredOrder(
            self._version,
            tuple(topics),
            tuple(streams),
            tuple(sorted({*self._dropped, *self._released})),
            tuple((sink, self._last_batch(sink)) for sink in sinks if sink in state.staging.sinks),
        )
        if topics or found.commits or state.staging.attempts:
            plan._home.append(partial(encode_recovered, found))
        plan._home += lost

    def _is_changed(self, rest: _Rest) -> bool:
        """Return whether the order of a stream is another one than group 0 has.

        A stream that has mapped more than group 0 has forgotten is as ever.
        """
        order, stream = self._state.order, rest.stream
        is_same = rest.end == order.ordered_end(stream) and rest.forgotten >= order.forgotten_end(stream)
        return not is_same or (self._false_version is not None and rest.end > 1)

    def _holes(self, topic: SpreadTopic, rests: Sequence[_Rest]) -> list[LostPositions]:
        """Return the positions of a topic that no record has any more, above what was trimmed."""
        floors = [rest.facts[0].position for rest in rests if rest.facts and rest.facts[0].local > 1]
        removed = [each.gone_at for each in topic.gone_streams]
        at = max(int(topic.first_position), *map(int, [*floors, *removed, 1]))
        holes: list[LostPositions] = []
        for run in sorted((run for rest in rests for run in rest.kept), key=lambda run: run.position):
            if run.position > at:
                holes.append(LostPositions(topic.name, at, run.position))
            at = max(at, _global_end(run))
        if (end := int(self._positions[topic.name])) > at:
            holes.append(LostPositions(topic.name, at, end))
        return holes

    def _give_up(self, topic: SpreadTopic, rests: Sequence[_Rest]) -> list[Callable[[], Batch]]:
        """Return the records that end the streams of a topic that are given up, if they are not sealed already."""
        going = [
            (rest.number, closed)
            for rest in rests
            if rest.given_up and not ((closed := topic.closed_stream(rest.number)) is not None and closed.end)
        ]
        if not going:
            return []
        records: list[Callable[[], Batch]] = []
        gone = {number for number, _ in going}
        heirs = [number for number in topic.open_streams() if number not in gone]
        if not heirs:
            number = len(topic.groups) + 1
            if topic.kept_streams >= min(SPREAD_STREAMS_MAX, topic.slots) or number > NUMBERS_MAX:
                raise RequestError(
                    f"no stream of topic {topic.name!r} can go on, and it had {number - 1} streams already, which is"
                    " the limit; nothing was changed",
                    remedy="look for the directories of more members, and name them too",
                )
            group = self._emptiest()
            records.append(partial(encode_add_stream, topic.name, number, group))
            heirs = [number]
        for at, (stream, closed) in enumerate(going):
            into = closed.into if closed is not None else heirs[at % len(heirs)]
            records.append(partial(encode_lose, topic.name, stream, into))
        return records

    def _emptiest(self) -> GroupId:
        """Return the group with the fewest streams, of those of which something is left, if there is one."""
        counts = self._state.placements.stream_counts
        return min(counts, key=lambda group: (self._groups.get(group) is None, counts[group], group))


def _global_end(run: GlobalRun) -> GlobalPosition:
    return GlobalPosition(run.position + run.length)


def _between(run: GlobalRun, begin: Position, end: Position) -> GlobalRun | None:
    """Return the part of a run from ``begin`` on that lies before ``end``; None = it does not have ``begin``."""
    if not run.local <= begin < min(run.end, end):
        return None
    skipped = begin - run.local
    return GlobalRun(run.version, GlobalPosition(run.position + skipped), begin, min(run.end, end) - begin)


def _contradicts(run: GlobalRun, rest: _Rest, facts: Sequence[tuple[GlobalPosition, GlobalRun, _Rest]]) -> bool:
    """Return whether a run of a stream in the log of group 0 contradicts the maps of the streams of its topic."""
    at = max(bisect_right(facts, run.position, key=lambda each: each[0]) - 1, 0)
    for position, fact, owner in facts[at:]:
        if position >= _global_end(run):
            break
        if _global_end(fact) > run.position and (owner is not rest or not _is_aligned(run, fact)):
            return True
    at = max(bisect_right(rest.facts, run.local, key=lambda each: each.local) - 1, 0)
    for fact in rest.facts[at:]:
        if fact.local >= run.end:
            break
        if fact.end > run.local and not _is_aligned(run, fact):
            return True
    return False


def _is_aligned(run: GlobalRun, fact: GlobalRun) -> bool:
    return run.position - run.local == fact.position - fact.local
