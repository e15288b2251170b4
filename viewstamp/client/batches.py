"""Batches on their way: a draft that still grows, and the same batch once it has a sequence. Data, and no rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgpack

from viewstamp.errors import PeerError, StaleSessionError, UnavailableError, ViewstampError
from viewstamp.ids import Sequence, TopicId
from viewstamp.wire.batch import Batch, Buffer, Columns
from viewstamp.wire.commands import decode_command
from viewstamp.wire.frame import FrameKind

__all__ = [
    "COMMANDS",
    "RECORD_COST",
    "BatchReceipt",
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
]

RECORD_COST = 32
"""Bytes that a record counts beside its own: offsets, and a share of what holds it here. So empty records count too."""

COMMANDS = TopicId(0)
"""The topic id of drafts that hold commands of replicated actors instead of records."""

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


class BatchReceipt(NamedTuple):
    """The receipt of a batch, as the node sends it."""

    first_position: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a receipt
    term: int
    first_index: int
    log_time: int


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

    __slots__ = ("answered", "doubtful", "draft", "open", "payload", "refusal", "request_id", "sequence", "settled")

    def __init__(self, draft: OpenBatch[WaiterT], sequence: Sequence, payload: Buffer) -> None:
        self.draft = draft
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
    """What became of a draft: a receipt, and ``draft.results``; or ``error(offset, count)`` for each of its callers.

    Commands with a receipt and without results were applied, and their callers are told ``error``.
    """

    draft: OpenBatch[WaiterT]
    receipt: BatchReceipt | None
    error: Callable[[int, int], ViewstampError]


def divide(sent: InFlightBatch[WaiterT]) -> list[OpenBatch[WaiterT]]:
    """Divide a batch of commands into a draft for each kind of command, with those whose callers still wait.

    Whoever has gone may have a token that names this batch, and may ask the cluster what became of it: its command
    must not come again in another one. [] = there is only one kind.
    """
    parts: dict[tuple[str, str, int], OpenBatch[WaiterT]] = {}
    values = Batch.decode(sent.payload, verify=False).values()
    for value, waiter in zip(values, sent.draft.waiters, strict=True):
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


def check_results(draft: OpenBatch[WaiterT], results: list[bytes] | None) -> None:
    """Compare the results of commands with the batch that they answer. Raises PeerError."""
    if results is not None and (draft.topic != COMMANDS or len(results) != draft.count):
        raise PeerError(f"{len(results)} results answer a batch of {draft.count} for topic {draft.topic}")


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
