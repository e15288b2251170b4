"""Appends, and what became of them: what a client's callers see of its sender."""

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
    """Appends records to topics, and asks for the outcome of what timed out."""

    def __init__(self, runtime: Runtime, router: Router, sender: Sender) -> None:
        self._runtime = runtime
        self._router = router
        self._sender = sender
        self._queue = sender.queue
        self._batches = sender.batches
        self._held_max = sender.held_max

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
        """Append one record; return once it is on the disks of a majority.

        Concurrent calls share a batch. Within a topic, records stand in the order of the calls. Waits while too many
        bytes are held. Cancelled: the record may still be committed, unless it was not sent yet.

        Args:
          topic: its name.
          value: the record; bytes, any length up to the cluster's limit.
          key: bytes, or None.
          headers: names and bytes.
          expected_position: append it there or not at all; None = wherever the topic goes on. Shares no batch.
          timeout: seconds from now; None = the client's default.

        Raises:
          PositionMismatchError: the topic's next position is ``actual``, not the expected one. Final, and written is
            nothing; it is told only once the record that took the position, or the lack of one, is committed.
          UnavailableError: nothing was written; append again.
          OutcomeUnknownError: it may have been written, or may still be; ask with ``outcome(error.token)``.
          UnknownTopicError, RecordTooLargeError, RequestError: this record is wrong; others are not concerned.
          StorageFullError: refused for lack of space.
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
            if size - RECORD_COST <= batches.record_bytes_max and batches.held_bytes + size <= self._held_max:
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
        """Append records atomically: all or none, at consecutive positions, the first at ``expected_position``.

        As :meth:`append` otherwise.

        Raises:
          RecordTooLargeError: one record, or all of them together, are over the cluster's limits.
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
        """Append by the long way: with checks, through the queue, and with a timer if one is needed."""
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
        """Say what became of an append, or a command, whose outcome was unknown: one of three answers, each final.

        "applied", with its receipts; "not applied", fenced so that it stays so; or "expired": its session has ended, or
        the batch is too old, and nobody can tell any more. Where this client still sends that batch, its answer is
        awaited; else the leader is asked, and fences it.

        Raises:
          OutcomeUnknownError: no answer in time; ask again with the same token.
        """
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
                f"still unknown: {error}" if str(error) else f"still unknown after {seconds:g} s",
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
                # The session ended meanwhile, and with it what this client knows: the leader has the last word.
        request = AskOutcome(session=token.session, sequence=token.sequence)
        frame = await self._router.ask_leader(request, deadline=deadline)
        leader = self._router.leader.connection
        durability = leader.durability if leader is not None else DURABILITY
        return Decided(read_receipt(frame.body["receipt"]), read_results(frame.body.get("results")), durability)
