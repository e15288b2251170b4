"""Appends to the topics of one group, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from viewstamp.client.batches import RECORD_COST, OpenBatch, record_size
from viewstamp.client.checks import as_bytes, as_headers, as_whole, check_topic, read_receipt, read_results
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

__all__ = ["Appends"]


class Appends:
    """Appends records to the topics of one group, and finds the outcome of appends that timed out."""

    def __init__(self, runtime: Runtime, router: Router, sender: Sender) -> None:
        self._runtime = runtime
        self._router = router
        self._sender = sender
        self._queue = sender.queue
        self._batches = sender.batches

    async def append(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expected_position: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Append one record to a topic. Returns its receipt when the record is on the disks of a majority.

        Example::

            receipt = await client.append("orders", b"one", key=b"customer-7")

        Concurrent calls share a batch, and within a topic records stand in the order of the calls. The call waits
        while the client holds more than ``ClientOptions.bytes_in_flight_max`` bytes.

        If the call is cancelled, the record may still be committed, unless it was not sent yet.

        Args:
          topic: the topic's name.
          value: the record; any length up to ``client.record_bytes_max``.
          key: the record's key; None = none.
          headers: names and bytes.
          expected_position: append at this position or not at all; None = at the topic's next position. Such an append
            shares no batch.
          timeout: seconds from now; None = the client's default.

        Raises:
          PositionMismatchError: nothing was written; the topic's next position is ``actual``, not the expected one.
            Raised only after the conflicting record, or the rejection, is committed, so that a new leader cannot undo
            it.
          UnavailableError: nothing was written; append again.
          OutcomeUnknownError: it may have been written, or may still be; ask with ``outcome(error.token)``.
          UnknownTopicError, RecordTooLargeError, RequestError: this record is wrong; other records are not affected.
          StorageFullError: nothing was written; the disk or the log of the leader is full.
        """
        topic_id = self._queue.topics.get(topic)
        if (
            topic_id is not None
            and timeout is None
            and key is None
            and headers is None
            and expected_position is None
            and type(value) is bytes
            and not self._queue.tickets
        ):
            batches = self._batches
            size = len(value) + RECORD_COST
            if size - RECORD_COST <= batches.record_bytes_max and batches.held_bytes + size <= self._sender.held_max:
                future: Future[Receipt] = self._runtime.create_future()
                batch = batches.add(topic_id, value, size, future)
                try:
                    return await future
                except BaseException:
                    if future.cancelled():
                        self._sender.gone(batch)
                    raise
        receipt: Receipt = await self._append(
            topic, [value], [key], [headers], timeout, atomic=False, expected_position=expected_position
        )
        return receipt

    async def append_many(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
        expected_position: int | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Append records atomically: all or none, at consecutive positions. Returns their receipts in order.

        Example::

            receipts = await client.append_many("orders", [b"one", b"two"], keys=[b"a", None])

        Everything else is as for :meth:`append`.

        Args:
          topic: the topic's name.
          values: the records; an empty sequence is allowed and writes nothing.
          keys: one key or None for each value.
          headers: one mapping or None for each value.
          expected_position: the position of the first record; None = the topic's next position.
          timeout: seconds from now; None = the client's default.

        Raises:
          RecordTooLargeError: nothing was written; one record, or all of them together, are over the cluster's limits.
          Others: as :meth:`append`.
        """
        values = list(values)
        for name, column in (("keys", keys), ("headers", headers)):
            if column is not None and len(column) != len(values):
                raise RequestError(f"{len(column)} {name} for {len(values)} values", remedy="give one for each value")
        if not values:
            await self._runtime.sleep(0)
            return []
        receipts: list[Receipt] = await self._append(
            topic,
            values,
            list(keys) if keys is not None else [None] * len(values),
            list(headers) if headers is not None else [None] * len(values),
            timeout,
            atomic=True,
            expected_position=expected_position,
        )
        return receipts

    async def _append(
        self,
        topic: str,
        values: list[bytes],
        keys: list[bytes | None],
        headers: list[Mapping[str, bytes] | None],
        timeout: float | None,
        *,
        atomic: bool,
        expected_position: int | None,
    ) -> Any:
        """Append with all checks, through the queue, and with a timer if one is needed."""
        self._router.start()
        check_topic(topic)
        if expected_position is not None and as_whole(expected_position, "a position") < 1:
            raise RequestError("nothing is appended at position 0", remedy="positions begin at 1")
        values = [as_bytes(value, "a value") for value in values]
        keys = [None if key is None else as_bytes(key, "a key") for key in keys]
        headers = [as_headers(each) for each in headers]
        sizes = list(map(record_size, values, keys, headers))
        size = sum(sizes)
        future: Waiter = self._runtime.create_future()
        some_keys = keys if any(key is not None for key in keys) else None
        some_headers = headers if any(headers) else None

        def act() -> OpenBatch[Waiter]:
            self._batches.check_sizes(sizes)
            return self._batches.add_group(
                self._queue.topics[topic],
                values,
                some_keys,
                some_headers,
                size,
                future,
                atomic=atomic,
                expected_position=expected_position or 0,
            )

        return await self._sender.enter(Ticket(topic, size, future, act), timeout)

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
            receipts=receipts_of(receipt, token.offset, token.count, durability),
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
