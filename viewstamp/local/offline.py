"""Reads a topic's records from a node's files, without the node and without its actors."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

from viewstamp.errors import ConfigError, CorruptionError, RequestError, UnknownTopicError
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Disk
from viewstamp.ids import Position, RunId, TopicId
from viewstamp.node.snapshots.file import read_header, read_pieces
from viewstamp.streams.cut import load_state
from viewstamp.streams.settings import decode_settings
from viewstamp.streams.state import State
from viewstamp.wal.offline import read_batches
from viewstamp.wire.batch import Batch, Kind, Record
from viewstamp.wire.staged import decode_fields

__all__ = ["offline_records"]


def offline_records(path: str, topic: str, on_archived: Callable[[int], None] = lambda _: None) -> Iterator[Record]:
    """Yield a topic's records in order, in one forward pass. Changes nothing.

    A log whose prefix was deleted does not contain the names of its topics any more; they are read from a snapshot
    beside it. At the end ``on_archived`` is called with the archived end of the topic, if it has one: the records below
    it are in the files of the archive, and may be in the log too.

    Raises:
      UnknownTopicError: neither log nor snapshots have such a topic.
      CorruptionError: damage, or positions with a gap; all records before it have been yielded.
    """
    disk = RealDisk()
    state, named_end = _state_near(disk, path)
    names = {int(id_): found.name for id_, found in state.topics.items()}
    ends = dict(state.runs.ends)
    prepared = {run.id: (run.topic, run.end) for run in state.runs.runs.values()}
    expected: dict[int, int] = {}
    for batch in read_batches(disk, path):
        if batch.kind is Kind.CREATE_TOPIC and batch.first_index >= named_end:
            _note_topic(names, batch)
        elif batch.kind is Kind.PREPARE_RUN:
            topic_id, end = decode_fields(batch, topic=int, end=int)
            prepared[RunId(batch.first_index)] = TopicId(topic_id), Position(end)
        elif batch.kind is Kind.COMMIT_RUN:
            topic_id, end = prepared.get(RunId(decode_fields(batch, run=int)[0]), (TopicId(0), Position(0)))
            ends[topic_id] = max(ends.get(topic_id, end), end)
        elif batch.kind is Kind.RECORDS:
            if expected.get(batch.topic, batch.first_position) != batch.first_position:
                raise CorruptionError(
                    f"{batch!r} follows position {expected[batch.topic] - 1} of its topic",
                    path=path,
                    expected=str(expected[batch.topic]),
                    found=str(batch.first_position),
                    remedy="read another member's files, and report this as a bug",
                )
            expected[batch.topic] = batch.first_position + batch.count
            if names.get(batch.topic) == topic:
                yield from batch.records()
    for id_, end in ends.items():
        if names.get(id_) == topic:
            on_archived(end)
    if topic not in names.values():
        raise UnknownTopicError(
            f"the log in {path} has no topic {topic!r}; it has: {', '.join(names.values()) or 'none'}",
            remedy="name one of them; or name the whole data directory, because its snapshots may know the topic",
        )


def _note_topic(names: dict[int, str], batch: Batch) -> None:
    """Give a new topic the next id, as every member did; a rejected creation did not use an id."""
    try:
        name = decode_settings(batch).name
    except RequestError:
        return
    if name not in names.values():
        names[len(names) + 1] = name


def _state_near(disk: Disk, path: str) -> tuple[State, int]:
    """Return the state of the newest readable snapshot near ``path``, and its end; an empty one and 1 = none."""
    path = posixpath.normpath(path)
    for parent in (path, posixpath.dirname(path), posixpath.dirname(posixpath.dirname(path))):
        directory = f"{parent}/snapshots"
        for name in sorted(disk.list_directory(directory), reverse=True):
            if not name.endswith(".snapshot"):
                continue
            file = disk.open_read(f"{directory}/{name}")
            try:
                header = read_header(file)
                return load_state(read_pieces(file, header)), header.meta.end
            except (CorruptionError, ConfigError):
                continue  # An older snapshot will do, because the log has the topics created since.
            finally:
                file.close()
    return State(), 1
