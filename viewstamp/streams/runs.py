"""The catalogue of runs: which immutable files hold archived records of which topic (design note 0022). Pure.

A *run* holds the records of one topic at the positions ``[first, end)``, in one object of a store that all nodes reach.
Its id is the index of its PREPARE_RUN, so no id is ever used twice, also not by a later leader.

| record | fields | effect |
| --- | --- | --- |
| PREPARE_RUN | topic, first, end | the run is PREPARED; only now may its object be written |
| COMMIT_RUN | run, records, size, digest, first_index, end_index, first_time, last_time, delay; of a stream \
first_global and end_global | COMMITTED: its object is durable and was read back; the archived end of the topic \
becomes the end of the run. The log keeps its copy of the records for ``delay`` microseconds of log time; without this \
field for ever |
| DROP_RUN | run | DROPPED: its object is not read any more, and may be removed |
| FORGET_RUN | run | its object is gone, and so is the run |

A record that breaks a rule (:class:`RunRule`) is refused and changes nothing. The refusal names the rule. A second copy
of a record breaks a rule too, so a doubled or late record has no effect.

The rules keep four promises. At most one run of a topic is prepared, so the copy of a leader that was deposed is fenced
as soon as the next leader has dropped its run. The committed runs of a topic tile: each begins where the one before it
ends. The archived end moves by COMMIT_RUN only, and never back. A committed run is dropped only when all its records
were deleted from the topic.

A run of a stream (a topic with a map, ``stream_map.py``) has only records with global positions that the map has, so
that its file holds them too. The rules compare the positions in the record with the map.

A record with a field that this release does not know raises ``OutdatedCodeError``, which stops the member: it could
neither apply nor skip the record without a state that differs from the others'.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from heapq import nlargest
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn

from viewstamp.errors import RequestError, UnknownTopicError
from viewstamp.ids import GROUP_0, GlobalPosition, Index, Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivableTopic, ArchivedRun
from viewstamp.streams.stream_map import StreamMaps
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.staged import decode_known, decode_optional

__all__ = ["RUNS_MAX", "RunCatalogue", "RunContent", "RunRule", "RunState", "TopicRun"]

RUNS_MAX = 10_000
"""The most runs that are known at the same time. Like the other limits it is part of the replicated behaviour."""
_DIGEST_BYTES = 32
_REMEDY = "nothing has to be done, because the leader decides again by the state"
_NUMBER_MAX = 1 << 63
_FIELDS = {
    Kind.PREPARE_RUN: frozenset({"topic", "first", "end"}),
    Kind.COMMIT_RUN: frozenset(
        {
            *("run", "records", "size", "digest", "first_index", "end_index", "first_time", "last_time", "delay"),
            *("first_global", "end_global"),
        }
    ),
    Kind.DROP_RUN: frozenset({"run"}),
    Kind.FORGET_RUN: frozenset({"run"}),
}


class RunState(IntEnum):
    """The state of a run. The numbers are in snapshots."""

    PREPARED = 1
    COMMITTED = 2
    DROPPED = 3


class RunRule(Enum):
    """A rule of the catalogue. The message of a refusal begins with its value."""

    UNKNOWN_RUN = "unknown run"
    DUPLICATE_ID = "duplicate run"
    PREPARED_TWICE = "prepared twice"
    COMMITTED_TWICE = "committed twice"
    DROPPED_TWICE = "dropped twice"
    COMMIT_AFTER_DROP = "commit after drop"
    FORGET_BEFORE_DROP = "forget before drop"
    EMPTY_RANGE = "empty range"
    BEYOND_END = "beyond the end"
    BEYOND_ORDER = "beyond the order"
    GAP = "gap"
    OVERLAP = "overlap"
    DELETED_RECORDS = "deleted records"
    WRONG_CONTENT = "wrong content"
    STILL_NEEDED = "still needed"
    TOO_MANY = "too many runs"
    MALFORMED = "malformed"


class RunContent(NamedTuple):
    """The description of a committed run's object, as it was read back.

    ``size`` is that of the object in bytes, ``digest`` the 32-byte digest of its records, which does not depend on the
    encoding of the file. The records became visible at indices in ``[first_index, end_index)``, with log times from
    ``first_time`` to ``last_time``, in microseconds since 1970. The global positions of the records of a stream are in
    ``[first_global, end_global)``; 0 = the topic is no stream.
    """

    size: int
    digest: bytes
    first_index: Index
    end_index: Index
    first_time: int
    last_time: int
    first_global: GlobalPosition = GlobalPosition(0)
    end_global: GlobalPosition = GlobalPosition(0)

    @property
    def image(self) -> list[object]:
        """The content as plain values, of a topic without streams as releases before streams have it."""
        return list(self if self.end_global else self[:6])


class TopicRun(NamedTuple):
    """One run.

    ``changed_at`` is the log time of its newest record; for a committed run the archive delay counts from then.
    ``origin`` is the id of the cluster that wrote its object; "" = this one. A cluster may remove only its own objects.
    ``content`` is None until the run is committed. ``delay`` is the archive delay, in microseconds of log time from
    ``changed_at`` on; None = the log keeps its copy of the records for ever.
    """

    id: RunId
    topic: TopicId
    first: Position
    end: Position
    state: RunState
    changed_at: int
    content: RunContent | None = None
    origin: str = ""
    delay: int | None = None

    def describe(self) -> dict[str, object]:
        """Return the run as plain values; ``last`` is inclusive."""
        content = {} if self.content is None else {**self.content._asdict(), "digest": self.content.digest.hex()}
        if self.content is not None and not self.content.end_global:
            del content["first_global"], content["end_global"]
        return {
            "id": self.id,
            "topic": self.topic,
            "first": self.first,
            "last": self.end - 1,
            "state": self.state.name.lower(),
            "changed_at": self.changed_at,
            "origin": self.origin,
            **({} if self.delay is None else {"delay": self.delay}),
            **content,
        }

    def is_over(self, log_time: int) -> bool:
        """Return whether the run is committed, and its archive delay has passed at ``log_time``."""
        is_delayed = self.delay is None or self.changed_at + self.delay > log_time
        return self.state is RunState.COMMITTED and not is_delayed

    def has_records_from(self, index: int) -> bool:
        """Return whether a record of this committed run was in the log at ``index`` or later."""
        return self.content is not None and self.content.end_index > index


class RunCatalogue:
    """All runs that are not forgotten. Never awaits.

    Invariants:
      * ``runs`` rise in their ids
      * of each topic at most one run is prepared
      * the committed runs of a topic rise in their positions, without gap or overlap, and end at its archived end
      * every committed run, and every run that was dropped after it was committed, has a content
    """

    __slots__ = ("_committed", "_next_over", "_prepared", "ends", "group", "runs")

    def __init__(self) -> None:
        self.group = GROUP_0
        """The group whose topics these are. It names the objects, and no rule depends on it."""
        self.runs: dict[RunId, TopicRun] = {}
        self.ends: dict[TopicId, Position] = {}
        """The archived end of each topic of which a run was committed once; it stays when the runs are forgotten."""
        self._committed: dict[TopicId, list[TopicRun]] = {}
        self._prepared: dict[TopicId, TopicRun] = {}
        self._next_over: tuple[int, int] | None = None
        """A log time, and the first one behind it at which an archive delay ends; None = the runs have changed."""

    # Reading.

    @property
    def is_used(self) -> bool:
        """Whether there is anything to store: a run is known, or was committed once."""
        return bool(self.runs or self.ends)

    @property
    def has_streams(self) -> bool:
        """Whether a run is that of a stream, which releases before cannot read."""
        return any(run.content is not None and run.content.end_global for run in self.runs.values())

    def committed(self, topic: TopicId) -> list[TopicRun]:
        """Return the runs of a topic that may be read, by position."""
        return list(self._committed.get(topic, ()))

    def prepared(self, topic: TopicId) -> TopicRun | None:
        """Return the run of a topic that is being written; None = there is none."""
        return self._prepared.get(topic)

    def find(self, topic: TopicId, position: int) -> TopicRun | None:
        """Return the committed run that holds a position; None = none does."""
        runs = self._committed.get(topic, [])
        at = bisect_right(runs, position, key=lambda run: run.end)
        return runs[at] if at < len(runs) and position >= runs[at].first else None

    def released(self, topic: Topic, log_time: int) -> list[TopicRun]:
        """Return the committed runs of the first kept records of a topic whose archive delay is over, by position.

        They follow one another without a gap, so the log is needed only for the positions from the end of the last one
        on. A run whose delay is not over keeps the log for all runs behind it too.
        """
        return list(takewhile(lambda run: run.is_over(log_time), self.kept(topic)))

    def next_over(self, log_time: int) -> int:
        """Return the lowest log time above ``log_time`` at which the archive delay of a committed run ends.

        It looks at all runs only if the runs have changed since the last call, or a delay has ended.
        """
        if self._next_over is None or not self._next_over[0] <= log_time < self._next_over[1]:
            ends = (run.changed_at + run.delay for run in self.runs.values() if run.delay is not None)
            self._next_over = log_time, min((end for end in ends if end > log_time), default=_NUMBER_MAX)
        return self._next_over[1]

    def archived_end(self, topic: Topic) -> Position:
        """Return the position up to which, exclusive, committed runs hold all kept records of a topic."""
        return max((run.end for run in self.kept(topic)), default=topic.first_position)

    def of(self, topic: TopicId) -> list[TopicRun]:
        """Return the runs of a topic in any state, by their ids."""
        return [run for run in self.runs.values() if run.topic == topic]

    def kept(self, topic: Topic) -> Iterator[TopicRun]:
        """Yield the committed runs from the one that holds the first kept record on, up to the first gap."""
        at = topic.first_position
        for run in self._committed.get(topic.id, ()):
            if run.first > at:
                return
            if run.end > at:
                yield run
                at = run.end

    def newest(self, topics: Iterable[Topic], count: int) -> list[ArchivedRun]:
        """Return the newest committed runs that this cluster has written and whose records are not all deleted."""
        runs = (run for topic in topics for run in self._committed.get(topic.id, ()) if run.end > topic.first_position)
        return [self.archived(run) for run in nlargest(count, (run for run in runs if not run.origin))]

    def next_first(self, topic: Topic) -> Position:
        """Return the position at which the next run of a topic begins: its archived end, or its first kept record."""
        return max(self.ends.get(topic.id, Position(1)), topic.first_position)

    def archived(self, run: TopicRun) -> ArchivedRun:
        """Return a run as the archivist and readers get it."""
        known = (run.id, run.topic, run.first, run.end, run.state.name.lower(), run.origin)
        if run.content is None:
            return ArchivedRun(*known, 0, b"", group=self.group)
        size, digest, first_index, end_index, _, _, first_global, end_global = run.content
        return ArchivedRun(*known, size, digest, first_index, end_index, self.group, first_global, end_global)

    def archivable_end(self, topic: Topic, maps: StreamMaps) -> Position:
        """Return the position up to which, exclusive, a topic can be archived: of a stream the end of its map."""
        if maps.get(topic.name) is None and self.group == GROUP_0:
            return topic.next_position
        return maps.mapped_end(topic.name)

    def archivable(self, topic: Topic, maps: StreamMaps) -> ArchivableTopic:
        """Return a topic with its runs, for the archivist."""
        return ArchivableTopic(
            id=topic.id,
            first_position=topic.first_position,
            next_position=topic.next_position,
            next_first=self.next_first(topic),
            archived_end=self.archived_end(topic),
            runs=tuple(map(self.archived, self.of(topic.id))),
            schema=topic.schema,
            delay=topic.archive.delay_us,
            archivable_end=self.archivable_end(topic, maps),
            is_archive_used=self.is_used or topic.archive.is_on,
        )

    def orphans(self, ids: Collection[int], applied_end: int) -> list[int]:
        """Return those of the ids of this cluster's objects that no run will ever have, rising.

        An id below the applied end that belongs to no run was forgotten, or never prepared. It is the index of another
        record, so no later record can prepare it. Objects of runs that are known, in any state, are no orphans.
        """
        own = {int(run.id) for run in self.runs.values() if not run.origin}
        return sorted(each for each in ids if each < applied_end and each not in own)

    def check_topics(self, topics: Mapping[TopicId, Topic]) -> None:
        """Check, after a state was loaded, that each topic of a run exists and has reached the end of the run.

        Raises:
          ValueError: one does not.
        """
        for topic, end in [*self.ends.items(), *((run.topic, run.end) for run in self.runs.values())]:
            found = topics.get(topic)
            if found is None or found.next_position < end:
                raise ValueError(f"topic {topic} has a run up to position {end - 1}, which it has not reached")

    # Records.

    def check(self, batch: Batch, topics: Mapping[TopicId, Topic], maps: StreamMaps) -> None:
        """Check whether a record would be applied. ``maps``: those of the streams of this group.

        Raises:
          UnknownTopicError: a PREPARE_RUN of a topic that does not exist.
          RequestError: the record breaks a rule; the message begins with the rule's value.
          OutdatedCodeError: it has a field that this release does not know.
        """
        self._change(batch, topics, maps)

    def apply(self, batch: Batch, topics: Mapping[TopicId, Topic], maps: StreamMaps) -> TopicRun:
        """Apply a committed record, and return the run as it is now; of a FORGET_RUN as it was.

        Raises: as :meth:`check`; a RequestError is a replicated refusal.
        """
        run = self._change(batch, topics, maps)
        if batch.kind is Kind.FORGET_RUN:
            del self.runs[run.id]
            return run
        self._take_out(run.id)
        self._put(run)
        if batch.kind is Kind.COMMIT_RUN:
            self.ends[run.topic] = run.end
        return run

    def fork(self, source: str, log_time: int, *, log_begin: int) -> None:
        """Continue as another cluster than ``source``, whose files these were: its objects are only read from now on.

        Runs that are not committed are forgotten, because ``source`` completes or removes them. The log keeps the
        records of runs whose archive delay is not over at ``log_time`` for ever, because ``source`` may remove their
        objects. Those of the other runs may be gone from the log already. So may records below ``log_begin``, if a
        backup was restored up to an index before its end: their runs keep the delay.
        """
        kept = [run for run in self.runs.values() if run.state is RunState.COMMITTED]
        self.runs, self._committed, self._prepared = {}, {}, {}
        for run in kept:
            assert run.content is not None, "it is committed"
            is_kept = not run.is_over(log_time) and run.content.first_index >= log_begin
            delay = None if is_kept else run.delay
            self._put(run._replace(origin=run.origin or source, delay=delay))

    def _change(self, batch: Batch, topics: Mapping[TopicId, Topic], maps: StreamMaps) -> TopicRun:
        """Return the run as the record makes it; of a FORGET_RUN as it is."""
        match batch.kind:
            case Kind.PREPARE_RUN:
                return self._check_prepare(batch, topics, maps)
            case Kind.COMMIT_RUN:
                return self._check_commit(batch, topics, maps)
            case Kind.DROP_RUN:
                return self._check_drop(batch, topics)
            case _:
                return self._check_forget(batch)

    def _check_prepare(self, batch: Batch, topics: Mapping[TopicId, Topic], maps: StreamMaps) -> TopicRun:
        number, first, end = decode_known(batch, _FIELDS, topic=int, first=int, end=int)
        topic = topics.get(TopicId(number))
        if topic is None:
            raise UnknownTopicError(f"no topic has the id {number}; no run was prepared", remedy="create it first")
        run = TopicRun(
            RunId(batch.first_index), topic.id, Position(first), Position(end), RunState.PREPARED, batch.log_time
        )
        if first >= end:
            _refuse(RunRule.EMPTY_RANGE, f"{_range(run)} has no position")
        if end > topic.next_position:
            _refuse(RunRule.BEYOND_END, f"{_range(run)}, but the topic ends at position {topic.next_position - 1}")
        if (order := maps.get(topic.name)) is not None and end > order.end:
            _refuse(RunRule.BEYOND_ORDER, f"{_range(run)}, but the map of the stream ends at position {order.end - 1}")
        if (other := self._prepared.get(topic.id)) is not None:
            _refuse(RunRule.PREPARED_TWICE, f"{_range(run)} while run {other.id} is prepared", "drop that one first")
        archived = self.ends.get(topic.id, Position(1))
        if first < archived:
            _refuse(RunRule.OVERLAP, f"{_range(run)}, but the topic is archived up to position {archived - 1}")
        if first < topic.first_position:
            _refuse(RunRule.DELETED_RECORDS, f"{_range(run)}, but the records below {topic.first_position} are deleted")
        if first > self.next_first(topic):
            _refuse(RunRule.GAP, f"{_range(run)}, but the next run begins at position {self.next_first(topic)}")
        if first > archived and topic.id in self._committed:
            # The records in between are deleted, and so are those of all runs: without these runs there is no gap.
            known = self._committed[topic.id][0]
            _refuse(RunRule.GAP, f"{_range(run)} behind run {known.id}, whose records are deleted", "drop that one")
        if len(self.runs) >= RUNS_MAX:
            _refuse(RunRule.TOO_MANY, f"there are {RUNS_MAX} runs, which is the limit", "forget dropped runs")
        return run

    def _check_commit(self, batch: Batch, topics: Mapping[TopicId, Topic], maps: StreamMaps) -> TopicRun:
        number, records, size = decode_known(batch, _FIELDS, run=int, records=int, size=int)
        indices = decode_known(batch, _FIELDS, first_index=int, end_index=int, first_time=int, last_time=int)
        (digest,) = decode_known(batch, _FIELDS, digest=bytes)
        delay = decode_optional(batch, "delay", -1)
        run = self._run(number)
        if run.state is not RunState.PREPARED:
            is_dropped = run.state is RunState.DROPPED
            _refuse(
                RunRule.COMMIT_AFTER_DROP if is_dropped else RunRule.COMMITTED_TWICE,
                f"run {run.id} is {run.state.name.lower()}",
            )
        if records != run.end - run.first:
            _refuse(RunRule.WRONG_CONTENT, f"run {run.id} has {run.end - run.first} positions, not {records}")
        first_index, end_index, first_time, last_time = indices
        first_global, end_global = decode_optional(batch, "first_global", 0), decode_optional(batch, "end_global", 0)
        content = RunContent(
            *(size, digest, Index(first_index), Index(end_index), first_time, last_time),
            *(GlobalPosition(first_global), GlobalPosition(end_global)),
        )
        _check_content(run.id, content)
        _check_order(run, topics[run.topic].name, content, maps)
        return run._replace(
            state=RunState.COMMITTED,
            changed_at=batch.log_time,
            content=content,
            delay=None if delay < 0 else delay,
        )

    def _check_drop(self, batch: Batch, topics: Mapping[TopicId, Topic]) -> TopicRun:
        (number,) = decode_known(batch, _FIELDS, run=int)
        run = self._run(number)
        if run.state is RunState.DROPPED:
            _refuse(RunRule.DROPPED_TWICE, f"run {run.id} is dropped")
        if run.state is RunState.COMMITTED:
            kept_from = topics[run.topic].first_position
            if run.end > kept_from:
                _refuse(
                    RunRule.STILL_NEEDED,
                    f"{_range(run)} is run {run.id}, and the topic keeps its records from position {kept_from} on",
                    "trim the topic first",
                )
            if (before := self._committed[run.topic][0]) != run:
                _refuse(RunRule.GAP, f"run {before.id} is before run {run.id}", "drop that one first")
        return run._replace(state=RunState.DROPPED, changed_at=batch.log_time)

    def _check_forget(self, batch: Batch) -> TopicRun:
        (number,) = decode_known(batch, _FIELDS, run=int)
        run = self._run(number)
        if run.state is not RunState.DROPPED:
            _refuse(RunRule.FORGET_BEFORE_DROP, f"run {run.id} is {run.state.name.lower()}")
        return run

    def _run(self, number: int) -> TopicRun:
        run = self.runs.get(RunId(number))
        if run is None:
            _refuse(RunRule.UNKNOWN_RUN, f"there is no run {number}: it was forgotten, or never prepared")
        return run

    # Changing.

    def _put(self, run: TopicRun) -> None:
        self._next_over = None
        self.runs[run.id] = run
        if run.state is RunState.PREPARED:
            self._prepared[run.topic] = run
        elif run.state is RunState.COMMITTED:
            self._committed.setdefault(run.topic, []).append(run)

    def _take_out(self, run_id: RunId) -> None:
        run = self.runs.get(run_id)
        if run is None:
            return
        if run.state is RunState.PREPARED:
            del self._prepared[run.topic]
        elif run.state is RunState.COMMITTED:
            runs = self._committed[run.topic]
            runs.remove(run)
            if not runs:
                del self._committed[run.topic]

    # Images.

    def image(self) -> list[object]:
        """Return the catalogue as plain values."""
        runs = [
            [*run[:4], int(run.state), run.changed_at, run.origin, run.content and run.content.image]
            + ([] if run.delay is None else [run.delay])
            for run in self.runs.values()
        ]
        return [runs, list(map(list, self.ends.items()))]

    @classmethod
    def from_image(cls, image: list[Any], *, skipped: list[RequestError] | None = None) -> RunCatalogue:
        """Rebuild the catalogue from :meth:`image`.

        Args:
          image: the plain values.
          skipped: None = strict: the first run that breaks a rule is an error. With a list, which is the force mode,
            such runs are left out and the list gets their refusals, so that the rest of a damaged catalogue can be
            read. Of a topic with a gap the runs behind it are kept. The result obeys all rules. No object may be
            removed on the word of such a catalogue, because the object of a run that was left out looks like an orphan.

        Raises:
          RequestError: strict, and a run breaks a rule.
          ValueError, TypeError: the image is no catalogue at all.
        """
        runs, ends = image
        catalogue = cls()
        catalogue.ends = {TopicId(_number(topic)): Position(_number(end)) for topic, end in ends}

        def attempt(step: Callable[[], None]) -> None:
            try:
                step()
            except RequestError as error:
                if skipped is None:
                    raise
                skipped.append(error)

        for each in runs:
            attempt(lambda each=each: catalogue._restore(each))  # type: ignore[misc]
        for topic in [*catalogue._committed]:
            attempt(lambda topic=topic: catalogue._check_tiles(topic))  # type: ignore[misc]
        return catalogue

    def _restore(self, image: Any) -> None:
        """Add one run of an image. Raises RequestError."""
        run = _read_run(image)
        if run.id <= next(reversed(self.runs), 0):
            _refuse(RunRule.DUPLICATE_ID, f"run {run.id} after run {next(reversed(self.runs))}")
        if run.state is RunState.PREPARED and run.topic in self._prepared:
            _refuse(RunRule.PREPARED_TWICE, f"run {run.id} and run {self._prepared[run.topic].id} are prepared")
        if run.first < self.ends.get(run.topic, 1) and run.state is RunState.PREPARED:
            _refuse(RunRule.OVERLAP, f"{_range(run)} is prepared below the archived end {self.ends[run.topic]}")
        if run.state is RunState.COMMITTED:
            before = self._committed.get(run.topic, [])
            if before and run.first < before[-1].end:
                _refuse(RunRule.OVERLAP, f"run {run.id}, {_range(run)}, and run {before[-1].id}, {_range(before[-1])}")
        self._put(run)

    def _check_tiles(self, topic: TopicId) -> None:
        """Check that the committed runs of a topic end at its archived end without a gap.

        If they do not, those that are not joined to the archived end are left out, and it raises RequestError.
        """
        end = self.ends.get(topic, Position(1))
        runs = self._committed[topic]
        start, at = end, len(runs)
        while at and runs[at - 1].end == start:
            at -= 1
            start = runs[at].first
        if at:
            loose = runs[:at]
            for run in loose:
                self._take_out(run.id)
                del self.runs[run.id]
            _refuse(
                RunRule.GAP,
                f"the runs of topic {topic} from run {loose[0].id} to run {loose[-1].id} end at position"
                f" {loose[-1].end - 1}, and the next archived position is {start}",
            )


def _read_run(image: Any) -> TopicRun:
    try:
        number, topic, first, end, state, changed_at, origin, packed, *delay = image
        content = None
        if packed is not None:
            size, digest, *numbers = packed
            first_index, end_index, first_time, last_time, *order = map(_number, numbers)
            first_global, end_global = order or (0, 0)
            content = RunContent(
                *(_number(size), digest, Index(first_index), Index(end_index), first_time, last_time),
                *(GlobalPosition(first_global), GlobalPosition(end_global)),
            )
        run = TopicRun(
            RunId(_number(number)),
            TopicId(_number(topic)),
            Position(_number(first)),
            Position(_number(end)),
            RunState(state),
            _number(changed_at),
            content,
            origin,
            *map(_number, delay),
        )
    except (TypeError, ValueError) as error:
        _refuse(RunRule.MALFORMED, f"{brief_repr(image)} is no run: {error}")
    if type(origin) is not str or (run.state is RunState.COMMITTED and content is None):
        _refuse(RunRule.MALFORMED, f"{brief_repr(image)} is no run")
    if not 1 <= run.first < run.end:
        _refuse(RunRule.EMPTY_RANGE, f"run {run.id} has {_range(run)}")
    if content is not None:
        _check_content(run.id, content)
    return run


def _check_content(run: RunId, content: RunContent) -> None:
    if type(content.digest) is not bytes or len(content.digest) != _DIGEST_BYTES:
        _refuse(RunRule.WRONG_CONTENT, f"run {run} has a digest that is not {_DIGEST_BYTES} bytes")
    if not content.size:
        _refuse(RunRule.WRONG_CONTENT, f"run {run} has an empty object")
    if not 1 <= content.first_index < content.end_index <= run:
        _refuse(
            RunRule.WRONG_CONTENT,
            f"run {run} cannot have records from index {content.first_index} up to {content.end_index}, because all"
            " are before its own index",
        )
    if content.first_time > content.last_time:
        _refuse(RunRule.WRONG_CONTENT, f"run {run} has log times that fall")
    if not (0 < content.first_global < content.end_global or content.first_global == content.end_global == 0):
        _refuse(RunRule.WRONG_CONTENT, f"run {run} has global positions that fall")


def _check_order(run: TopicRun, name: str, content: RunContent, maps: StreamMaps) -> None:
    """Check that the global positions of a run of a topic are those of the map; without a map there are none."""
    first = last = None
    if maps.get(name) is not None:
        first, last = maps.find_global(name, run.first), maps.find_global(name, run.end - 1)
        if first is None or last is None:
            _refuse(RunRule.DELETED_RECORDS, f"{_range(run)}, of which the map of the stream lacks some")
    expected = (first or 0, 0 if last is None else last + 1)
    if (content.first_global, content.end_global) != expected:
        found = f"global positions in [{content.first_global}, {content.end_global})"
        _refuse(RunRule.WRONG_CONTENT, f"run {run.id} has {found}, and the map of the stream has {list(expected)}")


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _NUMBER_MAX:
        raise ValueError(f"{brief_repr(value)} is no number in [0, 2^63)")
    return value


def _range(run: TopicRun) -> str:
    return f"positions {run.first} to {run.end - 1} of topic {run.topic}"


def _refuse(rule: RunRule, why: str, remedy: str = _REMEDY) -> NoReturn:
    raise RequestError(f"{rule.value}: {why}; nothing was changed", remedy=remedy)
