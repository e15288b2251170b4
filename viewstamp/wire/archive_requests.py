"""The rows of the table of requests about the archive; ``requests.py`` has the others."""

from __future__ import annotations

from typing import Annotated

from viewstamp.wire.access import Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import Range, RequestBody, request

__all__ = [
    "ARCHIVE_DELAY",
    "ARCHIVE_SECONDS_MAX",
    "ArchiveTopic",
    "CheckRun",
    "ConfigureArchive",
    "FindOrphans",
    "ListRuns",
]

ARCHIVE_DELAY = 86_400.0
"""Seconds for which the log keeps its copy of archived records, if neither the topic nor a request says otherwise."""
ARCHIVE_SECONDS_MAX = 100 * 365 * 86_400.0
_DELAY = Range(0, ARCHIVE_SECONDS_MAX, remedy="give seconds, at most 100 years")
_POSITION = Range(1, remedy="positions begin at 1")
_ADMINISTER = Need(Right.ADMINISTER)


@request(FrameKind.ARCHIVE_TOPIC, needs=_ADMINISTER)
class ArchiveTopic(RequestBody):
    """Archive the records of a topic before position ``end``. The leader answers within a second, and goes on.

    The same request again reports how far it is. A second copy changes nothing: if the records are archived, there is
    nothing to do.

    OK: ``archived_end``, a position: all kept records before it are archived; ``is_running``: whether more is to come.
    ERROR: the archiving has failed; the next request begins it again.

    ``delay``: seconds of log time in which the log keeps its copy of the records too. It counts for the runs that this
    request writes. None = the archive delay of the topic, which is ``ARCHIVE_DELAY`` if it has no archive settings;
    a leader of an earlier release takes ``ARCHIVE_DELAY``.

    On a connection of another group than 0 the topic is a stream. ``before``: leave records from this global position
    on; 0 = none. The answer has ``mapped_end`` too: the group knows the global positions of the records of the stream
    before this position. If it is below ``end`` nothing is archived.
    """

    name: str
    end: Annotated[int, _POSITION]
    delay: Annotated[float, _DELAY] | None = None
    before: Annotated[int, Range(0, remedy="positions begin at 1")] = 0
    noted: int = 0
    """In another group than 0 with access control, the index that NoteTransfer returned."""


@request(FrameKind.CHECK_RUN, needs=_ADMINISTER)
class CheckRun(RequestBody):
    """Read the object of a committed run, also one of keys, and compare it with the catalogue.

    The leader answers within a second.

    OK: ``is_running``: it is still being read; send the request again. ``damage``: why it is not intact; "" = it is.
    """

    run: int


@request(FrameKind.FIND_ORPHANS, needs=_ADMINISTER)
class FindOrphans(RequestBody):
    """Find the objects of this cluster in the store that belong to no run. The leader answers within a second.

    OK: ``is_running``: it is not done; send the request again. ``orphans``: a list of [id, size in bytes]; if
    ``remove``, they have been removed.
    """

    remove: bool
    noted: int = 0
    """As in ArchiveTopic, if ``remove``."""


@request(FrameKind.LIST_RUNS, needs=Need(Right.READ))
class ListRuns(RequestBody):
    """List the runs that are known of the topics that the caller may read, by their ids.

    OK: ``runs``, a list of {id, topic (its name), first, last, state (prepared, committed, dropped), changed_at (log
    time in microseconds), origin (the id of the cluster that wrote it; "" = this one)}, and of a committed run size,
    digest, first_index, end_index, first_time, last_time, and delay (the archive delay in microseconds of log time; it
    is missing if the log keeps its copy for ever). ``key_runs``: those of keyed topics, with id, topic, first, end,
    state, is_merge (False = a dump), records, size and digest.
    """


@request(FrameKind.CONFIGURE_ARCHIVE, needs=_ADMINISTER, record=Kind.CONFIGURE_ARCHIVE)
class ConfigureArchive(RequestBody):
    """Change the archive settings of a topic, and its retention; None = unchanged. OK: ``topic`` as CreateTopic.

    Before the first one of a cluster the leader asks every member whether its release knows the record. The same
    request again changes nothing.

    ``is_new``: create the topic with these settings. A second copy finds the topic, and TopicExistsError is the answer
    if it has other settings. ``streams/archive_settings.py`` explains the ages and the delay, in seconds of log time.
    """

    name: str
    retain_bytes: int | None = None
    retain_seconds: float | None = None
    is_on: bool | None = None
    after_seconds: Annotated[float, _DELAY] | None = None
    delay_seconds: Annotated[float, _DELAY] | None = None
    delete_seconds: Annotated[float, _DELAY] | None = None
    is_new: bool = False
