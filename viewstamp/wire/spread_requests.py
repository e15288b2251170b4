"""The rows of the table of requests about spread topics; ``requests.py`` has the others."""

from __future__ import annotations

from typing import Annotated

from viewstamp.wire.access import Need, Right
from viewstamp.wire.archive_requests import ARCHIVE_SECONDS_MAX
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import Range, RequestBody, request
from viewstamp.wire.spreading import STREAM_NUMBERS_MAX

__all__ = [
    "AddStream",
    "ConfigureSpreadArchive",
    "ConfigureSpreadTopic",
    "CreateSpreadTopic",
    "DescribeSpreadTopic",
    "ListSpreadTopics",
    "LoseStream",
    "ReadOrdered",
    "RemoveStream",
    "SealStream",
    "TrimSpreadTopic",
]

_ADMINISTER = Need(Right.ADMINISTER)
_POSITION = Range(1, remedy="positions begin at 1")
_SOME_BYTES = Range(1, remedy="ask for at least one byte")
_AGE = Range(0, ARCHIVE_SECONDS_MAX, remedy="give seconds, at most 100 years")
_WAIT = Range(0, 600.0, remedy="wait from 0 to 600 s")
_STREAMS = Range(1, 256, remedy="take 1 to 256 streams")
_NUMBER = Range(1, STREAM_NUMBERS_MAX, remedy="take the number of a stream")
_INTO = Range(0, STREAM_NUMBERS_MAX, remedy="take the number of another stream, or 0")


@request(FrameKind.SPREAD_TOPIC, needs=Need(Right.APPEND, topic="name"), record=Kind.SPREAD_TOPIC)
class CreateSpreadTopic(RequestBody):
    """Create a topic whose records are spread over streams of groups. A second copy of the request finds the topic.

    The leader of group 0 first asks every member of group 0 whether its release knows spread topics, and chooses the
    groups. The leaders of the groups create the streams afterwards.

    OK: ``topic`` = {id, name, retain_bytes, retain_seconds, groups (the group of each stream, from stream 1 on), slots
    (their number), ranges (a list of [first slot, stream], by the first slot), configured (the index of the record that
    has changed its retention last, 0 = none), first_position (the first global position that was not trimmed by a
    TrimSpreadTopic), closed (a list of [stream, the stream that gets its slots, the end of the sealed stream; 0 = it is
    closing], left out if no stream was ended), lost (a list of [stream, the next global position of the topic when it
    was given up], left out if none was), gone (a list of [stream, a global position above all its records], left out if
    none was removed), schema (the text of the schema of its rows, left out if it has none), archive (the archive
    settings, left out without the archive)}.
    Stream *n* is the topic ``name.n`` on a connection to its group.
    """

    name: str
    streams: Annotated[int, _STREAMS]
    groups: list[int]
    """The groups of the streams, in turns, at most one for each stream; [] = those with the fewest streams."""
    retain_bytes: int | None = None
    retain_seconds: float | None = None


@request(FrameKind.CONFIGURE_SPREAD, needs=_ADMINISTER, record=Kind.CONFIGURE_SPREAD)
class ConfigureSpreadTopic(RequestBody):
    """Change the retention of each stream of a spread topic; None = unchanged. OK: as CreateSpreadTopic.

    It changes nothing if the topic has this retention. It is refused if the topic was configured after ``since``, so
    that a late copy does not undo a later change. The leaders of the groups configure the streams afterwards.
    """

    name: str
    retain_bytes: int | None
    retain_seconds: float | None
    since: int
    """``configured`` of the topic, as the client read it before it sent the first copy."""


@request(FrameKind.CONFIGURE_SPREAD_ARCHIVE, needs=_ADMINISTER, record=Kind.CONFIGURE_SPREAD_ARCHIVE)
class ConfigureSpreadArchive(RequestBody):
    """Change the archive settings of each stream of a spread topic, and its retention; None = unchanged.

    OK: as CreateSpreadTopic. It is refused as ConfigureSpreadTopic; ``since`` is that of the first copy. Before the
    first one of a cluster the leader asks every member whether its release knows the record.
    ``streams/archive_settings.py`` explains the ages and the delay, in seconds of log time.
    """

    name: str
    since: int
    retain_bytes: int | None = None
    retain_seconds: float | None = None
    is_on: bool | None = None
    after_seconds: Annotated[float, _AGE] | None = None
    delay_seconds: Annotated[float, _AGE] | None = None
    delete_seconds: Annotated[float, _AGE] | None = None


@request(FrameKind.TRIM_SPREAD, needs=_ADMINISTER, record=Kind.TRIM_SPREAD)
class TrimSpreadTopic(RequestBody):
    """Drop the records of a spread topic below the global position ``position``. OK: as CreateSpreadTopic.

    It changes nothing if they were dropped before. The leaders of the groups trim the streams afterwards.
    """

    name: str
    position: int


@request(FrameKind.SEAL_STREAM, needs=_ADMINISTER, record=Kind.CLOSE_STREAM)
class SealStream(RequestBody):
    """End a stream of a spread topic: another stream of the topic gets its slots. OK: as CreateSpreadTopic.

    It changes nothing if the stream was ended before. The stream is closing when the answer is sent, and sealed later;
    ``closed`` has its state.
    """

    name: str
    stream: Annotated[int, _NUMBER]
    into: Annotated[int, _INTO]
    """The stream that gets its slots; 0 = the open one that has the fewest."""


@request(FrameKind.LOSE_STREAM, needs=_ADMINISTER, record=Kind.LOSE_STREAM)
class LoseStream(RequestBody):
    """End a stream of a spread topic without its group, which has no majority for ever. OK: as CreateSpreadTopic.

    The stream is sealed where its order ends, and another stream gets its slots at once. Records of the stream behind
    this end never get a global position, also if they were acknowledged. It changes nothing if the stream is sealed.

    With ``is_sealed`` it notes of a stream that is sealed that its group is lost, and changes nothing if that is noted.
    A release before this field ignores it.
    """

    name: str
    stream: Annotated[int, _NUMBER]
    into: Annotated[int, _INTO]
    """The stream that gets its slots; 0 = that of its seal if it is closing, else the open one that has the fewest."""
    is_sealed: bool = False


@request(FrameKind.ADD_STREAM, needs=_ADMINISTER, record=Kind.ADD_STREAM)
class AddStream(RequestBody):
    """Add a stream to a spread topic. OK: as CreateSpreadTopic.

    The stream has no slots, so it gets records without a key, and those of appends that name it. It gets the slots of a
    stream that ends into it. It changes nothing if the topic has a stream of this number. The leader of the group
    creates the stream afterwards.
    """

    name: str
    stream: Annotated[int, _NUMBER]
    """The number of the new stream: one more than the topic has."""
    group: int
    """The id of its group; 0 = the established one that has the fewest streams."""


@request(FrameKind.GONE_STREAM, needs=_ADMINISTER, record=Kind.GONE_STREAM)
class RemoveStream(RequestBody):
    """Remove a sealed stream of a spread topic whose group keeps none of its records. OK: as CreateSpreadTopic.

    It changes nothing if the stream is removed. The leader of its group deletes it there afterwards.
    """

    name: str
    stream: Annotated[int, _NUMBER]
    behind: Annotated[int, _POSITION]
    """The global position behind the last record of the stream; 1 = it never had one. Ignored if the stream is lost."""


@request(FrameKind.DESCRIBE_SPREAD, needs=Need(Right.READ, Right.APPEND, topic="name"))
class DescribeSpreadTopic(RequestBody):
    """Describe a spread topic. OK: ``topic`` as CreateSpreadTopic, ``age`` and ``applied_index`` as DescribeTopic.

    ``next_position``: the next global position of the topic; ``ordered_ends``: for each stream, its first local
    position without a global one. A release before these has neither.
    """

    name: str
    stale: bool


@request(FrameKind.LIST_SPREADS, needs=Need(Right.READ, Right.APPEND, Right.CALL))
class ListSpreadTopics(RequestBody):
    """List all spread topics. OK: ``topics``, a list of the maps that CreateSpreadTopic returns; ``age``."""

    stale: bool


@request(FrameKind.READ_ORDERED, needs=Need(Right.READ, spread="name"))
class ReadOrdered(RequestBody):
    """Read the records of one stream of a spread topic by global position, on a connection to the stream's group.

    Only records that have a global position are sent, from the first one at or after ``position`` on.

    | ``needed`` | the node answers |
    | --- | --- |
    | 0 | when it has a record to send, or after ``wait`` seconds |
    | a global position that exists | when it has a record to send, or has all records of the stream up to this \
position. Otherwise it refuses after ``wait`` seconds, because it lags |

    OK: ``runs``, a list of [global position, local position, number] of the records; ``known_to``: all records of the
    stream from ``position`` on and below this global position are in the answer, or were trimmed; ``kept_from``: of
    these, the ones below this global position were trimmed; ``more``: there are further records now. Payload: whole
    batches in order, which hold these records and perhaps others around them. They have at most ``bytes_max`` bytes
    together, but the batch of the record at ``needed`` is sent at any size.
    """

    name: str
    stream: Annotated[int, _NUMBER]
    position: Annotated[int, _POSITION]
    needed: int
    bytes_max: Annotated[int, _SOME_BYTES]
    wait: Annotated[float, _WAIT]
