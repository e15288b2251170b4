"""Sinks: write whole batches exactly once, with several writers at once: stage, seal, commit."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from viewstamp.client.batches import Headers, record_size
from viewstamp.client.checks import as_bytes, as_headers, as_seconds, as_text, as_whole, check_topic
from viewstamp.client.groups import Groups
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import SpreadTopicInfo, spread_topic_info
from viewstamp.client.runtime import Runtime
from viewstamp.client.send_queue import Ticket
from viewstamp.client.sender import Sender
from viewstamp.client.staged_parts import StagedPart, divide
from viewstamp.client.stream_routes import StreamRoutes
from viewstamp.errors import (
    OutcomeUnknownError,
    PeerError,
    RequestError,
    StagingError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.ids import GroupId
from viewstamp.wire.batch import Columns, Kind, build_batch
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.sink_parts import AttemptPart
from viewstamp.wire.sink_requests import (
    AbortAttempts,
    BeginAttempt,
    BeginPart,
    CommitAttempts,
    CommitParts,
    DescribeSink,
    ForgetSink,
    ListSinks,
    SealAttempt,
)
from viewstamp.wire.spread_requests import DescribeSpreadTopic
from viewstamp.wire.staged import StagedBatch, pack_entry

__all__ = [
    "Attempt",
    "CommitRange",
    "Sealed",
    "Sink",
    "SinkCommit",
    "SinkInfo",
    "Sinks",
    "sink_info",
]

Entries = bytes
"""The content of an attempt: 20 bytes for each staged batch, in order of their indices; see ``wire/requests.py``."""

_PAUSE_SECONDS = 0.002
"""The first pause before a client looks again whether a batch is visible."""
_PAUSE_SECONDS_MAX = 0.2
_AGAIN = "begin another attempt; of this one nothing becomes visible"


class CommitRange(NamedTuple):
    """The records of one batch of a sink in one topic: ``count`` records from position ``first_position`` on."""

    topic: str
    first_position: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use in a range


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCommit:
    """The commit of a batch of a sink.

    Attributes:
      sink: the sink's name.
      batch: the number of the batch.
      duplicate: the batch was committed by an earlier call; the other fields describe that commit.
      ranges: the records' positions, one range for each topic; None = the commit is too old, they are no
        longer kept, or its topics have streams.
      index: the place of the commit in the log.
      timestamp: the log time of the commit, and of all records of the batch, in microseconds since 1970.
    """

    sink: str
    batch: int
    duplicate: bool
    ranges: list[CommitRange] | None
    index: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A sealed attempt, as ``Sink.commit`` needs it. Made by ``Attempt.seal``; may be pickled and sent.

    Attributes:
      attempt: the attempt's id.
      entries: its staged batches, 20 bytes each.
      records: the number of its records.
      bytes: the size of its batches, including their headers.
      parts: what it has staged for topics with streams, for each group.
    """

    attempt: int
    entries: Entries
    records: int
    bytes: int
    parts: tuple[AttemptPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkInfo:
    """A sink as a node described it.

    Attributes:
      name: the sink's name.
      owner: the owner, which numbers the batches.
      run: the latest run of the owner.
      batch: the last committed batch; -1 = none.
      index: the place of its commit in the log.
      timestamp: the log time of its commit, in microseconds since 1970.
      ranges: the positions of its records; None = no longer kept.
      keep_seconds: an attempt without activity is dropped after this log time.
      attempts: the number of attempts that are staging or sealed.
      sealed: how many of them are sealed.
      bytes: the size of their records, which are not visible yet.
      forget_seconds: the cluster forgets the sink this log time after its latest attempt or commit; 0 = never.
    """

    name: str
    owner: str
    run: str
    batch: int
    index: int
    timestamp: int
    ranges: list[CommitRange] | None
    keep_seconds: float
    attempts: int
    sealed: int
    bytes: int
    forget_seconds: float = 0.0


class Sinks:
    """Creates, describes and forgets sinks. Staged records go through the client's session."""

    def __init__(
        self, runtime: Runtime, options: ClientOptions, groups: Groups, routes: StreamRoutes, entropy: random.Random
    ) -> None:
        self.runtime = runtime
        self.options = options
        self.groups = groups
        self.routes = routes
        self.router = groups.group_0.router
        self.sender = groups.group_0.sender
        self.entropy = entropy

    def sink(
        self,
        name: str,
        *,
        owner: str = "",
        run: str = "",
        reset: bool = False,
        keep_seconds: float = 3600.0,
        forget_seconds: float = math.inf,
    ) -> Sink:
        """Return a sink, which writes whole batches exactly once. Sends nothing before the first call.

        Example::

            sink = client.sink("nightly", owner="import-job")
            attempt = await sink.begin(1)
            if isinstance(attempt, viewstamp.Attempt):  # Else it is the SinkCommit of an earlier execution.
                await attempt.stage_records("orders", [b"one", b"two"])
                commit = await sink.commit(1, [await attempt.seal()])

        Args:
          name: the sink's name; the first attempt creates it.
          owner: identifies the program that numbers the batches; another owner is refused.
          run: identifies one execution of that program; all writers of a batch use the same. "" = a random one.
          reset: take the sink over from another owner, for good; its batches are numbered anew.
          keep_seconds: an attempt without activity is dropped after this log time, in whole seconds; earlier if a
            limited log needs the space.
          forget_seconds: the cluster forgets the sink this log time after its latest attempt or commit, in whole
            seconds; ``math.inf`` = only ``forget_sink`` does. For sinks that write only one batch each. A batch that is
            written again after this time is there twice.

        Raises:
          RequestError: a name is not text, or the seconds are not above 0.
        """
        return Sink(
            self,
            name,
            owner=owner,
            run=run,
            reset=reset,
            keep_seconds=keep_seconds,
            forget_seconds=forget_seconds,
        )

    async def describe_sink(self, name: str, *, stale: bool = False, timeout: float | None = None) -> SinkInfo:
        """Describe a sink: its last commit and its staged attempts. Otherwise as :meth:`describe_topic`.

        Raises:
          RequestError: no sink has this name.
          UnavailableError: no node answered in time.
        """
        frame = await self.router.ask(DescribeSink(name=name, stale=stale), timeout)
        return sink_info(frame.body["sink"])

    async def list_sinks(self, *, stale: bool = False, timeout: float | None = None) -> list[SinkInfo]:
        """List all sinks. Otherwise as :meth:`describe_sink`."""
        frame = await self.router.ask(ListSinks(stale=stale), timeout)
        return [sink_info(sink) for sink in frame.body["sinks"]]

    async def forget_sink(self, name: str, *, timeout: float | None = None) -> None:
        """Forget which batches were committed to a sink, and drop its staged records. Committed records stay.

        A batch that is committed again afterwards is written twice, so use it only for sinks without writers.
        Cancelled: the sink may be forgotten all the same.

        Raises:
          RequestError: no sink has this name.
          UnavailableError: not forgotten; try again.
          OutcomeUnknownError: it may have been forgotten (``token`` is None); call again.
        """
        await self.router.ask_leader(ForgetSink(name=name), timeout)


class Sink:
    """One run's access to a sink. Made by ``client.sink``.

    Each writer of a batch, in any process, begins an attempt, stages its records and seals it. Then one process commits
    all sealed attempts at once. The sink remembers its last committed batch, so each batch is committed once even if it
    is written several times or writers are killed. Every call may be repeated.

    The owner (for example a query or a job) numbers the batches in rising order; gaps are allowed. Another owner is
    refused, because its numbers would have another meaning. Only the latest run of an owner may write: after its
    first attempt, earlier runs are refused and their staged records are dropped.
    """

    def __init__(
        self,
        sinks: Sinks,
        name: str,
        *,
        owner: str,
        run: str,
        reset: bool,
        keep_seconds: float,
        forget_seconds: float,
    ) -> None:
        self.name = as_text(name, "the name of a sink")
        self.owner = as_text(owner, "the owner of a sink")
        self.run = as_text(run, "the run of a sink") or _random_name(sinks.entropy)
        if not 0 < keep_seconds < math.inf:
            raise RequestError(
                f"keep_seconds={keep_seconds!r} is not possible", remedy="give a number of seconds above 0"
            )
        if not forget_seconds > 0:
            raise RequestError(
                f"forget_seconds={forget_seconds!r} is not possible", remedy="give a number of seconds above 0"
            )
        self._reset = reset
        self._forget_seconds = 0 if forget_seconds == math.inf else math.ceil(forget_seconds)
        self._keep_seconds = math.ceil(keep_seconds)
        self._sinks = sinks

    async def begin(self, batch: int, name: str = "", *, timeout: float | None = None) -> Attempt | SinkCommit:
        """Begin an attempt to write a part of a batch. Returns a SinkCommit instead if the batch is committed already.

        Fences earlier runs of the same owner, and drops the records that they staged. If the call is cancelled, the
        attempt may have begun; it is dropped with all other attempts that are not committed.

        Args:
          batch: the number of the batch, from 0.
          name: the attempt's name within this batch and run. The same name gives the same attempt with its staged
            records, so a writer that starts over uses another name. "" = a new random name.
          timeout: seconds from now; None = the client's default.

        Raises:
          FencedError: the sink belongs to another owner (``reset`` takes it over), or to a later run.
          RequestError: the name or the number is not allowed.
          UnavailableError: not begun; try again.
          OutcomeUnknownError: it may have begun (``token`` is None); call again, which is harmless.
        """
        request = BeginAttempt(
            sink=self.name,
            owner=self.owner,
            run=self.run,
            batch=as_whole(batch, "the number of a batch"),
            name=as_text(name, "the name of an attempt") or _random_name(self._sinks.entropy),
            reset=self._reset,
            keep_seconds=self._keep_seconds,
            forget_seconds=self._forget_seconds,
        )
        frame = await self._sinks.router.ask_leader(request, timeout)
        attempt, commit = frame.body["attempt"], frame.body.get("commit")
        if attempt:
            return Attempt(self, self._sinks, batch, attempt)
        if commit is None:
            raise PeerError(f"a node reported batch {batch} of {self.name!r} as committed, but sent no commit")
        return _commit(commit)

    async def commit(self, batch: int, sealed: Sequence[Sealed], *, timeout: float | None = None) -> SinkCommit:
        """Make all sealed records visible at once, in this order. Returns their places.

        The records of a topic get consecutive positions; those of a topic with streams get rising ones within each
        stream, and the call returns when all are visible. All other records that were staged for this batch or earlier
        ones are dropped. A batch that is committed already stays as it is, and the result has ``duplicate`` set. If the
        call is cancelled, the batch may be committed, or may be committed later.

        Args:
          batch: the number of the batch.
          sealed: the results of every writer's ``seal``; empty = a batch without records.
          timeout: seconds from now; None = the client's default.

        Raises:
          StagingError: an attempt is gone, is not sealed, or holds other records: stage the batch again.
          FencedError: the sink belongs to another owner, or to a later run.
          UnavailableError: not committed; try again.
          OutcomeUnknownError: it may be committed (``token`` is None); commit again, which is harmless.
        """
        number = as_whole(batch, "the number of a batch")
        parts = [part for each in sealed for part in each.parts]
        if parts:
            return await self._commit_parts(number, sealed, parts, timeout)
        request = CommitAttempts(
            sink=self.name,
            owner=self.owner,
            run=self.run,
            batch=number,
            parts=[[each.attempt, each.entries] for each in sealed],
        )
        frame = await self._sinks.router.ask_leader(request, timeout)
        return _commit(frame.body["commit"])

    async def _commit_parts(
        self, batch: int, sealed: Sequence[Sealed], parts: Sequence[AttemptPart], timeout: float | None
    ) -> SinkCommit:
        """Commit a batch over topics with streams, and wait until it is visible."""
        if any(each.entries for each in sealed):
            raise RequestError(
                f"batch {batch} of sink {self.name!r} has records of topics with streams and of topics without;"
                " nothing was committed",
                remedy="write them in two sinks, because they do not become visible at one moment",
            )
        sinks = self._sinks
        seconds = as_seconds(timeout, sinks.options.timeout)
        request = CommitParts(
            sink=self.name, owner=self.owner, run=self.run, batch=batch, parts=[part.pack() for part in parts]
        )
        frame = await sinks.router.ask_leader(request, timeout)
        try:
            await sinks.runtime.within(seconds, self._visible())
        except TimeoutError:
            raise OutcomeUnknownError(
                f"batch {batch} of sink {self.name!r} is committed, and after {seconds:g} s it is not visible yet",
                token=None,
                remedy="commit it again, which waits again; if it stays so, look for a group without a leader:"
                " `viewstamp group list`",
            ) from None
        return _commit(frame.body["commit"])

    async def _visible(self) -> None:
        """Wait until no committed batch of the sink lacks its positions."""
        pause = _PAUSE_SECONDS
        while True:
            frame = await self._sinks.router.ask(DescribeSink(name=self.name, stale=False), None)
            if not frame.body["sink"].get("is_pending"):
                return
            await self._sinks.runtime.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    async def abort(self, batch: int, *, timeout: float | None = None) -> None:
        """Drop the records that this run staged for a batch. A committed batch stays. Cancelled: dropped, or not.

        Raises:
          UnavailableError, OutcomeUnknownError: try again, or do nothing: without activity they are dropped anyway.
        """
        await self._abort(as_whole(batch, "the number of a batch"), 0, timeout)

    async def _abort(self, batch: int, attempt: int, timeout: float | None) -> None:
        request = AbortAttempts(sink=self.name, run=self.run, batch=batch, attempt=attempt)
        await self._sinks.router.ask_leader(request, timeout)


class _Block(NamedTuple):
    """A block that was sent, or waits for it; ``part`` None = for a topic of group 0."""

    ticket: Ticket
    sender: Sender
    part: StagedPart | None


class Attempt:
    """The records that one writer stages for a batch of a sink: durable, and invisible until the batch is committed.

    Several tasks may stage at once. Within a topic the records get the order of the calls.

    Invariants:
      * a sealed attempt is complete: an attempt in which a call failed or was cancelled can only be aborted
      * at most ``ClientOptions.stage_bytes_in_flight`` bytes, or one block, are unacknowledged
    """

    def __init__(self, sink: Sink, sinks: Sinks, batch: int, attempt: int) -> None:
        self.id = attempt
        self._sink = sink
        self._batch = batch
        self._what = f"attempt {attempt} at batch {batch} of sink {sink.name!r}"
        self._router = sinks.router
        self._sender = sinks.sender
        self._runtime = sinks.runtime
        self._options = sinks.options
        self._turn = sinks.runtime.create_lock()
        self._tickets: deque[_Block] = deque()
        """The blocks that are unacknowledged, as far as is known, in order."""
        self._sinks = sinks
        self._spread: dict[str, SpreadTopicInfo | None] = {}
        """The topics of this attempt; None = without streams."""
        self._parts: dict[GroupId, StagedPart] = {}
        self._blocks_staged = 0
        self._in_flight = 0
        """Their bytes."""
        self._entries: list[StagedBatch] = []
        self._failure = ""
        """Why it has ended; "" = it has not."""
        self._is_closed = False
        """It is being sealed: nothing can be added."""

    def __repr__(self) -> str:
        return f"<{self._what}>"

    async def stage(self, topic: str, columns: Columns, *, timeout: float | None = None) -> None:
        """Stage a block of records as one batch, without decoding it.

        Returns when the block is queued for sending: its buffers must not change before :meth:`seal` has returned.
        Waits while too many bytes are unacknowledged, for example because the cluster has no room for more. The error
        of a block is raised by a later call. Any error, and a cancellation, ends the attempt.

        The other appends of the same client may wait for room too, so give a sink that writes without pause a client of
        its own.

        Args:
          topic: the topic's name.
          columns: the records; about 1 MiB is a good size. A block without records is ignored.
          timeout: seconds to wait until it is sent, and again until it is acknowledged; None = the client's default.

        Raises:
          StagingError: the attempt is gone (aborted, expired, or its batch was committed without it), or ended before.
          FencedError: the sink belongs to a later run, or to another owner.
          UnknownTopicError, RecordTooLargeError, RequestError: this block is wrong.
          UnavailableError: not acknowledged in time; the message states if the cluster has no room for staged records.
          StorageFullError: refused, because the disk or the log is full.
        """
        async with self._adding():
            await self._stage(topic, columns, timeout)

    async def stage_records(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Stage records, in as many blocks as they need. Otherwise as :meth:`stage`.

        Args:
          topic: the topic's name.
          values: the records.
          keys: one key or None for each value.
          headers: one mapping or None for each value: names and bytes.
          timeout: as for :meth:`stage`, for each block.
        """
        async with self._adding():
            for columns in self._blocks(values, keys, headers):
                await self._stage(topic, columns, timeout)

    async def seal(self, *, timeout: float | None = None) -> Sealed:
        """Wait until all records are durable on a majority, and close the attempt. Nothing can be staged afterwards.

        Sealing again is harmless. If the call is cancelled while blocks are unacknowledged, the attempt ends; if it is
        cancelled later, the attempt may be sealed or not.

        Args:
          timeout: seconds for the blocks, and again for the seal; None = the client's default.

        Raises:
          StagingError: the attempt is gone, or ended before.
          UnavailableError, OutcomeUnknownError: seal again; it raises StagingError if the attempt has ended.
          Others: as for :meth:`stage`.
        """
        async with self._failing():
            self._is_closed = True
            await self._receive(0, timeout)
            entries = b"".join(pack_entry(*entry) for entry in sorted(self._entries))
        for part in self._parts.values():
            of_part = SealAttempt(attempt=part.id, batches=part.batches, checksum=crc32c(part.entries()))
            with self._sinks.groups.call(part.group) as parts:
                await parts.router.ask_leader(of_part, timeout)
        request = SealAttempt(attempt=self.id, batches=len(self._entries), checksum=crc32c(entries))
        await self._router.ask_leader(request, timeout)
        return Sealed(
            attempt=self.id,
            entries=entries,
            records=sum(entry.count for entry in self._entries) + sum(part.records for part in self._parts.values()),
            bytes=sum(entry.size for entry in self._entries) + sum(part.size for part in self._parts.values()),
            parts=tuple(part.sealed(self.id) for part in self._parts.values() if part.batches),
        )

    async def abort(self, *, timeout: float | None = None) -> None:
        """Drop this attempt only; committed records stay. Otherwise as :meth:`Sink.abort`."""
        self._fail(StagingError("it was aborted"))
        await self._sink._abort(self._batch, self.id, timeout)

    @asynccontextmanager
    async def _adding(self) -> AsyncIterator[None]:
        if self._is_closed and not self._failure:
            raise StagingError(f"{self._what} is sealed", remedy="stage first, then seal")
        async with self._failing():
            yield

    @asynccontextmanager
    async def _failing(self) -> AsyncIterator[None]:
        """Run the body in one task at a time. An error in it, or a cancellation, ends the attempt."""
        try:
            async with self._turn:
                if self._failure:
                    raise StagingError(f"{self._what} has ended: {self._failure}", remedy=_AGAIN)
                yield
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or (str(error) if isinstance(error, ViewstampError) else repr(error))
        while self._tickets:
            block = self._tickets.pop()
            block.sender.abandon(block.ticket)

    async def _stage(self, topic: str, columns: Columns, timeout: float | None) -> None:
        if not columns.count:
            return
        spread = await self._find(topic, timeout)
        if spread is None:
            await self._stage_block(topic, columns, None, timeout)
            return
        self._blocks_staged += 1
        for stream, rows in divide(spread, columns, self.id + self._blocks_staged).items():
            group = spread.group_of(stream)
            part = self._parts.get(group) or await self._begin_part(group, timeout)
            await self._stage_block(spread.topic_of(stream), rows, part, timeout)

    async def _stage_block(self, topic: str, columns: Columns, part: StagedPart | None, timeout: float | None) -> None:
        """Stage a block for a topic of group 0, or for a stream of another group."""
        size = columns.size
        await self._receive(self._options.stage_bytes_in_flight - size, timeout)
        if part is None:
            block = _Block(self._sender.begin_staging(topic, columns, self.id, timeout), self._sender, None)
        else:
            with self._sinks.groups.call(part.group) as parts:
                parts.sender.queue.promised.add(topic)
                ticket = parts.sender.begin_staging(topic, columns, part.id, timeout)
                block = _Block(ticket, parts.sender, part)
        self._tickets.append(block)
        self._in_flight += size
        await self._runtime.sleep(0)  # The block leaves in a turn of the event loop, which its caller may not give.

    async def _find(self, topic: str, timeout: float | None) -> SpreadTopicInfo | None:
        """Return the route of a topic with streams, as it is when the attempt first uses it; None = it has none.

        Raises RequestError if the attempt has records of the other sort.
        """
        if topic not in self._spread:
            check_topic(topic)
            spread, is_spread = None, False
            with suppress(RequestError):  # The block gets the error, as that of any append.
                is_spread = await self._sinks.routes.find(topic, as_seconds(timeout, self._options.timeout))
            if is_spread:
                frame = await self._router.ask(DescribeSpreadTopic(name=topic, stale=True), timeout)
                spread = spread_topic_info(frame.body["topic"])
            if any((each is None) is not (spread is None) for each in self._spread.values()):
                raise RequestError(
                    f"{self._what} has records of topics with streams and of topics without",
                    remedy="write them in two sinks, because they do not become visible at one moment",
                )
            self._spread[topic] = spread
        return self._spread[topic]

    async def _begin_part(self, group: GroupId, timeout: float | None) -> StagedPart:
        """Begin the part of this attempt in a group. Raises StagingError if the attempt is committed already."""
        with self._sinks.groups.call(group) as parts:
            frame = await parts.router.ask_leader(BeginPart(attempt=self.id, sink=self._sink.name), timeout)
        if not frame.body["attempt"]:
            raise StagingError(f"{self._what} is committed", remedy=_AGAIN)
        part = self._parts[group] = StagedPart(group, frame.body["attempt"])
        return part

    async def _receive(self, bytes_max: int, timeout: float | None) -> None:
        """Take the receipts that are there, and wait for more until at most ``bytes_max`` are unacknowledged."""
        seconds = as_seconds(timeout, self._options.timeout)
        try:
            await self._runtime.within(seconds, self._take_receipts(bytes_max))
        except TimeoutError:
            raise UnavailableError(
                f"{self._what} misses the receipts of {len(self._tickets)} blocks after {seconds:g} s", remedy=_AGAIN
            ) from None
        except OutcomeUnknownError as error:
            raise UnavailableError(f"{self._what} lost a staged block: {error}", remedy=_AGAIN) from error

    async def _take_receipts(self, bytes_max: int) -> None:
        while self._tickets and (self._tickets[0].ticket.waiter.done() or self._in_flight > bytes_max):
            ticket, sender, part = self._tickets[0]
            receipt = await sender.end_staging(ticket)
            assert ticket.batch is not None, "a block with a receipt has a batch"
            self._tickets.popleft()
            self._in_flight -= ticket.size
            entry = StagedBatch(receipt.first_index, ticket.batch.topic, receipt.count, ticket.size)
            if part is None:
                self._entries.append(entry)
            else:
                part.add(ticket.name, entry)

    def _blocks(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Mapping[str, bytes] | None] | None,
    ) -> list[Columns]:
        """Divide records into blocks."""
        for name, column in (("keys", keys), ("headers", headers)):
            if column is not None and len(column) != len(values):
                raise RequestError(f"{len(column)} {name} for {len(values)} values", remedy="give one for each value")
        some_values = [as_bytes(value, "a value") for value in values]
        some_keys = [None if key is None else as_bytes(key, "a key") for key in keys or [None] * len(some_values)]
        some_headers = [as_headers(each) for each in headers or [None] * len(some_values)]
        limit = self._sender.batches.batch_bytes
        blocks = []
        start, held = 0, 0
        for at, size in enumerate(map(record_size, some_values, some_keys, some_headers)):
            if at > start and held + size > limit:
                blocks.append(_columns(some_values[start:at], some_keys[start:at], some_headers[start:at]))
                start, held = at, 0
            held += size
        if some_values:
            blocks.append(_columns(some_values[start:], some_keys[start:], some_headers[start:]))
        return blocks


def sink_info(sink: dict[str, Any]) -> SinkInfo:
    """Decode a node's description of a sink."""
    return SinkInfo(
        name=sink["name"],
        owner=sink["owner"],
        run=sink["run"],
        batch=sink["batch"],
        index=sink["index"],
        timestamp=sink["log_time"],
        ranges=_ranges(sink["ranges"]),
        keep_seconds=sink["keep_seconds"],
        attempts=sink["attempts"],
        sealed=sink["sealed"],
        bytes=sink["bytes"],
        forget_seconds=sink.get("forget_seconds", 0),  # absent = a node of a release that keeps every sink
    )


def _commit(commit: dict[str, Any]) -> SinkCommit:
    return SinkCommit(
        sink=commit["sink"],
        batch=commit["batch"],
        duplicate=commit["duplicate"],
        ranges=_ranges(commit["ranges"]),
        index=commit["index"],
        timestamp=commit["log_time"],
    )


def _ranges(ranges: list[tuple[str, int, int]] | None) -> list[CommitRange] | None:
    return None if ranges is None else [CommitRange(*each) for each in ranges]


def _random_name(entropy: random.Random) -> str:
    return f"{entropy.getrandbits(64):016x}"


def _columns(values: list[bytes], keys: list[bytes | None], headers: Sequence[Headers | None]) -> Columns:
    return build_batch(values, kind=Kind.STAGED, keys=keys, headers=headers).columns()
