"""The rows of the table of requests about sinks: stage records, and commit a whole batch of them.

``requests.py`` has the others.
"""

from __future__ import annotations

from viewstamp.wire.access import PAYLOAD, Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import RequestBody, request

__all__ = [
    "AbortAttempts",
    "BeginAttempt",
    "BeginPart",
    "CommitAttempts",
    "CommitParts",
    "DescribeSink",
    "ForgetSink",
    "ListSinks",
    "SealAttempt",
    "StageBatch",
]

_ADMINISTER = Need(Right.ADMINISTER)
_ANY = Need(Right.READ, Right.APPEND, Right.CALL)


@request(FrameKind.STAGE, needs=Need(Right.APPEND, topic=PAYLOAD), payload=Kind.STAGED)
class StageBatch(RequestBody):
    """Append the batch in the payload to an attempt; it gets its positions when the attempt is committed.

    OK: ``receipt`` as AppendBatch, with position 0.
    """


@request(FrameKind.BEGIN_ATTEMPT, needs=Need(Right.APPEND, sink="sink"), record=Kind.BEGIN_ATTEMPT)
class BeginAttempt(RequestBody):
    """Begin an attempt at a batch of a sink.

    The leader adds ``keep_bytes`` to the record: the attempt is dropped when the log has grown by this many bytes.

    OK: ``attempt``, its id; 0 = the batch is committed already, and ``commit`` is as CommitAttempts returns it.
    """

    sink: str
    owner: str
    run: str
    batch: int
    name: str
    reset: bool
    keep_seconds: int
    forget_seconds: int = 0
    """0 = the sink is kept until ForgetSink."""


@request(FrameKind.SEAL_ATTEMPT, needs=Need(Right.APPEND, attempt="attempt"), record=Kind.SEAL_ATTEMPT)
class SealAttempt(RequestBody):
    """Close an attempt that holds ``batches`` batches.

    ``checksum``: the crc32c over the entries of the batches (see CommitAttempts) in the order of their indices.
    """

    attempt: int
    batches: int
    checksum: int


@request(FrameKind.ABORT_ATTEMPTS, needs=Need(Right.APPEND, sink="sink"), record=Kind.ABORT_ATTEMPTS)
class AbortAttempts(RequestBody):
    """Drop an attempt at a batch; ``attempt`` 0 = all of the run's."""

    sink: str
    run: str
    batch: int
    attempt: int


@request(FrameKind.COMMIT, needs=Need(Right.APPEND, sink="sink"), record=Kind.COMMIT)
class CommitAttempts(RequestBody):
    """Assign positions to all records that these attempts staged, at once.

    ``parts``: [attempt, entries] in the order that the records get. The entries are 20 bytes for each staged batch,
    little-endian: index u64, topic id u32, record count u32, size u32.

    OK: ``commit`` = {sink, batch, duplicate, ranges, index, log_time}; ``ranges`` is a list of [topic's name, first
    position, count], None if they are no longer kept.
    """

    sink: str
    owner: str
    run: str
    batch: int
    parts: list[list[object]]


@request(FrameKind.LIST_SINKS, needs=_ANY)
class ListSinks(RequestBody):
    """List all sinks. OK: ``sinks``, a list of the maps that DescribeSink returns."""

    stale: bool


@request(FrameKind.DESCRIBE_SINK, needs=Need(Right.READ, Right.APPEND, sink="name"))
class DescribeSink(RequestBody):
    """Describe a sink.

    OK: ``sink`` = {name, owner, run, batch (the last committed, -1 = none), index and log_time (of that COMMIT),
    ranges, keep_seconds, forget_seconds, attempts, sealed, bytes (staged)}; also ``is_pending``, if that commit is not
    visible yet.
    """

    name: str
    stale: bool


@request(FrameKind.FORGET_SINK, needs=_ADMINISTER, record=Kind.FORGET_SINK)
class ForgetSink(RequestBody):
    """Forget which batches were committed to a sink, and drop its staged records."""

    name: str


@request(FrameKind.BEGIN_PART, needs=Need(Right.APPEND, sink="sink"), record=Kind.BEGIN_PART)
class BeginPart(RequestBody):
    """Begin the part of an attempt in another group than 0: what the attempt stages for the streams of this group.

    Sent to the leader of the group. ``attempt`` is the id of the attempt in group 0, ``sink`` the name of its sink.
    STAGE and SEAL_ATTEMPT to this leader name the part.

    OK: ``attempt``, the id of the part; 0 = the attempt is committed already.
    """

    attempt: int
    sink: str


@request(FrameKind.COMMIT_PARTS, needs=Need(Right.APPEND, sink="sink"), record=Kind.COMMIT_PARTS)
class CommitParts(RequestBody):
    """Commit a batch whose records are parts of attempts, in several groups.

    Sent to the leader of group 0, when all parts, and then their attempts, are sealed. The batch is decided by this
    record. It is visible when DESCRIBE_SINK does not say ``is_pending`` any more.

    ``parts``: [attempt, group, part, entries, [[stream, record count], ...]] in the order that the records get within
    a stream; entries as of CommitAttempts.

    OK: ``commit`` as of CommitAttempts, without ``ranges``.
    """

    sink: str
    owner: str
    run: str
    batch: int
    parts: list[list[object]]
