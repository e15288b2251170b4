"""Sinks: their staged attempts and their commits. Replicated state, decided by the order of the log alone.

    BEGIN ──▶ open ──SEAL──▶ sealed ──COMMIT──▶ its batches have positions
               │                │
               └────────────────┴── ABORT, a later COMMIT or run or owner of the sink, age ──▶ dropped

There is no clock, lease or lock: with two drivers, a zombie task or a repeated COMMIT, the log's order decides.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from viewstamp.errors import FencedError, RequestError, StagingError
from viewstamp.ids import Index
from viewstamp.node.sink_part_queries import GroupPart
from viewstamp.wire.batch import Batch
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.sink_parts import attempt_of, decode_begin_part, is_part, part_name
from viewstamp.wire.staged import ENTRY_SIZE, CommitRequest, decode_fields, decode_optional, pack_entry

__all__ = ["SINKS_MAX", "AttemptState", "SinkState", "Staging"]

SINKS_MAX = 10_000
RANGES_MAX = 1000
"""The ranges of a COMMIT over more topics than this are not kept."""
_NEVER = 1 << 62
_PART_SECONDS = 1 << 40
"""Parts of attempts have no age here."""
_SINK_FIELDS_BEFORE = ("batch", "former_owners", "former_runs", "index", "log_time", "name", "owner", "ranges", "run")
"""Fields of a sink in snapshots of releases that kept every sink until FORGET_SINK, in their order."""
_SINK_FIELDS = (*_SINK_FIELDS_BEFORE, "forget_seconds", "used_time")
_FORMER_MAX = 64
"""The number of former runs and owners of a sink that are remembered: the newest."""


class SinkState:
    """The owner, the run and the last commit of a sink.

    Invariants:
      * ``batch`` never falls while the owner stays
      * ``run`` is not in ``former_runs``, ``owner`` not in ``former_owners``
    """

    __slots__ = (
        "batch",
        "forget_seconds",
        "former_owners",
        "former_runs",
        "index",
        "log_time",
        "name",
        "owner",
        "ranges",
        "run",
        "used_time",
    )

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self.owner = owner
        self.former_owners: list[str] = []
        self.run = ""
        self.former_runs: list[str] = []
        self.batch = -1
        """The number of the last committed batch; -1 = none."""
        self.index = 0
        """The index of that COMMIT."""
        self.log_time = 0
        self.ranges: list[list[Any]] | None = None
        """[topic's name, first position, count] of that COMMIT; None = too many to keep."""
        self.forget_seconds = 0
        """Seconds of log time after ``used_time`` after which the sink is forgotten, if it has no attempt.

        0 = only FORGET_SINK removes it. For sinks that write one batch each, because no user would forget them by hand.
        """
        self.used_time = 0
        """Log time of the latest BEGIN or COMMIT."""

    @property
    def forget_at(self) -> int:
        """The log time after which the sink is forgotten if it has no attempt."""
        return self.used_time + self.forget_seconds * 1_000_000 if self.forget_seconds else _NEVER

    def committed(self, batch: int, *, duplicate: bool) -> dict[str, object]:
        """Return the description of a committed batch, as COMMIT and BEGIN_ATTEMPT answer it."""
        is_last = batch == self.batch
        return {
            "sink": self.name,
            "batch": batch,
            "duplicate": duplicate,
            "ranges": self.ranges if is_last else None,
            "index": self.index if is_last else 0,
            "log_time": self.log_time if is_last else 0,
        }

    def image(self) -> list[object]:
        """Return the state as plain values."""
        return [getattr(self, name) for name in _SINK_FIELDS]

    @classmethod
    def from_image(cls, image: list[Any]) -> SinkState:
        """Rebuild a sink from :meth:`image`."""
        sink = cls("", "")
        fields = _SINK_FIELDS_BEFORE if len(image) == len(_SINK_FIELDS_BEFORE) else _SINK_FIELDS
        for name, value in zip(fields, image, strict=True):
            setattr(sink, name, value)
        return sink


class AttemptState:
    """One attempt to stage one part of a batch.

    Invariants:
      * ``checksum`` is the crc32c over the entries of the staged batches, in log order
      * a sealed attempt does not change any more
    """

    __slots__ = (
        "batch",
        "batches",
        "bytes",
        "checksum",
        "first_index",
        "gone_at",
        "id",
        "is_sealed",
        "keep_seconds",
        "log_time",
        "name",
        "sink",
    )

    def __init__(self, attempt_id: int, sink: str, batch: int, name: str, log_time: int) -> None:
        self.id = attempt_id
        self.sink = sink
        self.batch = batch
        self.name = name
        self.keep_seconds = 0
        """The attempt is dropped after this log time without activity, in seconds ..."""
        self.gone_at = _NEVER
        """... and when the log has this many bytes, because an idle attempt must not hold a limited log for ever."""
        self.log_time = log_time
        """The log time of its last activity."""
        self.batches = 0
        self.bytes = 0
        self.checksum = 0
        self.first_index = 0
        """The index of its first staged batch; 0 = there is none."""
        self.is_sealed = False

    def image(self) -> list[object]:
        """Return the state as plain values."""
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_image(cls, image: list[Any]) -> AttemptState:
        """Rebuild an attempt from :meth:`image`."""
        attempt = cls(0, "", 0, "", 0)
        for name, value in zip(cls.__slots__, image, strict=True):
            setattr(attempt, name, value)
        return attempt


class Staging:
    """All sinks and attempts of a member.

    Invariants:
      * an attempt's sink exists; its batch is above the sink's; it was begun by the sink's present owner and run
      * ``bytes`` is the sum over the attempts
      * ``next_forget_at`` is at most the lowest ``forget_at`` of all sinks
    """

    def __init__(self) -> None:
        self.sinks: dict[str, SinkState] = {}
        self.attempts: dict[int, AttemptState] = {}
        self.bytes = 0
        """The size of all staged batches that are not committed."""
        self.next_gone_at = _NEVER
        """The lowest ``gone_at`` of all attempts."""
        self.next_forget_at = _NEVER
        """A log time up to which no sink is forgotten."""
        self.idle_commits = array("Q")
        """The rising indices of COMMITs in the log that had no effect. A reader of the log skips them."""

    # The effects of the commands. Each raises RequestError for a refusal, which is the same on every member.

    def check_begin(self, batch: Batch) -> dict[str, object] | None:
        """Return the answer to a BEGIN_ATTEMPT whose batch is committed already; None = the attempt can begin.

        Raises:
          FencedError: the sink belongs to another owner, or a later run has superseded this one.
          RequestError: it cannot be read, or there would be too many sinks.
        """
        name, owner, run, number, reset = decode_fields(batch, sink=str, owner=str, run=str, batch=int, reset=bool)
        decode_optional(batch, "forget_seconds", 0)
        sink = self.sinks.get(name)
        if sink is None:
            if len(self.sinks) >= SINKS_MAX:
                raise RequestError(
                    f"sink {name!r} would exceed the limit of {SINKS_MAX} sinks; no attempt was begun",
                    remedy="forget sinks that are not used any more: viewstamp sink list, viewstamp sink forget NAME",
                )
            return None
        if owner != sink.owner:
            if owner in sink.former_owners:
                raise _fenced(f"{owner!r} owned sink {name!r} until {sink.owner!r} took it over")
            if not reset:
                raise FencedError(
                    f"sink {name!r} belongs to {sink.owner!r}, which committed batch {sink.batch}; this is {owner!r}",
                    remedy="take another sink id, or continue from the checkpoint that the sink was used with; to give"
                    " it to a new query, whose batches count from 0 again, reset it once (sinkReset=true)",
                )
            return None
        _check_run(sink, run)
        return sink.committed(number, duplicate=True) if number <= sink.batch else None

    def begin(self, batch: Batch, log_bytes: int) -> dict[str, object]:
        """Begin an attempt, or find it: {"attempt": id}. Id 0 = its batch is committed, described by {"commit": ...}.

        ``log_bytes``: the bytes of all batches that were applied before.
        """
        committed = self.check_begin(batch)
        if committed is not None:
            return {"attempt": 0, "commit": committed}
        name, owner, run, number, attempt_name, keep_seconds, keep_bytes = decode_fields(
            batch, sink=str, owner=str, run=str, batch=int, name=str, keep_seconds=int, keep_bytes=int
        )
        sink = self.sinks.get(name)
        if sink is None:
            sink = self.sinks[name] = SinkState(name, owner)
        sink.forget_seconds = decode_optional(batch, "forget_seconds", 0)
        self._use(sink, batch.log_time)
        if owner != sink.owner:
            sink.former_owners = [*sink.former_owners, sink.owner][-_FORMER_MAX:]
            sink.owner, sink.run, sink.former_runs, sink.batch, sink.ranges = owner, "", [], -1, None
            self._drop(attempt for attempt in self.attempts.values() if attempt.sink == name)
        if run != sink.run:
            if sink.run:
                sink.former_runs = [*sink.former_runs, sink.run][-_FORMER_MAX:]
            sink.run = run
            self._drop(attempt for attempt in self.attempts.values() if attempt.sink == name)
        for attempt in self.attempts.values():
            if attempt.sink == name and attempt.batch == number and attempt.name == attempt_name:
                return {"attempt": attempt.id}
        attempt = AttemptState(batch.first_index, name, number, attempt_name, batch.log_time)
        attempt.keep_seconds = keep_seconds
        attempt.gone_at = log_bytes + keep_bytes if keep_bytes else _NEVER
        self.next_gone_at = min(self.next_gone_at, attempt.gone_at)
        self.attempts[attempt.id] = attempt
        return {"attempt": attempt.id}

    def begin_part(self, batch: Batch) -> dict[str, object]:
        """Begin the part of an attempt of group 0 in this group, or find it: {"attempt": id}; 0 = it is placed already.

        It is a sink of its own with one batch, whose owner is the name of the user's sink. Neither its age nor a quota
        nor a later run drops it, because group 0 may have committed it: only the leader of the group does.
        """
        origin, owner = decode_begin_part(batch)
        name = part_name(origin)
        sink = self.sinks.get(name)
        if sink is None:
            if len(self.sinks) >= SINKS_MAX:
                raise RequestError(
                    f"a part of attempt {origin} would exceed the limit of {SINKS_MAX} parts; it was not begun",
                    remedy="wait until other batches are committed or dropped",
                )
            sink = self.sinks[name] = SinkState(name, owner)
            self._use(sink, batch.log_time)
        if sink.batch >= 0:
            return {"attempt": 0}
        found = next((attempt for attempt in self.attempts.values() if attempt.sink == name), None)
        if found is None:
            found = self.attempts[batch.first_index] = AttemptState(batch.first_index, name, 0, "", batch.log_time)
            found.keep_seconds = _PART_SECONDS
        return {"attempt": found.id}

    @property
    def has_parts(self) -> bool:
        """Return whether any part is here, which releases before cannot read."""
        return any(map(is_part, self.sinks))

    @property
    def has_sealed_parts(self) -> bool:
        """Return whether any part is sealed and not placed, so that group 0 may have committed it."""
        return any(each.is_sealed and is_part(each.sink) for each in self.attempts.values())

    def drop_open_parts(self) -> None:
        """Drop the parts that are not sealed. Their writers get StagingError."""
        self._drop(each for each in self.attempts.values() if is_part(each.sink) and not each.is_sealed)

    def recover(self, batches: Iterable[tuple[str, int]]) -> None:
        """Drop all attempts, because their sessions have ended; let sinks go back to the numbers of earlier batches."""
        self._drop(self.attempts.values())
        for name, number in batches:
            sink = self.sinks[name]
            sink.batch, sink.ranges = number, None

    def parts(self) -> list[GroupPart]:
        """Return all parts, with those that are placed and not forgotten yet."""
        ids = {attempt.sink: attempt.id for attempt in self.attempts.values()}
        return [
            GroupPart(
                attempt_of(sink.name),
                ids.get(sink.name, 0),
                sink.batch >= 0,
                tuple((name, first, count) for name, first, count in sink.ranges or ()),
            )
            for sink in self.sinks.values()
            if is_part(sink.name)
        ]

    def user_sink(self, attempt: AttemptState) -> str:
        """Return the name of the sink of an attempt as its user knows it."""
        return self.sinks[attempt.sink].owner if is_part(attempt.sink) else attempt.sink

    def open_attempt(self, attempt_id: int) -> AttemptState:
        """Return an attempt that accepts staged batches. Raises StagingError."""
        attempt = self._attempt(attempt_id)
        if attempt.is_sealed:
            raise StagingError(f"attempt {attempt_id} is sealed and accepts no records", remedy="begin another attempt")
        return attempt

    def stage(self, batch: Batch) -> None:
        """Add a staged batch. If its attempt is gone or sealed, it is ignored, and the SEAL fails."""
        attempt = self.attempts.get(batch.attempt)
        if attempt is None or attempt.is_sealed:
            return
        attempt.checksum = crc32c(pack_entry(batch.first_index, batch.topic, batch.count, batch.size), attempt.checksum)
        attempt.batches += 1
        attempt.bytes += batch.size
        attempt.first_index = attempt.first_index or batch.first_index
        attempt.log_time = batch.log_time
        self.bytes += batch.size

    def seal(self, batch: Batch) -> dict[str, object]:
        """Seal an attempt, if it holds exactly the batches that the caller names."""
        attempt_id, batches, checksum = decode_fields(batch, attempt=int, batches=int, checksum=int)
        attempt = self._attempt(attempt_id)
        if (attempt.batches, attempt.checksum) != (batches, checksum):
            raise StagingError(
                f"attempt {attempt_id} of sink {attempt.sink!r} holds {attempt.batches} batches with checksum"
                f" {attempt.checksum:#010x}, not {batches} with {checksum:#010x}",
                remedy="begin another attempt",
            )
        attempt.is_sealed = True
        attempt.log_time = batch.log_time
        return {}

    def abort(self, batch: Batch) -> dict[str, object]:
        """Drop a run's attempts at a batch, or only the named one (0 = all). Committed records stay."""
        name, run, number, attempt_id = decode_fields(batch, sink=str, run=str, batch=int, attempt=int)
        sink = self.sinks.get(name)
        if sink is not None and sink.run == run:
            self._drop(
                attempt
                for attempt in self.attempts.values()
                if attempt.sink == name and attempt.batch == number and attempt_id in (0, attempt.id)
            )
        return {}

    def check_commit(self, request: CommitRequest) -> SinkState:
        """Return the sink if the COMMIT would have an effect, or is a duplicate (``batch <= sink.batch``).

        Raises:
          StagingError: an attempt is gone, is not sealed, belongs to another batch, or holds other records.
          FencedError: the sink belongs to another owner or run.
        """
        sink = self.sinks.get(request.sink)
        if sink is None:
            raise StagingError(f"nothing was staged for a sink {request.sink!r}", remedy="begin an attempt first")
        if request.owner != sink.owner:
            raise _fenced(f"sink {sink.name!r} belongs to {sink.owner!r}, not to {request.owner!r}")
        _check_run(sink, request.run)
        if request.batch <= sink.batch:  # A new run that gets "committed" at each BEGIN has not become the sink's run.
            return sink
        if request.run != sink.run:
            raise _fenced(f"run {request.run!r} began no attempt for sink {sink.name!r}; run {sink.run!r} did")
        named = set()
        for attempt_id, entries in request.parts:
            attempt = self._attempt(attempt_id)
            if attempt.sink != sink.name or attempt.batch != request.batch or attempt_id in named:
                raise StagingError(
                    f"attempt {attempt_id} does not belong to batch {request.batch} of sink {sink.name!r}, or is named"
                    " twice; nothing was committed",
                    remedy="commit the sealed attempts of this batch, each once",
                )
            if not attempt.is_sealed:
                raise StagingError(f"attempt {attempt_id} is not sealed", remedy="seal it before the commit")
            if len(entries) != attempt.batches * ENTRY_SIZE or crc32c(entries) != attempt.checksum:
                raise StagingError(
                    f"attempt {attempt_id} holds other records than the commit names; nothing was committed",
                    remedy="begin another attempt, and stage again",
                )
            named.add(attempt_id)
        return sink

    def committed(self, sink: SinkState, number: int, ranges: list[list[Any]] | None, batch: Batch) -> None:
        """Record the effect of a COMMIT, and drop all attempts up to its batch."""
        sink.batch, sink.index, sink.log_time = number, batch.first_index, batch.log_time
        sink.ranges = ranges if ranges is not None and len(ranges) <= RANGES_MAX else None
        self._use(sink, batch.log_time)
        self._drop(
            attempt for attempt in self.attempts.values() if attempt.sink == sink.name and attempt.batch <= number
        )

    def note_idle(self, index: int, kept_from: int) -> None:
        """Record that the COMMIT at ``index`` had no effect. Indices below ``kept_from`` are read no more."""
        kept = [each for each in self.idle_commits if each >= kept_from]
        self.idle_commits = array("Q", [*kept, index])

    def forget(self, batch: Batch) -> dict[str, object]:
        """Forget a sink. Its committed records stay, but a repeated COMMIT is no longer recognized."""
        (name,) = decode_fields(batch, name=str)
        self.sink(name)
        self._drop(attempt for attempt in self.attempts.values() if attempt.sink == name)
        del self.sinks[name]
        return {}

    def expire(self, log_time: int, log_bytes: int) -> None:
        """Drop the attempts that were idle for too long, and those that hold too much of the log.

        Then forget the unused sinks whose latest BEGIN gave ``forget_seconds``.
        """
        self._drop(
            attempt
            for attempt in self.attempts.values()
            if log_time - attempt.log_time > attempt.keep_seconds * 1_000_000 or log_bytes >= attempt.gone_at
        )
        if log_time > self.next_forget_at:
            busy = {attempt.sink for attempt in self.attempts.values()}
            for sink in [sink for sink in self.sinks.values() if log_time > sink.forget_at and sink.name not in busy]:
                del self.sinks[sink.name]
            self.next_forget_at = min((sink.forget_at for sink in self.sinks.values()), default=_NEVER)

    # Queries.

    def is_due(self, log_time: int) -> bool:
        """Return whether applying a record of this log time would drop an attempt."""
        return any(log_time - each.log_time > each.keep_seconds * 1_000_000 for each in self.attempts.values())

    def sink(self, name: str) -> SinkState:
        """Return a sink. Raises RequestError."""
        sink = self.sinks.get(name)
        if sink is None:
            raise RequestError(f"no sink is named {name!r}", remedy="list them: viewstamp sink list")
        return sink

    def describe(self, sink: SinkState) -> dict[str, object]:
        """Return a sink as the wire and users see it."""
        attempts = [attempt for attempt in self.attempts.values() if attempt.sink == sink.name]
        return {
            "name": sink.name,
            "owner": sink.owner,
            "run": sink.run,
            "batch": sink.batch,
            "index": sink.index,
            "log_time": sink.log_time,
            "ranges": sink.ranges,
            "keep_seconds": max((attempt.keep_seconds for attempt in attempts), default=0),
            "forget_seconds": sink.forget_seconds,
            "attempts": len(attempts),
            "sealed": sum(attempt.is_sealed for attempt in attempts),
            "bytes": sum(attempt.bytes for attempt in attempts),
        }

    @property
    def first_index(self) -> Index | None:
        """The index from which the log is needed for staged records; None = nothing is staged."""
        return Index(min((a.first_index for a in self.attempts.values() if a.first_index), default=0)) or None

    def image(self) -> list[object]:
        """Return the state as plain values."""
        sinks = [sink.image() for sink in self.sinks.values()]
        attempts = [attempt.image() for attempt in self.attempts.values()]
        return [sinks, attempts, list(self.idle_commits)]

    @classmethod
    def from_image(cls, image: list[Any]) -> Staging:
        """Rebuild the staging state from :meth:`image`."""
        staging = cls()
        staging.sinks = {sink.name: sink for sink in map(SinkState.from_image, image[0])}
        staging.attempts = {attempt.id: attempt for attempt in map(AttemptState.from_image, image[1])}
        staging.bytes = sum(attempt.bytes for attempt in staging.attempts.values())
        staging.next_gone_at = min((attempt.gone_at for attempt in staging.attempts.values()), default=_NEVER)
        staging.next_forget_at = min((sink.forget_at for sink in staging.sinks.values()), default=_NEVER)
        staging.idle_commits = array("Q", image[2])
        return staging

    def _use(self, sink: SinkState, log_time: int) -> None:
        sink.used_time = log_time
        self.next_forget_at = min(self.next_forget_at, sink.forget_at)

    def _attempt(self, attempt_id: int) -> AttemptState:
        attempt = self.attempts.get(attempt_id)
        if attempt is None:
            raise StagingError(
                f"attempt {attempt_id} does not exist: it was committed, aborted, too old, or of an earlier run",
                remedy="begin another attempt, and stage again",
            )
        return attempt

    def _drop(self, attempts: Iterable[AttemptState]) -> None:
        for attempt in list(attempts):
            del self.attempts[attempt.id]
            self.bytes -= attempt.bytes
        self.next_gone_at = min((attempt.gone_at for attempt in self.attempts.values()), default=_NEVER)


def _check_run(sink: SinkState, run: str) -> None:
    if run in sink.former_runs:
        raise _fenced(f"run {run!r} of sink {sink.name!r} has been superseded by {sink.run!r}")


def _fenced(message: str) -> FencedError:
    return FencedError(message, remedy="stop this one, because another one has taken over the sink")
