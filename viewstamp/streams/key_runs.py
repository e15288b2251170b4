"""The catalogue of keyed topics: which files hold the last record of each key (design note 0028). Pure.

A *keyed topic* has a view: the last record of each key. The view is in *runs*, files that are sorted by key, up to the
*dumped end* of the topic, and in the log from there on. The keys are divided into *ranges*. Each range has *slices*,
the parts of runs that hold its keys, from the oldest one to the newest one. A run may have slices in several ranges.

| record | fields | effect |
| --- | --- | --- |
| CONFIGURE_KEYED | name, is_on; by | the topic has one range and no runs, from its first kept record on; or: its view \
ends, and its runs are DROPPED |
| PREPARE_KEYS | topic, first, end, is_merge, range | the run is PREPARED; only now may its object be written. It \
holds what positions [first, end) say: of all keys, or for a merge of those of the range that begins at ``range`` |
| COMMIT_KEYS | run, records, size, digest, splits | COMMITTED: its object is durable and was read back. A dump gets a \
slice in each range, and its end is the dumped end. A merge replaces the slices of its positions, and ``splits`` divide\
 its range. A run without slices is DROPPED |
| DROP_KEYS | run | a PREPARED run is DROPPED |
| FORGET_KEYS | run | its object is gone, and so is the run |

A record that breaks a rule (:class:`KeyRule`) is refused and changes nothing. A second copy of a record breaks one too.

The rules keep four promises. At most one run of a topic is prepared, so a deposed leader is fenced by the DROP_KEYS of
the next one. The ranges of a topic tile all keys, from b"" on. The slices of each range tile the positions from the
first one of the view to the dumped end. A run is DROPPED by the record that takes its last slice, so at each index of
the log the slices are readable as a whole.

Like those of archived records, the records refuse a field that this release does not know with ``OutdatedCodeError``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from enum import Enum
from heapq import nlargest
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from viewstamp.errors import RequestError, UnknownTopicError
from viewstamp.ids import Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.keyed_queries import KeyedRange, KeyedView
from viewstamp.streams.runs import RunState
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.keying import SPLIT_BYTES_MAX
from viewstamp.wire.staged import decode_known

__all__ = ["KEY_RUNS_MAX", "KeyCatalogue", "KeyRange", "KeyRule", "KeyRun", "KeyedTopic"]

KEY_RUNS_MAX = 10_000
"""The most runs of keyed topics that are known at the same time, and the most ranges of a topic."""
_DIGEST_BYTES = 32
_NUMBER_MAX = 1 << 63
_REMEDY = "nothing has to be done, because the leader decides again by the state"
_FIELDS = {
    Kind.CONFIGURE_KEYED: frozenset({"name", "is_on", "by"}),
    Kind.PREPARE_KEYS: frozenset({"topic", "first", "end", "is_merge", "range"}),
    Kind.COMMIT_KEYS: frozenset({"run", "records", "size", "digest", "splits"}),
    Kind.DROP_KEYS: frozenset({"run"}),
    Kind.FORGET_KEYS: frozenset({"run"}),
}


class KeyRule(Enum):
    """A rule of the catalogue. The message of a refusal begins with its value."""

    NOT_KEYED = "not keyed"
    UNKNOWN_RUN = "unknown run of keys"
    UNKNOWN_RANGE = "unknown range of keys"
    DUPLICATE_ID = "duplicate run of keys"
    PREPARED_TWICE = "keys prepared twice"
    COMMITTED_TWICE = "keys committed twice"
    DROPPED_TWICE = "keys dropped twice"
    COMMIT_AFTER_DROP = "keys committed after drop"
    FORGET_BEFORE_DROP = "keys forgotten before drop"
    EMPTY = "no positions of keys"
    BEYOND_END = "keys beyond the end"
    GAP = "gap of keys"
    NO_SLICES = "no such slices of keys"
    WRONG_CONTENT = "wrong content of keys"
    WRONG_SPLIT = "wrong split of keys"
    STILL_NEEDED = "keys still needed"
    TOO_MANY = "too many runs of keys"
    MALFORMED = "malformed keys"


class KeyRun(NamedTuple):
    """One run. ``merged``: the start of the range of a merge; None = it is a dump. The rest is 0 until its commit."""

    id: RunId
    topic: TopicId
    first: Position
    end: Position
    state: RunState
    merged: bytes | None = None
    records: int = 0
    size: int = 0
    digest: bytes = b""

    @property
    def archived(self) -> ArchivedRun:
        """The run as the node gets it."""
        name = self.state.name.lower()
        return ArchivedRun(self.id, self.topic, self.first, self.end, name, "", self.size, self.digest)

    def describe(self) -> dict[str, object]:
        """Return the run as plain values, without its topic."""
        return {
            "id": self.id,
            "first": self.first,
            "end": self.end,
            "state": self.state.name.lower(),
            "is_merge": self.merged is not None,
            "records": self.records,
            "size": self.size,
            "digest": self.digest.hex(),
        }


class KeyRange(NamedTuple):
    """The keys from ``start`` up to the start of the next range, and the runs of its slices, the oldest one first."""

    start: bytes
    runs: tuple[RunId, ...] = ()


class KeyedTopic(NamedTuple):
    """A keyed topic: the first position of its view, its dumped end, and its ranges by their starts."""

    topic: TopicId
    first: Position
    end: Position
    ranges: tuple[KeyRange, ...]

    def range_at(self, key: bytes) -> int:
        """Return the number of the range that holds a key."""
        return bisect_right(self.ranges, key, key=lambda each: each.start) - 1


class KeyCatalogue:
    """All keyed topics, and all runs of keys that are not forgotten. Never awaits.

    Invariants:
      * ``runs`` rise in their ids; of each topic at most one is prepared
      * the ranges of a topic begin with b"" and rise
      * the slices of each range are of committed runs, and tile [first, end) of its topic
      * each committed run has a slice
    """

    __slots__ = ("runs", "topics")

    def __init__(self) -> None:
        self.topics: dict[TopicId, KeyedTopic] = {}
        self.runs: dict[RunId, KeyRun] = {}

    # Reading.

    @property
    def is_used(self) -> bool:
        """Whether there is anything to store."""
        return bool(self.topics or self.runs)

    def of(self, topic: TopicId) -> list[KeyRun]:
        """Return the runs of a topic in any state, by their ids."""
        return [run for run in self.runs.values() if run.topic == topic]

    def kept_from(self, topic: Topic, position: Position) -> Position:
        """Return the position to which a topic may be trimmed, at most ``position``: a record is dumped before."""
        keyed = self.topics.get(topic.id)
        return position if keyed is None else min(position, keyed.end)

    def check_trim(self, topic: Topic, position: Position) -> None:
        """Check that a trim deletes only records that are dumped. Raises RequestError."""
        keyed = self.topics.get(topic.id)
        if keyed is not None and position > keyed.end:
            raise RequestError(
                f"topic {topic.name!r} is keyed, and its keys are dumped up to position {keyed.end - 1}, so it cannot"
                f" be trimmed to {position}",
                remedy=f"trim it to {keyed.end} at most, or end its view: viewstamp topic configure --no-keyed",
            )

    def view(self, topic: Topic) -> KeyedView:
        """Return the view of a topic, for readers and the archivist. Raises RequestError."""
        keyed = self.topics.get(topic.id)
        if keyed is None:
            raise RequestError(
                f"topic {topic.name!r} is not keyed, so its records cannot be found by key",
                remedy=f"make it keyed: viewstamp topic configure {topic.name} --keyed",
            )
        ranges = (KeyedRange(each.start, tuple(self.runs[run].archived for run in each.runs)) for each in keyed.ranges)
        return KeyedView(topic.id, topic.name, keyed.first, keyed.end, topic.next_position, tuple(ranges))

    def unneeded(self, topic: TopicId) -> list[ArchivedRun]:
        """Return the runs of a topic that are prepared or dropped, by their ids."""
        return [run.archived for run in self.of(topic) if run.state is not RunState.COMMITTED]

    def newest(self, count: int) -> list[ArchivedRun]:
        """Return the newest committed runs."""
        committed = (run for run in self.runs.values() if run.state is RunState.COMMITTED)
        return [run.archived for run in nlargest(count, committed)]

    def describe(self, topic: Topic) -> dict[str, object]:
        """Return the view of a topic as plain values; {} = it is not keyed."""
        keyed = self.topics.get(topic.id)
        if keyed is None:
            return {}
        runs = [run for run in self.of(topic.id) if run.state is RunState.COMMITTED]
        return {
            "keyed": {
                "first": keyed.first,
                "dumped_end": keyed.end,
                "ranges": len(keyed.ranges),
                "runs": len(runs),
                "records": sum(run.records for run in runs),
                "bytes": sum(run.size for run in runs),
                "undumped_bytes": topic.bytes_between(keyed.end, topic.next_position),
            }
        }

    def check_topics(self, topics: Mapping[TopicId, Topic]) -> None:
        """Check, after a state was loaded, that each topic exists and has reached its dumped end. Raises ValueError."""
        for keyed in self.topics.values():
            found = topics.get(keyed.topic)
            if found is None or found.next_position < keyed.end:
                raise ValueError(f"topic {keyed.topic} is dumped up to {keyed.end - 1}, which it has not reached")

    # Records.

    def check(self, batch: Batch, topics: Mapping[TopicId, Topic]) -> None:
        """Check whether a record about a run would be applied. Raises as :meth:`apply`."""
        match batch.kind:
            case Kind.PREPARE_KEYS:
                self._check_prepare(batch, topics)
            case Kind.COMMIT_KEYS:
                self._check_commit(batch)
            case _:
                self._check_end(batch)

    def configure(self, batch: Batch, named: Mapping[str, Topic], *, apply: bool) -> Topic:
        """Apply a CONFIGURE_KEYED, or only check it; return its topic.

        Raises:
          UnknownTopicError: there is none. RequestError: it cannot be read. OutdatedCodeError: it has other fields.
        """
        name, is_on = decode_known(batch, _FIELDS, name=str, is_on=bool)
        topic = named.get(name)
        if topic is None:
            raise UnknownTopicError(
                f"no topic without streams is named {name!r}; nothing was changed",
                remedy=f"create it: viewstamp topic create {name} --keyed; a topic with streams cannot be keyed",
            )
        if not apply or is_on == (topic.id in self.topics):
            return topic
        if is_on:
            first = topic.first_position
            self.topics[topic.id] = KeyedTopic(topic.id, first, first, (KeyRange(b""),))
        else:
            del self.topics[topic.id]
            for run in self.of(topic.id):
                self.runs[run.id] = run._replace(state=RunState.DROPPED)
        return topic

    def apply(self, batch: Batch, topics: Mapping[TopicId, Topic]) -> KeyRun:
        """Apply a committed record about a run, and return the run as it is now; of a FORGET_KEYS as it was.

        Raises:
          RequestError: the record breaks a rule; the message begins with its value. It is a replicated refusal.
          OutdatedCodeError: it has a field that this release does not know.
        """
        match batch.kind:
            case Kind.PREPARE_KEYS:
                run = self._check_prepare(batch, topics)
            case Kind.COMMIT_KEYS:
                run, changed = self._check_commit(batch)
                self.runs[run.id] = run
                self._change(changed)
                return self.runs[run.id]
            case Kind.DROP_KEYS:
                run = self._check_end(batch)._replace(state=RunState.DROPPED)
            case _:
                return self.runs.pop(self._check_end(batch).id)
        self.runs[run.id] = run
        return run

    def _change(self, changed: KeyedTopic) -> None:
        """Take the new ranges of a topic, and drop its committed runs that have no slice any more."""
        self.topics[changed.topic] = changed
        used = {run for each in changed.ranges for run in each.runs}
        for run in self.of(changed.topic):
            if run.state is RunState.COMMITTED and run.id not in used:
                self.runs[run.id] = run._replace(state=RunState.DROPPED)

    def fork(self, topics: Mapping[TopicId, Topic]) -> None:
        """Continue as another cluster, which has no runs, because the objects are those of the other cluster.

        A view begins again if its topic keeps all records that the view has. Otherwise it ends, because a get would not
        find keys that it found in the other cluster.
        """
        whole = [each for each in self.topics.values() if topics[each.topic].first_position <= each.first]
        self.topics = {each.topic: each._replace(end=each.first, ranges=(KeyRange(b""),)) for each in whole}
        self.runs = {}

    def _check_prepare(self, batch: Batch, topics: Mapping[TopicId, Topic]) -> KeyRun:
        number, first, end = decode_known(batch, _FIELDS, topic=int, first=int, end=int)
        is_merge, start = decode_known(batch, _FIELDS, is_merge=bool, range=bytes)
        keyed, topic = self.topics.get(TopicId(number)), topics.get(TopicId(number))
        if keyed is None or topic is None:
            _refuse(KeyRule.NOT_KEYED, f"topic {number} has no view")
        if first >= end:
            _refuse(KeyRule.EMPTY, f"a run of topic {number} from position {first} up to {end}")
        for run in self.of(keyed.topic):
            if run.state is RunState.PREPARED:
                _refuse(KeyRule.PREPARED_TWICE, f"run {run.id} of topic {number} is prepared", "drop that one first")
        if len(self.runs) >= KEY_RUNS_MAX:
            _refuse(KeyRule.TOO_MANY, f"there are {KEY_RUNS_MAX} runs of keys, which is the limit", "forget some")
        found = KeyRun(RunId(batch.first_index), keyed.topic, Position(first), Position(end), RunState.PREPARED)
        if is_merge:
            found = found._replace(merged=start)
            self._slices(keyed, found)
            return found
        if first != keyed.end:
            _refuse(KeyRule.GAP, f"a dump of topic {number} from {first} on, and its dumped end is {keyed.end}")
        if end > topic.next_position:
            _refuse(KeyRule.BEYOND_END, f"a dump up to {end - 1}, and topic {number} ends at {topic.next_position - 1}")
        return found

    def _slices(self, keyed: KeyedTopic, run: KeyRun) -> tuple[int, int, int]:
        """Return the number of the range of a merge, and the numbers [low, high) of the slices that it replaces."""
        at = keyed.range_at(run.merged or b"")
        each = keyed.ranges[at]
        if each.start != run.merged:
            _refuse(KeyRule.UNKNOWN_RANGE, f"no range of topic {run.topic} begins at {brief_repr(run.merged)}")
        inside = [n for n, i in enumerate(each.runs) if run.first <= self.runs[i].first and self.runs[i].end <= run.end]
        held = [self.runs[each.runs[n]] for n in inside]
        if not held or held[0].first != run.first or held[-1].end != run.end:
            _refuse(KeyRule.NO_SLICES, f"no slices of range {brief_repr(run.merged)} tile [{run.first}, {run.end})")
        return at, inside[0], inside[-1] + 1

    def _check_commit(self, batch: Batch) -> tuple[KeyRun, KeyedTopic]:
        number, records, size = decode_known(batch, _FIELDS, run=int, records=int, size=int)
        digest, splits = decode_known(batch, _FIELDS, digest=bytes, splits=list)
        run = self._run(number)
        if run.state is not RunState.PREPARED:
            is_dropped = run.state is RunState.DROPPED
            rule = KeyRule.COMMIT_AFTER_DROP if is_dropped else KeyRule.COMMITTED_TWICE
            _refuse(rule, f"run {run.id} is {run.state.name.lower()}")
        keyed = self.topics[run.topic]  # A prepared run is dropped when the view ends.
        if len(digest) != _DIGEST_BYTES or not size or records > run.end - run.first:
            _refuse(KeyRule.WRONG_CONTENT, f"run {run.id} with {records} records, {size} bytes, digest {digest.hex()}")
        run = run._replace(state=RunState.COMMITTED, records=records, size=size, digest=digest)
        if run.merged is None:
            if splits:
                _refuse(KeyRule.WRONG_SPLIT, f"run {run.id} is a dump, which divides no range")
            ranges = [KeyRange(each.start, (*each.runs, run.id)) for each in keyed.ranges]
            return run, keyed._replace(end=run.end, ranges=tuple(ranges))
        at, low, high = self._slices(keyed, run)
        old = keyed.ranges[at]
        limit = keyed.ranges[at + 1].start if at + 1 < len(keyed.ranges) else None
        self._check_splits(run, old.start, splits, limit, len(keyed.ranges))
        slices = (*old.runs[:low], run.id, *old.runs[high:])
        new = [KeyRange(start, slices) for start in (old.start, *splits)]
        return run, keyed._replace(ranges=(*keyed.ranges[:at], *new, *keyed.ranges[at + 1 :]))

    @staticmethod
    def _check_splits(run: KeyRun, start: bytes, splits: list[Any], limit: bytes | None, ranges: int) -> None:
        at = start
        for split in splits:
            is_key = type(split) is bytes and len(split) <= SPLIT_BYTES_MAX
            if not is_key or split <= at or (limit is not None and split >= limit):
                _refuse(KeyRule.WRONG_SPLIT, f"run {run.id} divides its range at {brief_repr(split)}")
            at = split
        if ranges + len(splits) > KEY_RUNS_MAX:
            _refuse(KeyRule.TOO_MANY, f"topic {run.topic} would have more than {KEY_RUNS_MAX} ranges")

    def _check_end(self, batch: Batch) -> KeyRun:
        """Return the run of a DROP_KEYS or a FORGET_KEYS."""
        (number,) = decode_known(batch, _FIELDS, run=int)
        run = self._run(number)
        if batch.kind is Kind.FORGET_KEYS:
            if run.state is not RunState.DROPPED:
                _refuse(KeyRule.FORGET_BEFORE_DROP, f"run {run.id} is {run.state.name.lower()}")
        elif run.state is RunState.DROPPED:
            _refuse(KeyRule.DROPPED_TWICE, f"run {run.id} is dropped")
        elif run.state is RunState.COMMITTED:
            _refuse(KeyRule.STILL_NEEDED, f"run {run.id} has slices", "merge them first")
        return run

    def _run(self, number: int) -> KeyRun:
        run = self.runs.get(RunId(number))
        if run is None:
            _refuse(KeyRule.UNKNOWN_RUN, f"there is no run {number}: it was forgotten, or never prepared")
        return run

    # Images.

    def image(self) -> list[object]:
        """Return the catalogue as plain values."""
        topics = [
            [each.topic, each.first, each.end, [[at.start, list(at.runs)] for at in each.ranges]]
            for each in self.topics.values()
        ]
        return [topics, [[*run[:4], int(run.state), *run[5:]] for run in self.runs.values()]]

    @classmethod
    def from_image(cls, image: list[Any]) -> KeyCatalogue:
        """Rebuild the catalogue from :meth:`image`. Raises RequestError, ValueError, TypeError: it breaks a rule."""
        topics, runs = image
        catalogue = cls()
        for each in runs:
            catalogue._restore(each)
        for topic, first, end, ranges in topics:
            keyed = KeyedTopic(
                TopicId(_number(topic)),
                Position(_number(first)),
                Position(_number(end)),
                tuple(KeyRange(start, tuple(RunId(_number(run)) for run in held)) for start, held in ranges),
            )
            if keyed.topic in catalogue.topics:
                _refuse(KeyRule.DUPLICATE_ID, f"topic {topic} is there twice")
            catalogue._check_view(keyed)
            catalogue.topics[keyed.topic] = keyed
        used = {run for keyed in catalogue.topics.values() for each in keyed.ranges for run in each.runs}
        for run in catalogue.runs.values():
            if (run.state is RunState.COMMITTED) != (run.id in used):
                _refuse(KeyRule.NO_SLICES, f"run {run.id} is {run.state.name.lower()}")
            if run.state is RunState.PREPARED and run.topic not in catalogue.topics:
                _refuse(KeyRule.NOT_KEYED, f"run {run.id} is prepared, and topic {run.topic} has no view")
        return catalogue

    def _restore(self, image: Any) -> None:
        number, topic, first, end, state, merged, records, size, digest = image
        run = KeyRun(
            RunId(_number(number)),
            TopicId(_number(topic)),
            Position(_number(first)),
            Position(_number(end)),
            RunState(state),
            merged,
            _number(records),
            _number(size),
            digest,
        )
        if type(merged) not in (bytes, type(None)) or type(digest) is not bytes or run.first >= run.end:
            _refuse(KeyRule.MALFORMED, f"{brief_repr(image)} is no run")
        if run.id <= next(reversed(self.runs), 0):
            _refuse(KeyRule.DUPLICATE_ID, f"run {run.id} after run {next(reversed(self.runs))}")
        prepared = [each.id for each in self.of(run.topic) if each.state is RunState.PREPARED]
        if run.state is RunState.PREPARED and prepared:
            _refuse(KeyRule.PREPARED_TWICE, f"run {run.id} and run {prepared[0]} are prepared")
        self.runs[run.id] = run

    def _check_view(self, keyed: KeyedTopic) -> None:
        starts = [each.start for each in keyed.ranges]
        if not starts or starts[0] != b"" or any(b <= a for a, b in pairwise(starts)):
            _refuse(KeyRule.GAP, f"the ranges of topic {keyed.topic} do not tile all keys: {brief_repr(starts)}")
        for each in keyed.ranges:
            at = keyed.first
            for number in each.runs:
                run = self._run(number)
                if (run.topic, run.first, run.state) != (keyed.topic, at, RunState.COMMITTED):
                    _refuse(KeyRule.GAP, f"run {run.id} has a slice of topic {keyed.topic} at position {at}")
                at = run.end
            if at != keyed.end:
                _refuse(KeyRule.GAP, f"the slices of topic {keyed.topic} end at {at}, its dumped end is {keyed.end}")

    def orphans(self, ids: Collection[int]) -> list[int]:
        """Return those of the ids that no run of keys has."""
        return [each for each in ids if RunId(each) not in self.runs]


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _NUMBER_MAX:
        raise ValueError(f"{brief_repr(value)} is no number in [0, 2^63)")
    return value


def _refuse(rule: KeyRule, why: str, remedy: str = _REMEDY) -> NoReturn:
    raise RequestError(f"{rule.value}: {why}; nothing was changed", remedy=remedy)
