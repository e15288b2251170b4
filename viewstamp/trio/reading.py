"""Reading a topic in a trio program: iterators that need no care when they are dropped."""

from __future__ import annotations

from collections import deque
from typing import Generic, Self, TypeVar

import trio

from viewstamp.client.reader import Reader
from viewstamp.wire.batch import Batch, Record

__all__ = ["Batches", "Records"]

ItemT = TypeVar("ItemT")


class _Reading(Generic[ItemT]):
    """Takes chunk after chunk from a reader.

    No generator: one that is dropped half-way would be trio's to end, with a warning. Of one of these nothing is
    left but, for a while, the request for the next chunk; ``async with`` or ``aclose`` ends that too.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._batches: deque[Batch] = deque()
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def aclose(self) -> None:
        """End it. Idempotent."""
        self._close()
        await trio.lowlevel.checkpoint()

    def _close(self) -> None:
        self._is_closed = True
        self._batches.clear()
        self._reader.close()

    async def _next_batch(self) -> Batch:
        """Return the next batch; a checkpoint. Raises StopAsyncIteration at the end."""
        await trio.lowlevel.checkpoint()
        while not self._batches:
            chunk = None if self._is_closed else await self._reader.next_chunk()
            if chunk is None:
                raise StopAsyncIteration
            self._batches.extend(chunk)
        return self._batches.popleft()


class Batches(_Reading[Batch]):
    """The batches of a range, in order."""

    async def __anext__(self) -> Batch:
        return await self._next_batch()


class Records(_Reading[Record]):
    """The records of a range, in order."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._records: deque[Record] = deque()

    async def __anext__(self) -> Record:
        records = self._records
        if records:
            await trio.lowlevel.checkpoint_if_cancelled()
        while not records:
            records.extend(self._reader.cut(await self._next_batch()))
        return records.popleft()

    def _close(self) -> None:
        super()._close()
        self._records.clear()
