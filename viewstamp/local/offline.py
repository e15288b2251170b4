"""Reads a topic's records from a node's files, without the node and without its actors."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from viewstamp.errors import ConfigError, CorruptionError, RequestError, UnknownTopicError
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Disk
from viewstamp.node.snapshots.file import read_header, read_pieces
from viewstamp.streams.cut import load_state
from viewstamp.streams.settings import decode_settings
from viewstamp.wal.offline import read_batches
from viewstamp.wire.batch import Batch, Kind, Record

__all__ = ["offline_records"]


def offline_records(path: str, topic: str) -> Iterator[Record]:
    """Yield a topic's records in order, in one forward pass. Changes nothing.

    A log whose prefix was deleted does not contain the names of its topics any more; they are read from a snapshot
    beside it.

    Raises:
      UnknownTopicError: neither log nor snapshots have such a topic.
      CorruptionError: damage, or positions with a gap; all records before it have been yielded.
    """
    disk = RealDisk()
    names, named_end = _topics_of_snapshot(disk, path)
    expected: dict[int, int] = {}
    for batch in read_batches(disk, path):
        if batch.kind is Kind.CREATE_TOPIC and batch.first_index >= named_end:
            _note_topic(names, batch)
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


def _topics_of_snapshot(disk: Disk, path: str) -> tuple[dict[int, str], int]:
    """Return the topics by id from the newest readable snapshot near ``path``, and its end; {} and 1 = none."""
    path = posixpath.normpath(path)
    for parent in (path, posixpath.dirname(path), posixpath.dirname(posixpath.dirname(path))):
        directory = f"{parent}/snapshots"
        for name in sorted(disk.list_directory(directory), reverse=True):
            if not name.endswith(".snapshot"):
                continue
            file = disk.open_read(f"{directory}/{name}")
            try:
                header = read_header(file)
                state = load_state(read_pieces(file, header))
                return {int(id_): topic.name for id_, topic in state.topics.items()}, header.meta.end
            except (CorruptionError, ConfigError):
                continue  # An older snapshot will do, because the log has the topics created since.
            finally:
                file.close()
    return {}, 1
