"""READ_ORDERED: the records of one stream by global position, with the position up to which a reader has them all.

``streams/cover.py`` decides by the states of both groups what may be sent. This module waits until there is something,
and reads it from the log. It looks again when an ORDER or a CONTEXT is applied here, and while the order is ahead of
the records, when any record is.

| event | effect |
| --- | --- |
| the state of group 0, or of the stream's group, lags here | less is sent, and ``known_to`` says so; a record that is \
needed and does not come in time is refused, so that the client asks another node |
| the state of group 0 lacks the topic, or that of the group the stream | UnknownTopicError; the client asks again |
| the state of group 0 has the topic, and lacks the stream, because it was added since | as a state that lags |
| the stream is removed in the state of group 0 | all its records were trimmed; the answer says so without the group |
| the group has dropped the stream, and the state of group 0 here has it still | as a state that lags |
| records are trimmed while they are read | the cover is computed again, from the states after the trim |
| the process dies, the connection ends, the answer is lost, the client is gone | nothing was changed; the client asks \
again, here or elsewhere |
| the clock jumps, the loop stalls | the wait is shorter or longer |
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from viewstamp.errors import RequestError, StreamSealedError, TrimmedError, UnavailableError
from viewstamp.ids import GlobalPosition, Position, Stream, TopicId
from viewstamp.node.order_queries import Cover, CoverQuery, OrderTailQuery
from viewstamp.node.placement_queries import SpreadTopicQuery
from viewstamp.node.reading import Reading
from viewstamp.node.service import Caller, GroupService, in_a_task
from viewstamp.wire.batch import Batch, Buffer
from viewstamp.wire.spread_requests import ReadOrdered
from viewstamp.wire.spreading import stream_name

__all__: list[str] = []

_RUNS_MAX = 1024
"""The most runs in an answer."""
_TRIES_MAX = 10
"""The most covers for one answer: each further one follows a trim of the records that were being read."""


@in_a_task(ReadOrdered)
async def _read_ordered(caller: Caller, request: int, asked: ReadOrdered) -> None:
    home, own = caller.service.group.reading, caller.group.reading
    cover = _cover(caller, asked, home, own)
    with suppress(TimeoutError):
        async with asyncio.timeout(asked.wait):
            while cover is None or not _is_enough(cover, asked):
                further = own if cover is not None and _lacks_records(cover) else None
                await caller.service.order_waits.wait_moved(caller.group.id, further=further)
                cover = _cover(caller, asked, home, own)
    async with caller.read_lock:
        for _ in range(_TRIES_MAX):
            if cover is None or (asked.needed and not _is_enough(cover, asked)):
                raise _lags(caller.group, asked)
            try:
                batches, end = await _read(own, cover, asked, caller.limits.batch_bytes_max)
            except TrimmedError:
                cover = _cover(caller, asked, home, own)
                continue
            caller.check(asked)
            fields: dict[str, object] = {
                "runs": cover.runs_to(end),
                "known_to": cover.known_at(end),
                "kept_from": cover.kept_from,
                "more": end < cover.end,
            }
            caller.ok(request, fields, batches)
            await caller.drain()
            return
    raise _lags(caller.group, asked)


def _is_enough(cover: Cover, asked: ReadOrdered) -> bool:
    """Return whether an answer must not wait: it has records, or shows whose the needed position is."""
    return cover.start < cover.end or 0 < asked.needed < cover.known_to


def _lacks_records(cover: Cover) -> bool:
    """Return whether further records of this group would make an answer longer: the order is ahead of them here."""
    return bool(cover.runs) and cover.end < cover.runs[-1].end


def _cover(caller: Caller, asked: ReadOrdered, home: Reading, own: Reading) -> Cover | None:
    """Return what can be sent by the present states; None = the state of group 0, or of the stream's group, lags.

    Raises:
      UnknownTopicError: this node does not know the topic, or the stream, yet.
      RequestError: the topic has no such stream in this group.
    """
    topic = home.query_now(SpreadTopicQuery(asked.name))
    if asked.stream > len(topic.groups):
        return None
    group = topic.groups[asked.stream - 1]
    if caller.service.groups.get(group) is not caller.group:
        raise RequestError(
            f"topic {asked.name!r} has no stream {asked.stream} in the group of this connection; nothing was read",
            remedy="send the request on a connection whose HELLO names the group of the stream",
        )
    stream = Stream(group, stream_name(asked.name, asked.stream))
    position = GlobalPosition(asked.position)
    # One state after the other, without an await between them: both are those of one moment.
    tail = home.query_now(OrderTailQuery(stream, asked.name, position, _RUNS_MAX))
    closed = topic.closed_stream(asked.stream)
    if closed is not None and closed.gone:
        known_to, kept_from = max(tail.next_position, position), max(closed.gone_at, position)
        return Cover(TopicId(0), closed.end, closed.end, (), known_to, kept_from)
    try:
        return own.query_now(CoverQuery(stream.name, position, tail, _RUNS_MAX))
    except StreamSealedError:
        return None


async def _read(own: Reading, cover: Cover, asked: ReadOrdered, batch_bytes_max: int) -> tuple[list[Buffer], Position]:
    """Return batches of a cover as bytes, and the local position after the last record that is sent.

    Raises:
      TrimmedError: records of the cover have been trimmed.
    """
    if cover.start >= cover.end:
        return [], cover.end
    bytes_max = min(asked.bytes_max, batch_bytes_max)
    buffers, _ = await own.read(cover.topic, cover.start, bytes_max=bytes_max)
    data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
    view, at, end = memoryview(data), 0, cover.start
    while at < len(view) and end < cover.end:
        batch = Batch.decode_header(view[at:])
        is_needed = at == 0 and cover.known_at(cover.start) == asked.needed
        if at + batch.size > bytes_max and not is_needed:
            break
        at += batch.size
        end = min(cover.end, Position(batch.first_position + batch.count))
    return [view[:at]] if at else [], end


def _lags(group: GroupService, asked: ReadOrdered) -> UnavailableError:
    return UnavailableError(
        f"{group.me} does not have the order of topic {asked.name!r} up to position {asked.needed or asked.position}"
        f" for stream {asked.stream}: it lags, or too few nodes of group 0 are running",
        remedy="try again in a moment, or ask another node of the group",
    )
