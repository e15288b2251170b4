"""All nodes are killed at once and started again: how long until a record is acknowledged, a million on disk?

Records of 256 B: a million in ours and in NATS, 300,000 in etcd, which would take minutes to fill. SIGKILL for all
three, then all three are started; every server is connected to as soon as it listens, and offered a record every 20 ms.
The pages of the files are still in memory, so that it is the reckoning that is measured, not the disk.

What to expect. A Python process with what we import is there in 0.3 to 0.5 s, three at once on two cores in 0.7; an
election takes 0.2 s or more. So a second is the floor, and reading the log must fit into the other one: 300 MB at
3 GB/s of checksums are a tenth of a second, anything for each record half a second or more.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.rows.appends import VALUE
from benchmarks.rows.pipeline import fill
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Turn, running, take_turns

__all__ = ["ROW"]

_IN_FLIGHT = 4096
_SETTLE_SECONDS = 1.0
_RECORDS = 1_000_000
_RECORDS_OF_ETCD = 300_000


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    contenders: list[tuple[Peer, int]] = [(Ours(), _RECORDS), (Nats(), _RECORDS), (Etcd(), _RECORDS_OF_ETCD)]
    for peer, records in contenders:
        async with AsyncExitStack() as stack:
            if await stack.enter_async_context(running(peer, directory, options, result)):
                await take_turns([_restarted(peer, records, options)], options, result, "s")
    return result


def _restarted(peer: Peer, records: int, options: Options) -> Contender:
    is_filled = False

    async def work(_: float) -> Turn:
        nonlocal is_filled
        if not is_filled:
            began = time.perf_counter()
            await fill(peer, VALUE, records, _IN_FLIGHT)
            is_filled = True
            options.say(f"{peer.name}: {records:,} records written in {time.perf_counter() - began:.1f} s")
        await asyncio.sleep(_SETTLE_SECONDS)
        await peer.kill_all()
        began = time.perf_counter()
        await peer.start_again()
        return Turn(value=await peer.first_acknowledged(VALUE) - began)

    return Contender(name=peer.name, peer=peer, work=work, how=f"{records:,} records on disk")


ROW = Row(
    name="restart",
    title="all killed to the first write, 1 M records on disk",
    unit="s",
    goals=[Goal(subject=Ours.name, at_most=2.0)],
    measure=_measure,
    compares="time from the start of three killed servers to an acknowledged record, with a log in the page cache",
)
