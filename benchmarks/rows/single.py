"""One caller that awaits each append before the next: how long does one take, beside NATS and PostgreSQL?

What to expect. The answer needs the leader's disk and one follower's, at the same time, and otherwise it is wake-ups:
caller, leader, follower, its writer thread, and back, eight of 15 to 50 us each on two cores that mostly sleep, and
two syncs of 0.15 ms of which one is behind the other. PostgreSQL has fewer, and no Python on the way.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.postgres import Postgres
from benchmarks.rows.appends import contender
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Turn, running, take_turns

__all__ = ["ROW"]


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    async with AsyncExitStack() as stack:
        contenders = []
        for peer in (Ours(), Nats(), Postgres()):
            if await stack.enter_async_context(running(peer, directory, options, result)):
                contenders.append(_timed(await contender(stack, peer, callers=1)))
        await take_turns(contenders, options, result, "ms")
    return result


def _timed(appending: Contender) -> Contender:
    """Return a contender whose figure is the median time of an append, instead of how many there were."""

    async def work(seconds: float) -> Turn:
        turn = await appending.work(seconds)
        assert turn.p50_ms is not None, "a caller had no answer in a whole turn"
        return replace(turn, value=turn.p50_ms)

    return replace(appending, work=work)


ROW = Row(
    name="single",
    title="one caller, 256 B, p50",
    unit="ms",
    goals=[
        Goal(subject=Ours.name, peer=Nats.name, at_most=0.7),
        Goal(subject=Ours.name, peer=Postgres.name, at_most=1.3),
    ],
    measure=_measure,
)
