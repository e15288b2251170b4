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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from viewstamp.client.appends import Records
from viewstamp.client.batches import RECORD_COST
from viewstamp.client.checks import as_whole, check_topic
from viewstamp.client.global_positions import GlobalPositions
from viewstamp.client.groups import Groups
from viewstamp.client.results import Receipt
from viewstamp.client.runtime import Future, Runtime
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
                receipts = [receipt._replace(stream=begun.stream) for receipt in receipts]
                token = partial(_token_of, begun, receipts[0], len(receipts))
                receipts = await self._positions.order(_stream_of(begun), receipts, token, deadline, expected=expected)
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
            except StreamSealedError:
                if begun.moved is None:
                    raise
                begun = begun.moved
            except OutcomeUnknownError as error:
                if begun.stream and error.token is not None:
                    error.token = replace(error.token, stream=begun.stream)
                self._look(begun)
                raise
            except BaseException as error:
                if isinstance(error, UnavailableError):
                    self._look(begun)
                elif not isinstance(error, ViewstampError) and begun.stream:  # Its caller has gone.
                    self._moves.doubted.add(topic_of(begun.ticket.name))
                if begun.moved is not None:
                    begun.moved.abandon()
                raise
            finally:
                awaited.forget()

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


def _stream_of(begun: Begun) -> Stream:
    return Stream(begun.parts.group, begun.ticket.name)


def _token_of(begun: Begun, receipt: Receipt, count: int) -> OutcomeToken:
    """Return the token of ``count`` records of a stream that are durable; ``receipt`` is that of the first one."""
    return replace(begun.parts.appends.token_of(begun.ticket, receipt, count), stream=begun.stream)
