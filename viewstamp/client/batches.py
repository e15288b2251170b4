"""The data of a client's batches: open ones, which records may still join, and sent ones, which wait for the answer.

The rules are elsewhere: ``unsent.py`` chooses the batch of a record and the batch to send next, and ``session.py``
numbers batches and repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgpack

from viewstamp.client.results import BatchReceipt
from viewstamp.errors import PeerError, StaleSessionError, UnavailableError, ViewstampError
from viewstamp.ids import Sequence, SessionId, TopicId
from viewstamp.wire.batch import Batch, Buffer, Columns, Kind, build_columns, encode_batch
from viewstamp.wire.commands import decode_command
from viewstamp.wire.frame import FrameKind

__all__ = [
    "COMMANDS",
    "RECORD_COST",
    "Completion",
    "Headers",
    "InFlightBatch",
    "OpenBatch",
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
"""Bytes added to the size of each record, for its offsets and the objects that hold it. So empty records count too."""

COMMANDS = TopicId(0)
"""The topic id of batches of commands for replicated actors."""
_BLOCKS = -1
"""The lane of all blocks, over all topics: an attempt stages its blocks in the order of the calls."""

Headers = Mapping[str, bytes]


class Waiter(Protocol):
    """The future that a caller awaits."""

    def done(self) -> bool:
        """Return whether it has a result or an error, or was cancelled."""
        ...


WaiterT = TypeVar("WaiterT", bound=Waiter)


class Request(NamedTuple):
    """A request of the session, to be sent to the leader now."""

    id: int
    kind: FrameKind
    body: dict[str, object]
    payload: tuple[Buffer, ...]


class OpenBatch(Generic[WaiterT]):
    """Records of a topic, or commands, that become one batch, and the future of each.

    Or a block to be staged: its columns are the batch, and its one future gets the receipt of the batch.

    Invariants:
      * ``waiters`` is as long as the batch; an atomic group has its waiter at its first record and None after it
      * ``keys`` and ``headers`` are None until a record has one; then they are as long as ``values``
      * ``values``, ``keys`` and ``headers`` are dropped when the batch is built
      * commands have no keys, headers or groups
      * a batch with an ``expected_position`` has the records of one call, and no other record joins it
      * a block has an ``attempt`` and columns; no record joins it, and it is never divided
    """

    __slots__ = (
        "attempt",
        "bytes",
        "bytes_max",
        "cancelled",
        "columns",
        "count",
        "expected_position",
        "groups",
        "headers",
        "is_full",
        "is_open",
        "is_ordered",
        "keys",
        "lane",
        "parts",
        "receipt",
        "results",
        "sent",
        "session",
        "tick",
        "topic",
        "values",
        "waiters",
        "watchers",
    )

    def __init__(self, topic: TopicId, attempt: int = 0) -> None:
        self.topic = topic
        self.lane: int = _BLOCKS if attempt else topic
        """Batches of one lane are sent in order; the limits of unanswered batches hold for each lane."""
        self.values: list[bytes] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers | None] | None = None
        self.waiters: list[WaiterT | None] = []
        self.groups: dict[int, int] = {}
        """Offset -> count of each atomic group."""
        self.attempt = attempt
        """The attempt for which the block is staged; 0 = records or commands."""
        self.expected_position = 0
        """The position that its first record must get; 0 = the next one of the topic."""
        self.columns: Columns | None = None
        """The columns of a block, until the batch is built."""
        self.bytes = 0
        self.bytes_max = 0
        """Bytes above which no record joins it, while it is open."""
        self.count = 0
        """Records in the batch; 0 until it is built."""
        self.tick = 0
        """The tick of the default timeout in which the batch began; see ``Sender``."""
        self.is_open = True
        """Whether more records may join."""
        self.is_full = False
        """Whether it is sent as a full batch although records may still join it, because the leader is far away."""
        self.is_ordered = False
        """Whether a caller waits for the global position of a record too."""
        self.cancelled = False
        """A caller has gone before the batch was built, so its records need not be sent."""
        self.parts: list[OpenBatch[WaiterT]] = []
        """The batches into which it was divided."""
        self.sent: InFlightBatch[WaiterT] | None = None
        """Set when the batch gets its sequence; from then on it may be in the log."""
        self.session = SessionId(0)
        """The session in which it was sent; 0 until it is built."""
        self.receipt: BatchReceipt | None = None
        """Where it is in the log, once its callers have their receipts."""
        self.results: list[bytes] | None = None
        """The packed result of each applied command; None = not kept. Callers decode them."""
        self.watchers: list[WaiterT] = []
        """Futures of ``outcome`` calls that ask for this batch while it is unanswered."""

    def build(self, session: SessionId, sequence: Sequence) -> Buffer:
        """Return the encoded batch, and drop the records. From now on it may be in the log."""
        self.session = session
        if self.columns is not None:
            self.count = self.columns.count
            buffer = build_columns(
                self.columns,
                kind=Kind.STAGED,
                topic=self.topic,
                session=session,
                sequence=sequence,
                attempt=self.attempt,
            ).buffer
        else:
            self.count = len(self.values)
            buffer = encode_batch(
                self.values,
                kind=Kind.RECORDS if self.topic != COMMANDS else Kind.COMMANDS,
                topic=self.topic,
                session=session,
                sequence=sequence,
                keys=self.keys,
                headers=self.headers,
            )
        self.values = []
        self.keys = self.headers = self.columns = None
        return buffer

    @property
    def is_unwanted(self) -> bool:
        """Whether all its callers have gone."""
        return all(waiter.done() for _, _, waiter in self.spans())

    def drop_done(self) -> int:
        """Drop the records whose callers have gone; return the number of bytes that this frees.

        Called only before the batch is sent, so these records are certainly never written.
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
    """A batch with a sequence: it was sent at least once, and its outcome is not decided."""

    __slots__ = ("answered", "batch", "doubtful", "open", "payload", "refusal", "request_id", "sequence", "settled")

    def __init__(self, batch: OpenBatch[WaiterT], sequence: Sequence, payload: Buffer) -> None:
        self.batch = batch
        self.sequence = sequence
        self.payload = payload
        self.request_id = 0
        """Id of the latest request; a refusal of an earlier one is ignored. 0 = not sent on this connection."""
        self.open = 0
        """Requests on this connection without an answer."""
        self.doubtful = False
        """Whether an attempt may be in the log, because it was lost or its answer does not say."""
        self.refusal: ViewstampError | None = None
        """Why the batch is never accepted; None = it may be. Its sequence is fenced before later batches pass."""
        self.settled = False
        """Whether its callers have their outcome."""
        self.answered = False
        """Whether it has left the session: it was applied, or fenced."""

    @property
    def was_refused(self) -> bool:
        """Whether it is certain that no attempt is in the log."""
        return not self.doubtful and self.open == 0


class Completion(NamedTuple, Generic[WaiterT]):
    """The outcome of a batch: a receipt, with ``batch.results``; or ``error(offset, count)`` for each of its callers.

    Commands with a receipt and without results were applied, but their results are lost. Their callers get ``error``.
    """

    batch: OpenBatch[WaiterT]
    receipt: BatchReceipt | None
    error: Callable[[int, int], ViewstampError]


def divide(sent: InFlightBatch[WaiterT]) -> list[OpenBatch[WaiterT]]:
    """Divide a batch of commands into a batch for each kind of command; [] = there is only one kind.

    Commands whose callers have gone are left out. They may have a token for the old batch, so
    their commands must not be applied as a part of another one.
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
    """Return the bytes that a record counts towards the limits of a batch and of a client."""
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
    """Return the error for records that another client has fenced."""
    return UnavailableError(
        "its outcome was requested before it was applied, so it will never be applied: nothing was written",
        remedy="append or call again",
    )


def not_kept(offset: int, count: int) -> ViewstampError:
    """Return the error for a command that was applied, and whose result is not kept."""
    return StaleSessionError(
        "the command was applied, but so long ago that its result is not kept any more, or the results of its batch are"
        " too large for one answer",
        remedy="do not call again: ask the actor by a query what the command has done",
    )


def unwritten(stale: ViewstampError) -> Callable[[int, int], ViewstampError]:
    """Return the errors for records that were refused at every attempt, after their session has ended."""
    return lambda offset, count: UnavailableError(
        f"the session has ended, nothing was written: {stale.message}", remedy="append or call again"
    )
