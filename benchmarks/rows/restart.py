"""All nodes are killed at once and started again: how long until a record is acknowledged, a million on disk?

Records have 256 B. There are a million in viewstamp and in NATS, and 300,000 in etcd, because more would take minutes
to write. viewstamp is also measured with 190,000 batches of one record each, because a node reads the header of each
batch of its log but not each record.

All three servers get SIGKILL and are then started. The client connects to each as soon as it listens, and sends it a
record every 20 ms. The files are still in the page cache, so that the processor is measured and not the disk.

Expected: a Python process with our imports starts in 0.3 to 0.5 s, three at once on two cores in 0.7 s. An election
takes 0.2 s or more. So a second is the floor, and reading the log must fit into a second one: the checksums of 300 MB
at 3 GB/s take a tenth of a second, any work for each record half a second or more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.rows.appends import VALUE
from benchmarks.rows.pipeline import fill
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Turn, open_sessions, running, take_turns
from viewstamp.bench.load import keep_going

__all__ = ["ROW"]

_IN_FLIGHT = 4096
_SETTLE_SECONDS = 1.0
_RECORDS = 1_000_000
_RECORDS_OF_ETCD = 300_000
_BATCHES = 190_000
_SESSIONS = 64
_SMALL = f"{Ours.name}, {_BATCHES:,} batches of a record"

Fill = Callable[[Peer, bytes, int, int], Awaitable[None]]
"""Appends this many records of this value; the last number is the records in flight."""


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    filled: list[tuple[str, Peer, int, Fill]] = [
        (Ours.name, Ours(), _RECORDS, fill),
        (_SMALL, Ours(), _BATCHES, _fill_singly),
        (Nats.name, Nats(), _RECORDS, fill),
        (Etcd.name, Etcd(), _RECORDS_OF_ETCD, fill),
    ]
    for name, peer, records, filling in filled:
        async with AsyncExitStack() as stack:
            if await stack.enter_async_context(running(peer, directory, options, result, name)):
                await take_turns([_restarted(name, peer, records, filling, options)], options, result, "s")
    return result


async def _fill_singly(peer: Peer, value: bytes, records: int, in_flight: int) -> None:
    """Append each record as a batch of its own, by one unanswered append for each session."""
    async with open_sessions(peer, _SESSIONS) as sessions:
        free = [partial(each.append, value) for each in sessions]

        async def append() -> None:
            session = free.pop()
            await session()
            free.append(session)

        await keep_going(append, _SESSIONS, count=records)


def _restarted(name: str, peer: Peer, records: int, filling: Fill, options: Options) -> Contender:
    is_filled = False

    async def work(_: float) -> Turn:
        nonlocal is_filled
        if not is_filled:
            began = time.perf_counter()
            await filling(peer, VALUE, records, _IN_FLIGHT)
            is_filled = True
            options.say(f"{name}: {records:,} records written in {time.perf_counter() - began:.1f} s")
        await asyncio.sleep(_SETTLE_SECONDS)
        await peer.kill_all()
        began = time.perf_counter()
        await peer.start_again()
        return Turn(value=await peer.first_acknowledged(VALUE) - began)

    return Contender(name=name, peer=peer, work=work, how=f"{records:,} records on disk")


ROW = Row(
    name="restart",
    title="all killed to the first write, 1 M records on disk",
    unit="s",
    goals=[Goal(subject=Ours.name, at_most=2.0), Goal(subject=_SMALL, at_most=1.0)],
    measure=_measure,
    compares="time from the start of three killed servers to an acknowledged record, with a log in the page cache",
)
