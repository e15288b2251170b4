"""The ledger: the effect of the log's batches on topics and sinks, without sessions, actors and admission.

A member applies committed batches through it. The offline replay of the files of dead members uses it too, and so
computes the same positions as the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from viewstamp.errors import CorruptionError, RequestError
from viewstamp.ids import Position, TopicId
from viewstamp.streams.archive_settings import OFF, ArchiveSettings
from viewstamp.streams.order import Order
from viewstamp.streams.placement import Placements
from viewstamp.streams.recovering import recover_order, set_aside
from viewstamp.streams.settings import decode_settings, decode_trim
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.spread_actors import SpreadActors
from viewstamp.streams.spread_commits import SpreadCommits
from viewstamp.streams.state import State
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.sink_parts import decode_commit_parts
from viewstamp.wire.staged import decode_commit, decode_fields, decode_optional, entries_of

__all__ = ["TOPICS_MAX", "Ledger", "diverged"]

TOPICS_MAX = 10_000
_GROUP_ACTIONS = {
    Kind.PLACE_GROUP: "group place",
    Kind.CANCEL_GROUP: "group cancel",
    Kind.REMOVE_GROUP: "group remove",
}
Answer = dict[str, object]


class Ledger:
    """Applies committed batches to a :class:`State`, in log order. Never awaits.

    ``before_topic``, if set, is called with each topic just before it changes.
    """

    def __init__(self, state: State, *, topics_max: int = TOPICS_MAX) -> None:
        self.state = state
        self.before_topic: Callable[[Topic], None] | None = None
        self._topics_max = topics_max
        self._commands: dict[Kind, Callable[[Batch], Answer]] = {
            Kind.CREATE_TOPIC: self._create_topic,
            Kind.CONFIGURE_TOPIC: self._configure_topic,
            Kind.CONFIGURE_ARCHIVE: self._configure_archive,
            Kind.CONFIGURE_SCHEMA: self._configure_schema,
            Kind.TRIM_TOPIC: self._trim_topic,
            Kind.BEGIN_ATTEMPT: lambda batch: self.state.staging.begin(batch, self.state.log_bytes - batch.size),
            Kind.BEGIN_PART: lambda batch: self.state.staging.begin_part(batch),
            Kind.COMMIT_PARTS: self._commit_parts,
            Kind.SEAL_ATTEMPT: lambda batch: self.state.staging.seal(batch),
            Kind.ABORT_ATTEMPTS: lambda batch: self.state.staging.abort(batch),
            Kind.FORGET_SINK: self._forget_sink,
            Kind.COMMIT: self._commit,
            Kind.FORK: self._fork,
            Kind.FORK_GROUPS: self._fork,
            Kind.RECOVER_ORDER: self._recover_order,
            Kind.SET_ASIDE: self._set_aside,
            **dict.fromkeys((Kind.PLACE_GROUP, Kind.HOSTED, Kind.CANCEL_GROUP, Kind.REMOVE_GROUP), self._place),
            **dict.fromkeys((Kind.HOST_GROUP, Kind.UNHOST_GROUP, Kind.LEFT_GROUP), self._rehost),
            Kind.SPREAD_TOPIC: self._spread,
            **dict.fromkeys((Kind.CONFIGURE_SPREAD, Kind.TRIM_SPREAD), self._change_spread),
            Kind.CONFIGURE_SPREAD_SCHEMA: self._spread_schema,
            Kind.CONFIGURE_SPREAD_ARCHIVE: self._spread_archive,
            Kind.ADD_STREAM: self._add_stream,
            **dict.fromkeys((Kind.CLOSE_STREAM, Kind.SEALED_STREAM, Kind.LOSE_STREAM), self._end_stream),
            Kind.LOSE_SEALED_STREAM: self._end_stream,
            Kind.GONE_STREAM: self._remove_stream,
            Kind.SEAL_STREAM: self._seal,
            Kind.DROP_STREAM: self._drop_stream,
            Kind.ORDER: self._order,
            Kind.CONTEXT: self._context,
            **dict.fromkeys((Kind.PREPARE_RUN, Kind.COMMIT_RUN, Kind.DROP_RUN, Kind.FORGET_RUN), self._archive),
            Kind.CONFIGURE_KEYED: self._configure_keyed,
            **dict.fromkeys((Kind.PREPARE_KEYS, Kind.COMMIT_KEYS, Kind.DROP_KEYS, Kind.FORGET_KEYS), self._dump),
            **dict.fromkeys((Kind.CREATE_TOKEN, Kind.ROTATE_TOKEN, Kind.REVOKE_TOKEN, Kind.AUDIT), self._access),
        }

    def apply(self, batch: Batch) -> Answer | None:
        """Apply a committed batch; of RECORDS and STAGED only the header is needed. Other kinds change nothing here.

        Raises:
          RequestError: a replicated refusal.
          CorruptionError: the batch contradicts the state, so the members have diverged.
        """
        state = self.state
        log_bytes = state.log_bytes
        state.log_bytes = log_bytes + batch.size
        # Without Index(...): a NewType is a function call at run time, too slow for each batch. Also below.
        state.end = batch.first_index + batch.count  # type: ignore[assignment]
        if batch.log_time >= state.next_second:
            for aging in state.aging(batch.log_time):
                self._trim(aging, state.trimmed_to(aging, batch.log_time))
            state.staging.expire(batch.log_time, log_bytes)
            if state.access.expire(batch.log_time):
                state.note(batch.first_index)
        elif log_bytes >= state.staging.next_gone_at:
            state.staging.expire(batch.log_time, log_bytes)
        kind = batch.kind
        if kind is Kind.RECORDS:
            topic = state.topics.get(batch.topic)
            if topic is None:
                raise diverged(batch, "a topic id up to", len(state.topics), batch.topic)
            if batch.first_position != topic.next_position:
                raise diverged(batch, "position", topic.next_position, batch.first_position)
            if state.sealed.names and topic.name in state.sealed.names:
                raise diverged(batch, f"records behind the end of {topic.name!r}", 0, batch.count)
            index = batch.first_index
            if self.before_topic is not None:  # From here as `_extend`, without a further call for each batch.
                self.before_topic(topic)
            topic.extend(index, batch.count, batch.size, batch.log_time, log_bytes, index)
            if topic.retain_bytes and topic.has_surplus:
                self._trim(topic, topic.retained_from(batch.log_time))
            return None
        if kind is Kind.STAGED:
            state.staging.stage(batch)
            return None
        command = self._commands.get(kind)
        return None if command is None else command(batch)

    def _extend(self, topic: Topic, index: int, count: int, size: int, time: int, log_bytes: int, oldest: int) -> None:
        if self.before_topic is not None:
            self.before_topic(topic)
        topic.extend(index, count, size, time, log_bytes, oldest)
        if topic.retain_bytes and topic.has_surplus:
            self._trim(topic, topic.retained_from(time))

    # Topics.

    def _create_topic(self, batch: Batch) -> Answer:
        state, settings = self.state, decode_settings(batch)
        topic = state.creatable(settings, self._topics_max)
        if topic is None:
            topic = Topic(state.next_topic_id, settings.name)
            topic.configure(settings.retain_bytes or 0, settings.retain_seconds or 0.0)
            state.add_topic(topic)
            state.access.note(batch, "topic create", settings.name)
        state.note(topic.id, len(state.topics))
        return {"topic": topic.describe()}

    def _configure_topic(self, batch: Batch) -> Answer:
        name, retain_bytes, retain_seconds = decode_settings(batch)
        topic = self.state.named(name)
        if self.before_topic is not None:
            self.before_topic(topic)
        self.state.configure(
            topic,
            topic.retain_bytes if retain_bytes is None else retain_bytes,
            topic.retain_seconds if retain_seconds is None else retain_seconds,
            topic.archive,
        )
        self.state.note(topic.id, topic.retain_bytes, round(topic.retain_seconds * 1e6))
        self._trim(topic, self.state.trimmed_to(topic, batch.log_time))
        kept = f"retain_bytes {topic.retain_bytes}, retain_seconds {topic.retain_seconds:g}"
        self.state.access.note(batch, "topic configure", f"{name}: {kept}")
        return {"topic": self.state.describe(topic)}

    def _configure_archive(self, batch: Batch) -> Answer:
        state = self.state
        topic, (name, retain_bytes, retain_seconds), archive = state.archivable(batch, self._topics_max)
        action = "topic configure"
        if topic is None:
            topic, action = Topic(state.next_topic_id, name), "topic create"
            state.add_topic(topic)
        if self.before_topic is not None:
            self.before_topic(topic)
        state.configure(topic, retain_bytes or 0, retain_seconds or 0.0, archive)
        ages = (archive.after_us, archive.delay_us, archive.delete_us)
        state.note(batch.kind, topic.id, topic.retain_bytes, round(topic.retain_seconds * 1e6), archive.is_on, *ages)
        self._trim(topic, state.trimmed_to(topic, batch.log_time))
        kept = f"retain_bytes {topic.retain_bytes}, retain_seconds {topic.retain_seconds:g}, archive {archive.text}"
        state.access.note(batch, action, f"{name}: {kept}")
        return {"topic": state.describe(topic)}

    def _configure_schema(self, batch: Batch) -> Answer:
        topic, schema = self.state.schemable(batch)
        if schema != topic.schema:
            if self.before_topic is not None:
                self.before_topic(topic)
            topic.schema = schema
            self.state.access.note(batch, "topic configure", f"{topic.name}: schema {schema}")
        self.state.note(batch.kind, topic.id, crc32c(schema.encode()))
        return {"topic": self.state.describe(topic)}

    def _trim_topic(self, batch: Batch) -> Answer:
        name, position = decode_trim(batch)
        topic = self.state.trimmable(name, position)
        self._trim(topic, position)
        self.state.access.note(batch, "topic trim", f"{name} to {position}")
        return {"topic": topic.describe()}

    def _trim(self, topic: Topic, position: Position) -> None:
        position = self.state.keys.kept_from(topic, position)
        if position > topic.first_position:
            if self.before_topic is not None:
                self.before_topic(topic)
            topic.trim(position)
            self.state.maps.trim(topic.name, position)
            self.state.note(topic.id, position)

    # Groups.

    def _place(self, batch: Batch) -> Answer:
        is_change = self.state.find_settled_group(batch) is None
        group = self.state.placements.apply(batch)
        self.state.note(batch.kind, group.id, len(group.incarnations))
        if is_change and batch.kind is not Kind.HOSTED:
            self.state.access.note(batch, _GROUP_ACTIONS[batch.kind], f"{group.id}: {', '.join(group.streams)}")
        return {"group": group.describe()}

    def _rehost(self, batch: Batch) -> Answer:
        is_change = self.state.placements.find_settled(batch) is None
        group = self.state.placements.apply(batch)
        counts = (len(group.hosts), len(group.leaving), len(group.left))
        self.state.note(batch.kind, group.id, *counts)
        if is_change and batch.kind is not Kind.LEFT_GROUP:
            hosts = [node for node in group.hosts if node not in group.leaving]
            self.state.access.note(batch, "group members change", f"{group.id}: {', '.join(hosts)}")
        return {"group": group.describe()}

    def _spread(self, batch: Batch) -> Answer:
        state = self.state
        is_change = state.spread.find_settled(batch, state.placements, state.names) is None
        topic = state.spread.apply(batch, state.placements, state.names)
        state.note(batch.kind, topic.id, *topic.groups)
        if is_change:
            state.access.note(batch, "topic create", f"{topic.name}: {len(topic.groups)} streams")
        return {"topic": topic.describe()}

    def _change_spread(self, batch: Batch) -> Answer:
        state = self.state
        topic, changed = state.spread.changed(batch, state.order, state.placements)
        if changed is not None:
            state.spread.change(topic := changed, state.placements)
            if batch.kind is Kind.CONFIGURE_SPREAD:
                kept = f"retain_bytes {topic.retain_bytes}, retain_seconds {topic.retain_seconds:g}"
                state.access.note(batch, "topic configure", f"{topic.name}: {kept}")
            else:
                state.access.note(batch, "topic trim", f"{topic.name} to global position {topic.first_position}")
        seconds = round(topic.retain_seconds * 1e6)
        state.note(batch.kind, topic.id, topic.configured, topic.retain_bytes, seconds, topic.first_position)
        return {"topic": topic.describe()}

    def _spread_schema(self, batch: Batch) -> Answer:
        state = self.state
        topic, changed = state.spread.changed(batch, state.order, state.placements)
        if changed is not None:
            state.spread.change(topic := changed, state.placements)
            state.access.note(batch, "topic configure", f"{topic.name}: schema {topic.schema}")
        state.note(batch.kind, topic.id, crc32c(topic.schema.encode()))
        return {"topic": topic.describe()}

    def _spread_archive(self, batch: Batch) -> Answer:
        state = self.state
        topic, changed = state.spread.changed(batch, state.order, state.placements)
        if changed is not None:
            state.spread.change(topic := changed, state.placements)
        archive = ArchiveSettings(*topic.archive) if topic.archive is not None else OFF
        if changed is not None:
            kept = f"retain_bytes {topic.retain_bytes}, retain_seconds {topic.retain_seconds:g}, archive {archive.text}"
            state.access.note(batch, "topic configure", f"{topic.name}: {kept}")
        ages = (archive.after_us, archive.delay_us, archive.delete_us)
        retention = (topic.retain_bytes, round(topic.retain_seconds * 1e6))
        state.note(batch.kind, topic.id, topic.configured, *retention, archive.is_on, *ages)
        return {"topic": topic.describe()}

    def _add_stream(self, batch: Batch) -> Answer:
        state = self.state
        topic, changed = state.spread.changed(batch, state.order, state.placements)
        if changed is not None:
            state.spread.change(topic := changed, state.placements)
            state.access.note(
                batch, "stream add", f"{topic.name}: stream {len(topic.groups)} in group {topic.groups[-1]}"
            )
        state.note(batch.kind, topic.id, topic.added, *topic.groups)
        return {"topic": topic.describe()}

    def _end_stream(self, batch: Batch) -> Answer:
        state = self.state
        before, changed = state.spread.changed(batch, state.order, state.placements)
        topic = changed or before
        if changed is not None:
            state.spread.change(topic, state.placements)
            state.order.seal(state.spread.sealed_streams())
            if batch.kind is Kind.CLOSE_STREAM:
                last = topic.closed[-1]
                state.access.note(batch, "stream seal", f"{topic.name}: stream {last.stream} into {last.into}")
            if batch.kind in (Kind.LOSE_STREAM, Kind.LOSE_SEALED_STREAM):
                lost = next(each for each in topic.closed if each not in before.closed)
                what = f"{topic.name}: stream {lost.stream} is lost behind position {lost.end - 1}, into {lost.into}"
                state.access.note(batch, "stream seal", what)
        for each in topic.closed:
            lost_at = [each.lost_at] if each.lost_at else []
            state.note(batch.kind, topic.id, each.stream, each.into, each.end, *lost_at)
        return {"topic": topic.describe()}

    def _remove_stream(self, batch: Batch) -> Answer:
        state = self.state
        before, changed = state.spread.changed(batch, state.order, state.placements)
        topic = changed or before
        if changed is not None:
            state.spread.change(topic, state.placements)
            gone = next(each for each in topic.closed if each not in before.closed)
            state.order.forget(state.spread.streams_of(topic.name)[gone.stream - 1])
            state.access.note(batch, "stream remove", f"{topic.name}: stream {gone.stream}")
        for each in topic.gone_streams:
            state.note(batch.kind, topic.id, each.stream, each.gone_at, each.gone)
        return {"topic": topic.describe()}

    def _drop_stream(self, batch: Batch) -> Answer:
        topic = self.state.drop(batch)
        self.state.note(batch.kind, *([topic.id, topic.next_position] if topic is not None else []))
        return {}

    def _seal(self, batch: Batch) -> Answer:
        self.state.check_sealable(batch)
        topic = self.state.names[self.state.sealed.apply(batch, self.state.names)]
        self.state.staging.drop_open_parts()
        self.state.note(batch.kind, topic.id, topic.next_position)
        return {}

    # The order of streams.

    def _order(self, batch: Batch) -> Answer:
        order = self.state.order
        commits = self.state.check_release(batch)
        for stream, run in order.apply(batch, self.state.spread.by_stream):
            self.state.note(stream.group, *run)
        self.state.note(*self.state.commits.release(commits))
        return order.describe()

    def _context(self, batch: Batch) -> Answer:
        for run in self.state.maps.apply(batch, self.state.names):
            self.state.note(*run)
        return {}

    # Runs.

    def _archive(self, batch: Batch) -> Answer:
        run = self.state.runs.apply(batch, self.state.topics, self.state.maps)
        topic = self.state.topics[run.topic]
        if batch.kind is Kind.COMMIT_RUN and run.end == topic.next_position:
            if self.before_topic is not None:
                self.before_topic(topic)
            topic.begin_entry()
        self.state.note(batch.kind, run.id, run.topic, run.first, run.end)
        return {"run": run.describe()}

    # Keyed topics.

    def _configure_keyed(self, batch: Batch) -> Answer:
        state = self.state
        topic = state.keys.configure(batch, state.names, apply=True)
        is_on = topic.id in state.keys.topics
        state.note(batch.kind, topic.id, is_on)
        state.access.note(batch, "topic configure", f"{topic.name}: keyed {'on' if is_on else 'off'}")
        return {"topic": state.describe(topic)}

    def _dump(self, batch: Batch) -> Answer:
        run = self.state.keys.apply(batch, self.state.topics)
        self.state.note(batch.kind, run.id, run.topic, run.first, run.end, run.state)
        return {"run": run.id}

    # Tokens.

    def _access(self, batch: Batch) -> Answer:
        answer = self.state.access.apply(batch)
        self.state.note(batch.first_index)
        return answer

    def _fork(self, batch: Batch) -> Answer:
        source, end = decode_fields(batch, **{"from": str, "end": int})
        what = f"up to index {end - 1} of cluster {source}"
        self.state.access.note(batch, "fork", what, by="owner of the files")
        if batch.kind is Kind.FORK_GROUPS:
            (groups,) = decode_fields(batch, groups=list)
            self.state.placements = self.state.placements.forked(groups)
            self.state.note(batch.kind, *self.state.placements.groups)
        else:
            # The other groups stay with the cluster that was forked, and with them the records of all streams and the
            # instances of spread actors.
            self.state.order, self.state.commits = Order(), SpreadCommits()
            self.state.placements, self.state.spread = Placements(), SpreadTopics()
            self.state.spread_actors = SpreadActors()
        self.state.keys.fork(self.state.topics)
        # Of a restored backup the text goes on behind a comma; the id of a cluster has none.
        begin = decode_optional(batch, "begin", 1)
        self.state.runs.fork(source.partition(",")[0], self.state.log_time, log_begin=begin)
        return {}

    def _recover_order(self, batch: Batch) -> Answer:
        state = self.state
        recover_order(state, batch)
        state.note(batch.kind, state.order.version, *state.order.next_positions)
        state.access.note(batch, "recover", "what the groups that are left have", by="owner of the files")
        return {}

    def _set_aside(self, batch: Batch) -> Answer:
        for topic in set_aside(self.state, batch, self.before_topic):
            self.state.note(batch.kind, topic.id)
        return {}

    # Sinks.

    def _forget_sink(self, batch: Batch) -> Answer:
        answer = self.state.staging.forget(batch)
        self.state.access.note(batch, "sink forget", str(decode_fields(batch, name=str)[0]))
        return answer

    def _commit(self, batch: Batch) -> Answer:
        state, staging = self.state, self.state.staging
        try:
            request = decode_commit(batch)
            sink = staging.check_commit(request)
        except RequestError:
            staging.note_idle(batch.first_index, state.first_visible)
            raise
        if request.batch <= sink.batch:
            staging.note_idle(batch.first_index, state.first_visible)
            return {"commit": sink.committed(request.batch, duplicate=True)}
        try:
            state.check_unsealed(request)
        except RequestError:
            staging.note_idle(batch.first_index, state.first_visible)
            raise
        # By topic, in order of first appearance: the number of records, their bytes, and their lowest index.
        parts: dict[int, tuple[int, int, int]] = {}
        for _, packed in request.parts:
            for index, topic_id, count, size in entries_of(packed):
                records, total, oldest = parts.get(topic_id, (0, 0, index))
                parts[topic_id] = records + count, total + size, min(oldest, index)
        ranges: list[list[Any]] = []
        for topic_id, (records, total, oldest) in parts.items():
            topic = state.topics[TopicId(topic_id)]
            ranges.append([topic.name, topic.next_position, records])
            state.note(topic_id, topic.next_position, records)
            self._extend(topic, batch.first_index, records, total, batch.log_time, state.log_bytes, oldest)
        staging.committed(sink, request.batch, ranges, batch)
        state.note(request.batch, batch.first_index)
        return {"commit": sink.committed(request.batch, duplicate=False)}

    def _commit_parts(self, batch: Batch) -> Answer:
        state, staging = self.state, self.state.staging
        commit = decode_commit_parts(batch)
        sink = staging.check_commit(commit.attempts)
        if commit.batch <= sink.batch:
            return {"commit": sink.committed(commit.batch, duplicate=True)}
        state.commits.check(commit, state.spread.by_stream, state.order.sealed)
        state.commits.add(batch.first_index, commit)
        staging.committed(sink, commit.batch, None, batch)
        state.note(commit.batch, batch.first_index)
        return {"commit": sink.committed(commit.batch, duplicate=False)}


def diverged(batch: Batch, what: str, expected: int, found: int) -> CorruptionError:
    """Return the error for a batch that no member with this state can have committed."""
    return CorruptionError(
        f"{batch!r} contradicts the state of this member: {what} {expected} expected, {found} found",
        expected=f"{what} {expected}",
        found=str(found),
        remedy="stop the node, keep its files, and compare its log with the other members': viewstamp wal inspect",
    )
