"""The appends of a client: to a topic of group 0, or to a spread topic, whose streams are topics of other groups.

| promise | for a spread topic |
| --- | --- |
| order of the records of one client | within each stream; so for all records with the same key |
| a receipt | has ``stream``, and the position in it |
| the stream is sealed | the records go to the stream that has their slots now, behind all earlier ones of their keys \
(``stream_moves.py``). If the caller has named the stream it gets StreamSealedError |
| an atomic append | only if all its records have the same stream (``stream_choice.py``) |
| an ordered append | returns when the records have global positions too (``global_positions.py``). One that begins \
after another one of the topic has returned has higher ones, also in another stream |
| once | by the session of the group. A batch belongs to one stream before it is numbered, and is never divided |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from viewstamp.client.appends import Records
from viewstamp.client.batches import RECORD_COST, record_size
from viewstamp.client.checks import as_whole, check_topic
from viewstamp.client.global_positions import GlobalPositions
from viewstamp.client.groups import Groups
from viewstamp.client.results import Receipt, new_tuple
from viewstamp.client.runtime import Future, Runtime
from viewstamp.client.send_queue import Ticket
from viewstamp.client.stream_moves import StreamMoves
from viewstamp.client.stream_routes import Begun, Held, StreamRoutes
from viewstamp.errors import (
    OutcomeToken,
    OutcomeUnknownError,
    RequestError,
    StreamSealedError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.ids import Stream
from viewstamp.wire.spreading import topic_of

__all__ = ["TopicAppends"]


class TopicAppends:
    """Appends records to topics by their names."""

    def __init__(
        self,
        runtime: Runtime,
        groups: Groups,
        routes: StreamRoutes,
        positions: GlobalPositions,
        moves: StreamMoves,
    ) -> None:
        self._runtime = runtime
        self._groups = groups
        self._routes = routes
        self._positions = positions
        self._moves = moves
        self._begun: dict[Future[Any], Begun] = {}
        """The appends to streams that go on in another stream if theirs is sealed, by the futures of their tickets."""
        self._home = groups.group_0
        self._sender = self._home.sender
        self._queue = self._sender.queue
        self._batches = self._sender.batches

    async def append(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expected_position: int | None = None,
        stream: int | None = None,
        ordered: bool = False,
        timeout: float | None = None,
    ) -> Receipt:
        """Append one record to a topic. Returns its receipt when the record is on the disks of a majority.

        Example::

            receipt = await client.append("orders", b"one", key=b"customer-7")

        Concurrent calls share a batch, and within a topic records stand in the order of the calls; of a spread topic,
        within each stream, so that records with the same key keep their order. The call waits while the client holds
        more than ``ClientOptions.bytes_in_flight_max`` bytes.

        If the call is cancelled, the record may still be committed, unless it was not sent yet.

        Args:
          topic: the topic's name.
          value: the record; any length up to ``client.record_bytes_max``.
          key: the record's key; None = none.
          headers: names and bytes.
          expected_position: append at this position or not at all; None = at the topic's next position. Such an append
            shares no batch. Of a spread topic it is a position of ``stream``.
          stream: the stream of a spread topic, from 1 on; None = that of the key, or for a record without a key the one
            for which a batch is being gathered.
          ordered: return when the record has its place in the order of all streams of the topic too, and have it in
            ``receipt.global_position``. An ordered append that begins after another one has returned has a higher
            global position. It takes some milliseconds longer. Of a topic without streams it is the position.
          timeout: seconds from now; None = the client's default.

        Raises:
          PositionMismatchError: nothing was written; the topic's next position is ``actual``, not the expected one.
            Raised only after the conflicting record, or the rejection, is committed, so that a new leader cannot undo
            it.
          UnavailableError: nothing was written; append again.
          OutcomeUnknownError: it may have been written, or may still be; ask with ``outcome(error.token)``. If of an
            ordered append only the global position is not known yet, the message says that the record is durable; see
            ``find_global_position``.
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
            and stream is None
            and not ordered
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
        elif (
            topic in self._routes.spread
            and (key is None or type(key) is bytes)
            and headers is None
            and expected_position is None
            and stream is None
            and type(value) is bytes
            and (begun := self._begin_plain(topic, value, key, timeout, ordered=ordered)) is not None
        ):
            return await self._end_plain(begun, ordered=ordered)
        receipt: Receipt = await self._append(
            topic,
            Records.of([value], [key], [headers]),
            timeout,
            atomic=False,
            expected_position=expected_position,
            stream=stream,
            ordered=ordered,
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
        stream: int | None = None,
        ordered: bool = False,
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
          stream: as for :meth:`append`. Of a spread topic, all keys have to belong to one stream.
          ordered: as for :meth:`append`. The global positions are consecutive.
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
            Records.of(values, keys, headers),
            timeout,
            atomic=True,
            expected_position=expected_position,
            stream=stream,
            ordered=ordered,
        )
        return receipts

    def _begin_plain(
        self, topic: str, value: bytes, key: bytes | None, timeout: float | None, *, ordered: bool
    ) -> Begun | None:
        """Put one record into a batch of its stream; as :meth:`_begin`, with fewer objects.

        Objects that live as long as their append cost more than their creation, because Python's garbage collector
        visits them again and again. None: the append has to wait, or is refused, and nothing was done.
        """
        choice, moves, home = self._routes.spread[topic], self._moves, self._home
        home.router.start()
        size = record_size(value, key, None)
        chosen = choice.choose((key,), size, stream=None, expects_position=False)
        parts = self._groups.at_hand(choice.topic.group_of(chosen))
        if parts is None or topic in moves.doubted or moves.is_moving(topic, chosen):
            return None
        sender, name = parts.sender, choice.topic.topic_of(chosen)
        queue, batches = sender.queue, sender.batches
        topic_id, seconds = queue.topics.get(name), home.router.seconds(timeout)
        has_room = size - RECORD_COST <= batches.record_bytes_max and batches.held_bytes + size <= sender.held_max
        if topic_id is None or queue.tickets or not has_room or seconds == math.inf:
            return None
        parts.router.start()
        ticket = Ticket(name, size, self._runtime.create_future(), _is_in_a_batch)
        if key is None:
            batch = batches.add(topic_id, value, size, ticket.waiter)
            choice.joined(chosen, ticket)
        else:
            batch = batches.add_group(topic_id, [value], [key], None, size, ticket.waiter, atomic=False)
        ticket.batch, batch.is_ordered = batch, batch.is_ordered or ordered
        if timeout is not None:
            sender.time(ticket, seconds)
        sender.on_sealed = self._on_sealed
        deadline = self._runtime.time() + seconds
        again = partial(self._begin_again, topic, value, key, deadline, ordered)
        return Begun(parts, ticket, chosen, again=again, among=self._begun, deadline=deadline)

    def _begin_again(self, topic: str, value: bytes, key: bytes | None, deadline: float, ordered: bool) -> Begun | Held:
        """Begin an append of :meth:`_begin_plain` in another stream, because its own is sealed."""
        records, again = Records.of([value], [key]), partial(self._begin_again, topic, value, key, deadline, ordered)
        return self._begin(topic, records, max(deadline - self._runtime.time(), 1e-3), False, 0, None, ordered, again)

    async def _end_plain(self, begun: Begun, *, ordered: bool) -> Receipt:
        """Wait for the receipt of :meth:`_begin_plain`, and for the global position."""
        awaited, deadline, waiter = begun, begun.deadline, begun.ticket.waiter
        expected = self._positions.expect(_stream_of(begun)) if ordered else None
        try:
            try:
                receipt: Receipt = await waiter
            except BaseException as error:
                if waiter.cancelled() and begun.ticket.batch is not None:
                    begun.parts.sender.gone(begun.ticket.batch)
                moved = self._on_failed(begun, error)
                if moved is None:
                    raise
                begun, answer = await self._end(moved, deadline)
                assert isinstance(answer, Receipt), "it has one record"
                receipt = answer
            finally:
                awaited.forget()
                if awaited.ticket.timer is not None:
                    awaited.parts.sender.untime(awaited.ticket)
            if not ordered:
                return new_tuple(Receipt, (*receipt[:5], begun.stream, None))
            token = partial(_token_of, begun, receipt, 1)
            (receipt,) = await self._positions.order(
                _stream_of(begun), [receipt], token, deadline, number=begun.stream, expected=expected
            )
            return receipt
        finally:
            self._positions.forget(expected)

    async def _append(
        self,
        topic: str,
        records: Records,
        timeout: float | None,
        *,
        atomic: bool,
        expected_position: int | None,
        stream: int | None,
        ordered: bool,
    ) -> Any:
        """Append with all checks, when the route of the topic is known."""
        runtime = self._runtime
        self._home.router.start()
        check_topic(topic)
        if expected_position is not None and as_whole(expected_position, "a position") < 1:
            raise RequestError("nothing is appended at position 0", remedy="positions begin at 1")
        if stream is not None:
            as_whole(stream, "a stream")

        def begin(timeout: float | None) -> Begun | Held:
            return self._begin(topic, records, timeout, atomic, expected_position or 0, stream, ordered, again)

        def again() -> Begun | Held:
            return begin(max(deadline - runtime.time(), 1e-3))

        seconds = self._home.router.seconds(timeout)
        deadline = runtime.time() + seconds
        if self._routes.knows(topic, stream):
            found = begin(timeout)
        else:
            found = await self._routes.begin(topic, again, seconds)
        if ordered:
            return await self._end_ordered(found, deadline)
        begun, answer = await self._end(found, deadline)
        if not begun.stream:
            return answer
        receipts = answer if isinstance(answer, list) else [answer]
        receipts = [receipt._replace(stream=begun.stream) for receipt in receipts]
        return receipts if isinstance(answer, list) else receipts[0]

    async def _end_ordered(self, found: Begun | Held, deadline: float) -> Receipt | list[Receipt]:
        """Wait for the receipts of an ordered append, and for the global positions."""
        expected = None
        if isinstance(found, Begun) and found.stream:
            expected = self._positions.expect(_stream_of(found))
        try:
            begun, answer = await self._end(found, deadline)
            receipts = answer if isinstance(answer, list) else [answer]
            if begun.stream:
                token = partial(_token_of, begun, receipts[0], len(receipts))
                receipts = await self._positions.order(
                    _stream_of(begun), receipts, token, deadline, number=begun.stream, expected=expected
                )
            else:
                receipts = [receipt._replace(global_position=receipt.position) for receipt in receipts]
            return receipts if isinstance(answer, list) else receipts[0]
        finally:
            self._positions.forget(expected)

    async def _end(self, begun: Begun | Held, deadline: float) -> tuple[Begun, Receipt | list[Receipt]]:
        """Wait for the receipts of an append, also if its stream is sealed meanwhile; return where it has ended."""
        while True:
            while isinstance(begun, Held):
                begun = await self._moves.wait(begun, max(deadline - self._runtime.time(), 0.0))
            awaited = begun
            try:
                return begun, await begun.parts.appends.end(begun.ticket)
            except BaseException as error:
                moved = self._on_failed(begun, error)
                if moved is None:
                    raise
                begun = moved
            finally:
                awaited.forget()

    def _on_failed(self, begun: Begun, error: BaseException) -> Held | None:
        """Return where an append goes on that has failed because its stream is sealed; None = raise the error."""
        if isinstance(error, StreamSealedError):
            return begun.moved
        if isinstance(error, OutcomeUnknownError):
            if begun.stream and error.token is not None:
                error.token = replace(error.token, stream=begun.stream)
            self._look(begun)
            return None
        if isinstance(error, UnavailableError):
            self._look(begun)
        elif not isinstance(error, ViewstampError) and begun.stream:  # Its caller has gone.
            self._moves.doubted.add(topic_of(begun.ticket.name))
        if begun.moved is not None:
            begun.moved.abandon()
        return None

    def _look(self, begun: Begun) -> None:
        """Look whether the stream of an append that was not answered is lost."""
        if begun.stream and not self._home.router.is_closed:
            self._moves.look(topic_of(begun.ticket.name))

    def _on_sealed(self, waiter: Future[Any]) -> None:
        """Take an append over that was fenced because its stream is sealed."""
        begun = self._begun.pop(waiter, None)
        if begun is not None and begun.again is not None:
            topic = topic_of(begun.ticket.name)
            begun.moved = self._moves.hand_over(topic, begun.stream, begun.again)

    def _begin(
        self,
        topic: str,
        records: Records,
        timeout: float | None,
        atomic: bool,
        expected_position: int,
        stream: int | None,
        ordered: bool,
        again: Callable[[], Begun | Held],
    ) -> Begun | Held:
        """Put records into a batch of their stream, or into the queue of its group. The route is known.

        They are held if the stream is sealed and the next one is not known yet.
        """
        choice = self._routes.spread.get(topic)
        if choice is None:
            if stream is not None:
                raise RequestError(
                    f"topic {topic!r} has no streams, so it has no stream {stream}; nothing was written",
                    remedy="leave out the stream",
                )
            appends = self._home.appends
            ticket = appends.begin(topic, records, timeout, atomic=atomic, expected_position=expected_position)
            return Begun(self._home, ticket)
        if topic in self._moves.doubted:
            self._moves.look(topic)
        chosen = choice.choose(records.keys, sum(records.sizes), stream=stream, expects_position=expected_position > 0)
        if stream is None and self._moves.is_moving(topic, chosen):
            return self._moves.hold(topic, chosen, again)
        name = choice.topic.topic_of(chosen)
        with self._groups.call(choice.topic.group_of(chosen)) as parts:
            parts.sender.queue.promised.add(name)
            ticket = parts.appends.begin(
                name, records, timeout, atomic=atomic, expected_position=expected_position, ordered=ordered
            )
        if stream is None and not any(key is not None for key in records.keys):
            choice.joined(chosen, ticket)
        if stream is not None:
            return Begun(parts, ticket, chosen)
        parts.sender.on_sealed = self._on_sealed
        return Begun(parts, ticket, chosen, again=again, among=self._begun)


def _is_in_a_batch() -> NoReturn:
    raise AssertionError("the append is in a batch")


def _stream_of(begun: Begun) -> Stream:
    return Stream(begun.parts.group, begun.ticket.name)


def _token_of(begun: Begun, receipt: Receipt, count: int) -> OutcomeToken:
    """Return the token of ``count`` records of a stream that are durable; ``receipt`` is that of the first one."""
    return replace(begun.parts.appends.token_of(begun.ticket, receipt, count), stream=begun.stream)
