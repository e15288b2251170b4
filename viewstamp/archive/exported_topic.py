"""A topic as an export, or a reader of Arrow batches, reads it, with streams or without.

The records of a topic with streams have their position in the topic, and the number of their stream. They are read in
the order of the topic, so whatever was read is a part of it without gaps.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from viewstamp.archive.columns import load_arrow, number_array
from viewstamp.archive.run_file import RunPart, join_parts
from viewstamp.client.aio import Client
from viewstamp.client.results import Receipt, TopicInfo
from viewstamp.client.stream_ranges import DividedTopic, StreamRanges
from viewstamp.errors import RequestError, TrimmedError, UnavailableError, UnknownTopicError
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.columns import slice_columns

__all__ = ["STREAM", "ExportedTopic"]

STREAM: Final = "stream"
"""The column with the number of the stream; only of a topic with streams."""


class _Part(NamedTuple):
    """Records with consecutive positions; ``stream`` is 0 if the topic has none."""

    position: int
    records: RunPart
    stream: int


class ExportedTopic:
    """The calls of an export about one topic."""

    def __init__(self, client: Client, topic: str) -> None:
        """Use the connections of ``client``; sends nothing."""
        self._client = client
        self.ranges = StreamRanges(client)
        self._name = topic
        self.has_streams = False
        """Whether it has streams; known when it was described."""

    async def describe(self) -> TopicInfo:
        """Describe the topic, with its end of now; one with streams is a :class:`DividedTopic`.

        Raises UnknownTopicError, UnavailableError.
        """
        if not self.has_streams:
            try:
                return await self._client.describe_topic(self._name)
            except UnknownTopicError as error:
                try:
                    found = await self.ranges.describe(self._name)
                except UnknownTopicError:
                    raise error from None
                self.has_streams = True
                return found
        return await self.ranges.describe(self._name)

    async def end(self, info: TopicInfo, until: int | str) -> int:
        """Return the position behind the last one that is meant: ``"committed"``, ``"archived"``, or before a position.

        Raises: as :meth:`archived_end`.
        """
        if until == "committed":
            return info.last_position + 1
        if until == "archived":
            return await self.archived_end(info)
        assert isinstance(until, int), f"until is {until!r}"
        return min(until, info.last_position + 1)

    async def archived_end(self, info: TopicInfo) -> int:
        """Return the position before which all records are archived; of streams, before which those of each are.

        Raises:
          RequestError: no records are archived.
          TrimmedError, UnavailableError: for a topic with streams, as ``Client.find_global_position``.
        """
        if not isinstance(info, DividedTopic):
            if info.archived is None or not info.archived.runs:
                raise _nothing_archived(self._name)
            return info.archived.last_position + 1
        ends: dict[int, int] = {}
        for run in await self._client.list_stream_runs(self._name):
            if run.state == "committed":
                ends[run.stream] = max(ends.get(run.stream, 1), run.last_position + 1)
        if not ends:
            raise _nothing_archived(self._name)
        end = info.last_position + 1
        for stream in info.found.kept_streams:
            if info.found.can_pass(stream, info.first_position):
                continue
            kept = (await self._client.describe_stream(self._name, stream)).first_position
            local = max(ends.get(stream, 1), kept)
            if local < info.found.ordered_ends[stream - 1]:  # A record that is not archived.
                receipt = Receipt(Position(local), Term(0), Index(0), 0, stream=stream)
                found = (await self._client.find_global_position(self._name, receipt)).global_position
                assert found is not None, f"record {local} of stream {stream} has a position"
                end = min(end, found)
        return end

    async def tables(
        self, first: int, end: int, size: int, on_bytes: Callable[[int], None]
    ) -> AsyncGenerator[Any, None]:
        """Yield the records at positions in ``[first, end)`` as Arrow tables of about ``size`` bytes, without gaps.

        Raises:
          TrimmedError: a position was deleted, or lost; the records before it were yielded.
          UnavailableError: no node answers.
        """
        at, size_held = first, 0
        held: list[_Part] = []
        error: TrimmedError | None = None
        if first >= end:
            return
        parts = self._of_streams(first, end) if self.has_streams else self._of_batches(first, end)
        async with aclosing(parts):
            try:
                async for part in parts:
                    assert part.position == at, f"position {part.position} follows {at}"
                    held.append(part)
                    at += part.records.columns.count
                    size_held += part.records.columns.size
                    on_bytes(part.records.columns.size)
                    if size_held >= size or at == end:
                        yield _join(held)
                        held, size_held = [], 0
            except TrimmedError as trimmed:
                error = trimmed
        if held:
            yield _join(held)
        if error is not None:
            raise error
        if at != end:
            raise UnavailableError(
                f"topic {self._name} was read up to position {at - 1} instead of {end - 1}", remedy="try again"
            )

    async def _of_batches(self, first: int, end: int) -> AsyncGenerator[_Part, None]:
        at = first
        async with aclosing(self._client.read_batches(self._name, first, end=end)) as batches:
            async for batch in batches:
                start, stop = at - batch.first_position, min(end - batch.first_position, batch.count)
                columns = slice_columns(batch.columns(), start, stop)
                yield _Part(at, RunPart(batch.term, batch.first_index + start, batch.log_time, columns), 0)
                at += stop - start

    async def _of_streams(self, first: int, end: int) -> AsyncGenerator[_Part, None]:
        async with aclosing(self.ranges.merged(self._name, first, end)) as chunks:
            async for chunk in chunks:
                for each in chunk:
                    batch = each.batch
                    columns = slice_columns(batch.columns(), each.first, each.first + each.length)
                    records = RunPart(batch.term, batch.first_index + each.first, batch.log_time, columns)
                    yield _Part(each.position, records, each.stream)


def _join(parts: list[_Part]) -> Any:
    """Return parts as one Arrow table, with the column of the stream if they have one."""
    arrow = load_arrow()
    count = sum(part.records.columns.count for part in parts)
    table = join_parts(arrow, parts[0].position, count, [part.records for part in parts])
    if not parts[0].stream:
        return table
    streams = (array("i", [part.stream]) * part.records.columns.count for part in parts)
    return table.append_column(STREAM, number_array(arrow.int32(), count, streams))


def _nothing_archived(topic: str) -> RequestError:
    return RequestError(
        f"topic {topic} has no archived records, and only these were asked for",
        remedy=f"viewstamp archive run {topic}; or read until the committed end",
    )
