"""How appends and commands get to the leader and their answers back: waiting, timeouts, sending, telling everybody."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any

from viewstamp.client.batches import COMMANDS, Completion, OpenBatch, OpenBatches
from viewstamp.client.checks import as_seconds, check_topic, read_receipt, read_results
from viewstamp.client.connection import NodeConnection, error_from, parse_addresses, too_large
from viewstamp.client.options import ClientOptions
from viewstamp.client.pool import ConnectionPool, LeaderConnection
from viewstamp.client.results import BatchReceipt, Decided, Receipt, new_receipt, receipts_of
from viewstamp.client.routing import Addresses, LeaderFinder, Roster, closed_error, copies
from viewstamp.client.runtime import Dialer, Future, Runtime
from viewstamp.client.send_queue import SendQueue, Ticket
from viewstamp.client.session import Action, Session
from viewstamp.errors import NoQuorumError, OutcomeUnknownError, PeerError, RequestError, ViewstampError
from viewstamp.ids import SessionId, TopicId
from viewstamp.wire.batch import Columns
from viewstamp.wire.commands import Interface
from viewstamp.wire.frame import Frame, FrameKind, TooLarge
from viewstamp.wire.requests import DescribeActor, DescribeTopic
from viewstamp.wire.schema import RequestBody

__all__ = ["Sender", "Waiter", "actor_place"]

Waiter = Future[Any]

_TICKS = 16
"""The default timeout is reckoned in this many ticks per timeout, so that no append needs a timer of its own."""
_ACTOR = "\0"
"""What the names of actors begin with in the waiting line, where those of topics stand too."""


class Sender:
    """The half of a client that its callers do not see; ``client.py`` has the other one.

    Invariants:
      * every append and every command that was let in ends: with a result, an error, or cancelled; also when the client
        is closed
      * at most ``bytes_in_flight_max`` bytes of them are held, or one
      * no task for each or for a batch: one task searches for the leader, one for each name asks what it is, once
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        runtime: Runtime,
        network: Dialer,
        entropy: random.Random,
        cluster_id: str = "",
        options: ClientOptions | None = None,
    ) -> None:
        """Make a client; never awaits.

        Args:
          addresses: ``"host:port,host:port"`` or a sequence; any members, the others are learnt.
          runtime: what runs it.
          network: how connections come about.
          entropy: the only source of randomness: where the search begins, and jitter.
          cluster_id: the cluster to talk to; "" = whichever answers first, and then only that one.
          options: see :class:`ClientOptions`.

        Raises:
          ConfigError: an address has another shape.
        """
        options = options or ClientOptions()
        self._options = options
        self._runtime = runtime
        self._entropy = entropy
        roster = Roster(options.expected)
        known = Addresses(parse_addresses(addresses), roster.admits)
        self._finder = LeaderFinder(known, entropy=entropy, back_off=(options.back_off_min, options.back_off_max))
        self._request_ids = count(1)
        self._pool = ConnectionPool(
            runtime,
            network,
            known,
            self._request_ids,
            cluster_id=cluster_id,
            entropy=entropy,
            options=options,
            roster=roster,
            on_open=self._on_link,
        )
        self._leading = LeaderConnection(runtime, self._pool, self._finder, options, self)
        self._batches: OpenBatches[Waiter] = OpenBatches(options, self._on_batch)
        self._session: Session[Waiter] = Session(options, self._request_ids, self._batches)
        self._topics: dict[str, TopicId] = {}
        self._interfaces: dict[str, Interface] = {}
        """What nodes said of actors, by the names that these have in the line."""
        self._resolving: set[str] = set()
        self._held_max = options.bytes_in_flight_max
        self._queue = SendQueue(runtime, self._may_go)
        self._timed: set[Waiter] = set()
        """Waiters with a timer of their own, which the default timeout leaves alone."""
        self._expiring: deque[OpenBatch[Waiter]] = deque()
        self._tick = 0
        self._is_sweeping = False
        self._is_pumping = False
        self._is_compacting = False
        self._watched_since = 0.0
        self._is_watching = False
        self._is_started = False
        self._is_closed = False

    def _close(self) -> None:
        """End at once. What was never sent gets ClosedError, what was OutcomeUnknownError. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_started:
            return
        self._topics.clear()
        self._settle(self._session.close())
        self._queue.fail(closed_error)
        self._leading.close()
        self._pool.close()

    # Waiting.

    async def _enter(self, place: Ticket, timeout: float | None) -> Any:
        """Go the long way: through the line where one has to wait, with a timer of one's own where one is needed."""
        self._admit(place, timeout)
        return await self._answer(place)

    def _admit(self, place: Ticket, timeout: float | None) -> None:
        """Take the first step of ``_enter``; ``_answer`` takes the other one."""
        seconds = as_seconds(timeout, self._options.timeout)
        future = place.waiter
        has_to_wait = bool(self._queue.places) or not self._is_known(place.topic) or not self._fits(place.size)
        if has_to_wait:
            self._queue.join(place)
        else:
            place.batch = place.act()
        if seconds == math.inf or timeout is not None or has_to_wait:
            self._timed.add(future)
            if seconds != math.inf:
                place.timer = self._runtime.call_later(seconds, self._expire_one, place, seconds)

    async def _answer(self, place: Ticket) -> Any:
        try:
            return await place.waiter
        except BaseException:
            if place.waiter.cancelled():
                self._give_up(place)
            raise
        finally:
            self._untime(place)

    def _untime(self, place: Ticket) -> None:
        self._timed.discard(place.waiter)
        if place.timer is not None:
            place.timer.cancel()

    def _is_known(self, name: str) -> bool:
        return name in self._topics or name in self._interfaces

    def _may_go(self, place: Ticket) -> bool:
        if not self._is_known(place.topic):
            if place.topic not in self._resolving:
                self._resolving.add(place.topic)
                self._runtime.spawn(self._resolve(place.topic))
            return False
        return self._fits(place.size)

    def _fits(self, size: int) -> bool:
        held = self._batches.held_bytes
        return held + size <= self._held_max or held == 0

    async def _resolve(self, name: str) -> None:
        """Ask for a topic's id, or what an actor is, until it is known, refused, or nobody waits for it any more."""
        try:
            while any(place.topic == name for place in self._queue.places):
                try:
                    if name.startswith(_ACTOR):
                        interface = await self._ask_interface(name.removeprefix(_ACTOR), self._options.silence)
                        self._interfaces[name] = interface
                    else:
                        self._topics[name] = await self._ask_topic(name, self._options.silence)
                except (RequestError, PeerError) as error:
                    self._queue.fail(copies(error), topic=name)
                except ViewstampError:
                    continue  # Those who wait have deadlines of their own, and are told why then.
                else:
                    return
        finally:
            self._resolving.discard(name)
            self._queue.serve()

    async def _ask_topic(self, name: str, seconds: float) -> TopicId:
        _, frame = await self._pool.ask_any(DescribeTopic(name=name, stale=False), seconds=seconds)
        return TopicId(frame.body["topic"]["id"])

    async def _ask_interface(self, actor: str, seconds: float) -> Interface:
        _, frame = await self._pool.ask_any(DescribeActor(name=actor), seconds=seconds)
        return Interface.from_wire(frame.body["actor"])

    # What became of it.

    def _settle(self, settled: list[Completion[Waiter]], durability: str = "") -> None:
        """Tell every waiter. The hot path back: one loop over the futures of a batch."""
        for batch, receipt, error in settled:
            results = batch.results
            if receipt is None or (results is None and batch.topic == COMMANDS):
                for offset, size, waiter in batch.spans():
                    if not waiter.done():
                        waiter.set_exception(error(offset, size))
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
                        single.set_result(new_receipt(Receipt, (position, term, index, log_time, durability)))
                    position += 1
                    index += 1
            for watcher in batch.watchers:
                # None = it is certain that nothing was written.
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
        if self._queue.places:
            self._queue.serve()

    def _expire_one(self, place: Ticket, seconds: float) -> None:
        waiter, batch = place.waiter, place.batch
        if waiter.done():
            return
        if batch is not None and batch.parts:
            batch = next(part for part in batch.parts if waiter in part.waiters)
        if batch is None:
            waiter.set_exception(self._unsent(seconds))
        else:
            offset = batch.waiters.index(waiter)
            waiter.set_exception(self._late(batch, offset, batch.groups.get(offset, 1), seconds))
        self._give_up(place)

    def _give_up(self, place: Ticket) -> None:
        """Take note that nobody waits for it any more."""
        if place.batch is None:
            self._queue.leave(place)
        else:
            self._gone(place.batch)

    def _sweep(self) -> None:
        """One tick of the default timeout.

        A batch that began in tick k is closed at the end of it, so none of its records has waited for less than
        the timeout when it expires at the end of tick k + 16.
        """
        self._tick += 1
        self._batches.close_open()
        expiring = self._expiring
        seconds = self._options.timeout
        while expiring and (not expiring[0].waiters or expiring[0].tick + _TICKS < self._tick):
            batch = expiring.popleft()
            for offset, size, waiter in batch.spans():
                if not waiter.done() and waiter not in self._timed:
                    waiter.set_exception(self._late(batch, offset, size, seconds))
            self._gone(batch)
        if expiring:
            self._runtime.call_later(seconds / _TICKS, self._sweep)
        else:
            self._is_sweeping = False

    def _unsent(self, seconds: float) -> ViewstampError:
        reason = self._finder.last_error or self._pool.finder.last_error
        error = self._pool.unanswered(f"no answer within {seconds:g} s" if reason is None else str(reason))
        if reason is not None and reason.remedy and not isinstance(error, NoQuorumError):
            error.remedy = reason.remedy
        return error

    def _late(self, batch: OpenBatch[Waiter], offset: int, size: int, seconds: float) -> ViewstampError:
        if batch.sent is None or batch.attempt:  # What is staged is not written before a commit.
            return self._unsent(seconds)
        token = self._session.token(batch, offset, size)
        return self._pool.unanswered(f"no answer within {seconds:g} s", is_unknown=True, token=token)

    def _gone(self, batch: OpenBatch[Waiter]) -> None:
        """Take note that a waiter of a batch has gone; what was not sent needs not be sent, and frees its bytes."""
        for each in batch.parts or (batch,):
            if each.sent is None:
                each.cancelled = True
                if not self._is_compacting:
                    self._is_compacting = True
                    self._runtime.call_soon(self._compact)

    def _compact(self) -> None:
        self._is_compacting = False
        self._batches.compact()
        self._queue.serve()

    # Sending.

    def _on_batch(self, batch: OpenBatch[Waiter]) -> None:
        batch.tick = self._tick
        self._expiring.append(batch)
        if not self._is_sweeping and self._options.timeout != math.inf:
            self._is_sweeping = True
            self._runtime.call_later(self._options.timeout / _TICKS, self._sweep)
        self._schedule_pump()

    def _schedule_pump(self) -> None:
        """Send soon: after the callers that are being woken now have added their next records."""
        if not self._is_pumping:
            self._is_pumping = True
            self._runtime.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        link = self._leading.link
        if link is None or not self._session.id:
            self._leading.need()
            return
        take = self._session.take_request
        request = take()
        while request is not None:
            link.send(request.kind, request.body, request.payload)
            request = take()
        if not self._is_watching and self._session.is_owed:
            self._is_watching = True
            self._watched_since = self._runtime.time()
            self._runtime.call_later(self._options.silence / 2, self._watch)

    def _watch(self) -> None:
        """Leave a leader that owes answers and is silent: a dead machine resets no connection."""
        self._is_watching = False
        link = self._leading.link
        if link is None or not self._session.is_owed:
            return
        if self._runtime.time() - max(link.heard, self._watched_since) >= self._options.silence:
            link.is_silent = True
            link.abort()
            return
        self._is_watching = True
        self._runtime.call_later(self._options.silence / 2, self._watch)

    def _on_answer(self, link: NodeConnection, frame: Frame) -> None:
        """Take the answer to a request of the session."""
        if link is not self._leading.link:
            return  # It was asked again elsewhere, and only that answer counts.
        body = frame.body
        session = self._session
        if type(body) is TooLarge:
            self._on_too_large(link, body)
            return
        request_id = body["id"]
        if frame.kind == FrameKind.OK:
            receipt = read_receipt(body["receipt"])
            results = read_results(body.get("results"))
            if request_id == session.fence_request:
                settled = session.on_outcome(request_id, receipt, results)
            else:
                settled = session.on_receipt(request_id, receipt, results)
            self._settle(settled, link.durability)
            link.has_led = True
            self._finder.succeeded()
            self._schedule_pump()
            return
        error = error_from(body)
        action, settled = session.on_refused(request_id, error)
        self._settle(settled)
        if action is Action.MOVE or (action is Action.BACK_OFF and not link.has_led):
            self._leading.leave(link, error)
        elif action is Action.BACK_OFF:
            self._finder.failed(link.address, error)
            self._runtime.call_later(self._finder.delay(), self._resume)
        else:
            self._schedule_pump()

    def _on_too_large(self, link: NodeConnection, body: TooLarge) -> None:
        assert body.request is not None, "the link has looked"
        settled = self._session.on_too_large(body.request, lambda offset, count: too_large(body.size))
        for batch, _, _ in settled:
            for watcher in batch.watchers:
                if not watcher.done():
                    watcher.set_exception(too_large(body.size))
            batch.watchers = []
        self._settle(settled)
        link.has_led = True
        self._finder.succeeded()
        self._schedule_pump()

    def _resume(self) -> None:
        self._session.resume()
        self._schedule_pump()

    def _on_link(self, link: NodeConnection) -> None:
        self._batches.set_limits(record_bytes_max=link.record_bytes_max, batch_bytes_max=link.batch_bytes_max)
        link.on_answer = self._on_answer
        link.closed.add_done_callback(lambda closed: self._leading.leave(link, closed.result()))

    # What the search for the leader asks and tells; see ``leadership.Owner``.

    @property
    def has_work(self) -> bool:
        """Whether something waits to be sent or answered."""
        return self._session.has_work

    @property
    def has_session(self) -> bool:
        """Whether a session is open."""
        return bool(self._session.id)

    def on_session(self, session: SessionId) -> None:
        """Begin the session that was opened, unless there is one by now."""
        if not self._session.id:
            self._session.opened(session)

    def on_leader(self) -> None:
        """Send what waits."""
        self._schedule_pump()

    def on_left(self) -> None:
        """Take back what the leader had not answered."""
        self._settle(self._session.lost())

    def on_hopeless(self, error: ViewstampError) -> None:
        """Tell everybody whose records were never sent."""
        fresh = copies(error)
        self._settle(self._batches.fail(lambda offset, size: fresh()))
        if isinstance(error, PeerError):
            self._queue.fail(fresh)

    # What sinks ask; see ``sink.py``.

    @property
    def block_bytes(self) -> int:
        """How large a block of records is to be."""
        return self._batches.batch_bytes

    async def ask_leader(self, request: RequestBody, timeout: float | None) -> Frame:
        """Ask the leader, wherever it goes, until it answers. For requests that may be carried out twice."""
        self._start()
        deadline = self._runtime.time() + as_seconds(timeout, self._options.timeout)
        return await self._leading.ask(request, deadline=deadline)

    def begin_staging(self, topic: str, columns: Columns, attempt: int, timeout: float | None) -> Ticket:
        """Send a block soon, after those that were begun before. Its ``end_staging``, or ``abandon``, has to follow."""
        self._start()
        check_topic(topic)
        future: Waiter = self._runtime.create_future()
        # Whoever gives an attempt up asks nobody what went wrong.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

        def act() -> OpenBatch[Waiter]:
            return self._batches.add_block(self._topics[topic], columns, attempt, future)

        place = Ticket(topic, columns.size, future, act)
        self._admit(place, timeout)
        return place

    async def end_staging(self, place: Ticket) -> BatchReceipt:
        """Wait for the receipt of a block. Cancelled: it is not sent any more."""
        receipt: BatchReceipt = await self._answer(place)
        return receipt

    def abandon(self, place: Ticket) -> None:
        """Want no receipt any more: a block that was not sent never is."""
        if place.waiter.cancel():
            self._give_up(place)
        self._untime(place)

    # Inside.

    def _start(self) -> None:
        if self._is_closed:
            raise closed_error()
        if not self._is_started:
            self._is_started = True
            self._runtime.begin()
            self._runtime.spawn(self._leading.run())


def actor_place(actor: str) -> str:
    """Return what an actor is called in the waiting line, and where it is remembered what nodes said of it."""
    return _ACTOR + actor
