"""Appends many records in order, several chunks at a time, and counts the outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from viewstamp.errors import OutcomeUnknownError, ViewstampError

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import Receipt

__all__ = ["Appended", "KeyedChunk", "append_chunks"]

CHUNKS_IN_FLIGHT: Final = 32
GRACE_SECONDS: Final = 2.0


class KeyedChunk(NamedTuple):
    """Records with a key each: ``keys`` and ``values`` have the same length."""

    keys: list[bytes]
    values: list[bytes]


@dataclass(slots=True)
class Appended:
    """The progress of an append. ``unknown`` counts records that may or may not have been appended."""

    acknowledged: int = 0
    first_position: int | None = None
    last_position: int | None = None
    durability: str | None = None
    """The durability of the acknowledged records, as the node reports it; None = none was acknowledged."""
    streams: set[int] = field(default_factory=set)
    """The streams of the acknowledged records; empty = the topic has none. Each has its own positions."""
    first_global_position: int | None = None
    last_global_position: int | None = None
    """Of ordered appends, the first and the last place over all streams."""
    unknown: int = 0
    error: BaseException | None = None
    on_receipts: Callable[[list[Receipt]], None] | None = None
    """Called with every list of receipts, in order."""

    def acknowledge(self, receipts: list[Receipt]) -> None:
        """Count the records of these receipts."""
        self.acknowledged += len(receipts)
        first, last = receipts[0].position, receipts[-1].position
        self.first_position = first if self.first_position is None else min(first, self.first_position)
        self.last_position = last if self.last_position is None else max(last, self.last_position)
        places = [each.global_position for each in receipts if each.global_position is not None]
        if places:
            self.first_global_position = self.first_global_position or places[0]
            self.last_global_position = places[-1]
        self.durability = receipts[-1].durability
        self.streams.update(each.stream for each in receipts if each.stream)
        if self.on_receipts is not None:
            self.on_receipts(receipts)


async def append_chunks(
    client: Client,
    topic: str,
    chunks: AsyncIterator[list[bytes] | KeyedChunk],
    appended: Appended,
    *,
    timeout: float,
    expected_position: int | None = None,
    stream: int | None = None,
    ordered: bool = False,
) -> None:
    """Append the chunks in order, several at a time, and count their outcomes in ``appended``.

    With an ``expected_position`` one at a time, because after a rejected chunk the next one must not be sent.
    ``ordered`` also one at a time, so that the order of the chunks is that of their global positions.
    Stops reading at the first failure, which is left in ``appended.error``. If it is cancelled, records that were sent
    and not acknowledged within 2 s are counted as unknown.
    """
    room = asyncio.Semaphore(CHUNKS_IN_FLIGHT if expected_position is None and not ordered else 1)
    tasks: dict[asyncio.Task[list[Receipt]], int] = {}

    def settle(task: asyncio.Task[list[Receipt]]) -> None:
        count = tasks.pop(task)
        room.release()
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or isinstance(error, OutcomeUnknownError):
            appended.unknown += count
        if error is not None:
            if appended.error is None or isinstance(error, OutcomeUnknownError):
                appended.error = error  # An unknown outcome matters more than a rejected append.
        elif not task.cancelled():
            appended.acknowledge(task.result())

    try:
        try:
            async for chunk in chunks:
                await room.acquire()
                if appended.error is not None:
                    break
                keys, values = chunk if isinstance(chunk, KeyedChunk) else (None, chunk)
                task = asyncio.create_task(
                    client.append_many(
                        topic,
                        values,
                        keys=keys,
                        timeout=timeout,
                        expected_position=expected_position,
                        stream=stream,
                        ordered=ordered,
                    )
                )
                if expected_position is not None:
                    expected_position += len(values)
                tasks[task] = len(values)
                task.add_done_callback(settle)
        except ViewstampError as error:
            appended.error = appended.error or error
        while tasks:
            await asyncio.wait(tasks)
    finally:
        if tasks:  # Cancelled. Acknowledgements usually arrive within milliseconds, so wait for them.
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
