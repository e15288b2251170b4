"""Appends records to a topic of a live cluster, each once, even if the replay is interrupted and repeated."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final

from viewstamp.client import Client, SinkCommit
from viewstamp.errors import FencedError, RequestError
from viewstamp.replay.read import Block, RecordRun, blocks, extents
from viewstamp.replay.visible import ReplayPlan
from viewstamp.wire.batch import Columns

__all__ = ["append_to_topic", "check_one_topic", "plan_digest", "sink_name"]

_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes that become visible at once. Part of ``plan_digest``, because a repeated run must divide the records alike."""
_BLOCK_BYTES: Final = 512 * 1024
_COUNTS = struct.Struct("<QII")


def plan_digest(plan: ReplayPlan) -> str:
    """Return 32 digits that identify the records of a plan and their order, independently of the chosen replicas."""
    digest = blake2b(b"%d %d " % (_BATCH_BYTES, _BLOCK_BYTES), digest_size=16)
    for extent in extents(plan):
        digest.update(extent.topic.encode() + b" " + _COUNTS.pack(extent.position, extent.skip, extent.count))
        digest.update(extent.header)
    return digest.hexdigest()


def sink_name(topic: str) -> str:
    """Return the name of the sink through which a replay writes to ``topic``."""
    return f"replay-{topic}"


async def append_to_topic(
    client: Client,
    topic: str,
    plan: ReplayPlan,
    runs: Iterable[tuple[RecordRun, Columns]],
    *,
    timeout: float | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> int:
    """Append all records of ``plan``, which are of one topic, to ``topic``; return the number of new records.

    They are committed in batches of 8 MiB through a sink that belongs to this plan. Batches that an earlier run has
    committed are not sent again, and an earlier run that is still active is fenced. Keys and headers are kept;
    positions and times are new.

    If it is cancelled, committed batches stay, and a repeated call continues after them.

    Raises:
      FencedError: another plan, or another run of this one, has written through the sink.
      UnavailableError, OutcomeUnknownError: call it again.
      CorruptionError, StorageError: a batch cannot be read.
    """
    await client.create_topic(topic, timeout=timeout)
    sink = client.sink(sink_name(topic), owner=plan_digest(plan))
    appended = 0
    try:
        for number, part in enumerate(_parts(runs)):
            attempt = await sink.begin(number, timeout=timeout)
            if isinstance(attempt, SinkCommit):
                for block in part:
                    on_bytes(block.size)
                continue
            for block in part:
                await attempt.stage(topic, block.columns, timeout=timeout)
                appended += block.columns.count
                on_bytes(block.size)
            await sink.commit(number, [await attempt.seal(timeout=timeout)], timeout=timeout)
    except FencedError as error:
        raise FencedError(
            f"topic {topic!r} was written by a replay of other records, or is being written by a newer run:"
            f" {error.message}",
            remedy="replay to another topic; or, to append these records too, run: viewstamp sink forget"
            f" {sink_name(topic)}",
        ) from error
    return appended


def check_one_topic(plan: ReplayPlan) -> None:
    """Check that the plan has only one topic. Raises RequestError, with the names of the topics."""
    shown = plan.shown_topics
    if len(shown) > 1:
        raise RequestError(
            f"the log has records of {len(shown)} topics: {', '.join(shown)}",
            remedy="choose one of them: --topic NAME",
        )


def _parts(runs: Iterable[tuple[RecordRun, Columns]]) -> Iterator[Iterator[Block]]:
    """Divide records into parts that become visible at once; a part must be used up before the next is requested."""
    source = blocks(runs, _BLOCK_BYTES)
    first = next(source, None)

    def part(block: Block) -> Iterator[Block]:
        nonlocal first
        size = 0
        following: Block | None = block
        while following is not None and (size == 0 or size + following.size <= _BATCH_BYTES):
            size += following.size
            yield following
            following = next(source, None)
        first = following

    while first is not None:
        yield part(first)
