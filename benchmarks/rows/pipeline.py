"""Keeps many records in flight without a caller for each, the quickest way that each contender offers."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.rows.appends import plural
from benchmarks.rows.row import Options, RowResult
from benchmarks.rows.turns import Contender, Turn, open_sessions, running, take_turns
from viewstamp.bench.load import Figures

__all__ = ["Put", "fill", "keep_going", "measure_pipelined", "puts_of"]

Put = Callable[[], Awaitable[object]]
"""Hands over one or more records; what it returns is done once all of them are acknowledged."""

_TOPIC = "pipelined"
_GROUP_BYTES = 256 * 1024
_WARM_UP_SECONDS = 0.5


async def keep_going(put: Put, outstanding: int, *, seconds: float = 0.0, count: int = 0) -> Figures:
    """Keep ``outstanding`` puts going: for ``seconds`` behind a warm-up, or until ``count`` of them are done.

    Whatever is outstanding in the end is waited for.

    Raises:
      Exception: what the first put raised that did.
    """
    loop = asyncio.get_running_loop()
    clock = time.perf_counter
    latencies = array("d")
    opens = clock() + (_WARM_UP_SECONDS if seconds else 0.0)
    closes = opens + seconds if seconds else float("inf")
    left = outstanding
    begun = 0
    ended: asyncio.Future[None] = loop.create_future()

    def next_put() -> None:
        nonlocal left, begun
        began = clock()
        if began >= closes or (count and begun >= count) or ended.done():
            left -= 1
            if not left and not ended.done():
                ended.set_result(None)
            return
        begun += 1

        def done(answer: asyncio.Future[object]) -> None:
            if error := asyncio.CancelledError() if answer.cancelled() else answer.exception():
                if not ended.done():
                    ended.set_exception(error)
                return
            now = clock()
            if began >= opens and now <= closes:
                latencies.append((now - began) * 1000)
            next_put()

        asyncio.ensure_future(put()).add_done_callback(done)

    cpu = [time.process_time()]
    watches = []
    if seconds:
        watches.append(loop.call_later(opens - clock(), lambda: cpu.append(time.process_time())))
        watches.append(loop.call_later(closes - clock(), lambda: cpu.append(time.process_time())))
    try:
        for _ in range(outstanding):
            next_put()
        await ended
    finally:
        for watch in watches:
            watch.cancel()
    if not seconds:
        return Figures(latencies, clock() - opens, time.process_time() - cpu[0])
    _, opened, *closed = cpu
    return Figures(latencies, seconds, (closed[0] if closed else time.process_time()) - opened)


async def puts_of(stack: AsyncExitStack, peer: Peer, value: bytes, in_flight: int) -> tuple[Put, int, str]:
    """Return how records are handed to a peer that runs: the put, how many records one carries, and in words.

    Ours takes groups, as its users would hand many over. Theirs are asked for each record, and answer each.
    """
    if isinstance(peer, Ours):
        client = await stack.enter_async_context(peer.cluster.target.connect())
        await client.create_topic(_TOPIC)
        group = [value] * max(1, min(in_flight // 8, _GROUP_BYTES // len(value)))
        return lambda: client.append_many(_TOPIC, group), len(group), f"append_many of {len(group)}"
    count = peer.sessions(in_flight)
    sessions = await stack.enter_async_context(open_sessions(peer, count))
    turn = 0

    def put() -> Awaitable[object]:
        nonlocal turn
        turn = (turn + 1) % count
        return sessions[turn].append(value)

    return put, 1, plural(count, "connection")


async def fill(peer: Peer, value: bytes, records: int, in_flight: int) -> None:
    """Append so many records, or a few more, as quickly as the peer takes them."""
    async with AsyncExitStack() as stack:
        put, each, _ = await puts_of(stack, peer, value, in_flight)
        await keep_going(put, max(1, in_flight // each), count=-(-records // each))


async def measure_pipelined(
    options: Options, directory: Path, value: bytes, *, in_flight: int, unit: str, per_record: float = 1.0
) -> RowResult:
    """Measure ours and NATS with ``in_flight`` records outstanding; a record counts ``per_record``."""
    result = RowResult(subjects=[])
    async with AsyncExitStack() as stack:
        contenders = []
        for peer in (Ours(), Nats()):
            if await stack.enter_async_context(running(peer, directory, options, result)):
                contenders.append(await _contender(stack, peer, value, in_flight, per_record))
        await take_turns(contenders, options, result, unit)
    return result


async def _contender(stack: AsyncExitStack, peer: Peer, value: bytes, in_flight: int, per_record: float) -> Contender:
    put, each, how = await puts_of(stack, peer, value, in_flight)

    async def work(seconds: float) -> Turn:
        figures = await keep_going(put, max(1, in_flight // each), seconds=seconds)
        return Turn.of(figures, figures.per_second * each * per_record)

    return Contender(name=peer.name, peer=peer, work=work, how=how)
