"""Reads a topic by its name, whether its records are in one log or spread over streams.

The first request finds out. A name is that of a topic or of a topic with streams, and neither can be removed, so the
answer stays true for the whole pass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from viewstamp.client.reader import TopicReader
from viewstamp.client.spread_reader import SpreadReader
from viewstamp.errors import RequestError, UnknownTopicError
from viewstamp.wire.batch import Batch, Record

__all__ = ["NamedReader"]


class NamedReader:
    """One pass over a topic, with the promises of :class:`TopicReader` or of :class:`SpreadReader`."""

    def __init__(self, reader: TopicReader, spread: SpreadReader) -> None:
        """Read with ``reader``, or with ``spread`` if the topic has streams."""
        self._plain = reader
        self._spread = spread
        self._reader: TopicReader | SpreadReader | None = None

    @property
    def applied_index(self) -> int:
        """The index that a node must have applied before it answers."""
        return self._plain.applied_index

    @property
    def age_seconds(self) -> float:
        """Upper bound of the age of the data when it began."""
        return self._plain.age_seconds

    async def begin(self) -> None:
        """Find the topic, and set the end. Idempotent. Raises UnknownTopicError."""
        await self._begun()

    async def _begun(self) -> TopicReader | SpreadReader:
        if self._reader is None:
            try:
                await self._plain.begin()
                self._reader = self._plain
            except UnknownTopicError as error:
                try:
                    await self._spread.begin()
                except UnknownTopicError:
                    raise error from None  # Its remedy is that of most callers.
                self._reader = self._spread
        return self._reader

    async def records(self) -> AsyncGenerator[Record, None]:
        """Yield the records of the range, in order."""
        reader = await self._begun()
        if isinstance(reader, TopicReader):
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    for record in reader.cut(batch):
                        yield record
        else:
            async with aclosing(reader.records()) as records:
                async for record in records:
                    yield record

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches that hold a position of the range. Raises RequestError if the topic has streams."""
        reader = await self._begun()
        if not isinstance(reader, TopicReader):
            raise self._refused
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                yield batch

    @property
    def _refused(self) -> RequestError:
        return RequestError(
            "the topic has streams, and a batch has positions of one stream; nothing was read",
            remedy="read records, which have positions in the topic; or read the batches of one stream: stream=1",
        )

    async def next_chunk(self) -> Sequence[Any] | None:
        """Return the next items, which :meth:`cut` turns into records; None = the range has ended.

        [] = there are none yet. Cancelled: the next call continues at the same position.
        """
        return await (await self._begun()).next_chunk()

    async def next_batches(self) -> Sequence[Batch] | None:
        """As :meth:`next_chunk`. Raises RequestError if the topic has streams."""
        reader = await self._begun()
        if not isinstance(reader, TopicReader):
            raise self._refused
        return await reader.next_chunk()

    def cut(self, item: Any) -> list[Record]:
        """Return the records of an item that are in the range."""
        assert self._reader is not None, "it has begun"
        return self._reader.cut(item)

    def close(self) -> None:
        """Cancel the requests that are under way. Idempotent."""
        if self._reader is not None:
            self._reader.close()
