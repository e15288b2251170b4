"""The replicated state of topics, sinks and sessions: equal on every member, and stored in snapshots."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any

from viewstamp.errors import RequestError, TopicExistsError, UnknownTopicError
from viewstamp.ids import Index, Position, RunId, Stream, TopicId
from viewstamp.node.archive_queries import (
    ArchiveQuery,
    DueRunsQuery,
    IsArchivingQuery,
    NewestRunsQuery,
    OrphansQuery,
    ReleasedRunsQuery,
    RunAtQuery,
    RunQuery,
    RunsQuery,
    UnneededRunsQuery,
)
from viewstamp.node.keyed_queries import (
    DueKeysQuery,
    IsKeyedUsedQuery,
    KeyedViewQuery,
    KeyRunQuery,
    KeyRunsQuery,
    UnneededKeysQuery,
)
from viewstamp.node.order_queries import (
    CoverQuery,
    FirstFromQuery,
    GlobalPositionQuery,
    GlobalRecordQuery,
    HomeCut,
    HomeCutQuery,
    MissingRunsQuery,
    MovedStreamsQuery,
    OrderedRunsQuery,
    OrderStatusQuery,
    OrderTailQuery,
    StreamReportsQuery,
    TopicOrderQuery,
)
from viewstamp.node.placement_queries import (
    FreeGroupsQuery,
    PlacedGroup,
    PlacementQuery,
    SealableQuery,
    SealedStreamQuery,
    SpreadingQuery,
    SpreadTopicQuery,
    SpreadTopicsQuery,
)
from viewstamp.node.schema_queries import HasSchemaQuery
from viewstamp.node.sink_part_queries import (
    GroupPartsQuery,
    HasPartsCommitsQuery,
    HasSealedPartsQuery,
    PartFates,
    PartFatesQuery,
    ReleasableQuery,
)
from viewstamp.node.state_machine import Query
from viewstamp.streams.access import Access
from viewstamp.streams.archive_plan import (
    describe_archive,
    due_run,
    expired_end,
    has_ended,
    needed_position,
    unneeded,
)
from viewstamp.streams.archive_settings import OFF, ArchiveSettings, decode_archive
from viewstamp.streams.cover import cover
from viewstamp.streams.group_removal import check_empty
from viewstamp.streams.key_plan import due_keys
from viewstamp.streams.key_runs import KeyCatalogue
from viewstamp.streams.order import Order, decode_order, decode_released
from viewstamp.streams.placement import Placements
from viewstamp.streams.runs import RunCatalogue
from viewstamp.streams.sealing import SealedStreams, removed
from viewstamp.streams.sessions import Sessions
from viewstamp.streams.settings import TopicSettings
from viewstamp.streams.spread import SPREAD_CHANGES, SpreadTopics
from viewstamp.streams.spread_actors import SpreadActors
from viewstamp.streams.spread_commits import SpreadCommits
from viewstamp.streams.staging import SinkState, Staging
from viewstamp.streams.stream_map import StreamMaps
from viewstamp.streams.topic import Topic
from viewstamp.streams.topic_schema import decode_schema, successor
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.ordering import StreamReport
from viewstamp.wire.staged import CommitRequest, entries_of

__all__ = ["State"]

_SECOND_US = 1_000_000


class State:
    """Topics, sinks, sessions, tokens, groups, runs and the order, and the counters of the applied log.

    Invariants:
      * ``topics`` are in order of creation, which is that of their ids, from 1 on. Only dropped streams leave gaps
    """

    __slots__ = (
        "_aging",
        "access",
        "archiving",
        "chain",
        "commits",
        "end",
        "keys",
        "log_bytes",
        "maps",
        "names",
        "next_second",
        "order",
        "placements",
        "runs",
        "sealed",
        "sessions",
        "spread",
        "spread_actors",
        "staging",
        "topics",
    )

    def __init__(self) -> None:
        self.topics: dict[TopicId, Topic] = {}
        self.names: dict[str, Topic] = {}
        self.sessions = Sessions()
        self.staging = Staging()
        self.access = Access()
        self.placements = Placements()
        self.runs = RunCatalogue()
        self.keys = KeyCatalogue()
        self.spread = SpreadTopics()
        self.spread_actors = SpreadActors()
        """The owners of instances; only in the state of group 0."""
        self.commits = SpreadCommits()
        """The batches of sinks that are committed and not visible yet; only in the state of group 0."""
        self.order = Order()
        """The order of the streams of each spread topic; only in the state of group 0."""
        self.maps = StreamMaps()
        """The global positions of this group's streams; only in the state of another group."""
        self.sealed = SealedStreams()
        """The sealed streams of this group; only in the state of another group than 0."""
        self.log_bytes = 0
        """The bytes of all applied batches; they space the entries of the topics' sparse maps."""
        self.end = Index(1)
        """The index after the last applied batch."""
        self.chain = 0
        """A checksum over all decisions here, one step a batch."""
        self.next_second = 0
        """The log time at which :meth:`aging` is due again."""
        self._aging: list[Topic] = []
        """The topics whose records are deleted because of their age, in order of creation."""
        self.archiving: list[Topic] = []
        """The topics with the archive, in order of creation."""

    @property
    def next_topic_id(self) -> TopicId:
        """The id of the next topic."""
        following = next(reversed(self.topics), 0) + 1
        while following in self.sealed.dropped:
            following += 1
        return TopicId(following)

    def add_topic(self, topic: Topic) -> None:
        """Add the next topic."""
        assert topic.id == self.next_topic_id, f"topic {topic.id} after {len(self.topics)} others"
        self.topics[topic.id] = topic
        self.names[topic.name] = topic
        if topic.is_aging:
            self._aging.append(topic)
        if topic.archive.is_on:
            self.archiving.append(topic)

    def drop(self, batch: Batch) -> Topic | None:
        """Delete the topic of a removed stream; return it, or None if it was deleted before. Raises RequestError.

        The topic itself does not change, because an open cut may still have to pack it.
        """
        topic = self._droppable(batch)
        if topic is not None:
            self.sealed.dropped[topic.id] = topic.name
            del self.topics[topic.id], self.names[topic.name]
            self.maps.drop(topic.name)
            self.runs.ends.pop(topic.id, None)
            self._aging = [each for each in self._aging if each is not topic]
            self.archiving = [each for each in self.archiving if each is not topic]
        return topic

    def _droppable(self, batch: Batch) -> Topic | None:
        """Return the topic that a DROP_STREAM deletes; None = it was deleted before. Raises RequestError.

        Its runs have to be forgotten before, because otherwise nobody would remove their objects.
        """
        topic = self.sealed.droppable(batch, self.names)
        if topic is not None and (runs := self.runs.of(topic.id)):
            raise RequestError(
                f"stream {topic.name!r} was not dropped: its archived run {runs[0].id} is {runs[0].state.name.lower()}",
                remedy="wait until the leader of the group has removed the files of deleted records",
            )
        return topic

    def configure(self, topic: Topic, retain_bytes: int, retain_seconds: float, archive: ArchiveSettings) -> None:
        """Set the retention and the archive of ``topic``, which has been added."""
        topic.configure(retain_bytes, retain_seconds, archive)
        self._aging = [each for each in self.topics.values() if each.is_aging]
        self.archiving = [each for each in self.topics.values() if each.archive.is_on]

    def note(self, *facts: int) -> None:
        """Add ``facts`` to the checksum ``chain``, which must be equal on all members after the same record."""
        self.chain = crc32c(struct.pack(f"<{len(facts)}Q", *facts), self.chain)

    def aging(self, log_time: int) -> list[Topic]:
        """Return the topics whose records are deleted because of their age; called once in each second of log time."""
        self.next_second = (log_time // _SECOND_US + 1) * _SECOND_US
        return self._aging

    def trimmed_to(self, topic: Topic, log_time: int) -> Position:
        """Return the first position of a topic that its settings keep at ``log_time``."""
        return expired_end(topic, self.runs, log_time) if topic.archive.is_on else topic.retained_from(log_time)

    def has_ended(self, log_time: int, now: int) -> bool:
        """Return whether applying a record of log time ``now`` would delete archived records, or release the log."""
        seconds = (time // _SECOND_US * _SECOND_US for time in (log_time, now))
        return has_ended(self.archiving, self.runs, *seconds)

    # Looking up.

    @property
    def log_time(self) -> int:
        """The log time of the newest record, rounded down to a second, in microseconds since 1970."""
        return max(self.next_second - _SECOND_US, 0)

    @property
    def keep_from(self) -> Index | None:
        """The lowest index of a record that is staged, or of which only the log has a copy; None = there is none."""
        kept = map(self.needed_from, self.topics.values())
        return min(filter(None, [*kept, self.staging.first_index]), default=None)

    @property
    def unarchived_from(self) -> Index | None:
        """The lowest index of a record that is staged, or kept and in no committed run; None = there is none."""
        kept = (topic.first_index_from(self.runs.archived_end(topic)) for topic in self.topics.values())
        return min(filter(None, [*kept, self.staging.first_index]), default=None)

    def needed_from(self, topic: Topic) -> Index | None:
        """Return the lowest index of a record of ``topic`` of which only the log has a copy; None = there is none.

        The other kept records are in committed runs whose archive delay is over.
        """
        return topic.first_index_from(needed_position(topic, self.runs, self.log_time))

    def explain_kept(self) -> str:
        """Explain which records hold the log at ``keep_from``, and how to release them; "" = none do."""
        kept_from = self.keep_from
        if kept_from is None:
            return ""
        topic = next((topic for topic in self.topics.values() if self.needed_from(topic) == kept_from), None)
        if topic is None:
            attempt = next(each for each in self.staging.attempts.values() if each.first_index == kept_from)
            sink = self.staging.user_sink(attempt)
            if sink != attempt.sink:
                return (
                    f"sink {sink!r} holds {attempt.bytes:,} bytes that were staged for a batch over several groups;"
                    f" they are released when the batch is committed or dropped, or: viewstamp sink forget {sink}"
                )
            return (
                f"sink {attempt.sink!r} holds {attempt.bytes:,} bytes that were staged for its batch {attempt.batch}"
                " and not committed; they are released when the sink commits or runs again, after"
                f" {attempt.keep_seconds} s without either, or at once: viewstamp sink forget {attempt.sink}"
            )
        since = datetime.fromtimestamp(topic.first_time / 1e6, UTC)
        if topic.archive.is_on:
            return (
                f"the log has records of topic {topic.name!r}, which is archived by itself: those that are in no run,"
                f" and those of runs that were committed in the last {topic.archive.delay_seconds:g} s or that its"
                f" retention keeps; viewstamp topic describe {topic.name} shows whether a run waits, and"
                f" viewstamp topic configure {topic.name} --archive-delay DURATION shortens the delay of later runs"
            )
        return (
            f"topic {topic.name!r} keeps {topic.next_position - topic.first_position:,} records"
            f" ({topic.bytes:,} bytes) since {since:%Y-%m-%d %H:%M:%S} UTC; delete those below a position, at most"
            f" {topic.next_position}: viewstamp topic trim {topic.name} POSITION, or limit the topic:"
            f" viewstamp topic configure {topic.name} --retain-bytes N"
        )

    @property
    def first_visible(self) -> int:
        """The index below which no kept record became visible. Readers of topics look at no COMMIT below it."""
        return min(filter(None, [topic.first_visible for topic in self.topics.values()]), default=int(self.end))

    def topic(self, topic_id: int) -> Topic:
        """Return a topic by its id. Raises UnknownTopicError, and StreamSealedError if it was dropped."""
        topic = self.topics.get(TopicId(topic_id))
        if topic is None:
            if (dropped := self.sealed.dropped.get(TopicId(topic_id))) is not None:
                raise removed(dropped)
            raise UnknownTopicError(f"no topic has the id {topic_id}", remedy="create the topic first")
        return topic

    def name_of(self, topic_id: int) -> str:
        """Return the name of a topic by its id, also of a dropped stream. Raises UnknownTopicError."""
        return self.sealed.dropped.get(TopicId(topic_id)) or self.topic(topic_id).name

    def named(self, name: str) -> Topic:
        """Return a topic by its name. Raises UnknownTopicError, and StreamSealedError if it was dropped."""
        topic = self.names.get(name)
        if topic is None:
            self.sealed.check_kept(name)
            if name in self.spread.topics:
                raise UnknownTopicError(
                    f"topic {name!r} is spread over streams, and this request is for a topic of one log",
                    remedy="read and append with a client of this release; a view by key needs a topic without streams",
                )
            raise UnknownTopicError(f"no topic is named {name!r}", remedy=f"create it: viewstamp topic create {name}")
        return topic

    def check_unsealed(self, request: CommitRequest) -> None:
        """Check that a COMMIT has no records for a sealed stream. Raises StreamSealedError."""
        if self.sealed.names:
            for topic in {entry.topic for _, entries in request.parts for entry in entries_of(entries)}:
                self.sealed.check(self.topic(topic).name)

    def check_sealable(self, batch: Batch) -> None:
        """Check that no sealed part of an attempt has to be placed in a stream behind its SEAL_STREAM.

        Raises RequestError: group 0 has not decided about such a part, or it is not placed.
        """
        if self.staging.has_sealed_parts and not self.sealed.is_settled(batch, self.names):
            raise RequestError(
                "a batch of a sink is sealed in this group and not placed yet; the stream was not sealed",
                remedy="wait until the batch is committed or dropped",
            )

    def check_release(self, batch: Batch) -> list[int]:
        """Check that an ORDER makes no part of a batch of a sink visible without the others. Raises RequestError.

        Returns the commits that it releases.
        """
        commits = decode_released(batch)
        if commits:
            topics = self.spread.by_stream
            self.commits.check_release(
                commits,
                decode_order(batch),
                self.order.ordered_end,
                self.order.sealed,
                lambda report: self.order.is_move(report, topics),
            )
        return commits

    def _over(self, attempts: Iterable[int]) -> frozenset[int]:
        """Return the attempts of this group that will never be committed, or whose commit was released."""
        alive = self.commits.attempts() | self.staging.attempts.keys()
        return frozenset(attempt for attempt in attempts if attempt < self.end and attempt not in alive)

    def answer(self, query: Query[Any]) -> object:
        """Return the answer to a query about runs, spread topics, the order or groups.

        Raises UnknownTopicError, RequestError.
        """
        match query:
            case ArchiveQuery(name):
                return self.runs.archivable(self.named(name), self.maps)
            case RunQuery(run_id):
                run = self.runs.runs.get(RunId(run_id))
                return self.runs.archived(run) if run is not None else None
            case RunAtQuery(topic_id, position):
                found = self.runs.find(topic_id, position)
                return self.runs.archived(found) if found is not None else None
            case ReleasedRunsQuery(index):
                released = (self.runs.released(topic, self.log_time) for topic in self.topics.values())
                return [self.runs.archived(run) for runs in released for run in runs if run.has_records_from(index)]
            case RunsQuery():
                return [{**run.describe(), "topic": self.topics[run.topic].name} for run in self.runs.runs.values()]
            case DueRunsQuery():
                due = (due_run(topic, self.runs, self.maps, query) for topic in self.archiving)
                return [each for each in due if each is not None]
            case UnneededRunsQuery():
                return [topic.name for topic in self.archiving if unneeded(topic, self.runs)]
            case HasSchemaQuery():
                return self.has_schema
            case IsArchivingQuery():
                return bool(self.archiving)
            case NewestRunsQuery(count):
                newest = self.runs.newest(self.topics.values(), count) + self.keys.newest(count)
                return nlargest(count, newest, key=lambda run: run.id)
            case OrphansQuery(ids):
                return self.keys.orphans(self.runs.orphans(ids, self.end))
            case KeyedViewQuery(name):
                return self.keys.view(self.named(name))
            case KeyRunQuery(run_id):
                keys = self.keys.runs.get(RunId(run_id))
                return keys.archived if keys is not None else None
            case KeyRunsQuery():
                return [{**run.describe(), "topic": self.topics[run.topic].name} for run in self.keys.runs.values()]
            case DueKeysQuery():
                runs_due = (due_keys(self.topics[each], self.keys, query) for each in self.keys.topics)
                return [each for each in runs_due if each is not None]
            case UnneededKeysQuery():
                unneeded_keys = {run.topic: self.keys.unneeded(run.topic) for run in self.keys.runs.values()}
                return {self.topics[each].name: runs for each, runs in unneeded_keys.items() if runs}
            case IsKeyedUsedQuery():
                return self.keys.is_used
            case SpreadingQuery(record) if record.kind is not Kind.SPREAD_TOPIC:
                topic, changed = self.spread.changed(record, self.order, self.placements)
                return topic if changed is None else None
            case FirstFromQuery(name, position):
                return self.maps.first_from(name, position)
            case SpreadTopicsQuery() | SpreadTopicQuery() | FreeGroupsQuery() | SpreadingQuery():
                return self.spread.answer(query, self.placements, self.names)
            case StreamReportsQuery(group):
                return [
                    StreamReport(
                        Stream(group, topic.name),
                        topic.next_position,
                        self.maps.mapped_end(topic.name),
                        topic.name in self.sealed.names,
                    )
                    for topic in self.topics.values()
                    if topic.next_position > 1 or topic.name in self.sealed.names
                ]
            case GroupPartsQuery():
                return self.staging.parts()
            case HasSealedPartsQuery():
                return self.staging.has_sealed_parts
            case HasPartsCommitsQuery():
                return bool(self.commits.pending)
            case PartFatesQuery(group, attempts):
                return PartFates(self._over(attempts), self.commits.parts_of(group))
            case ReleasableQuery(part_ends):
                moving = {
                    (commit, stream): end
                    for (commit, stream), end in part_ends.items()
                    if self.order.is_move(StreamReport(stream, end, Position(1)), self.spread.by_stream)
                }
                return self.commits.releasable(moving, self.order.ordered_end, self.order.sealed)
            case SealableQuery(reports):
                return self.spread.sealable(reports, self.order)
            case SealedStreamQuery(name):
                return name in self.sealed.names
            case MovedStreamsQuery(reports):
                return self.order.moved(reports, self.spread.by_stream)
            case HomeCutQuery():
                return HomeCut(
                    end=self.end,
                    version=self.order.version,
                    open_attempts=frozenset(self.staging.attempts),
                    pending_attempts=frozenset(self.commits.attempts()),
                )
            case OrderStatusQuery():
                return self.order.streams()
            case GlobalPositionQuery(stream, local):
                return self.order.find_global(stream, local) or self.maps.find_global(stream.name, local)
            case GlobalRecordQuery(group, topic_name, position):
                return self.order.find(topic_name, position) or self.maps.find(group, topic_name, position)
            case TopicOrderQuery(name):
                ends = [self.order.ordered_end(each) for each in self.spread.streams_of(name)]
                return self.order.next_position(name), ends
            case OrderTailQuery(stream, topic_name, first, runs_max):
                return self.order.tail(stream, topic_name, first, runs_max)
            case CoverQuery(name, first, tail, runs_max):
                return cover(self.named(name), self.maps.get(name), tail, first, runs_max)
            case MissingRunsQuery(stream, mapped, count_max):
                return self.order.missing(stream, mapped, count_max)
            case OrderedRunsQuery(stream, local, count_max):
                known = self.order.missing(stream, Position(local), count_max)
                return known or self.maps.runs_at(stream.name, local, count_max)
            case PlacementQuery(record):
                return self.find_settled_group(record)
            case _:
                return self.placements.answer(query)

    def find_settled(self, batch: Batch) -> dict[str, object] | None:
        """Return the answer to a record about groups, streams or the order that would change nothing; None = it would.

        Raises:
          TopicExistsError, RequestError: it would be refused.
          OutdatedCodeError: it has a field that this release does not know.
        """
        if batch.kind is Kind.ORDER:
            self.check_release(batch)
            return None if self.order.check(batch, self.spread.by_stream) else self.order.describe()
        if batch.kind is Kind.CONTEXT:
            return None if self.maps.check(batch, self.names) else {}
        if batch.kind is Kind.SEAL_STREAM:
            self.check_sealable(batch)
            return {} if self.sealed.is_settled(batch, self.names) else None
        if batch.kind is Kind.DROP_STREAM:
            return None if self._droppable(batch) is not None else {}
        if batch.kind in SPREAD_CHANGES:
            present, changed = self.spread.changed(batch, self.order, self.placements)
            return {"topic": present.describe()} if changed is None else None
        if batch.kind is Kind.SPREAD_TOPIC:
            topic = self.spread.find_settled(batch, self.placements, self.names)
            return {"topic": topic.describe()} if topic is not None else None
        settled = self.find_settled_group(batch)
        return {"group": settled.describe()} if settled is not None else None

    def find_settled_group(self, batch: Batch) -> PlacedGroup | None:
        """Return the group if a record about a group would change nothing; None = it would. Raises RequestError."""
        settled = self.placements.find_settled(batch)
        if batch.kind is Kind.REMOVE_GROUP and settled is None:
            check_empty(batch, self.spread, self.spread_actors)
        return settled

    def creatable(self, settings: TopicSettings, topics_max: int) -> Topic | None:
        """Return the existing topic that a CREATE_TOPIC finds; None = it creates one.

        Raises:
          TopicExistsError: the topic exists with another retention than the requested one, or with streams.
          RequestError: there would be too many topics.
        """
        self.spread.check_free(settings.name)
        self.sealed.check_kept(settings.name)
        topic = self.names.get(settings.name)
        if topic is None:
            if len(self.topics) >= topics_max:
                raise RequestError(
                    f"topic {settings.name!r} would exceed the limit of {topics_max} topics; it was not created",
                    remedy="use fewer topics; distinguish their records by key or header",
                )
            return None
        wanted = (settings.retain_bytes or 0, settings.retain_seconds or 0.0)
        if any(wanted) and wanted != (topic.retain_bytes, topic.retain_seconds):
            raise TopicExistsError(
                f"topic {topic.name!r} keeps {_retention(topic.retain_bytes, topic.retain_seconds)},"
                f" not {_retention(*wanted)}",
                remedy=f"to change its retention: viewstamp topic configure {topic.name}",
            )
        return topic

    def trimmable(self, name: str, position: Position, end: Position | None = None) -> Topic:
        """Return the topic that a TRIM_TOPIC trims, if its next position is ``end``; None = as it is.

        Raises:
          UnknownTopicError: there is none.
          RequestError: the position is beyond the end of the topic.
        """
        topic = self.named(name)
        end = topic.next_position if end is None else end
        if position > end:
            raise RequestError(
                f"topic {name!r} ends at position {end - 1}, so it cannot be trimmed to {position}",
                remedy=f"trim it to {end} to delete all its records",
            )
        self.keys.check_trim(topic, position)
        return topic

    def describe_sink(self, sink: SinkState) -> dict[str, object]:
        """Return a sink as the wire and users see it; ``is_pending``: a committed batch is not visible yet."""
        pending = {"is_pending": True} if self.commits.is_pending(sink.name) else {}
        return {**self.staging.describe(sink), **pending}

    def describe(self, topic: Topic) -> dict[str, object]:
        """Return a topic as the wire and users see it, with its archived part and its view by key if it has them."""
        return {**topic.describe(), **describe_archive(topic, self.runs), **self.keys.describe(topic)}

    def archivable(self, batch: Batch, topics_max: int) -> tuple[Topic | None, TopicSettings, ArchiveSettings]:
        """Return the topic of a CONFIGURE_ARCHIVE, with its retention and its archive settings afterwards.

        The topic is None if the record creates it. The retention has no None.

        Raises:
          UnknownTopicError: there is none. TopicExistsError: it is to be created, and exists with other settings.
          RequestError: a value is not allowed, there would be too many topics, or archived records would be deleted.
          OutdatedCodeError: it has a field that this release does not know.
        """
        settings, change, is_new = decode_archive(batch)
        topic = self.creatable(settings, topics_max) if is_new else self.named(settings.name)
        archive = change.applied_to(settings.name, OFF if is_new or topic is None else topic.archive)
        if topic is None:
            return (
                None,
                TopicSettings(settings.name, settings.retain_bytes or 0, settings.retain_seconds or 0.0),
                archive,
            )
        if is_new and archive != topic.archive:
            raise TopicExistsError(
                f"topic {topic.name!r} exists with other archive settings; it was not changed",
                remedy=f"to change them: viewstamp topic configure {topic.name}",
            )
        retain_bytes = topic.retain_bytes if settings.retain_bytes is None or is_new else settings.retain_bytes
        retain_seconds = topic.retain_seconds if settings.retain_seconds is None or is_new else settings.retain_seconds
        if (
            topic.archive.is_on
            and not archive.is_on
            and (retain_bytes or retain_seconds)
            and any(self.runs.kept(topic))
        ):
            raise RequestError(
                f"without the archive the retention of topic {topic.name!r} would delete archived records; nothing was"
                " changed",
                remedy="clear the retention with the same command: --retain-bytes 0 --retain-age 0",
            )
        return topic, TopicSettings(topic.name, retain_bytes, retain_seconds), archive

    def schemable(self, batch: Batch) -> tuple[Topic, str]:
        """Return the topic of a CONFIGURE_SCHEMA, and its schema afterwards.

        Raises:
          UnknownTopicError: there is none. RequestError: it cannot have this schema.
          OutdatedCodeError: the record has a field that this release does not know.
        """
        name, schema = decode_schema(batch)
        topic = self.named(name)
        return topic, successor(topic.schema, schema)

    @property
    def has_schema(self) -> bool:
        """Whether any topic has a schema."""
        return any(topic.schema for topic in self.topics.values())

    # Images.

    @property
    def has_order(self) -> bool:
        """Return whether this group orders streams, or its streams are ordered or sealed."""
        return self.order.is_used or self.maps.is_used or bool(self.sealed.names)

    def image(self) -> list[object]:
        """Return the state without topics and sessions, as plain values.

        Without commits of sinks over streams, then without keyed topics, then without spread actors, without an order,
        without spread topics, without runs, without groups, and without tokens, it is as older releases have it.
        """
        counts = [len(self.topics), len(self.sessions.by_id)]
        commits = [self.commits.image()] if self.commits.pending else []
        keys = [self.keys.image()] if self.keys.is_used or commits else []
        actors = [self.spread_actors.image()] if self.spread_actors.actors or keys else []
        sealed = [self.sealed.image()] if self.sealed.names else []
        ordering = [[self.order.image(), self.maps.image(), *sealed]] if self.has_order or actors else []
        spread = [self.spread.image()] if self.spread.topics or ordering else []
        runs = [self.runs.image()] if self.runs.is_used or spread else []
        groups = [self.placements.image()] if self.placements.is_used or runs else []
        access = [self.access.image()] if self.access.is_used or groups else []
        image = [self.log_bytes, self.end, self.chain, self.next_second, self.staging.image()]
        return [*image, *access, *groups, *runs, *spread, *ordering, *actors, *keys, *commits, *counts]

    @classmethod
    def from_image(cls, image: list[Any]) -> State:
        """Rebuild a state from :meth:`image`; topics and sessions are added afterwards."""
        state = cls()
        state.log_bytes, state.end, state.chain, state.next_second = image[:4]
        if len(image) > 4:
            state.staging = Staging.from_image(image[4])
        if len(image) > 5:
            state.access = Access.from_image(image[5])
        if len(image) > 6:
            state.placements = Placements.from_image(image[6])
        if len(image) > 7:
            state.runs = RunCatalogue.from_image(image[7])
        if len(image) > 8:
            state.spread = SpreadTopics.from_image(image[8], state.placements)
        if len(image) > 9:
            state.order = Order.from_image(image[9][0], state.spread.by_stream)
            state.maps = StreamMaps.from_image(image[9][1])
            if len(image[9]) > 2:
                state.sealed = SealedStreams.from_image(image[9][2])
            state.order.seal(state.spread.sealed_streams())
        if len(image) > 10:
            state.spread_actors = SpreadActors.from_image(image[10], state.placements)
        if len(image) > 11:
            state.keys = KeyCatalogue.from_image(image[11])
        if len(image) > 12:
            state.commits = SpreadCommits.from_image(image[12], state.spread.by_stream)
        state.spread.check_trimmed(state.order)
        state.spread.check_sealed(state.order)
        return state


def _retention(retain_bytes: int, retain_seconds: float) -> str:
    kept = [f"{retain_bytes} bytes"] * bool(retain_bytes) + [f"{retain_seconds:g} seconds"] * bool(retain_seconds)
    return " and ".join(kept) or "everything"
