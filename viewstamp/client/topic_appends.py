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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from viewstamp.client.append import Held, TopicAppend
from viewstamp.client.batches import RECORD_COST
from viewstamp.client.checks import as_bytes, as_headers, as_whole, check_topic
from viewstamp.client.global_positions import LEAST_SECONDS, GlobalPositions, Sought
from viewstamp.client.groups import Groups
from viewstamp.client.results import Receipt, new_tuple
from viewstamp.client.runtime import Future, Runtime
from viewstamp.client.stream_moves import StreamMoves
from viewstamp.client.stream_routes import StreamRoutes
from viewstamp.errors import (
    OutcomeUnknownError,
    RequestError,
    StreamSealedError,
    UnavailableError,
    ViewstampError,
)

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
        self._begun: dict[Future[Any], TopicAppend] = {}
        """The appends to streams that go on in another stream if theirs is sealed, by their futures."""
        self._on_sealed = self._take_over  # One object for all groups.
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
        self._home.router.start()
        append = TopicAppend(
            self._sender,
            self._runtime.create_future(),
            topic,
            (as_bytes(value, "a value"),),
            None if key is None else (as_bytes(key, "a key"),),
            None if not headers else (as_headers(headers),),
            is_ordered=ordered,
            expected_position=_as_expected(expected_position),
            named=stream if stream is None else as_whole(stream, "a stream"),
        )
        receipt: Receipt = await self._append(append, timeout)
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
        self._home.router.start()
        values = [as_bytes(value, "a value") for value in values]
        given = [None if key is None else as_bytes(key, "a key") for key in keys or ()]
        copies = [as_headers(each) for each in headers or ()]
        append = TopicAppend(
            *(self._sender, self._runtime.create_future(), topic, values),
            given if any(key is not None for key in given) else None,
            copies if any(copies) else None,
            is_atomic=True,
            is_ordered=ordered,
            expected_position=_as_expected(expected_position),
            named=stream if stream is None else as_whole(stream, "a stream"),
        )
        receipts: list[Receipt] = await self._append(append, timeout)
        return receipts

    async def _append(self, append: TopicAppend, timeout: float | None) -> Any:
        """Append with all checks; return the receipt, or all receipts if the append is atomic."""
        seconds = self._home.router.seconds(timeout)
        append.deadline = self._runtime.time() + seconds
        found: TopicAppend | Held
        if self._routes.knows(append.topic, append.named):
            found = self._begin(append, timeout)
        else:
            check_topic(append.topic)
            found = await self._routes.begin(append.topic, partial(self._begin_late, append), seconds)
        expected: Sought | None = None
        try:
            while True:
                while isinstance(found, Held):
                    found = await self._moves.wait(found, max(append.deadline - self._runtime.time(), 0.0))
                append = found
                if append.is_ordered and append.place is not None:
                    self._positions.forget(expected)
                    expected = self._positions.expect(append.place)
                try:
                    answer = await append.waiter
                    break
                except BaseException as error:
                    append.sender.leave(append)
                    if (moved := self._on_failed(append, error)) is None:
                        raise
                    found = moved
                finally:
                    append.forget()
                    append.sender.untime(append)
            first, last = (answer[0], answer[-1]) if append.is_atomic else (answer, answer)
            if append.place is None or not append.is_ordered:
                return _placed(answer, append.stream, first.position if append.is_ordered else None)
            seconds = max(LEAST_SECONDS, append.deadline - self._runtime.time())
            expected = self._positions.seek(append.place, first.position, last.position, seconds, expected)
            try:
                return _placed(answer, append.stream, await expected.found)
            except (ViewstampError, TimeoutError) as error:
                token = append.token(first, last.position - first.position + 1)
                raise self._positions.unknown(expected, error, token) from error
        finally:
            self._positions.forget(expected)

    def _on_failed(self, append: TopicAppend, error: BaseException) -> Held | None:
        """Return where an append goes on that has failed because its stream is sealed; None = raise the error."""
        if isinstance(error, StreamSealedError):
            return append.moved
        if isinstance(error, OutcomeUnknownError):
            if append.stream and error.token is not None:
                error.token = replace(error.token, stream=append.stream)
            self._look(append)
            return None
        if isinstance(error, UnavailableError):
            self._look(append)
        elif not isinstance(error, ViewstampError) and append.stream:  # Its caller has gone.
            self._moves.doubted.add(append.topic)
        if append.moved is not None:
            append.moved.abandon()
        return None

    def _look(self, append: TopicAppend) -> None:
        """Look whether the stream of an append that was not answered is lost."""
        if append.stream and not self._home.router.is_closed:
            self._moves.look(append.topic)

    def _take_over(self, waiter: Future[Any]) -> None:
        """Take an append over that was fenced because its stream is sealed."""
        append = self._begun.pop(waiter, None)
        if append is not None:
            again = partial(self._begin_late, append.anew(self._runtime.create_future()))
            append.moved = self._moves.hand_over(append.topic, append.stream, again)

    def _begin_late(self, append: TopicAppend) -> TopicAppend | Held:
        """Begin an append that has waited, or one that begins again, with what is left of its timeout."""
        return self._begin(append, max(append.deadline - self._runtime.time(), 1e-3))

    def _begin(self, append: TopicAppend, timeout: float | None) -> TopicAppend | Held:
        """Put records into a batch of their stream, or into the queue of its group. The route is known.

        They are held if the stream is sealed and the next one is not known yet.
        """
        topic, stream = append.topic, append.named
        choice = self._routes.spread.get(topic)
        if choice is None:
            if stream is not None:
                raise RequestError(
                    f"topic {topic!r} has no streams, so it has no stream {stream}; nothing was written",
                    remedy="leave out the stream",
                )
            self._home.appends.begin(append, topic, timeout)
            return append
        if topic in self._moves.doubted:
            self._moves.look(topic)
        keys, expects = append.keys, append.expected_position > 0
        append.stream = chosen = choice.choose(keys, append.size, stream=stream, expects_position=expects)
        if stream is None and self._moves.is_moving(topic, chosen):
            return self._moves.hold(topic, chosen, partial(self._begin_late, append))
        append.place = group, name = choice.place(chosen)
        parts = self._groups.begin(group)
        parts.sender.queue.promised.add(name)
        parts.appends.begin(append, name, timeout)
        if stream is None:
            parts.sender.on_sealed = self._on_sealed
            append.among = self._begun
            self._begun[append.waiter] = append
            if keys is None:
                choice.joined(chosen, append)
        return append


def _as_expected(position: int | None) -> int:
    """Return the position that a caller expects; 0 = none. Raises RequestError."""
    if position is None:
        return 0
    if as_whole(position, "a position") < 1:
        raise RequestError("nothing is appended at position 0", remedy="positions begin at 1")
    return position


def _placed(answer: Any, stream: int, position: int | list[int] | None) -> Any:
    """Return a receipt, or the receipts of an atomic append, with their stream and global positions.

    ``position`` is that of the first record if the others follow it, and None if the append was not ordered.
    """
    if not isinstance(answer, list):
        return new_tuple(Receipt, (*answer[:5], stream, position))
    if position is None:
        return [new_tuple(Receipt, (*each[:5], stream, None)) for each in answer]
    positions = position if isinstance(position, list) else range(position, position + len(answer))
    return [new_tuple(Receipt, (*each[:5], stream, at)) for each, at in zip(answer, positions, strict=True)]
