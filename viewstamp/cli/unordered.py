"""Waits until the records of a topic with streams have their positions, so that a command after an append reads them.

A plain append to a stream is durable before its record has a position in the topic, about 0.25 s later. A person who
appends and then reads expects the record, because it is there at once in a topic without streams.

| event | effect |
| --- | --- |
| the topic has no streams, or does not exist | nothing is waited for; the read says what is wrong |
| all records have positions | no wait: one request to group 0, and one to the leader of each stream |
| records have none | the leaders are asked for the positions of the newest ones, which lets group 0 give them at once |
| group 0 or a stream has no majority | after the time the number of those that are known is returned |
| records are appended meanwhile | they are not waited for |
| the caller is cancelled | nothing is changed, because all requests read |
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from viewstamp.client.results import Receipt
from viewstamp.errors import ViewstampError
from viewstamp.ids import Index, Position, Term

if TYPE_CHECKING:
    from viewstamp.client.aio import Client

__all__ = ["WAIT_SECONDS", "wait_for_positions"]

WAIT_SECONDS: Final = 2.0
"""Records of a topic whose groups have majorities get their positions within about 0.25 s."""


async def wait_for_positions(client: Client, topic: str, seconds: float = WAIT_SECONDS) -> int:
    """Wait until each record that is durable now has a position in the topic; return how many have none in time."""
    deadline = time.monotonic() + seconds
    try:
        found = await client.describe_spread_topic(topic, timeout=seconds)
    except ViewstampError:
        return 0

    async def wait(stream: int, ordered_end: int) -> int:
        waiting = 0
        try:
            left = max(0.0, deadline - time.monotonic())
            last = (await client.describe_stream(topic, stream, timeout=left)).last_position
            waiting = max(0, last + 1 - ordered_end)
            if waiting:
                newest = Receipt(Position(last), Term(0), Index(0), 0, stream=stream)
                left = max(0.0, deadline - time.monotonic())
                await client.find_global_position(topic, newest, timeout=left)
        except ViewstampError:
            return waiting
        return 0

    unasked = found.lost_streams | found.removed_streams
    streams = [each for each in enumerate(found.ordered_ends, 1) if each[0] not in unasked]
    return sum(await asyncio.gather(*(wait(stream, end) for stream, end in streams)))
