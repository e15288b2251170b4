"""The streams of spread topics: the leader of a group brings those of its group in step with the topics of group 0.

It creates the streams that the group lacks. If a topic was configured, it gives its streams the retention and the
archive settings of the topic.
If it was trimmed to a global position, it trims each stream to its first record from there on. If it has a schema, its
streams get it. If a stream is closing, it seals it. If it is removed, it drops it.

A stream is a topic in the state of its group. Only the leader of the group creates it, by a CREATE_TOPIC that it
proposes itself, from the applied state of group 0 on its node. Clients must not, because a forged or old request would
create a stream that group 0 does not have.

| event | effect |
| --- | --- |
| the leader of a group changes, or dies before its record is committed | the next leader finds the stream missing |
| the record is lost because the leader stops leading | the next leader proposes it, or this one when it leads again |
| two records for one stream | the second one finds the topic |
| the leader's node lags behind group 0, or replays its log | it creates the stream when it has applied the record |
| the log of the group is full, or the leader is overloaded | it tries again after 0.5 s |
| a snapshot of group 0 is adopted | as if its records were applied |
| the clock jumps | nothing depends on it |

So nothing here is remembered: each look compares the two states again.

A retention that was replaced must not come back, because it may delete records that the newer one keeps. So a leader
configures a stream only after a linearizable read of group 0 that it began while it led in the present term. If an
earlier leader has given the stream a newer retention, then the record of group 0 about it was committed before this
term, so the read has it. A creation needs no such read, because a new stream has no records: if the leader's state of
group 0 is old, the stream is configured afterwards.

| event | effect |
| --- | --- |
| group 0 has no majority | no stream is configured; tried again every 0.5 s |
| the leader changes between the read and the record | the record is refused, or precedes those of the next leader |
| the topic is configured again between the read and the record | both reach the streams, in this order |
| the stream was created with an earlier retention | it is configured, once its creation is applied |

A trim needs no such read, because the position of a topic never falls. The leader looks up the global position in the
map of its group. If all records of the map are below it, it trims up to the end of the map, because later records of
the topic have higher positions than earlier ones of the same stream, but may be below it too. So it looks again every
0.5 s while group 0 has runs of the stream that the map lacks. A record without a run in the map is never trimmed.

A schema needs no such read, because it only becomes wider: a stream that has a wider one than the leader's state of
group 0 keeps it. Clients check rows by the schema in group 0, so no append waits for that of a stream.

A seal needs no such read either, because a stream that is closing stays so. A leader whose state of group 0 is old
seals it later, and until then the stream gets records, which are ordered. For the same reason the drop of a stream that
is removed needs none. A lost stream whose group lives after all is trimmed to its end first: its topic is trimmed above
all records that have a position, and group 0 has forgotten which these are. The records behind its end never get one,
and are deleted with it. A stream that was dropped is never created again, whatever state of group 0 a leader has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgpack

from viewstamp.errors import StreamSealedError, UnknownTopicError, ViewstampError
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, GroupId, Position, Stream
from viewstamp.node.archive_queries import ArchiveQuery
from viewstamp.node.group import Group
from viewstamp.node.order_queries import FirstFromQuery, MissingRunsQuery, StreamReportsQuery
from viewstamp.node.placement_queries import ClosedStream, SealedStreamQuery, SpreadTopic, SpreadTopicsQuery
from viewstamp.node.sink_part_queries import HasSealedPartsQuery
from viewstamp.node.state_machine import Result, TopicQuery
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.row_schema import is_successor
from viewstamp.wire.sealing import encode_drop, encode_seal

__all__ = ["StreamTopics"]

_REPEAT_SECONDS = 0.5
_DONE = {
    Kind.CREATE_TOPIC: "created",
    Kind.CONFIGURE_TOPIC: "configured",
    Kind.CONFIGURE_ARCHIVE: "configured",
    Kind.CONFIGURE_SCHEMA: "given its schema",
    Kind.TRIM_TOPIC: "trimmed",
    Kind.SEAL_STREAM: "sealed",
    Kind.DROP_STREAM: "dropped",
}


class StreamTopics:
    """Creates, configures, trims, seals and drops the streams of the groups which this node leads.

    Invariants:
      * a stream is proposed only while it is in the applied state of group 0, and missing in that of its group
      * a stream is configured only after a linearizable read of group 0 in the present term of its leader
      * a stream gets a schema only if it is that of its topic in the applied state of group 0, and wider than its own
      * a stream is sealed only if the applied state of group 0 has it as closing
      * a stream is dropped only if the applied state of group 0 has it as removed, and its group keeps no record of it
        that has a position
      * a stream is trimmed only up to the end of its map, and keeps all records from the topic's first position on
      * a stream has at most one record without an answer
    """

    def __init__(
        self,
        group: Group,
        hosted: Mapping[GroupId, Group],
        *,
        on_failed: Callable[[BaseException], None],
        log: Logger,
    ) -> None:
        """Prepare; nothing is proposed before :meth:`look`.

        Args:
          group: group 0 of this node.
          hosted: all groups of this node.
          on_failed: called if the configuring itself has failed, which ends the node.
          log: the logger of the node.
        """
        self._group = group
        self._hosted = hosted
        self._on_failed = on_failed
        self._logger = log
        self._proposed: set[tuple[GroupId, str]] = set()
        """The streams whose record is not answered yet."""
        self._again: asyncio.TimerHandle | None = None
        self._configuring: asyncio.Task[None] | None = None
        self._is_stopping = False

    def look(self) -> None:
        """Propose what is missing. Called after each change of a role and of the state of group 0. Never awaits."""
        if self._is_stopping or self._group.parts is None:
            return
        for group, topic, stream in self._streams(self._group.machine.query(SpreadTopicsQuery())):
            settings, closed = _settings_of(group, stream), topic.closed_stream(topic.number_of(stream))
            is_sealed = group.machine.query(SealedStreamQuery(stream))
            if settings is None:
                self._propose(group, stream, _record(stream, topic, is_new=True))
            elif closed is not None and not is_sealed:
                if group.machine.query(HasSealedPartsQuery()):  # A batch of a sink may have records for it.
                    self._repeat()
                else:
                    self._propose(group, stream, encode_seal(stream))
            elif closed is not None and closed.gone and (record := _removal(stream, settings, closed)) is not None:
                if record.kind is Kind.DROP_STREAM and group.machine.query(ArchiveQuery(stream)).runs:
                    self._repeat()  # The archivist removes the files of the deleted records first.
                else:
                    self._propose(group, stream, record)
            elif _differs(settings, topic) and self._configuring is None:
                self._configuring = asyncio.get_running_loop().create_task(self._configure())
            elif topic.schema and is_successor(settings.get("schema", ""), topic.schema):
                record = msgpack.packb({"name": stream, "schema": topic.schema})
                self._propose(group, stream, build_batch([record], kind=Kind.CONFIGURE_SCHEMA))
            elif topic.first_position > 1:
                self._trim(group, topic, stream, settings["first_position"])

    async def stop(self) -> None:
        """Propose nothing more. Idempotent."""
        self._is_stopping = True
        if self._again is not None:
            self._again.cancel()
        if self._configuring is not None:
            self._configuring.cancel()
            await asyncio.wait([self._configuring])

    def _streams(self, topics: list[SpreadTopic]) -> Iterator[tuple[Group, SpreadTopic, str]]:
        """Yield the streams of the groups that this node leads, without dropped ones, and those with a record going."""
        for group in list(self._hosted.values()) if topics else ():
            if group.id == GROUP_0 or group.replica is None or not group.replica.is_leading:
                continue
            for topic in topics:
                for stream in topic.streams_of(group.id):
                    if (group.id, stream) not in self._proposed and not _is_dropped(group, topic, stream):
                        yield group, topic, stream

    def _trim(self, group: Group, topic: SpreadTopic, stream: str, first_position: int) -> None:
        """Trim a stream to its first record from the first global position of its topic on, as far as that is known."""
        position = group.machine.query(FirstFromQuery(stream, topic.first_position))
        if position > first_position:
            record = msgpack.packb({"name": stream, "position": position})
            self._propose(group, stream, build_batch([record], kind=Kind.TRIM_TOPIC))
            return
        reports = group.machine.query(StreamReportsQuery(group.id))
        mapped = next((each.mapped for each in reports if each.stream.name == stream), Position(1))
        if self._group.machine.query(MissingRunsQuery(Stream(group.id, stream), mapped, 1)):
            self._repeat()

    async def _configure(self) -> None:
        """Give streams the retention of their topics; the root of its task."""
        try:
            terms = {group.id: _leading_term(group) for group in self._hosted.values()}
            try:
                topics, _ = await self._group.reading.query(SpreadTopicsQuery(), stale=False)
            except ViewstampError:
                self._repeat()
                return
            finally:
                self._configuring = None
            for group, topic, stream in self._streams(topics):
                settings = _settings_of(group, stream)
                if terms.get(group.id, 0) == _leading_term(group) and settings and _differs(settings, topic):
                    self._propose(group, stream, _record(stream, topic, is_new=False))
                elif settings is None or _differs(settings, topic):
                    self._repeat()  # A leader, a topic or a stream has changed during the read.
        except Exception as error:
            self._on_failed(error)

    def _propose(self, group: Group, stream: str, record: Batch) -> None:
        self._proposed.add((group.id, stream))
        try:
            group.propose(record, partial(self._on_answer, group.id, stream, record.kind))
        except ViewstampError as error:
            self._on_answer(group.id, stream, record.kind, error)

    def _on_answer(self, group: GroupId, stream: str, kind: Kind, answer: Result | ViewstampError) -> None:
        self._proposed.discard((group, stream))
        done = _DONE[kind]
        if isinstance(answer, ViewstampError):
            self._logger.warning(f"! stream not {done}", group=group, stream=stream, error=str(answer))
            self._repeat()
            return
        self._logger.info(f"= stream {done}", group=group, stream=stream)
        if not self._is_stopping:  # Its topic may have been configured meanwhile.
            asyncio.get_running_loop().call_soon(self.look)

    def _repeat(self) -> None:
        if self._again is None and not self._is_stopping:
            self._again = asyncio.get_running_loop().call_later(_REPEAT_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self.look()


def _leading_term(group: Group) -> int:
    """Return the term in which this node leads a group, and has applied everything of earlier ones; 0 = it does not."""
    replica = group.replica
    return replica.raft.core.term if replica is not None and replica.is_leading else 0


def _settings_of(group: Group, stream: str) -> dict[str, Any] | None:
    """Return a topic as the applied state of a group has it; None = the group lacks it."""
    try:
        return group.machine.query(TopicQuery(stream))
    except (UnknownTopicError, StreamSealedError):
        return None


def _is_dropped(group: Group, topic: SpreadTopic, stream: str) -> bool:
    """Return whether a stream has nothing left to do: it was dropped, or removed before its group has created it."""
    if _settings_of(group, stream) is not None:
        return False
    closed = topic.closed_stream(topic.number_of(stream))
    return group.machine.query(SealedStreamQuery(stream)) or (closed is not None and closed.gone > 0)


def _differs(settings: Mapping[str, Any], topic: SpreadTopic) -> bool:
    """Return whether a stream has to be configured. A topic that never was leaves its streams as they are."""
    kept = settings["retain_bytes"], settings["retain_seconds"], settings.get("archive")
    return topic.configured > 0 and kept != (topic.retain_bytes, topic.retain_seconds, _archive_of(topic))


def _removal(stream: str, settings: Mapping[str, Any], closed: ClosedStream) -> Batch | None:
    """Return the next record of a group for its stream that is removed; None = it keeps records with a position."""
    end = min(closed.end, settings["last_position"] + 1)
    if settings["first_position"] >= end:
        return encode_drop(stream, closed.end, closed.gone)
    if not closed.lost_at:
        return None
    return build_batch([msgpack.packb({"name": stream, "position": end})], kind=Kind.TRIM_TOPIC)


def _archive_of(topic: SpreadTopic) -> dict[str, object] | None:
    """Return the archive settings of the streams of a topic; None = they have no archive."""
    return topic.archive._asdict() if topic.archive is not None and topic.archive.is_on else None


def _record(stream: str, topic: SpreadTopic, *, is_new: bool) -> Batch:
    """Return the record that creates or configures a stream.

    A stream of a topic with the archive is created with it, because a retention alone would delete its records.
    """
    settings = {"name": stream, "retain_bytes": topic.retain_bytes, "retain_seconds": topic.retain_seconds}
    archive = _archive_of(topic)
    if archive is None and (is_new or topic.archive is None):
        kind = Kind.CREATE_TOPIC if is_new else Kind.CONFIGURE_TOPIC
        return build_batch([msgpack.packb(settings)], kind=kind)
    fields = {**settings, **(archive or {"is_on": False}), "is_new": is_new}
    return build_batch([msgpack.packb(fields)], kind=Kind.CONFIGURE_ARCHIVE)
