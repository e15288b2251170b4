"""The end and the removal of streams of spread topics: the rules of the records about it. Pure.

| record, in | fields | changes nothing if | refused if |
| --- | --- | --- | --- |
| CLOSE_STREAM, group 0 | name, stream, into: the stream that gets its slots, is_named: whether the caller names it \
| the stream is closing or sealed | ... into another stream than the caller has named; there is no such topic or \
stream; ``into`` is this stream, or is not open |
| SEAL_STREAM, the group of the stream | stream: its name | the stream is sealed | there is no such topic |
| SEALED_STREAM, group 0 | name, stream, end | the stream is sealed with this end | the stream is not closing; or its \
ordered end is not ``end`` |
| LOSE_STREAM, group 0 | as CLOSE_STREAM | the stream is sealed | as CLOSE_STREAM |
| LOSE_SEALED_STREAM, group 0 | name, stream | the stream is lost or removed | the stream is not sealed |
| GONE_STREAM, group 0 | name, stream, behind: a global position above its records | the stream is removed | the \
stream is not sealed; ``behind`` cannot be such a position; the stream is lost, and the topic is not trimmed above it |
| DROP_STREAM, the group of the stream | stream: its name, end, gone: the index of the GONE_STREAM | the stream is \
dropped | there is no such topic; it is not sealed; it keeps a record below ``end`` |

A stream is *open*, *closing* from CLOSE_STREAM on, and *sealed* from SEALED_STREAM on. Its slots belong to it until
then. Only SEALED_STREAM gives them to ``into``, and it is applied behind the ORDER that has given the last record of
the stream its global position. So all positions that ``into`` gets for a record of these slots are higher, and the
records with the same key keep their order.

All slots of a stream go to one other stream, so that keys that had one stream still have one: an atomic append stays
possible. ``into`` is open when the record is applied. So at least one stream is always open, and no stream gets its own
slots back. If it is ended later, the slots go on to the next one.

LOSE_STREAM seals a stream whose group has no majority for ever: at its ordered end, as it is when the record is
applied. So an ORDER before the record counts, one behind it does not, and the members agree. It breaks a promise,
because records behind that end may have been acknowledged as durable and never get a global position. The order of each
key holds all the same: all records of the stream that have a position have a lower one than those that ``into`` gets
afterwards. If the group lives, its leader finds the stream closed and seals it, as after CLOSE_STREAM.

LOSE_SEALED_STREAM notes of a stream that is sealed that its group has no majority for ever. It deletes nothing, and
takes no position from a record: all records of a sealed stream have one below the next position of the topic, which the
record notes. So readers can pass the stream from there on, and it can be removed when the topic is trimmed to there. If
the group lives all the same, it serves its records as before.

A stream is *removed* by GONE_STREAM, when its group keeps none of its records that have a position. This stays true,
because a sealed stream gets no further ones. So it makes no difference when it was read, and by whom. Group 0 forgets
the order of the stream, and keeps its number, its group, its end and ``into``: numbers are never used again, and the
route of the topic leads through ``into``. Then the group of the stream drops the topic that the stream is in its state,
and keeps the name and the id of that topic, so that both are never used again. It checks again that nothing is deleted
that has a position, because the record of group 0 rests on the word of a client.

There is no way back, because some clients may have read that the stream is closed, or removed. A record with a field
that this release does not know raises ``OutdatedCodeError``, as those of ``spread.py``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from viewstamp.errors import RequestError, StreamSealedError, UnknownTopicError
from viewstamp.ids import GlobalPosition, Index, Position, TopicId
from viewstamp.node.placement_queries import ClosedStream, SpreadTopic
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.staged import decode_known

__all__ = [
    "SEALING_FIELDS",
    "SealedStreams",
    "closed_image",
    "closed_topic",
    "decode_drop",
    "decode_sealed",
    "gone_topic",
    "lost_sealed_topic",
    "lost_topic",
    "read_closed",
    "sealed_topic",
]

SEALING_FIELDS = {
    Kind.CLOSE_STREAM: frozenset({"name", "stream", "into", "is_named", "by"}),
    Kind.LOSE_STREAM: frozenset({"name", "stream", "into", "is_named", "by"}),
    Kind.LOSE_SEALED_STREAM: frozenset({"name", "stream", "by"}),
    Kind.SEALED_STREAM: frozenset({"name", "stream", "end"}),
    Kind.SEAL_STREAM: frozenset({"stream"}),
    Kind.GONE_STREAM: frozenset({"name", "stream", "behind", "by"}),
    Kind.DROP_STREAM: frozenset({"stream", "end", "gone"}),
}


def closed_topic(batch: Batch, topic: SpreadTopic) -> SpreadTopic | None:
    """Return the topic as a CLOSE_STREAM makes it; None = unchanged. Raises RequestError, OutdatedCodeError."""
    found, closed = _find_closed(batch, topic)
    return None if found is not None else replace(topic, closed=(*topic.closed, closed))


def lost_topic(
    batch: Batch, topic: SpreadTopic, ordered_ends: Sequence[Position], next_position: GlobalPosition
) -> SpreadTopic | None:
    """Return the topic as a LOSE_STREAM makes it; None = unchanged. Raises RequestError, OutdatedCodeError.

    ``ordered_ends``: for each stream, the local position behind its last record with a global one.
    ``next_position``: the next global position of the topic.
    """
    found, closed = _find_closed(batch, topic)
    if closed.end:
        return None
    lost = replace(closed, end=ordered_ends[closed.stream - 1], lost_at=next_position)
    if found is None:
        return replace(topic, closed=(*topic.closed, lost))
    return replace(topic, closed=tuple(lost if each is found else each for each in topic.closed))


def lost_sealed_topic(batch: Batch, topic: SpreadTopic, next_position: GlobalPosition) -> SpreadTopic | None:
    """Return the topic as a LOSE_SEALED_STREAM makes it; None = unchanged. Raises RequestError, OutdatedCodeError.

    ``next_position``: the next global position of the topic.
    """
    _, number = decode_known(batch, SEALING_FIELDS, name=str, stream=int)
    _check_stream(topic, number)
    found = topic.closed_stream(number)
    if found is None or not found.end:
        raise RequestError(
            f"stream {number} of topic {topic.name!r} is {'open' if found is None else 'closing'}, and not sealed;"
            " nothing was changed",
            remedy=f"give it up: viewstamp stream seal {topic.name} {number} --lost",
        )
    if found.lost_at or found.gone:
        return None
    lost = replace(found, lost_at=next_position)
    return replace(topic, closed=tuple(lost if each is found else each for each in topic.closed))


def _find_closed(batch: Batch, topic: SpreadTopic) -> tuple[ClosedStream | None, ClosedStream]:
    """Return the end of the stream of a record, None if it is open; and the one that it has, or would get.

    Raises RequestError, OutdatedCodeError.
    """
    _, number, into, is_named = decode_known(batch, SEALING_FIELDS, name=str, stream=int, into=int, is_named=bool)
    _check_stream(topic, number)
    found = topic.closed_stream(number)
    if found is not None:
        if is_named and found.into != into:
            raise RequestError(
                f"stream {number} of topic {topic.name!r} is {'sealed' if found.end else 'closing'}, and its slots go"
                f" to stream {found.into}, not {into}; nothing was changed",
                remedy="leave out the other stream (--into): a stream that is closing cannot be opened again",
            )
        return found, found
    _check_stream(topic, into)
    if topic.open_streams() == [number]:
        raise RequestError(
            f"stream {number} is the last open stream of topic {topic.name!r}; it was not sealed",
            remedy="keep it: each topic needs a stream for its records",
        )
    if into == number or topic.closed_stream(into) is not None:
        raise RequestError(
            f"the slots of stream {number} of topic {topic.name!r} cannot go to stream {into}, which is"
            f" {'the same one' if into == number else 'not open'}; nothing was changed",
            remedy="name an open stream: `viewstamp topic describe`",
        )
    return None, ClosedStream(number, into)


def decode_sealed(batch: Batch) -> tuple[str, int, Position]:
    """Return the topic, the stream and the end of a SEALED_STREAM. Raises RequestError, OutdatedCodeError."""
    name, number, end = decode_known(batch, SEALING_FIELDS, name=str, stream=int, end=int)
    return name, number, Position(end)


def sealed_topic(topic: SpreadTopic, number: int, end: Position, ordered_end: Position) -> SpreadTopic | None:
    """Return the topic as a SEALED_STREAM makes it; None = unchanged.

    Args:
      topic: the topic.
      number: the stream of the record.
      end: the end of the stream by the record.
      ordered_end: the local position behind its last record with a global one.

    Raises:
      RequestError: the stream is not closing, or not all its records have their global positions.
    """
    _check_stream(topic, number)
    found = topic.closed_stream(number)
    if found is not None and found.end == end:
        return None
    if found is None or found.end or end != ordered_end:
        phase = "open" if found is None else f"sealed at {found.end}" if found.end else "closing"
        raise RequestError(
            f"stream {number} of topic {topic.name!r} is {phase} and ordered up to {ordered_end}, so it cannot be"
            f" sealed at {end}; nothing was changed",
            remedy="nothing is to be done: the leader of group 0 seals it when all its records are ordered",
        )
    changed = tuple(replace(each, end=end) if each is found else each for each in topic.closed)
    return replace(topic, closed=changed)


def gone_topic(batch: Batch, topic: SpreadTopic, next_position: GlobalPosition) -> SpreadTopic | None:
    """Return the topic as a GONE_STREAM makes it; None = unchanged. Raises RequestError, OutdatedCodeError.

    ``next_position``: the next global position of the topic.
    """
    _, number, behind = decode_known(batch, SEALING_FIELDS, name=str, stream=int, behind=int)
    _check_stream(topic, number)
    found = topic.closed_stream(number)
    if found is not None and found.gone:
        return None
    what = f"stream {number} of topic {topic.name!r}"
    if found is None or not found.end:
        raise RequestError(
            f"{what} is {'open' if found is None else 'closing'}; it was not removed",
            remedy=f"end it first: viewstamp stream seal {topic.name} {number}"
            if found is None
            else "give the command again when it is sealed: `viewstamp topic describe`",
        )
    if found.lost_at > topic.first_position:
        raise RequestError(
            f"{what} is lost, and has records from global position {topic.first_position} on; it was not removed",
            remedy=f"delete what is below it: viewstamp topic trim {topic.name} --before {found.lost_at}",
        )
    if not found.lost_at and not found.end <= behind <= next_position:
        raise RequestError(
            f"{what} cannot have its last record before global position {behind}, because it had {found.end - 1}"
            f" records, and the topic ends at {next_position - 1}; it was not removed",
            remedy="remove it with a client of this release",
        )
    gone_at = found.lost_at or GlobalPosition(behind)
    gone = replace(found, gone_at=gone_at, gone=Index(batch.first_index))
    return replace(topic, closed=tuple(gone if each is found else each for each in topic.closed))


def closed_image(topic: SpreadTopic) -> list[object]:
    """Return the ended streams of a topic as plain values; those that are lost or removed have more of them."""
    return [_image_of(each) for each in topic.closed]


def _image_of(closed: ClosedStream) -> list[object]:
    gone = [closed.lost_at, closed.gone_at, closed.gone] if closed.gone else []
    lost = [closed.lost_at] if closed.lost_at else []
    return [closed.stream, closed.into, closed.end, *(gone or lost)]


def read_closed(topic: SpreadTopic, image: Any) -> SpreadTopic:
    """Return a topic with its ended streams from an image. Raises ValueError or TypeError if it breaks an invariant."""
    if type(image) is not list or not image:
        raise ValueError(f"spread topic {topic.id} has the ended streams {brief_repr(image)}")
    for number, into, end, *more in image:
        streams = range(1, len(topic.groups) + 1)
        if not type(number) is type(into) is type(end) is int or not 0 <= end < 1 << 63:
            raise ValueError(f"spread topic {topic.id} has the ended stream {brief_repr([number, into, end])}")
        is_new = number in streams and into in streams and number != into
        if not is_new or not topic.closed_stream(number) is topic.closed_stream(into) is None:
            raise ValueError(f"stream {number} of spread topic {topic.id} was ended into {into}")
        is_gone = len(more) == 3
        if not (len(more) in (0, 1, 3) and all(type(each) is int and 0 <= each < 1 << 63 for each in more)) or (
            more and not (end and (more[0] or is_gone) and all(more[1:]))
        ):
            raise ValueError(f"stream {number} of spread topic {topic.id} was lost or removed at {brief_repr(more)}")
        lost_at, gone_at, gone = more if is_gone else (*more, 0, 0, 0)[:3]
        if lost_at and is_gone and gone_at != lost_at:
            raise ValueError(f"stream {number} of spread topic {topic.id} was lost at {lost_at}, not {gone_at}")
        closed = ClosedStream(
            number, into, Position(end), GlobalPosition(lost_at), GlobalPosition(gone_at), Index(gone)
        )
        topic = replace(topic, closed=(*topic.closed, closed))
    return topic


def _check_stream(topic: SpreadTopic, number: int) -> None:
    if not 1 <= number <= len(topic.groups):
        raise RequestError(
            f"topic {topic.name!r} has no stream {number}; nothing was changed",
            remedy=f"take a stream from 1 to {len(topic.groups)}",
        )


class SealedStreams:
    """The streams that are sealed, in the state of their group. None of them ever gets a record again.

    Invariants:
      * a dropped stream is sealed, and is no topic
    """

    __slots__ = ("dropped", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.dropped: dict[TopicId, str] = {}
        """The names of the dropped ones, by the ids that they had as topics."""

    def is_settled(self, batch: Batch, topics: Container[str]) -> bool:
        """Return whether a SEAL_STREAM would change nothing. Raises UnknownTopicError, RequestError."""
        return decode_seal(batch, topics) in self.names

    def apply(self, batch: Batch, topics: Container[str]) -> str:
        """Apply a committed SEAL_STREAM, and return the name of its stream. Raises as :meth:`is_settled`."""
        name = decode_seal(batch, topics)
        self.names.add(name)
        return name

    def droppable(self, batch: Batch, topics: Mapping[str, Topic]) -> Topic | None:
        """Return the topic that a DROP_STREAM deletes; None = it would change nothing.

        Raises UnknownTopicError, RequestError, OutdatedCodeError.
        """
        name, end, _ = decode_drop(batch)
        if name in self.dropped.values():
            return None
        topic = topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"{brief_repr(name)} is no stream of this group, so it was not dropped")
        kept = min(end, topic.next_position) - topic.first_position
        if name not in self.names or kept > 0:
            why = f"it keeps {kept} records with a position" if name in self.names else "it is not sealed"
            raise RequestError(f"stream {name!r} was not dropped: {why}", remedy="wait until its records are trimmed")
        return topic

    def set_aside(self, name: str, mark: str) -> bool:
        """Free the name of a dropped stream, of which group 0 does not know that it was removed; return whether it is.

        ``mark`` stands between the name and the id in the one that it gets.
        """
        for topic, dropped in self.dropped.items():
            if dropped == name:
                self.dropped[topic] = f"{name}{mark}{topic}"
                self.names.discard(name)
                self.names.add(self.dropped[topic])
                return True
        return False

    def check_kept(self, name: str) -> None:
        """Check that a name is not that of a dropped stream. Raises StreamSealedError."""
        if self.dropped and name in self.dropped.values():
            raise removed(name)

    def check(self, name: str) -> None:
        """Check that a topic may get records. Raises StreamSealedError."""
        if name in self.names:
            raise StreamSealedError(
                f"stream {name!r} is sealed; nothing was written",
                remedy="leave out the stream and the expected position, or name another stream; a client of an older"
                " release has to be started again",
            )

    def image(self) -> list[object]:
        """Return the names as plain values, behind [the id, the name] of each dropped stream if there is one."""
        dropped = [[[int(topic), name] for topic, name in self.dropped.items()]] if self.dropped else []
        return [*dropped, *sorted(self.names)]

    @classmethod
    def from_image(cls, image: list[Any]) -> SealedStreams:
        """Rebuild them from :meth:`image`. Raises ValueError or TypeError."""
        sealed = cls()
        if image and type(image[0]) is list:
            dropped, *image = image
            sealed.dropped = {TopicId(topic): name for topic, name in dropped}
            is_each_once = len(dropped) == len(sealed.dropped) == len(set(sealed.dropped.values())) > 0
            if not (is_each_once and all(type(topic) is int and topic > 0 for topic in sealed.dropped)):
                raise ValueError(f"dropped streams that are none: {brief_repr(dropped)}")
        if not image or not all(type(name) is str for name in image) or image != sorted(set(image)):
            raise ValueError(f"sealed streams that are none: {brief_repr(image)}")
        sealed.names.update(image)
        return sealed

    def check_topics(self, topics: Mapping[str, Topic]) -> None:
        """Check, after a state was loaded, that each sealed stream is a topic or dropped. Raises ValueError."""
        dropped = set(self.dropped.values())
        for name in self.names:
            if (name in topics) is (name in dropped):
                raise ValueError(f"stream {name!r} is sealed, and {'dropped' if name in dropped else 'no topic'}")
        ids = sorted([*self.dropped, *(topic.id for topic in topics.values())])
        if not dropped <= self.names or (dropped and ids != list(range(1, len(ids) + 1))):
            raise ValueError(f"dropped streams {brief_repr(sorted(dropped))} that are not sealed, or have other ids")


def decode_seal(batch: Batch, topics: Container[str]) -> str:
    """Return the stream of a SEAL_STREAM. Raises UnknownTopicError, RequestError, OutdatedCodeError."""
    (name,) = decode_known(batch, SEALING_FIELDS, stream=str)
    if name not in topics:
        raise UnknownTopicError(
            f"{brief_repr(name)} is no stream of this group, so it was not sealed", remedy="create the stream first"
        )
    return str(name)


def decode_drop(batch: Batch) -> tuple[str, int, int]:
    """Return the stream of a DROP_STREAM, its end, and the index of its GONE_STREAM.

    Raises RequestError, OutdatedCodeError.
    """
    name, end, gone = decode_known(batch, SEALING_FIELDS, stream=str, end=int, gone=int)
    return name, end, gone


def removed(name: str) -> StreamSealedError:
    """Return the error for a request that names a stream, as a topic of its group, which was dropped."""
    return StreamSealedError(
        f"stream {brief_repr(name)} was removed; nothing was written or read",
        remedy="leave out the stream and the expected position, or name another stream: `viewstamp topic describe`",
    )
