"""Appends to the topics of one group, and their outcomes. ``topic_appends.py`` has the calls of a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from viewstamp.client.batches import Headers, OpenBatch, record_size
from viewstamp.client.checks import as_bytes, as_headers, read_receipt, read_results
from viewstamp.client.results import DURABILITY, Decided, Outcome, Receipt, receipts_of, result_or_error
from viewstamp.client.router import Router
from viewstamp.client.runtime import Future, Runtime
from viewstamp.client.send_queue import Ticket
from viewstamp.client.sender import Sender, Waiter
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    OutcomeUnknownError,
    RequestError,
    StaleSessionError,
    StorageError,
    UnavailableError,
)
from viewstamp.wire.requests import AskOutcome

__all__ = ["Appends", "Records"]


class Records(NamedTuple):
    """The records of one append, checked."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    headers: Sequence[Headers | None]
    sizes: list[int]
    """As ``record_size`` counts them."""

    @classmethod
    def of(
        cls,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
    ) -> Self:
        """Return copies that other code cannot change; None = no record has one.

        Raises:
          RequestError: something is not made of bytes.
        """
        none: list[None] = [None] * len(values)
        keys, headers = none if keys is None else keys, none if headers is None else headers
        values = [as_bytes(value, "a value") for value in values]
        keys = [None if key is None else as_bytes(key, "a key") for key in keys]
        copies = [as_headers(each) for each in headers]
        return cls(values, keys, copies, list(map(record_size, values, keys, copies)))


class Appends:
    """Appends records to the topics of one group, and finds the outcome of appends that timed out."""

    def __init__(self, runtime: Runtime, router: Router, sender: Sender) -> None:
        self._runtime = runtime
        self._router = router
        self._sender = sender
        self._queue = sender.queue
        self._batches = sender.batches

    def begin(
        self,
        topic: str,
        records: Records,
        timeout: float | None = None,
        *,
        atomic: bool = False,
        expected_position: int = 0,
        ordered: bool = False,
    ) -> Ticket:
        """Put records into a batch, or into the queue if they must wait. ``end`` or ``abandon`` must follow.

        ``ordered``: the caller is going to ask for their global positions.

        Appends to a topic have the order of these calls.
        """
        self._router.start()
        future: Waiter = self._runtime.create_future()
        keys = list(records.keys) if any(key is not None for key in records.keys) else None
        headers = list(records.headers) if any(records.headers) else None
        size = sum(records.sizes)

        def act() -> OpenBatch[Waiter]:
            self._batches.check_sizes(records.sizes)
            return self._batches.add_group(
                self._queue.topics[topic],
                list(records.values),
                keys,
                headers,
                size,
                future,
                atomic=atomic,
                expected_position=expected_position,
                ordered=ordered,
            )

        ticket = Ticket(topic, size, future, act)
        self._sender.admit(ticket, timeout)
        return ticket

    async def end(self, ticket: Ticket) -> Any:
        """Wait for the receipt, or for all receipts if it is atomic. Cancelled: it is not sent, unless it was.

        Raises: as ``TopicAppends.append``.
        """
        return await self._sender.answer(ticket)

    def token_of(self, ticket: Ticket, receipt: Receipt, count: int) -> OutcomeToken:
        """Return the token of records that are durable; ``receipt`` is that of the first one."""
        batch = ticket.batch
        assert batch is not None, "it was sent"
        assert batch.receipt is not None, "and acknowledged"
        return self._sender.session.token(batch, receipt.position - batch.receipt.first_position, count)

    def abandon(self, ticket: Ticket) -> None:
        """Give up an append. If it was not sent, it never is."""
        self._sender.abandon(ticket)

    async def outcome(self, token: OutcomeToken, *, timeout: float | None = None) -> Outcome:
        """Find the outcome of records in a session of this group; as ``Groups.outcome``, which chooses the group."""
        self._router.start()
        seconds = self._router.seconds(timeout)
        try:
            decided = await self._decided(token, seconds)
        except StaleSessionError:
            return Outcome(answer="expired")
        except (UnavailableError, OutcomeUnknownError, StorageError, TimeoutError) as error:
            if isinstance(error, ClosedError) and self._router.is_closed:
                raise
            raise OutcomeUnknownError(
                f"the outcome is unknown: {error}" if str(error) else f"the outcome is unknown after {seconds:g} s",
                token=token,
                remedy="ask again with the same token",
            ) from error
        receipt, results, durability = decided
        if receipt is None:
            return Outcome(answer="not applied")
        end = token.offset + token.count
        if end > receipt.count or (results is not None and end > len(results)):
            raise RequestError(
                f"the token names records {token.offset}..{end} of a batch of {receipt.count}",
                remedy="pass the token of an OutcomeUnknownError as it is",
            )
        return Outcome(
            answer="applied",
            receipts=receipts_of(receipt, token.offset, token.count, durability, token.stream),
            results=None if results is None else list(map(result_or_error, results[token.offset : end])),
        )

    async def _decided(self, token: OutcomeToken, seconds: float) -> Decided:
        deadline = self._runtime.time() + seconds
        batch = self._sender.session.find(token.session, token.sequence)
        if batch is not None:
            watcher: Future[Decided] = self._runtime.create_future()
            batch.watchers.append(watcher)
            try:
                return await self._runtime.within(seconds, watcher)
            except OutcomeUnknownError:
                if self._router.is_closed:
                    raise
                # The session has ended, and this client has no outcome of its own. So the leader decides.
        request = AskOutcome(session=token.session, sequence=token.sequence)
        frame = await self._router.ask_leader(request, deadline=deadline)
        leader = self._router.leader.connection
        durability = leader.durability if leader is not None else DURABILITY
        return Decided(read_receipt(frame.body["receipt"]), read_results(frame.body.get("results")), durability)
