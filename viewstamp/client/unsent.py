"""The batches that were never sent: which batch a record joins, and which batch is sent next."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic

from viewstamp.client.batches import COMMANDS, RECORD_COST, Completion, Headers, OpenBatch, WaiterT
from viewstamp.client.checks import check_columns
from viewstamp.client.options import ClientOptions
from viewstamp.errors import RecordTooLargeError, ViewstampError
from viewstamp.ids import TopicId
from viewstamp.wire.batch import HEADER_SIZE, Columns

__all__ = ["OpenBatches"]

_BATCH_COST = HEADER_SIZE + 160
"""Upper bound of the bytes of a batch beside its records: header, three paddings, three first offsets, the bitmap."""
_NEAR_SECONDS = 0.005
"""The quickest answer of a leader that counts as near."""
_FAR_BATCHES = 4
"""A batch that waits for answers of a far leader grows to this many times ``batch_bytes``."""


class OpenBatches(Generic[WaiterT]):
    """The batches that were never sent, and the rules by which records join them.

    Invariants:
      * ``waiting`` has every batch, in the order in which they began; those that records may join are in ``_open``
      * ``held_bytes`` counts the batches here, and those that were sent until the session completes them
    """

    def __init__(
        self,
        options: ClientOptions,
        on_batch: Callable[[OpenBatch[WaiterT]], None],
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        """Create it empty.

        Args:
          options: those of the client.
          on_batch: called with each batch that begins.
          on_full: called when a batch may be sent as a full one, and no other has begun.
        """
        self.held_bytes = 0
        """Bytes of the appends that the client holds, sent or not."""
        self.record_bytes_max = 1024 * 1024
        self.batch_bytes_max = 8 * 1024 * 1024
        self.size_max = 0
        """Records of at most this size together are within the limits; for others see :meth:`check_sizes`."""
        self.batch_bytes = options.batch_bytes
        """Bytes to which an open batch grows; see also :meth:`_next`."""
        self.waiting: deque[OpenBatch[WaiterT]] = deque()
        self.sent_max = options.batches_in_flight
        """Batches of one lane that may be unanswered; see :meth:`note_answer`."""
        self._options = options
        self._on_batch = on_batch
        self._on_full = on_full
        self._open: dict[TopicId, OpenBatch[WaiterT]] = {}

    def set_limits(self, *, record_bytes_max: int, batch_bytes_max: int) -> None:
        """Set the limits that the cluster announced. They do not affect open batches, which are far smaller."""
        self.record_bytes_max = record_bytes_max
        self.batch_bytes_max = batch_bytes_max
        self.batch_bytes = max(1, min(self._options.batch_bytes, batch_bytes_max - _BATCH_COST))
        self.size_max = min(record_bytes_max + RECORD_COST, batch_bytes_max - _BATCH_COST)

    def note_answer(self, seconds: float) -> None:
        """Set ``sent_max`` for a leader whose quickest answer took ``seconds``; see ``batches_in_flight_far``."""
        near, far = self._options.batches_in_flight, self._options.batches_in_flight_far
        self.sent_max = min(max(near, math.ceil(near * seconds / _NEAR_SECONDS)), far)

    def check_sizes(self, sizes: Sequence[int]) -> None:
        """Check records that must share one batch; ``sizes`` are their ``record_size``.

        Raises:
          RecordTooLargeError: one of them, or all together, are over the cluster's limits.
        """
        limit = self.record_bytes_max
        for size in sizes:
            if size - RECORD_COST > limit:
                raise RecordTooLargeError(
                    f"a record of {size - RECORD_COST} bytes is over the limit of {limit}",
                    remedy="append smaller records, or raise [limits] record_bytes_max on every node",
                )
        if sum(sizes) + _BATCH_COST > self.batch_bytes_max:
            raise RecordTooLargeError(
                f"{len(sizes)} records of {sum(sizes) - len(sizes) * RECORD_COST} bytes in all do not fit into one"
                f" batch of {self.batch_bytes_max} bytes",
                remedy="append fewer at once, or raise [limits] batch_bytes_max on every node",
            )

    def add(
        self,
        topic: TopicId,
        value: bytes,
        size: int,
        waiter: WaiterT,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> OpenBatch[WaiterT]:
        """Add a record or a command. Called for each record, so it has to be quick."""
        batch = self._open.get(topic)
        if batch is None:
            batch = self._begin(topic)
        elif batch.bytes + size > batch.bytes_max:
            batch = self._next(topic, batch, size)
        batch.bytes += size
        self.held_bytes += size
        if batch.keys is not None:
            batch.keys.append(key)
        elif key is not None:
            batch.keys = [*[None] * len(batch.values), key]
        if batch.headers is not None:
            batch.headers.append(headers)
        elif headers is not None:
            batch.headers = [*[None] * len(batch.values), headers]
        batch.values.append(value)
        batch.waiters.append(waiter)
        return batch

    def add_group(
        self,
        topic: TopicId,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers | None] | None,
        size: int,
        waiter: WaiterT,
        *,
        atomic: bool,
        expected_position: int = 0,
    ) -> OpenBatch[WaiterT]:
        """Add records that must share one batch; if ``atomic``, their future gets the receipts of all.

        With an ``expected_position`` they get a batch of their own, because the leader compares the position at which
        the batch begins.
        """
        batch = self._open.get(topic)
        if batch is None or expected_position:
            batch = self._begin(topic)
        elif batch.bytes + size > batch.bytes_max:
            batch = self._next(topic, batch, size)
        held = len(batch.values)
        if keys is not None and batch.keys is None:
            batch.keys = [None] * held
        if headers is not None and batch.headers is None:
            batch.headers = [None] * held
        if batch.keys is not None:
            batch.keys.extend(keys or [None] * len(values))
        if batch.headers is not None:
            batch.headers.extend(headers or [None] * len(values))
        if atomic:
            batch.groups[held] = len(values)
        batch.values.extend(values)
        batch.waiters.append(waiter)
        batch.waiters.extend([None] * (len(values) - 1))
        batch.bytes += size
        self.held_bytes += size
        if expected_position:
            batch.expected_position = expected_position
            self._close(topic)
        return batch

    def add_block(self, topic: TopicId, columns: Columns, attempt: int, waiter: WaiterT) -> OpenBatch[WaiterT]:
        """Add a block of an attempt: one batch, whose receipt ``waiter`` gets. Blocks are sent in order of the calls.

        Raises:
          RequestError: the columns have another layout than required.
          RecordTooLargeError: a record, or all together, are over the cluster's limits.
        """
        check_columns(columns, record_bytes_max=self.record_bytes_max, batch_bytes_max=self.batch_bytes_max)
        batch: OpenBatch[WaiterT] = OpenBatch(topic, attempt)
        batch.columns = columns
        batch.bytes = columns.size
        batch.waiters.append(waiter)
        batch.is_open = False
        self.waiting.append(batch)
        self.held_bytes += batch.bytes
        self._on_batch(batch)
        return batch

    def put_back(self, parts: list[OpenBatch[WaiterT]]) -> None:
        """Insert the parts of a divided batch before all others."""
        for part in reversed(parts):
            part.is_open = False
            self.waiting.appendleft(part)
            self._on_batch(part)
            self.held_bytes += part.bytes

    def take(self, unanswered: Mapping[int, int]) -> OpenBatch[WaiterT] | None:
        """Remove and return the next batch to send; None = there is none. Records whose callers have gone are dropped.

        A batch that is not full stays here while ``batches_eager`` of its lane are unanswered, so that it fills; any
        other batch while ``sent_max`` are. Each topic is a lane, because records of two topics cannot share a batch.

        Args:
          unanswered: the number of batches that are sent and not answered, by lane.
        """
        eager_max, sent_max = self._options.batches_eager, self.sent_max
        while True:
            for batch in self.waiting:
                if unanswered.get(batch.lane, 0) < (eager_max if batch.is_open and not batch.is_full else sent_max):
                    break
            else:
                return None
            self.waiting.remove(batch)  # As `_take_out`, without a further call for each batch.
            if batch.is_open:
                del self._open[batch.topic]
                batch.is_open = False
            # Each future is examined, because one that was cancelled in this very turn has not been reported yet.
            for waiter in batch.waiters:
                if waiter is not None and waiter.done():
                    self.held_bytes -= batch.drop_done()
                    break
            if batch.waiters:
                return batch

    def close_open(self) -> None:
        """Close all batches for further records."""
        for batch in self._open.values():
            batch.is_open = False
        self._open.clear()

    def compact(self) -> None:
        """Drop the records whose callers have gone."""
        for batch in [batch for batch in self.waiting if batch.cancelled]:
            self.held_bytes -= batch.drop_done()
            if not batch.waiters:
                self._take_out(batch)

    def take_back(self, topic: TopicId) -> list[OpenBatch[WaiterT]]:
        """Remove and return the batches of a topic, in their order, without blocks of sinks."""
        found = [batch for batch in self.waiting if batch.topic == topic and not batch.attempt]
        for batch in found:
            self._take_out(batch)
            self.held_bytes -= batch.bytes
        return found

    def fail(self, error: Callable[[int, int], ViewstampError]) -> list[Completion[WaiterT]]:
        """Fail every batch with ``error``; none of them was written."""
        completions: list[Completion[WaiterT]] = [Completion(batch, None, error) for batch in self.waiting]
        for batch in self.waiting:
            self.held_bytes -= batch.bytes
            batch.is_open = False
        self.waiting.clear()
        self._open.clear()
        return completions

    def _next(self, topic: TopicId, batch: OpenBatch[WaiterT], size: int) -> OpenBatch[WaiterT]:
        """Return the batch for records of ``size`` bytes that do not fit into ``batch``, the open one of the topic.

        If the leader is far away, that one grows until it is sent, because the number of unanswered batches is limited.
        For example, 48 batches of 256 KiB in a round trip of 100 ms are 126 MB a second at most. Larger batches also
        cost the nodes fewer rounds. Batches of commands do not grow, because their results would grow as well.
        """
        if topic != COMMANDS and self.sent_max > self._options.batches_in_flight:
            batch.bytes_max = min(_FAR_BATCHES * self.batch_bytes, self.batch_bytes_max - _BATCH_COST)
            if batch.bytes + size <= batch.bytes_max:
                if not batch.is_full:
                    batch.is_full = True
                    self._on_full()
                return batch
        return self._begin(topic)

    def _begin(self, topic: TopicId) -> OpenBatch[WaiterT]:
        if topic in self._open:
            self._close(topic)
        batch: OpenBatch[WaiterT] = OpenBatch(topic)
        batch.bytes_max = self.batch_bytes
        self._open[topic] = batch
        self.waiting.append(batch)
        self._on_batch(batch)
        return batch

    def _close(self, topic: TopicId) -> None:
        self._open.pop(topic).is_open = False

    def _take_out(self, batch: OpenBatch[WaiterT]) -> None:
        self.waiting.remove(batch)
        if batch.is_open:
            del self._open[batch.topic]
            batch.is_open = False
