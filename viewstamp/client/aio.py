"""``Client`` for asyncio: futures, timers and connections around the sans-IO session."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from viewstamp.client.connection import Link, error_from, parse_addresses
from viewstamp.client.draft import RECORD_COST, Draft, Settled, record_size
from viewstamp.client.draft import Receipt as BatchReceipt
from viewstamp.client.leader import LeaderSearch
from viewstamp.client.line import Line, Place
from viewstamp.client.links import Links, again, closed_error
from viewstamp.client.options import Options
from viewstamp.client.reader import Reader
from viewstamp.client.results import Outcome, Receipt, TopicInfo
from viewstamp.client.session import ELSEWHERE, Action, Session
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    OutcomeUnknownError,
    PeerError,
    RecordTooLargeError,
    RequestError,
    StorageError,
    StorageFullError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.seam import Network
from viewstamp.ids import Index, Position, SessionId, Term, TopicId
from viewstamp.wire.batch import Batch, Record
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import FrameKind

__all__ = ["Client"]

ResultT = TypeVar("ResultT")
Future = asyncio.Future[Any]

_TICKS = 16
"""The default timeout is reckoned in this many ticks per timeout, so that no append needs a timer of its own."""


class Client:
    """One session with a cluster, shared by all tasks of an event loop.

    Belongs to the event loop on which it is first used; not thread-safe. Nothing is connected before the first call.

    Invariants:
      * every append that was let in ends: with a receipt, an error, or cancelled; also when the client is closed
      * at most ``bytes_in_flight_max`` bytes of appends are held, or one append
      * no task per append or batch: one task searches for the leader, one per topic name asks for its id, once
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        network: Network,
        entropy: random.Random,
        cluster_id: str = "",
        options: Options | None = None,
    ) -> None:
        """Make a client; never awaits.

        Args:
          addresses: ``"host:port,host:port"`` or a sequence; any members, the others are learnt.
          network: how connections come about.
          entropy: the only source of randomness: where the search begins, and jitter.
          cluster_id: the cluster to talk to; "" = whichever answers first, and then only that one.
          options: see :class:`Options`.

        Raises:
          ConfigError: an address has another shape.
        """
        options = options or Options()
        self._options = options
        self._search = LeaderSearch(
            parse_addresses(addresses), entropy=entropy, back_off=(options.back_off_min, options.back_off_max)
        )
        self._request_ids = count(1)
        self._links = Links(
            network,
            self._search.addresses,
            self._request_ids,
            cluster_id=cluster_id,
            entropy=entropy,
            options=options,
            on_open=self._on_link,
            on_member=self._search.learn,
        )
        self._session: Session[Future] = Session(options, self._request_ids, self._on_draft)
        self._topics: dict[str, TopicId] = {}
        self._resolving: set[str] = set()
        self._held_max = options.bytes_in_flight_max
        self._line = Line(self._may_go)
        self._leader: Link | None = None
        self._leader_waiters: list[asyncio.Future[Link]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timed: set[Future] = set()
        """Waiters with a timer of their own, which the default timeout leaves alone."""
        self._expiring: deque[Draft[Future]] = deque()
        self._tick = 0
        self._is_sweeping = False
        self._is_pumping = False
        self._is_compacting = False
        self._watched_since = 0.0
        self._is_watching = False
        self._is_started = False
        self._is_closed = False

    async def __aenter__(self) -> Client:
        self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End at once. Appends that were never sent get ClosedError, sent ones OutcomeUnknownError. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_started:
            return
        self._topics.clear()
        self._settle(self._session.close())
        self._line.fail(closed_error)
        for waiter in self._leader_waiters:
            if not waiter.done():
                waiter.set_exception(closed_error())
        for task in self._tasks:
            task.cancel()
        self._leader = None
        self._links.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def record_bytes_max(self) -> int:
        """The largest record that the cluster takes; the default limit until a node has told its own."""
        return self._session.record_bytes_max

    @property
    def batches_retried(self) -> int:
        """How often a batch was sent again, because a connection or a leader was lost or refused it for the moment."""
        return self._session.batches_retried

    # Appending.

    async def append(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
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
          timeout: seconds from now; None = the client's default.

        Raises:
          UnavailableError: nothing was written; append again.
          OutcomeUnknownError: it may have been written, or may still be; ask with ``outcome(error.token)``.
          UnknownTopicError, RecordTooLargeError, RequestError: this record is wrong; others are not concerned.
          StorageFullError: refused for lack of space.
        """
        topic_id = self._topics.get(topic)
        if (
            topic_id is not None
            and timeout is None
            and key is None
            and headers is None
            and type(value) is bytes
            and not self._line.places
        ):
            session = self._session
            size = len(value) + RECORD_COST
            if size - RECORD_COST <= session.record_bytes_max and session.held_bytes + size <= self._held_max:
                future: asyncio.Future[Receipt] = self._loop.create_future()
                draft = session.add(topic_id, value, size, future)
                try:
                    return await future
                except asyncio.CancelledError:
                    self._gone(draft)
                    raise
        receipt: Receipt = await self._append(topic, [value], [key], [headers], timeout, atomic=False)
        return receipt

    async def append_many(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Append records atomically: all or none, at consecutive positions. As :meth:`append` otherwise.

        Raises:
          RecordTooLargeError: one record, or all of them together, are over the cluster's limits.
        """
        values = list(values)
        for name, column in (("keys", keys), ("headers", headers)):
            if column is not None and len(column) != len(values):
                raise RequestError(f"{len(column)} {name} for {len(values)} values", remedy="give one for each value")
        if not values:
            return []
        receipts: list[Receipt] = await self._append(
            topic,
            values,
            list(keys) if keys is not None else [None] * len(values),
            list(headers) if headers is not None else [None] * len(values),
            timeout,
            atomic=True,
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
    ) -> Any:
        """Append by the long way: with checks, a place in the line, and a timer where one is needed."""
        self._start()
        values = [_as_bytes(value, "a value") for value in values]
        keys = [None if key is None else _as_bytes(key, "a key") for key in keys]
        headers = [_as_headers(each) for each in headers]
        sizes = list(map(record_size, values, keys, headers))
        size = sum(sizes)
        started = self._loop.time()
        seconds = self._seconds(timeout)
        place = None
        if self._line.places or topic not in self._topics or not self._fits(size):
            place = self._line.join(topic, size)
        try:
            if place is not None:
                await self._turn(place, seconds)
            self._check_sizes(sizes)
            future: Future = self._loop.create_future()
            draft = self._session.add_group(
                self._topics[topic],
                values,
                keys if any(key is not None for key in keys) else None,
                headers if any(headers) else None,
                size,
                future,
                atomic=atomic,
            )
        finally:
            if place is not None:
                self._line.leave(place)
        if (timeout is None and place is None) or seconds == math.inf:
            if seconds == math.inf:
                self._timed.add(future)
            timer = None
        else:
            self._timed.add(future)
            timer = self._loop.call_at(started + seconds, self._expire_one, draft, future, seconds)
        try:
            return await future
        except asyncio.CancelledError:
            self._gone(draft)
            raise
        finally:
            self._timed.discard(future)
            if timer is not None:
                timer.cancel()

    async def _turn(self, place: Place, seconds: float) -> None:
        """Wait for a turn in the line."""
        if seconds == math.inf:
            await place.turn
            return

        def expire() -> None:
            if not place.turn.done():
                place.turn.set_exception(self._unsent(seconds))

        timer = self._loop.call_later(seconds, expire)
        try:
            await place.turn
        finally:
            timer.cancel()

    def _may_go(self, place: Place) -> bool:
        if place.topic not in self._topics:
            if place.topic not in self._resolving:
                self._resolving.add(place.topic)
                self._spawn(self._resolve(place.topic))
            return False
        return self._fits(place.size)

    def _fits(self, size: int) -> bool:
        held = self._session.held_bytes + self._line.reserved_bytes
        return held + size <= self._held_max or held == 0

    def _check_sizes(self, sizes: list[int]) -> None:
        limit = self._session.record_bytes_max
        for size in sizes:
            if size - RECORD_COST > limit:
                raise RecordTooLargeError(
                    f"a record of {size - RECORD_COST} bytes is over the limit of {limit}",
                    remedy="append smaller records, or raise [limits] record_bytes_max on every node",
                )
        if not self._session.fits_batch(sum(sizes)):
            raise RecordTooLargeError(
                f"{len(sizes)} records of {sum(sizes) - len(sizes) * RECORD_COST} bytes in all do not fit into one"
                f" batch of {self._session.batch_bytes_max} bytes",
                remedy="append fewer at once, or raise [limits] batch_bytes_max on every node",
            )

    async def _resolve(self, topic: str) -> None:
        """Ask for a topic's id until it is known, refused, or nobody waits for it any more."""
        try:
            while any(place.topic == topic and not place.turn.done() for place in self._line.places):
                try:
                    _, frame = await self._links.ask_any(
                        FrameKind.DESCRIBE_TOPIC, {"name": topic, "stale": False}, seconds=self._options.silence
                    )
                except (RequestError, PeerError) as error:
                    self._line.fail(again(error), topic=topic)
                except ViewstampError:
                    continue  # Those who wait have deadlines of their own, and are told why then.
                else:
                    self._topics[topic] = TopicId(frame.body["topic"]["id"])
                    return
        finally:
            self._resolving.discard(topic)
            self._line.serve()

    # What became of appends.

    def _settle(self, settled: list[Settled[Future]]) -> None:
        """Tell every waiter. The hot path back: one loop over the futures of a batch."""
        for draft, receipt, error in settled:
            if receipt is None:
                for offset, size, waiter in draft.spans():
                    if not waiter.done():
                        waiter.set_exception(error(offset, size))
            elif draft.groups:
                for offset, size, waiter in draft.spans():
                    if not waiter.done():
                        receipts = _receipts(receipt, offset, size)
                        waiter.set_result(receipts if offset in draft.groups else receipts[0])
            else:
                position, _, term, index, log_time = receipt
                for single in draft.waiters:
                    assert single is not None, "only groups have records without a waiter"
                    if not single.done():
                        single.set_result(_new_receipt(Receipt, (position, term, index, log_time)))
                    position += 1
                    index += 1
            for watcher in draft.watchers:
                _tell(watcher, receipt, error)
            draft.waiters = []
            draft.watchers = []
        expiring = self._expiring
        while expiring and not expiring[0].waiters:
            expiring.popleft()
        if self._line.places:
            self._line.serve()

    async def outcome(self, token: OutcomeToken, *, timeout: float | None = None) -> Outcome:
        """Say what became of an append whose outcome was unknown. Final: "not applied" is fenced and stays so.

        Where this client still sends that batch, its answer is awaited; else the leader is asked, and fences it.

        Raises:
          OutcomeUnknownError: no answer in time; ask again with the same token.
          StaleSessionError: the session was forgotten, or the batch is too old: it cannot be told any more.
        """
        self._start()
        seconds = self._seconds(timeout)
        deadline = self._loop.time() + seconds
        draft = self._session.find(token.session, token.sequence)
        try:
            if draft is not None:
                watcher: asyncio.Future[BatchReceipt | None] = self._loop.create_future()
                draft.watchers.append(watcher)
                receipt = await _within(watcher, seconds)
            else:
                body: dict[str, object] = {"session": token.session, "sequence": token.sequence}
                frame = await self._ask_leader(FrameKind.OUTCOME, body, deadline=deadline)
                receipt = _batch_receipt(frame.body["receipt"])
        except (UnavailableError, OutcomeUnknownError, StorageError, TimeoutError) as error:
            if isinstance(error, ClosedError) and self._is_closed:
                raise
            raise OutcomeUnknownError(
                f"still unknown: {error}" if str(error) else f"still unknown after {seconds:g} s",
                token=token,
                remedy="ask again with the same token",
            ) from error
        if receipt is None:
            return Outcome(applied=False, receipts=[])
        if token.offset + token.count > receipt.count:
            raise RequestError(
                f"the token names records {token.offset}..{token.offset + token.count} of a batch of {receipt.count}",
                remedy="pass the token of an OutcomeUnknownError as it is",
            )
        return Outcome(applied=True, receipts=_receipts(receipt, token.offset, token.count))

    def _expire_one(self, draft: Draft[Future], waiter: Future, seconds: float) -> None:
        if waiter.done():
            return
        if draft.sent is None:
            waiter.set_exception(self._unsent(seconds))
            self._gone(draft)
        else:
            offset = draft.waiters.index(waiter)
            waiter.set_exception(self._unknown(draft, offset, draft.groups.get(offset, 1), seconds))

    def _sweep(self) -> None:
        """One tick of the default timeout.

        A draft that began in tick k is closed at the end of it, so none of its records has waited for less than
        the timeout when it expires at the end of tick k + 16.
        """
        self._tick += 1
        self._session.close_drafts()
        expiring = self._expiring
        seconds = self._options.timeout
        while expiring and (not expiring[0].waiters or expiring[0].tick + _TICKS < self._tick):
            draft = expiring.popleft()
            is_sent = draft.sent is not None
            for offset, size, waiter in draft.spans():
                if not waiter.done() and waiter not in self._timed:
                    error = self._unknown(draft, offset, size, seconds) if is_sent else self._unsent(seconds)
                    waiter.set_exception(error)
            if not is_sent:
                self._gone(draft)
        if expiring:
            self._loop.call_later(seconds / _TICKS, self._sweep)
        else:
            self._is_sweeping = False

    def _unsent(self, seconds: float) -> ViewstampError:
        reason = self._search.last_error or self._links.search.last_error
        return UnavailableError(
            f"nothing was written within {seconds:g} s" + (f": {reason}" if reason is not None else ""),
            remedy=(reason.remedy if reason is not None else "") or "check that a majority of the nodes runs",
        )

    def _unknown(self, draft: Draft[Future], offset: int, size: int, seconds: float) -> ViewstampError:
        return OutcomeUnknownError(
            f"no answer within {seconds:g} s; the append may have been committed, or still be",
            token=self._session.token(draft, offset, size),
            remedy="ask what became of it: client.outcome(error.token)",
        )

    def _gone(self, draft: Draft[Future]) -> None:
        """Take note that a waiter of a draft has gone; what was not sent needs not be sent, and frees its bytes."""
        if draft.sent is None:
            draft.cancelled = True
            if not self._is_compacting:
                self._is_compacting = True
                self._loop.call_soon(self._compact)

    def _compact(self) -> None:
        self._is_compacting = False
        self._session.compact()
        self._line.serve()

    # Sending.

    def _on_draft(self, draft: Draft[Future]) -> None:
        draft.tick = self._tick
        self._expiring.append(draft)
        if not self._is_sweeping and self._options.timeout != math.inf:
            self._is_sweeping = True
            self._loop.call_later(self._options.timeout / _TICKS, self._sweep)
        self._schedule_pump()

    def _schedule_pump(self) -> None:
        """Send soon: after the callers that are being woken now have added their next records."""
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        link = self._leader
        if link is None or not self._session.id:
            self._wake.set()
            return
        take = self._session.take_request
        request = take()
        while request is not None:
            link.send(request.kind, request.body, request.payload)
            request = take()
        if not self._is_watching and self._session.is_owed:
            self._is_watching = True
            self._watched_since = self._loop.time()
            self._loop.call_later(self._options.silence / 2, self._watch)

    def _watch(self) -> None:
        """Leave a leader that owes answers and is silent: a dead machine resets no connection."""
        self._is_watching = False
        link = self._leader
        if link is None or not self._session.is_owed:
            return
        if self._loop.time() - max(link.heard, self._watched_since) >= self._options.silence:
            link.is_silent = True
            link.abort()
            return
        self._is_watching = True
        self._loop.call_later(self._options.silence / 2, self._watch)

    def _on_answer(self, link: Link, frame: Frame) -> None:
        """Take the answer to a request of the session."""
        if link is not self._leader:
            return  # It was asked again elsewhere, and only that answer counts.
        body = frame.body
        request_id = body["id"]
        session = self._session
        if frame.kind == FrameKind.OK:
            receipt = _batch_receipt(body["receipt"])
            if session.is_fence(request_id):
                settled = session.on_outcome(request_id, receipt)
            else:
                settled = session.on_receipt(request_id, receipt)
            self._settle(settled)
            self._search.succeeded()
            self._schedule_pump()
            return
        error = error_from(body)
        action, settled = session.on_refused(request_id, error)
        self._settle(settled)
        if action is Action.MOVE:
            self._leave(link, error)
        elif action is Action.BACK_OFF:
            self._search.failed(link.address, error)
            self._loop.call_later(self._search.delay(), self._resume)
        else:
            self._schedule_pump()

    def _resume(self) -> None:
        self._session.resume()
        self._schedule_pump()

    # The leader.

    def _on_link(self, link: Link) -> None:
        self._session.set_limits(record_bytes_max=link.record_bytes_max, batch_bytes_max=link.batch_bytes_max)
        link.on_answer = self._on_answer
        link.closed.add_done_callback(lambda closed: self._leave(link, closed.result()))

    async def _lead(self) -> None:
        """Find the leader, and open a session there, whenever somebody needs it. The client's one standing task."""
        while True:
            if not self._needs_leader():
                self._wake.clear()
                await self._wake.wait()
                continue
            if self._search.last_error is not None:
                await asyncio.sleep(self._search.delay())
            try:
                await self._approach()
            except ViewstampError:
                stranger = self._search.strangers
                if stranger is not None:
                    self._give_up(stranger)

    def _needs_leader(self) -> bool:
        if self._leader is None:
            return self._session.has_work or bool(self._leader_waiters)
        return not self._session.id and self._session.has_work

    async def _approach(self) -> None:
        """Take one step: connect to a node that may lead, or open a session with it."""
        link = self._leader
        if link is None:
            address = self._search.next_address()
            try:
                link = await self._links.to(address)
            except ViewstampError as error:
                self._search.failed(address, error, is_away=isinstance(error, UnavailableError))
                raise
            self._leader = self._links.preferred = link
            for waiter in self._leader_waiters:
                if not waiter.done():
                    waiter.set_result(link)
            self._leader_waiters = []
        if not self._session.id and self._session.has_work:
            await self._open_session(link)
        self._schedule_pump()

    async def _open_session(self, link: Link) -> None:
        try:
            frame = await link.ask(FrameKind.OPEN_SESSION, {}, timeout=self._options.silence)
        except TimeoutError:
            self._links.suspect(link)
            return
        except ViewstampError as error:
            self._leave(link, error)
            if isinstance(error, RequestError | StorageFullError):
                fresh = again(error)
                self._settle(self._session.fail_drafts(lambda offset, size: fresh()))
            raise
        # A session is the cluster's and not the connection's: it is good even if the leader was left meanwhile.
        if not self._session.id:
            self._session.opened(SessionId(int(frame.body["session"])))
        self._search.succeeded()

    def _leave(self, link: Link, error: ViewstampError) -> None:
        """Give up a leader that is none, or is gone. What it owes goes to the next one."""
        if self._leader is link:
            self._leader = self._links.preferred = None
            self._search.failed(link.address, error, is_away=link.is_silent)
            self._settle(self._session.lost())
            self._wake.set()

    def _give_up(self, error: PeerError) -> None:
        """At every address answers one that is none of ours: waiting helps nobody."""
        fresh = again(error)
        self._settle(self._session.fail_drafts(lambda offset, size: fresh()))
        self._line.fail(fresh)
        for waiter in self._leader_waiters:
            if not waiter.done():
                waiter.set_exception(fresh())
        self._leader_waiters = []

    async def _wait_leader(self, seconds: float) -> Link:
        """Return a link to the node that leads as far as is known. Raises TimeoutError."""
        if self._leader is not None:
            return self._leader
        waiter: asyncio.Future[Link] = self._loop.create_future()
        self._leader_waiters.append(waiter)
        self._wake.set()
        try:
            return await _within(waiter, seconds)
        finally:
            if waiter in self._leader_waiters:
                self._leader_waiters.remove(waiter)

    async def _ask_leader(self, kind: FrameKind, body: dict[str, object], *, deadline: float) -> Frame:
        """Ask the leader, wherever it goes, until it answers. For requests that may be carried out twice.

        Raises:
          UnavailableError: not carried out.
          OutcomeUnknownError: it may have been carried out; ask again.
          RequestError, StorageFullError: what the leader answered.
        """
        reason: BaseException | None = None
        is_doubtful = False
        while True:
            seconds = deadline - self._loop.time()
            try:
                if seconds <= 0:
                    raise TimeoutError
                link = await self._wait_leader(seconds)
            except TimeoutError:
                message = f"no leader answered in time: {reason or self._search.last_error or 'none was found'}"
                remedy = "check that a majority of the nodes runs, then try again"
                if is_doubtful:
                    raise OutcomeUnknownError(message, token=None, remedy=remedy) from reason
                raise UnavailableError(message, remedy=remedy) from reason
            try:
                answer_seconds = min(self._options.silence, max(0.0, deadline - self._loop.time()))
                frame = await link.ask(kind, body, timeout=answer_seconds)
            except TimeoutError as error:
                reason, is_doubtful = error, True
                self._links.suspect(link)
            except (RequestError, StorageFullError):
                raise
            except ViewstampError as error:
                if self._is_closed:
                    raise closed_error() from error
                reason = error
                # A node that refused says so; of one that was lost, or failed, nothing is known.
                is_doubtful = is_doubtful or not (link.is_open and isinstance(error, UnavailableError))
                if isinstance(error, UnavailableError) and not isinstance(error, ELSEWHERE):
                    self._search.failed(link.address, error)
                    await asyncio.sleep(min(self._search.delay(), seconds))
                else:
                    self._leave(link, error)
            else:
                self._search.succeeded()
                return frame

    # Topics, reading, status.

    async def create_topic(self, name: str, *, timeout: float | None = None) -> TopicInfo:
        """Create a topic; one that is there already is fine, and is returned as it is.

        Raises:
          RequestError: the name is not allowed.
          UnavailableError: not created; try again.
          OutcomeUnknownError: perhaps created (its ``token`` is None); create it again, which is harmless.
        """
        self._start()
        deadline = self._loop.time() + self._seconds(timeout)
        frame = await self._ask_leader(FrameKind.CREATE_TOPIC, {"name": name}, deadline=deadline)
        return self._topic_info(frame.body["topic"])

    async def describe_topic(self, name: str, *, stale: bool = False, timeout: float | None = None) -> TopicInfo:
        """Describe a topic: linearizably, or ``stale``: as the node that is asked has it.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: nobody answered in time.
        """
        self._start()
        body: dict[str, object] = {"name": name, "stale": stale}
        _, frame = await self._links.ask_any(FrameKind.DESCRIBE_TOPIC, body, seconds=self._seconds(timeout))
        return self._topic_info(frame.body["topic"])

    async def list_topics(self, *, stale: bool = False, timeout: float | None = None) -> list[TopicInfo]:
        """List all topics in the order of their creation. As :meth:`describe_topic` otherwise."""
        self._start()
        _, frame = await self._links.ask_any(FrameKind.LIST_TOPICS, {"stale": stale}, seconds=self._seconds(timeout))
        return [self._topic_info(topic) for topic in frame.body["topics"]]

    async def read(
        self,
        topic: str,
        start: int = 1,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
    ) -> AsyncIterator[Record]:
        """Read a topic's records in order, from position ``start`` up to ``end`` (half-open).

        Without ``end`` and ``follow`` it ends at the last record that was committed when it began. Linearizable: it
        sees every append that was acknowledged before it began. A connection that is lost is replaced, and reading
        goes on with the next record.

        Args:
          topic: its name.
          start: the first position, from 1.
          end: the position after the last one; None = see above.
          follow: wait for records that are not there yet, for ever or up to ``end``.
          node: read what this member alone has applied, be it behind or cut off.

        Raises:
          UnknownTopicError, RequestError: no such topic, no such node, or a start below 1.
          UnavailableError: nobody answered for as long as the default timeout.
        """
        self._start()
        reader = Reader(self._links, self._options, topic, start, end=end, follow=follow, node=node)
        async for batch in reader.batches(self._spawn):
            records = batch.records()
            if batch.first_position < start or (
                reader.end is not None and batch.first_position + batch.count > reader.end
            ):
                records = [
                    r for r in records if r.position >= start and (reader.end is None or r.position < reader.end)
                ]
            for record in records:
                yield record

    def read_batches(
        self,
        topic: str,
        start: int = 1,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
    ) -> AsyncIterator[Batch]:
        """Read whole batches: all that hold a position of the range, unopened. As :meth:`read` otherwise.

        The first and the last may hold records outside the range. A batch is a view of what was received: keep the
        values that you copy out of it, not the batch.
        """
        self._start()
        return Reader(self._links, self._options, topic, start, end=end, follow=follow, node=node).batches(self._spawn)

    async def status(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return each known node's own status map, with ``reachable`` True; of the others ``address`` and the reason.

        Members that are named by a node that answers are asked too. Never raises for nodes that are away.
        """
        self._start()
        return await self._links.status(
            min(self._seconds(timeout), self._options.connect_timeout + self._options.silence)
        )

    # Inside.

    def _topic_info(self, topic: dict[str, Any]) -> TopicInfo:
        return TopicInfo(
            name=topic["name"],
            first_position=Position(topic["first_position"]),
            last_position=Position(topic["last_position"]),
            bytes=topic["bytes"],
        )

    def _start(self) -> None:
        if self._is_closed:
            raise closed_error()
        if not self._is_started:
            self._is_started = True
            self._loop = asyncio.get_running_loop()
            self._wake = asyncio.Event()
            self._spawn(self._lead())

    def _spawn(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _seconds(self, timeout: float | None) -> float:
        if timeout is None:
            return self._options.timeout
        if not timeout > 0:
            raise RequestError(f"a timeout of {timeout} s", remedy="give a number of seconds above 0, or math.inf")
        return timeout


_new_receipt = tuple.__new__
"""Half the cost of calling the named tuple, once per record."""


def _receipts(receipt: BatchReceipt, offset: int, size: int) -> list[Receipt]:
    """Return the receipts of records ``offset`` to ``offset + size`` of a batch."""
    return [
        Receipt(
            Position(receipt.first_position + at),
            Term(receipt.term),
            Index(receipt.first_index + at),
            receipt.log_time,
        )
        for at in range(offset, offset + size)
    ]


def _batch_receipt(packed: object) -> BatchReceipt | None:
    """Read a receipt as it came over the wire.

    Raises:
      ValueError: it is none; the connection must end.
    """
    if packed is None:
        return None
    if not isinstance(packed, list) or len(packed) != 5 or not all(type(field) is int for field in packed):
        raise ValueError(f"{packed!r} is no receipt")
    return BatchReceipt(*packed)


def _tell(watcher: Future, receipt: BatchReceipt | None, error: Callable[[int, int], ViewstampError]) -> None:
    """Tell who asked for the outcome of a batch: its receipt, None where it is certain that it was not written."""
    if watcher.done():
        return
    if receipt is None:
        reason = error(0, 1)
        if isinstance(reason, OutcomeUnknownError):
            watcher.set_exception(reason)
            return
    watcher.set_result(receipt)


async def _within(future: asyncio.Future[ResultT], seconds: float) -> ResultT:
    """Await ``future``; raises TimeoutError, and cancels it, after ``seconds``."""
    async with asyncio.timeout(None if seconds == math.inf else seconds):
        return await future


def _as_bytes(value: object, what: str) -> bytes:
    """Return ``value`` as bytes that nobody else can change."""
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise RequestError(f"{what} must be bytes, not {type(value).__name__}", remedy="encode text: text.encode()")


def _as_headers(headers: object) -> dict[str, bytes] | None:
    if not headers:
        return None
    if not isinstance(headers, Mapping) or not all(isinstance(name, str) for name in headers):
        raise RequestError(f"headers must map names to bytes, not {headers!r}", remedy='write {"name": b"..."}')
    return {name: _as_bytes(value, f"header {name!r}") for name, value in headers.items()}
