"""What a client does for its callers, whichever library runs it: appends, questions and reads around the session."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import count
from typing import Any

from viewstamp.client.checks import as_bytes, as_headers, as_seconds, read_receipt
from viewstamp.client.connection import Link, error_from, parse_addresses
from viewstamp.client.draft import RECORD_COST, Draft, Settled, record_size
from viewstamp.client.draft import Receipt as BatchReceipt
from viewstamp.client.leader import LeaderSearch
from viewstamp.client.leadership import Leadership
from viewstamp.client.line import Line, Place
from viewstamp.client.links import Links, again, closed_error
from viewstamp.client.options import Options
from viewstamp.client.reader import Reader
from viewstamp.client.results import Outcome, Receipt, TopicInfo, new_receipt, receipts_of, topic_info
from viewstamp.client.session import Action, Session
from viewstamp.client.shell import Dialer, Future, Shell
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    OutcomeUnknownError,
    PeerError,
    RequestError,
    StorageError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.ids import SessionId, TopicId
from viewstamp.wire.batch import Batch, Record
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import FrameKind

__all__ = ["BaseClient"]

Waiter = Future[Any]

_TICKS = 16
"""The default timeout is reckoned in this many ticks per timeout, so that no append needs a timer of its own."""


class BaseClient:
    """One session with a cluster, shared by all tasks of an event loop.

    Not thread-safe. Nothing is connected before the first call. Made by a shell's own class.

    Invariants:
      * every append that was let in ends: with a receipt, an error, or cancelled; also when the client is closed
      * at most ``bytes_in_flight_max`` bytes of appends are held, or one append
      * no task per append or batch: one task searches for the leader, one per topic name asks for its id, once
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        shell: Shell,
        network: Dialer,
        entropy: random.Random,
        cluster_id: str = "",
        options: Options | None = None,
    ) -> None:
        """Make a client; never awaits.

        Args:
          addresses: ``"host:port,host:port"`` or a sequence; any members, the others are learnt.
          shell: what runs it.
          network: how connections come about.
          entropy: the only source of randomness: where the search begins, and jitter.
          cluster_id: the cluster to talk to; "" = whichever answers first, and then only that one.
          options: see :class:`Options`.

        Raises:
          ConfigError: an address has another shape.
        """
        options = options or Options()
        self._options = options
        self._shell = shell
        self._search = LeaderSearch(
            parse_addresses(addresses), entropy=entropy, back_off=(options.back_off_min, options.back_off_max)
        )
        self._request_ids = count(1)
        self._links = Links(
            shell,
            network,
            self._search.addresses,
            self._request_ids,
            cluster_id=cluster_id,
            entropy=entropy,
            options=options,
            on_open=self._on_link,
            on_member=self._search.learn,
        )
        self._leading = Leadership(shell, self._links, self._search, options, self)
        self._session: Session[Waiter] = Session(options, self._request_ids, self._on_draft)
        self._topics: dict[str, TopicId] = {}
        self._resolving: set[str] = set()
        self._held_max = options.bytes_in_flight_max
        self._line = Line(shell, self._may_go)
        self._timed: set[Waiter] = set()
        """Waiters with a timer of their own, which the default timeout leaves alone."""
        self._expiring: deque[Draft[Waiter]] = deque()
        self._tick = 0
        self._is_sweeping = False
        self._is_pumping = False
        self._is_compacting = False
        self._watched_since = 0.0
        self._is_watching = False
        self._is_started = False
        self._is_closed = False

    def _close(self) -> None:
        """End at once. Appends that were never sent get ClosedError, sent ones OutcomeUnknownError. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_started:
            return
        self._topics.clear()
        self._settle(self._session.close())
        self._line.fail(closed_error)
        self._leading.close()
        self._links.close()

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
                future: Future[Receipt] = self._shell.create_future()
                draft = session.add(topic_id, value, size, future)
                try:
                    return await future
                except BaseException:
                    if future.cancelled():
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
        values = [as_bytes(value, "a value") for value in values]
        keys = [None if key is None else as_bytes(key, "a key") for key in keys]
        headers = [as_headers(each) for each in headers]
        sizes = list(map(record_size, values, keys, headers))
        size = sum(sizes)
        seconds = as_seconds(timeout, self._options.timeout)
        future: Waiter = self._shell.create_future()
        some_keys = keys if any(key is not None for key in keys) else None
        some_headers = headers if any(headers) else None

        def act() -> Draft[Waiter]:
            self._session.check_sizes(sizes)
            return self._session.add_group(
                self._topics[topic], values, some_keys, some_headers, size, future, atomic=atomic
            )

        place = Place(topic, size, future, act)
        has_to_wait = bool(self._line.places) or topic not in self._topics or not self._fits(size)
        if has_to_wait:
            self._line.join(place)
        else:
            place.draft = act()
        timer = None
        if seconds == math.inf or timeout is not None or has_to_wait:
            self._timed.add(future)
            if seconds != math.inf:
                timer = self._shell.call_later(seconds, self._expire_one, place, seconds)
        try:
            return await future
        except BaseException:
            if future.cancelled():
                self._give_up(place)
            raise
        finally:
            self._timed.discard(future)
            if timer is not None:
                timer.cancel()

    def _may_go(self, place: Place) -> bool:
        if place.topic not in self._topics:
            if place.topic not in self._resolving:
                self._resolving.add(place.topic)
                self._shell.spawn(self._resolve(place.topic))
            return False
        return self._fits(place.size)

    def _fits(self, size: int) -> bool:
        held = self._session.held_bytes
        return held + size <= self._held_max or held == 0

    async def _resolve(self, topic: str) -> None:
        """Ask for a topic's id until it is known, refused, or nobody waits for it any more."""
        try:
            while any(place.topic == topic for place in self._line.places):
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

    def _settle(self, settled: list[Settled[Waiter]]) -> None:
        """Tell every waiter. The hot path back: one loop over the futures of a batch."""
        for draft, receipt, error in settled:
            if receipt is None:
                for offset, size, waiter in draft.spans():
                    if not waiter.done():
                        waiter.set_exception(error(offset, size))
            elif draft.groups:
                for offset, size, waiter in draft.spans():
                    if not waiter.done():
                        receipts = receipts_of(receipt, offset, size)
                        waiter.set_result(receipts if offset in draft.groups else receipts[0])
            else:
                position, _, term, index, log_time = receipt
                for single in draft.waiters:
                    assert single is not None, "only groups have records without a waiter"
                    if not single.done():
                        single.set_result(new_receipt(Receipt, (position, term, index, log_time)))
                    position += 1
                    index += 1
            for watcher in draft.watchers:
                # None = it is certain that nothing was written.
                reason = error(0, 1) if receipt is None else None
                if watcher.done():
                    continue
                if isinstance(reason, OutcomeUnknownError):
                    watcher.set_exception(reason)
                else:
                    watcher.set_result(receipt)
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
        seconds = as_seconds(timeout, self._options.timeout)
        deadline = self._shell.time() + seconds
        draft = self._session.find(token.session, token.sequence)
        try:
            if draft is not None:
                watcher: Future[BatchReceipt | None] = self._shell.create_future()
                draft.watchers.append(watcher)
                receipt = await self._shell.within(seconds, watcher)
            else:
                body: dict[str, object] = {"session": token.session, "sequence": token.sequence}
                frame = await self._leading.ask(FrameKind.OUTCOME, body, deadline=deadline)
                receipt = read_receipt(frame.body["receipt"])
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
        return Outcome(applied=True, receipts=receipts_of(receipt, token.offset, token.count))

    def _expire_one(self, place: Place, seconds: float) -> None:
        waiter, draft = place.waiter, place.draft
        if waiter.done():
            return
        if draft is None or draft.sent is None:
            waiter.set_exception(self._unsent(seconds))
            self._give_up(place)
        else:
            offset = draft.waiters.index(waiter)
            waiter.set_exception(self._unknown(draft, offset, draft.groups.get(offset, 1), seconds))

    def _give_up(self, place: Place) -> None:
        """Take note that nobody waits for an append any more."""
        if place.draft is None:
            self._line.leave(place)
        else:
            self._gone(place.draft)

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
            self._shell.call_later(seconds / _TICKS, self._sweep)
        else:
            self._is_sweeping = False

    def _unsent(self, seconds: float) -> ViewstampError:
        reason = self._search.last_error or self._links.search.last_error
        return UnavailableError(
            f"nothing was written within {seconds:g} s" + (f": {reason}" if reason is not None else ""),
            remedy=(reason.remedy if reason is not None else "") or "check that a majority of the nodes runs",
        )

    def _unknown(self, draft: Draft[Waiter], offset: int, size: int, seconds: float) -> ViewstampError:
        return OutcomeUnknownError(
            f"no answer within {seconds:g} s; the append may have been committed, or still be",
            token=self._session.token(draft, offset, size),
            remedy="ask what became of it: client.outcome(error.token)",
        )

    def _gone(self, draft: Draft[Waiter]) -> None:
        """Take note that a waiter of a draft has gone; what was not sent needs not be sent, and frees its bytes."""
        if draft.sent is None:
            draft.cancelled = True
            if not self._is_compacting:
                self._is_compacting = True
                self._shell.call_soon(self._compact)

    def _compact(self) -> None:
        self._is_compacting = False
        self._session.compact()
        self._line.serve()

    # Sending.

    def _on_draft(self, draft: Draft[Waiter]) -> None:
        draft.tick = self._tick
        self._expiring.append(draft)
        if not self._is_sweeping and self._options.timeout != math.inf:
            self._is_sweeping = True
            self._shell.call_later(self._options.timeout / _TICKS, self._sweep)
        self._schedule_pump()

    def _schedule_pump(self) -> None:
        """Send soon: after the callers that are being woken now have added their next records."""
        if not self._is_pumping:
            self._is_pumping = True
            self._shell.call_soon(self._pump)

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
            self._watched_since = self._shell.time()
            self._shell.call_later(self._options.silence / 2, self._watch)

    def _watch(self) -> None:
        """Leave a leader that owes answers and is silent: a dead machine resets no connection."""
        self._is_watching = False
        link = self._leading.link
        if link is None or not self._session.is_owed:
            return
        if self._shell.time() - max(link.heard, self._watched_since) >= self._options.silence:
            link.is_silent = True
            link.abort()
            return
        self._is_watching = True
        self._shell.call_later(self._options.silence / 2, self._watch)

    def _on_answer(self, link: Link, frame: Frame) -> None:
        """Take the answer to a request of the session."""
        if link is not self._leading.link:
            return  # It was asked again elsewhere, and only that answer counts.
        body = frame.body
        request_id = body["id"]
        session = self._session
        if frame.kind == FrameKind.OK:
            receipt = read_receipt(body["receipt"])
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
            self._leading.leave(link, error)
        elif action is Action.BACK_OFF:
            self._search.failed(link.address, error)
            self._shell.call_later(self._search.delay(), self._resume)
        else:
            self._schedule_pump()

    def _resume(self) -> None:
        self._session.resume()
        self._schedule_pump()

    def _on_link(self, link: Link) -> None:
        self._session.set_limits(record_bytes_max=link.record_bytes_max, batch_bytes_max=link.batch_bytes_max)
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
        fresh = again(error)
        self._settle(self._session.fail_drafts(lambda offset, size: fresh()))
        if isinstance(error, PeerError):
            self._line.fail(fresh)

    # Topics, reading, status.

    async def create_topic(self, name: str, *, timeout: float | None = None) -> TopicInfo:
        """Create a topic; one that is there already is fine, and is returned as it is.

        Raises:
          RequestError: the name is not allowed.
          UnavailableError: not created; try again.
          OutcomeUnknownError: perhaps created (its ``token`` is None); create it again, which is harmless.
        """
        self._start()
        deadline = self._shell.time() + as_seconds(timeout, self._options.timeout)
        frame = await self._leading.ask(FrameKind.CREATE_TOPIC, {"name": name}, deadline=deadline)
        return topic_info(frame.body["topic"])

    async def describe_topic(self, name: str, *, stale: bool = False, timeout: float | None = None) -> TopicInfo:
        """Describe a topic: linearizably, or ``stale``: as the node that is asked has it.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: nobody answered in time.
        """
        self._start()
        body: dict[str, object] = {"name": name, "stale": stale}
        _, frame = await self._links.ask_any(
            FrameKind.DESCRIBE_TOPIC, body, seconds=as_seconds(timeout, self._options.timeout)
        )
        return topic_info(frame.body["topic"])

    async def list_topics(self, *, stale: bool = False, timeout: float | None = None) -> list[TopicInfo]:
        """List all topics in the order of their creation. As :meth:`describe_topic` otherwise."""
        self._start()
        _, frame = await self._links.ask_any(
            FrameKind.LIST_TOPICS, {"stale": stale}, seconds=as_seconds(timeout, self._options.timeout)
        )
        return [topic_info(topic) for topic in frame.body["topics"]]

    def read(
        self,
        topic: str,
        start: int = 1,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
    ) -> AsyncGenerator[Record, None]:
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
        return Reader(
            self._shell, self._links, self._options, topic, start, end=end, follow=follow, node=node
        ).records()

    def read_batches(
        self,
        topic: str,
        start: int = 1,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Read whole batches: all that hold a position of the range, unopened. As :meth:`read` otherwise.

        The first and the last may hold records outside the range. A batch is a view of what was received: keep the
        values that you copy out of it, not the batch.
        """
        self._start()
        return Reader(
            self._shell, self._links, self._options, topic, start, end=end, follow=follow, node=node
        ).batches()

    async def status(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return each known node's own status map, with ``reachable`` True; of the others ``address`` and the reason.

        Members that are named by a node that answers are asked too. Never raises for nodes that are away.
        """
        self._start()
        return await self._links.status(
            min(as_seconds(timeout, self._options.timeout), self._options.connect_timeout + self._options.silence)
        )

    # Inside.

    def _start(self) -> None:
        if self._is_closed:
            raise closed_error()
        if not self._is_started:
            self._is_started = True
            self._shell.begin()
            self._shell.spawn(self._leading.run())
