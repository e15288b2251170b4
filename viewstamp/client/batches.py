"""Batches on their way: a batch that still grows, and the same batch once it has a sequence. Data, and no rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgpack

from viewstamp.client.checks import check_columns
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import BatchReceipt
from viewstamp.errors import PeerError, RecordTooLargeError, StaleSessionError, UnavailableError, ViewstampError
from viewstamp.ids import Sequence, SessionId, TopicId
from viewstamp.wire.batch import HEADER_SIZE, Batch, Buffer, Columns, Kind, build_batch, build_columns
from viewstamp.wire.commands import decode_command
from viewstamp.wire.frame import FrameKind

__all__ = [
    "COMMANDS",
    "RECORD_COST",
    "Completion",
    "Headers",
    "InFlightBatch",
    "OpenBatch",
    "OpenBatches",
    "Request",
    "Waiter",
    "WaiterT",
    "check_results",
    "divide",
    "fenced",
    "not_kept",
    "record_size",
    "unwritten",
]

RECORD_COST = 32
"""Bytes that a record counts beside its own: offsets, and a share of what holds it here. So empty records count too."""

_BATCH_COST = HEADER_SIZE + 160
"""More than what a batch takes beside its records: the header, three paddings, three first offsets, the bitmap's."""

COMMANDS = TopicId(0)
"""The topic id of batches that hold commands of replicated actors instead of records."""

Headers = Mapping[str, bytes]


class Waiter(Protocol):
    """Who waits for a record: a future of the runtime."""

    def done(self) -> bool:
        """Say whether it needs no answer any more: told already, or cancelled."""
        ...


WaiterT = TypeVar("WaiterT", bound=Waiter)


class Request(NamedTuple):
    """A frame to send to the leader now."""

    id: int
    kind: FrameKind
    body: dict[str, object]
    payload: tuple[Buffer, ...]


class OpenBatch(Generic[WaiterT]):
    """Records of a topic, or commands, that will be one batch, and who waits for each.

    Or a block that is staged: columns that are one batch as they stand, with one waiter, who wants the batch's receipt.

    Invariants:
      * ``waiters`` is as long as the batch; an atomic group has its waiter at its first record and None after it
      * ``keys`` and ``headers`` are None until a record has one; then they are as long as ``values``
      * ``values``, ``keys`` and ``headers`` are given up once the batch is built
      * commands stand alone: without keys, headers and groups
      * what has an ``expected_position`` is what one caller appends, and no other record joins it
      * a block has an ``attempt``, and nothing but its columns: no record joins it, and it is never divided
    """

    __slots__ = (
        "attempt",
        "bytes",
        "cancelled",
        "columns",
        "count",
        "expected_position",
        "groups",
        "headers",
        "is_open",
        "keys",
        "parts",
        "results",
        "sent",
        "tick",
        "topic",
        "values",
        "waiters",
        "watchers",
    )

    def __init__(self, topic: TopicId) -> None:
        self.topic = topic
        self.values: list[bytes] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers | None] | None = None
        self.waiters: list[WaiterT | None] = []
        self.groups: dict[int, int] = {}
        """Offset -> count of each atomic group."""
        self.attempt = 0
        """The attempt for which this is staged; 0 = these are records or commands."""
        self.expected_position = 0
        """Where its first record has to stand; 0 = wherever the topic goes on."""
        self.columns: Columns | None = None
        """What is staged, until the batch is built."""
        self.bytes = 0
        self.count = 0
        """Records in the batch; 0 until it is built."""
        self.tick = 0
        """The runtime's mark of when it began."""
        self.is_open = True
        """More records may join."""
        self.cancelled = False
        """A waiter has gone before the batch was built: its records need not be sent."""
        self.parts: list[OpenBatch[WaiterT]] = []
        """Where its callers are after it was divided."""
        self.sent: InFlightBatch[WaiterT] | None = None
        """Set once the batch has a sequence: from then on it may have been written."""
        self.results: list[bytes] | None = None
        """Of commands that were applied: a packed result for each, to be decoded by its caller; None = not kept."""
        self.watchers: list[WaiterT] = []
        """Who asked for the outcome of this batch while it was unanswered."""

    def build(self, session: SessionId, sequence: Sequence) -> Buffer:
        """Return the batch as it travels. Its records are given up: from now on it may have been written."""
        if self.columns is not None:
            built = build_columns(
                self.columns,
                kind=Kind.STAGED,
                topic=self.topic,
                session=session,
                sequence=sequence,
                attempt=self.attempt,
            )
        else:
            built = build_batch(
                self.values,
                kind=Kind.RECORDS if self.topic != COMMANDS else Kind.COMMANDS,
                topic=self.topic,
                session=session,
                sequence=sequence,
                keys=self.keys,
                headers=self.headers,
            )
        self.count = built.count
        self.values = []
        self.keys = self.headers = self.columns = None
        return built.buffer

    @property
    def is_unwanted(self) -> bool:
        """Whether nobody waits for any of it any more."""
        return all(waiter.done() for _, _, waiter in self.spans())

    def drop_done(self) -> int:
        """Keep only the records somebody waits for; return how many bytes that frees.

        Only before anything of it was sent, so that nothing can come of the others.
        """
        kept = [(at, count) for at, count, waiter in self.spans() if not waiter.done()]
        old = self.values, self.keys, self.headers, self.waiters, self.groups, self.bytes
        values, keys, headers, waiters, groups, size = old
        self.values = [value for at, count in kept for value in values[at : at + count]]
        self.waiters = [waiter for at, count in kept for waiter in waiters[at : at + count]]
        self.keys = None if keys is None else [key for at, count in kept for key in keys[at : at + count]]
        self.headers = None if headers is None else [h for at, count in kept for h in headers[at : at + count]]
        self.groups = {}
        offset = 0
        for at, count in kept:
            if at in groups:
                self.groups[offset] = count
            offset += count
        none: list[None] = [None] * len(self.values)
        self.bytes = sum(map(record_size, self.values, self.keys or none, self.headers or none))
        self.cancelled = False
        return size - self.bytes

    def spans(self) -> Iterator[tuple[int, int, WaiterT]]:
        """Yield (offset, count, waiter) of every append in the batch, in order."""
        for offset, waiter in enumerate(self.waiters):
            if waiter is not None:
                yield offset, self.groups.get(offset, 1), waiter


class InFlightBatch(Generic[WaiterT]):
    """A batch with a sequence: it has been handed to a connection at least once and is not answered for good."""

    __slots__ = ("answered", "batch", "doubtful", "open", "payload", "refusal", "request_id", "sequence", "settled")

    def __init__(self, batch: OpenBatch[WaiterT], sequence: Sequence, payload: Buffer) -> None:
        self.batch = batch
        self.sequence = sequence
        self.payload = payload
        self.request_id = 0
        """The attempt whose refusal counts; 0 = none is under way."""
        self.open = 0
        """Attempts on this connection that have no answer yet."""
        self.doubtful = False
        """An attempt was lost, or its answer did not say what became of it."""
        self.refusal: ViewstampError | None = None
        """It will never be accepted: its sequence has to be fenced before later ones can pass."""
        self.settled = False
        """Its waiters know for certain."""
        self.answered = False
        """It is out of the session: applied, or fenced."""

    @property
    def was_refused(self) -> bool:
        """Whether it is certain that no attempt has put it into the log."""
        return not self.doubtful and self.open == 0


class Completion(NamedTuple, Generic[WaiterT]):
    """What became of a batch: a receipt, and ``batch.results``; or ``error(offset, count)`` for each of its callers.

    Commands with a receipt and without results were applied, and their callers are told ``error``.
    """

    batch: OpenBatch[WaiterT]
    receipt: BatchReceipt | None
    error: Callable[[int, int], ViewstampError]


class OpenBatches(Generic[WaiterT]):
    """The batches that were never sent, and the rules by which records join them.

    Invariants:
      * ``waiting`` holds every batch, in the order in which they began; one that records may still join is in ``_open``
      * ``held_bytes`` counts what waits here and, until the session completes it, what was sent
    """

    def __init__(self, options: ClientOptions, on_batch: Callable[[OpenBatch[WaiterT]], None]) -> None:
        """Begin without batches; ``on_batch`` is called with each one that begins."""
        self.held_bytes = 0
        """Bytes of the appends that the client holds, sent or not."""
        self.record_bytes_max = 1024 * 1024
        self.batch_bytes_max = 8 * 1024 * 1024
        self.batch_bytes = options.batch_bytes
        """Bytes to which an open batch grows."""
        self.waiting: deque[OpenBatch[WaiterT]] = deque()
        self._options = options
        self._on_batch = on_batch
        self._open: dict[TopicId, OpenBatch[WaiterT]] = {}
        self._closed = 0
        """The number of batches in ``waiting`` that no record joins any more."""

    def set_limits(self, *, record_bytes_max: int, batch_bytes_max: int) -> None:
        """Take the limits that the cluster announced. Open batches stay as they are, because they are far below."""
        self.record_bytes_max = record_bytes_max
        self.batch_bytes_max = batch_bytes_max
        self.batch_bytes = max(1, min(self._options.batch_bytes, batch_bytes_max - _BATCH_COST))

    def check_sizes(self, sizes: list[int]) -> None:
        """Check records that are to be one batch; ``sizes`` are their ``record_size``.

        Raises:
          RecordTooLargeError: one of them, or all together, are over the cluster's limits.
        """
        limit = self.record_bytes_max
        for size in sizes:
            if size - RECORD_COST > limit:
                raise RecordTooLargeError(
                    f"a record of {size - RECORD_COST} bytes is over the limit of {limit}",
                    remedy="append smaller records, or raise [limits] record_bytes_max on every node",
                )
        if sum(sizes) + _BATCH_COST > self.batch_bytes_max:
            raise RecordTooLargeError(
                f"{len(sizes)} records of {sum(sizes) - len(sizes) * RECORD_COST} bytes in all do not fit into one"
                f" batch of {self.batch_bytes_max} bytes",
                remedy="append fewer at once, or raise [limits] batch_bytes_max on every node",
            )

    def add(self, topic: TopicId, value: bytes, size: int, waiter: WaiterT) -> OpenBatch[WaiterT]:
        """Put a record without key and headers, or a command, into its batch. The hot path: called once for each."""
        batch = self._open.get(topic)
        if batch is None or batch.bytes + size > self.batch_bytes:
            batch = self._begin(topic)
        batch.bytes += size
        self.held_bytes += size
        batch.values.append(value)
        batch.waiters.append(waiter)
        if batch.keys is not None:
            batch.keys.append(None)
        if batch.headers is not None:
            batch.headers.append(None)
        return batch

    def add_group(
        self,
        topic: TopicId,
        values: list[bytes],
        keys: list[bytes | None] | None,
        headers: list[Headers | None] | None,
        size: int,
        waiter: WaiterT,
        *,
        atomic: bool,
        expected_position: int = 0,
    ) -> OpenBatch[WaiterT]:
        """Put records that belong together into one batch; ``atomic`` says that their waiter wants all receipts.

        With an ``expected_position`` they are a batch alone: behind other records, the first of the caller's would not
        be where the batch begins.
        """
        batch = self._open.get(topic)
        if batch is None or expected_position or batch.bytes + size > self.batch_bytes:
            batch = self._begin(topic)
        held = len(batch.values)
        if keys is not None and batch.keys is None:
            batch.keys = [None] * held
        if headers is not None and batch.headers is None:
            batch.headers = [None] * held
        if batch.keys is not None:
            batch.keys.extend(keys or [None] * len(values))
        if batch.headers is not None:
            batch.headers.extend(headers or [None] * len(values))
        if atomic:
            batch.groups[held] = len(values)
        batch.values.extend(values)
        batch.waiters.append(waiter)
        batch.waiters.extend([None] * (len(values) - 1))
        batch.bytes += size
        self.held_bytes += size
        if expected_position:
            batch.expected_position = expected_position
            self._close(topic)
        return batch

    def add_block(self, topic: TopicId, columns: Columns, attempt: int, waiter: WaiterT) -> OpenBatch[WaiterT]:
        """Stage a block for an attempt: one batch, whose receipt ``waiter`` gets. Blocks are sent in their order.

        Raises:
          RequestError: the columns are not laid out as they should be.
          RecordTooLargeError: a record, or all together, are over the cluster's limits.
        """
        check_columns(columns, record_bytes_max=self.record_bytes_max, batch_bytes_max=self.batch_bytes_max)
        batch: OpenBatch[WaiterT] = OpenBatch(topic)
        batch.attempt = attempt
        batch.columns = columns
        batch.bytes = columns.size
        batch.waiters.append(waiter)
        batch.is_open = False
        self._closed += 1
        self.waiting.append(batch)
        self.held_bytes += batch.bytes
        self._on_batch(batch)
        return batch

    def put_back(self, parts: list[OpenBatch[WaiterT]]) -> None:
        """Put the parts of a batch that was divided before all others."""
        for part in reversed(parts):
            part.is_open = False
            self._closed += 1
            self.waiting.appendleft(part)
            self._on_batch(part)
            self.held_bytes += part.bytes

    def take(self, *, full_only: bool) -> OpenBatch[WaiterT] | None:
        """Take out the next batch to send, without the records whose callers have gone; None = there is none.

        Args:
          full_only: whether batches that may still grow are left here.
        """
        waiting = self.waiting
        while waiting:
            batch = waiting[0]
            if not batch.is_open:
                waiting.popleft()
                self._closed -= 1
            elif not full_only:
                waiting.popleft()
                del self._open[batch.topic]
                batch.is_open = False
            elif self._closed:
                batch = next(batch for batch in waiting if not batch.is_open)
                self._take_out(batch)
            else:
                return None
            # Each waiter is asked, because one that was cancelled in this very turn has not been reported yet.
            for waiter in batch.waiters:
                if waiter is not None and waiter.done():
                    self.held_bytes -= batch.drop_done()
                    break
            if batch.waiters:
                return batch
        return None

    def close_open(self) -> None:
        """Let no more records join the batches that are there."""
        for batch in self._open.values():
            batch.is_open = False
            self._closed += 1
        self._open.clear()

    def compact(self) -> None:
        """Take the records whose callers have gone out of the batches."""
        for batch in [batch for batch in self.waiting if batch.cancelled]:
            self.held_bytes -= batch.drop_done()
            if not batch.waiters:
                self._take_out(batch)

    def fail(self, error: Callable[[int, int], ViewstampError]) -> list[Completion[WaiterT]]:
        """Give up every batch: nothing of them was written."""
        completions: list[Completion[WaiterT]] = [Completion(batch, None, error) for batch in self.waiting]
        for batch in self.waiting:
            self.held_bytes -= batch.bytes
            batch.is_open = False
        self.waiting.clear()
        self._open.clear()
        self._closed = 0
        return completions

    def _begin(self, topic: TopicId) -> OpenBatch[WaiterT]:
        if topic in self._open:
            self._close(topic)
        batch: OpenBatch[WaiterT] = OpenBatch(topic)
        self._open[topic] = batch
        self.waiting.append(batch)
        self._on_batch(batch)
        return batch

    def _close(self, topic: TopicId) -> None:
        self._open.pop(topic).is_open = False
        self._closed += 1

    def _take_out(self, batch: OpenBatch[WaiterT]) -> None:
        self.waiting.remove(batch)
        if batch.is_open:
            del self._open[batch.topic]
            batch.is_open = False
        else:
            self._closed -= 1


def divide(sent: InFlightBatch[WaiterT]) -> list[OpenBatch[WaiterT]]:
    """Divide a batch of commands into a batch for each kind of command, with those whose callers still wait.

    Whoever has gone may have a token that names this batch, and may ask the cluster what became of it: its command
    must not come again in another one. [] = there is only one kind.
    """
    parts: dict[tuple[str, str, int], OpenBatch[WaiterT]] = {}
    values = Batch.decode(sent.payload, verify=False).values()
    for value, waiter in zip(values, sent.batch.waiters, strict=True):
        command = decode_command(value)
        part = parts.setdefault((command.actor, command.method, command.version), OpenBatch(COMMANDS))
        if waiter is not None and not waiter.done():
            part.values.append(value)
            part.waiters.append(waiter)
            part.bytes += len(value) + RECORD_COST
    return [part for part in parts.values() if part.waiters] if len(parts) > 1 else []


def record_size(value: bytes, key: bytes | None, headers: Headers | None) -> int:
    """Return the bytes that a record counts in a batch and in what a client holds."""
    size = len(value) + RECORD_COST
    if key is not None:
        size += len(key)
    if headers:
        size += len(msgpack.packb(dict(headers)))
    return size


def check_results(batch: OpenBatch[WaiterT], results: list[bytes]) -> None:
    """Compare the results of commands with the batch that they answer. Raises PeerError."""
    if batch.topic != COMMANDS or len(results) != batch.count:
        raise PeerError(f"{len(results)} results answer a batch of {batch.count} for topic {batch.topic}")


def fenced(offset: int, count: int) -> ViewstampError:
    """Return what is told of records that somebody else has fenced."""
    return UnavailableError(
        "somebody asked for the outcome of this before it was applied, so it was fenced: nothing was written",
        remedy="append or call again",
    )


def not_kept(offset: int, count: int) -> ViewstampError:
    """Return what is told of a command that was applied, and whose result is gone."""
    return StaleSessionError(
        "the command was applied, but so long ago that its result is not kept any more, or the results of its batch are"
        " too large for one answer",
        remedy="do not call again: ask the actor by a query what the command has done",
    )


def unwritten(stale: ViewstampError) -> Callable[[int, int], ViewstampError]:
    """Return what is told of records that were refused at every attempt, when their session has ended."""
    return lambda offset, count: UnavailableError(
        f"the session was forgotten, nothing was written: {stale.message}", remedy="append or call again"
    )
