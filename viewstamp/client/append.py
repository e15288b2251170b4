"""One append: what its caller has asked for, and where it is until its caller has an answer.

Objects that live as long as their append cost more than their creation, because Python's garbage collector visits them
again and again. So an append is one object, its own ticket, and makes no closure before its stream is sealed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from viewstamp.client.batches import Headers, OpenBatch, record_size
from viewstamp.client.results import Receipt
from viewstamp.client.runtime import Future
from viewstamp.client.send_queue import Ticket
from viewstamp.client.sender import Sender
from viewstamp.errors import OutcomeToken
from viewstamp.ids import Stream

__all__ = ["Held", "TopicAppend"]


class TopicAppend(Ticket):
    """Records that are appended together. They are checked, and other code cannot change them."""

    __slots__ = (
        "among",
        "deadline",
        "expected_position",
        "headers",
        "is_atomic",
        "is_ordered",
        "keys",
        "moved",
        "named",
        "place",
        "sender",
        "stream",
        "topic",
        "values",
    )

    def __init__(
        self,
        sender: Sender,
        waiter: Future[Any],
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        *,
        is_atomic: bool = False,
        is_ordered: bool = False,
        expected_position: int = 0,
        named: int | None = None,
        deadline: float = math.inf,
    ) -> None:
        """Make an append that has not begun.

        Args:
          sender: that of group 0; the sender of another group replaces it when the append begins there.
          waiter: the future of its receipt, or of all receipts if it is atomic.
          topic: the topic, as the caller names it.
          values: the records.
          keys: the key of each; None = none has one.
          headers: the headers of each; None = none has any.
          is_atomic: all of the records are written, or none.
          is_ordered: the caller waits for global positions too.
          expected_position: the position that the first record must get; 0 = the next one.
          named: the stream that the caller has named; None = none.
          deadline: the end of the caller's timeout on the clock of the runtime.
        """
        self.waiter = waiter
        self.name = self.topic = topic
        self.values = values
        self.keys = keys
        self.headers = headers
        if len(values) == 1 and keys is None and headers is None:
            self.size = record_size(values[0], None, None)
        else:
            none = [None] * len(values)
            self.size = sum(map(record_size, values, keys or none, headers or none))
        self.is_atomic = is_atomic
        self.is_ordered = is_ordered
        self.expected_position = expected_position
        self.named = named
        self.deadline = deadline
        self.act = put_into_batch
        self.batch = self.timer = None
        self.sender = sender
        self.stream = 0
        """The stream in which it has begun, from 1 on; 0 = none, or the topic has no streams."""
        self.place: Stream | None = None
        """That stream, as its group knows it."""
        self.among: dict[Future[Any], TopicAppend] | None = None
        """Has the append by its future while it begins again if its stream is sealed."""
        self.moved: Held | None = None
        """The append, since its stream was found sealed."""

    def anew(self, waiter: Future[Any]) -> TopicAppend:
        """Return the same append, with another future, as one that has not begun."""
        return TopicAppend(
            *(self.sender, waiter, self.topic, self.values, self.keys, self.headers),
            is_atomic=self.is_atomic,
            is_ordered=self.is_ordered,
            expected_position=self.expected_position,
            named=self.named,
            deadline=self.deadline,
        )

    @property
    def sizes(self) -> list[int]:
        """The size of each record."""
        none = [None] * len(self.values)
        return list(map(record_size, self.values, self.keys or none, self.headers or none))

    def token(self, receipt: Receipt, count: int) -> OutcomeToken:
        """Return the token of ``count`` records that are durable; ``receipt`` is that of the first one."""
        batch = self.batch
        assert batch is not None, "it was sent"
        assert batch.receipt is not None, "and acknowledged"
        token = self.sender.session.token(batch, receipt.position - batch.receipt.first_position, count)
        return replace(token, stream=self.stream)

    def forget(self) -> None:
        """Begin it never again."""
        if self.among is not None:
            self.among.pop(self.waiter, None)

    def abandon(self) -> None:
        """Give it up, because its caller has gone. If it was not sent, it never is."""
        self.sender.abandon(self)
        self.forget()
        if self.moved is not None:
            self.moved.abandon()


def put_into_batch(append: TopicAppend) -> OpenBatch[Future[Any]]:
    """Put the records into a batch; the topic is known.

    Raises:
      RecordTooLargeError: one record, or all of them together, are over the cluster's limits.
    """
    batches, size = append.sender.batches, append.size
    if size > batches.size_max:
        batches.check_sizes(append.sizes)
    topic = append.sender.queue.topics[append.name]
    if append.is_atomic or append.expected_position:
        batch = batches.add_group(
            *(topic, append.values, append.keys, append.headers, size, append.waiter),
            atomic=append.is_atomic,
            expected_position=append.expected_position,
        )
    else:
        key = None if append.keys is None else append.keys[0]
        headers = None if append.headers is None else append.headers[0]
        batch = batches.add(topic, append.values[0], size, append.waiter, key, headers)
    if append.is_ordered:
        batch.is_ordered = True
    return batch


class Held:
    """An append that waits: for the route of its topic, or for the end of its stream (``stream_moves.py``)."""

    __slots__ = ("_among", "begin", "begun")

    def __init__(
        self,
        begun: Future[TopicAppend | Held],
        begin: Callable[[], TopicAppend | Held],
        among: dict[Held, int],
        stream: int = 0,
    ) -> None:
        """Join ``among``, which has those that wait for the same, in their order, each with its stream; 0 = unknown."""
        self._among = among
        among[self] = stream
        self.begun = begun
        """What ``begin`` has returned or raised."""
        self.begin = begin
        # Retrieve the error, because the caller may have gone.
        begun.add_done_callback(lambda done: done.cancelled() or done.exception())

    def abandon(self) -> None:
        """Give up the append, because its caller has gone. If it was not sent, it never is."""
        self._among.pop(self, None)
        if not self.begun.done():
            self.begun.cancel()
        elif not self.begun.cancelled() and self.begun.exception() is None:
            self.begun.result().abandon()  # It has begun in the turn in which its caller left.
