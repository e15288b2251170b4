"""Sends the batches of a client to the leader and completes the futures of its callers; has the timeouts of appends."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from viewstamp.client.batches import COMMANDS, Completion, OpenBatch, Request
from viewstamp.client.checks import check_topic, read_receipt, read_results
from viewstamp.client.connection import NodeConnection, too_large
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import BatchReceipt, Decided, Receipt, new_tuple, receipts_of
from viewstamp.client.router import Router
from viewstamp.client.routing import closed_error, copies
from viewstamp.client.runtime import Future, Runtime
from viewstamp.client.send_queue import SendQueue, Ticket
from viewstamp.client.session import Action, Session
from viewstamp.client.unsent import OpenBatches
from viewstamp.errors import NoQuorumError, OutcomeUnknownError, PeerError, StreamSealedError, ViewstampError
from viewstamp.ids import GROUP_0, GroupId, SessionId
from viewstamp.wire.answers import error_from
from viewstamp.wire.batch import Columns
from viewstamp.wire.frame import Frame, FrameKind, TooLarge

__all__ = ["Sender", "Waiter"]

Waiter = Future[Any]

_TICKS = 16
"""The default timeout is this many ticks long. One timer for all appends runs once in a tick."""


class Sender:
    """Sends appends and commands, and completes their futures.

    Invariants:
      * every admitted append and command ends with a result, with an error, or cancelled; also if the client is closed
      * the held appends have at most ``held_max`` bytes, or there is only one, or ``held_max`` was lowered meanwhile
      * appends and batches have no tasks of their own, because a task costs more than the rest of an append
    """

    def __init__(self, runtime: Runtime, options: ClientOptions, router: Router, group: GroupId = GROUP_0) -> None:
        self.held_max = options.bytes_in_flight_max
        """Bytes of appends that may be held; the share of the group, if the client uses several."""
        self.batches: OpenBatches[Waiter] = OpenBatches(options, self._on_batch, self._wake)
        self.session: Session[Waiter] = Session(options, count(1), self.batches, group)
        self.on_sealed: Callable[[Waiter], None] = lambda waiter: None
        """Called with the future of each append that is fenced because its stream is sealed, in their order, before it
        gets the error."""
        self.queue = SendQueue(runtime, router, options.silence, self._fits, lambda waiter: self.on_sealed(waiter))
        self._runtime = runtime
        self._options = options
        self._router = router
        self._leader = router.leader
        self._leader.serve(self)
        self._timed: set[Waiter] = set()
        """Futures with a timer of their own; the default timeout does not apply to them."""
        self._expiring: deque[OpenBatch[Waiter]] = deque()
        self._tick = 0
        self._is_sweeping = False
        self._is_compacting = False
        self._watched_since = 0.0
        self._is_watching = False

    def close(self) -> None:
        """Fail everything at once: unsent appends with ClosedError, sent ones with OutcomeUnknownError."""
        self.queue.topics.clear()
        self._complete(self.session.close())
        self.queue.fail(closed_error)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent or to be answered."""
        return not (self.session.has_work or self.session.is_owed or self.queue.tickets)

    def has_batches_of(self, topic: str) -> bool:
        """Return whether an append to a topic of the group waits to be sent, or is not decided."""
        if any(ticket.name == topic for ticket in self.queue.tickets):
            return True
        topic_id = self.queue.topics.get(topic)
        return topic_id is not None and self.session.has_batches_of(topic_id)

    def give_back(self, topic: str, error: ViewstampError) -> None:
        """Fail all appends to a topic of the group that were not sent, in their order: none of them was written."""
        topic_id = self.queue.topics.get(topic)
        unsent = [] if topic_id is None else self.batches.take_back(topic_id)
        self._complete([Completion(batch, None, lambda offset, count: copies(error)()) for batch in unsent])
        for ticket in [ticket for ticket in self.queue.tickets if ticket.name == topic and not ticket.waiter.done()]:
            self.queue.leave(ticket)
            if isinstance(error, StreamSealedError):
                self.on_sealed(ticket.waiter)
            ticket.waiter.set_exception(copies(error)())

    def hold(self, bytes_max: int) -> None:
        """Hold at most ``bytes_max`` bytes of appends from now on."""
        self.held_max = bytes_max
        self.queue.serve()

    # Waiting.

    async def enter(self, ticket: Ticket, timeout: float | None) -> Any:
        """Admit a ticket and wait for its outcome: in the queue if it must wait, with a timer if it has a timeout.

        Cancelled: an append that was not sent is never sent; one that was sent may be committed.
        """
        self.admit(ticket, timeout)
        return await self.answer(ticket)

    def admit(self, ticket: Ticket, timeout: float | None) -> None:
        """Put a ticket into a batch, or into the queue. The first half of ``enter``."""
        seconds = self._options.timeout if timeout is None else self._router.seconds(timeout)
        has_to_wait = not self.queue.admits(ticket)
        if has_to_wait:
            self.queue.join(ticket)
        else:
            ticket.batch = ticket.act(ticket)
        if seconds == math.inf or timeout is not None or has_to_wait:
            self.time(ticket, seconds)

    def time(self, ticket: Ticket, seconds: float) -> None:
        """Give a ticket a timeout of its own; ``untime`` must follow."""
        self._timed.add(ticket.waiter)
        if seconds != math.inf:
            ticket.timer = self._runtime.call_later(seconds, self._expire_one, ticket, seconds)

    async def answer(self, ticket: Ticket) -> Any:
        """Wait for the outcome of a ticket. The second half of ``enter``."""
        try:
            return await ticket.waiter
        except BaseException:
            self.leave(ticket)
            raise
        finally:
            self.untime(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Forget the caller of a ticket if it was cancelled; an append that was not sent is never sent."""
        if ticket.waiter.cancelled():
            self._give_up(ticket)

    def untime(self, ticket: Ticket) -> None:
        """End the timeout of a ticket whose future is done. Idempotent."""
        self._timed.discard(ticket.waiter)
        if ticket.timer is not None:
            ticket.timer.cancel()

    def _fits(self, size: int) -> bool:
        held = self.batches.held_bytes
        return held + size <= self.held_max or held == 0

    # Outcomes.

    def _complete(self, completions: list[Completion[Waiter]], durability: str = "") -> None:
        """Complete the futures of batches. For a plain batch this is one loop over its futures."""
        for batch, receipt, error in completions:
            results = batch.results
            batch.receipt = receipt
            if receipt is None or (results is None and batch.topic == COMMANDS):
                for offset, size, waiter in batch.spans():
                    if not waiter.done():
                        failure = error(offset, size)
                        if isinstance(failure, StreamSealedError):
                            self.on_sealed(waiter)
                        waiter.set_exception(failure)
            elif results is not None:
                for single, result in zip(batch.waiters, results, strict=True):
                    assert single is not None, "only groups have records without a waiter"
                    if not single.done():
                        single.set_result(result)
            elif batch.attempt:
                for _, _, waiter in batch.spans():
                    if not waiter.done():
                        waiter.set_result(receipt)
            elif batch.groups:
                for offset, size, waiter in batch.spans():
                    if not waiter.done():
                        receipts = receipts_of(receipt, offset, size, durability)
                        waiter.set_result(receipts if offset in batch.groups else receipts[0])
            else:
                position, _, term, index, log_time = receipt
                for single in batch.waiters:
                    assert single is not None, "only groups have records without a waiter"
                    if not single.done():
                        single.set_result(new_tuple(Receipt, (position, term, index, log_time, durability, 0, None)))
                    position += 1
                    index += 1
            for watcher in batch.watchers:
                # None = the outcome is certain.
                reason = error(0, 1) if receipt is None else None
                if watcher.done():
                    continue
                if isinstance(reason, OutcomeUnknownError):
                    watcher.set_exception(reason)
                else:
                    watcher.set_result(Decided(receipt, results, durability))
            batch.waiters = []
            batch.watchers = []
        expiring = self._expiring
        while expiring and not expiring[0].waiters:
            expiring.popleft()
        if self.queue.tickets:
            self.queue.serve()

    def _expire_one(self, ticket: Ticket, seconds: float) -> None:
        waiter, batch = ticket.waiter, ticket.batch
        if waiter.done():
            return
        if batch is not None and batch.parts:
            batch = next(part for part in batch.parts if waiter in part.waiters)
        if batch is None:
            waiter.set_exception(self.unsent(seconds, ticket.name))
        else:
            offset = batch.waiters.index(waiter)
            waiter.set_exception(self._late(batch, offset, batch.groups.get(offset, 1), seconds))
        self._give_up(ticket)

    def _give_up(self, ticket: Ticket) -> None:
        """Forget the caller of a ticket."""
        if ticket.batch is None:
            self.queue.leave(ticket)
        else:
            self.gone(ticket.batch)

    def _sweep(self) -> None:
        """End a tick of the default timeout.

        A batch that began in tick k is closed at the end of that tick, and expires at the end of tick k + 16. So each
        of its records has waited for at least the timeout.
        """
        self._tick += 1
        self.batches.close_open()
        expiring = self._expiring
        seconds = self._options.timeout
        while expiring and (not expiring[0].waiters or expiring[0].tick + _TICKS < self._tick):
            batch = expiring.popleft()
            for offset, size, waiter in batch.spans():
                if not waiter.done() and waiter not in self._timed:
                    waiter.set_exception(self._late(batch, offset, size, seconds))
            self.gone(batch)
        if expiring:
            self._runtime.call_later(seconds / _TICKS, self._sweep)
        else:
            self._is_sweeping = False

    def unsent(self, seconds: float, name: str = "") -> ViewstampError:
        """Return the error of a timeout of something that was not sent; ``name`` is that of its ticket."""
        reason = self.queue.missing.get(name) or self._leader.finder.last_error or self._router.pool.finder.last_error
        error = self._router.pool.unanswered(f"no answer within {seconds:g} s" if reason is None else str(reason))
        if reason is not None and reason.remedy and not isinstance(error, NoQuorumError):
            error.remedy = reason.remedy
        return error

    def _late(self, batch: OpenBatch[Waiter], offset: int, size: int, seconds: float) -> ViewstampError:
        if batch.sent is None or batch.attempt:  # Staged records are not written before a commit.
            return self.unsent(seconds)
        token = self.session.token(batch, offset, size)
        return self._router.pool.unanswered(f"no answer within {seconds:g} s", is_unknown=True, token=token)

    def gone(self, batch: OpenBatch[Waiter]) -> None:
        """Forget a caller of a batch. A record that was not sent will not be sent, and its bytes are freed."""
        for each in batch.parts or (batch,):
            if each.sent is None:
                each.cancelled = True
                if not self._is_compacting:
                    self._is_compacting = True
                    self._runtime.call_soon(self._compact)

    def _compact(self) -> None:
        self._is_compacting = False
        self.batches.compact()
        self.queue.serve()

    # Sending.

    def _on_batch(self, batch: OpenBatch[Waiter]) -> None:
        batch.tick = self._tick
        self._expiring.append(batch)
        if not self._is_sweeping and self._options.timeout != math.inf:
            self._is_sweeping = True
            self._runtime.call_later(self._options.timeout / _TICKS, self._sweep)
        connection = self._leader.connection  # As `_wake`, without a further call for each batch.
        if connection is not None and self.session.id:
            if not connection.is_ready:
                connection.wake()
        else:
            self._leader.need()

    def _wake(self) -> None:
        """Send in the next turn, after the callers that are being woken now have added their next records."""
        connection = self._leader.connection
        if connection is not None and self.session.id:
            if not connection.is_ready:
                connection.wake()
        else:
            self._leader.need()

    def _next_request(self, connection: NodeConnection) -> Request | None:
        """Return the next request for the leader; None = ``connection`` is not the leader's, or there is none now."""
        if connection is not self._leader.connection:
            return None
        session = self.session
        session.request_ids = connection.request_ids
        request = session.take_request()
        if request is not None:
            connection.has_more = session.has_more
            if not connection.probe:
                connection.probe, connection.probed_at = request.id, self._runtime.time()
            if not self._is_watching:
                self._is_watching = True
                self._watched_since = self._runtime.time()
                self._runtime.call_later(self._options.silence / 2, self._watch)
        elif not session.id:
            self._leader.need()  # The session was given up, and another one has to be opened.
        return request

    def _watch(self) -> None:
        """Leave a leader that owes answers and sends none, because a dead machine does not reset its connections."""
        self._is_watching = False
        connection = self._leader.connection
        if connection is None or not self.session.is_owed:
            return
        since = max(connection.heard, self._watched_since)
        if self._runtime.time() - since >= self._options.silence:
            connection.leave_silent(since)
            return
        self._is_watching = True
        self._runtime.call_later(self._options.silence / 2, self._watch)

    def _on_answer(self, connection: NodeConnection, frame: Frame) -> None:
        """Process the answer to a request of the session."""
        if connection is not self._leader.connection:
            return  # The request was sent again to another node, and only that answer counts.
        body = frame.body
        session = self.session
        if type(body) is TooLarge:
            self._on_too_large(connection, body)
            return
        request_id = body["id"]
        if request_id == connection.probe:
            connection.probe = 0
            if (seconds := connection.heard - connection.probed_at) < connection.fastest:
                connection.fastest = seconds
                self.batches.note_answer(seconds)
        if frame.kind == FrameKind.OK:
            receipt = read_receipt(body["receipt"])
            results = body.get("results")
            if results is not None:
                results = read_results(results)
            if request_id == session.fence_request:
                completions = session.on_outcome(request_id, receipt, results)
            else:
                completions = session.on_receipt(request_id, receipt, results)
            self._complete(completions, connection.durability)
            connection.has_led = True  # As `_has_answered`, without a further call for each batch.
            if self._leader.finder.last_error is not None:
                self._leader.finder.succeeded()
            if not connection.is_ready and session.has_more:
                self._wake()
            return
        error = error_from(body)
        action, completions = session.on_refused(request_id, error)
        self._complete(completions)
        if action is Action.MOVE or (action is Action.BACK_OFF and not connection.has_led):
            self._leader.leave(connection, error)
        elif action is Action.BACK_OFF:
            self._leader.finder.failed(connection.address, error)
            self._runtime.call_later(self._leader.finder.delay(), self._resume)
        else:
            self._wake()

    def _on_too_large(self, connection: NodeConnection, body: TooLarge) -> None:
        assert body.request is not None, "the connection has looked"
        completions = self.session.on_too_large(body.request, lambda offset, count: too_large(body.size))
        for batch, _, _ in completions:
            for watcher in batch.watchers:
                if not watcher.done():
                    watcher.set_exception(too_large(body.size))
            batch.watchers = []
        self._complete(completions)
        self._has_answered(connection)

    def _has_answered(self, connection: NodeConnection) -> None:
        """Record that a node has answered as the leader."""
        connection.has_led = True
        if self._leader.finder.last_error is not None:
            self._leader.finder.succeeded()
        if self.session.has_more:
            self._wake()

    def _resume(self) -> None:
        self.session.resume()
        self._wake()

    def on_connection(self, connection: NodeConnection) -> None:
        """Attach to a connection that was opened, to any node."""
        self.batches.set_limits(
            record_bytes_max=connection.record_bytes_max, batch_bytes_max=connection.batch_bytes_max
        )
        connection.on_answer = self._on_answer
        connection.source = self._next_request
        connection.closed.add_done_callback(lambda closed: self._leader.leave(connection, closed.result()))

    # For the search for the leader; see ``pool.Owner``.

    @property
    def has_work(self) -> bool:
        """Whether a batch waits to be sent or to be answered."""
        return self.session.has_work

    @property
    def has_session(self) -> bool:
        """Whether a session is open."""
        return bool(self.session.id)

    def on_session(self, session: SessionId) -> None:
        """Begin the session that was opened, unless another one has begun."""
        if not self.session.id:
            self.session.opened(session)

    def on_leader(self) -> None:
        """Send the waiting batches."""
        self._wake()

    def on_left(self) -> None:
        """Schedule the unanswered batches to be sent again."""
        self._complete(self.session.lost())

    def on_hopeless(self, error: ViewstampError) -> None:
        """Fail all appends that were never sent."""
        self._complete(self.batches.fail(copies(error)))
        if isinstance(error, PeerError):
            self.queue.fail(copies(error))

    # Blocks of sinks.

    def begin_staging(self, topic: str, columns: Columns, attempt: int, timeout: float | None) -> Ticket:
        """Send a block soon, after the earlier ones. ``end_staging`` or ``abandon`` must follow."""
        self._router.start()
        check_topic(topic)
        future: Waiter = self._runtime.create_future()
        # Retrieve the error, because the caller of an abandoned attempt does not.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

        def act(_: Ticket) -> OpenBatch[Waiter]:
            return self.batches.add_block(self.queue.topics[topic], columns, attempt, future)

        ticket = Ticket(topic, columns.size, future, act)
        self.admit(ticket, timeout)
        return ticket

    async def end_staging(self, ticket: Ticket) -> BatchReceipt:
        """Wait for the receipt of a block. Cancelled: it is not sent, unless it was."""
        receipt: BatchReceipt = await self.answer(ticket)
        return receipt

    def abandon(self, ticket: Ticket) -> None:
        """Give up a block. If it was not sent, it never is."""
        if ticket.waiter.cancel():
            self._give_up(ticket)
        self.untime(ticket)
