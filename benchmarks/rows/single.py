"""One caller awaits each append before the next: how long does an append take, beside NATS and PostgreSQL?

Expected: the disks of leader and follower sync at the same time. The rest is wake-ups: caller, leader, follower, its
writer thread, and back, eight of 15 to 50 us each on two cores that mostly sleep. PostgreSQL has fewer wake-ups and no
Python on the path.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.postgres import Postgres
from benchmarks.rows.appends import contender
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Side, Turn, alternate, side_of

__all__ = ["ROW"]


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    sides = [_side(peer, directory, options, result) for peer in (Ours(), Nats(), Postgres())]
    await alternate(sides, options, result, "ms")
    return result


def _side(peer: Peer, directory: Path, options: Options, result: RowResult) -> Side:
    async def contenders(stack: AsyncExitStack) -> list[Contender]:
        return [_timed(await contender(stack, peer, callers=1))]

    return side_of(peer, directory, options, result, contenders)


def _timed(appending: Contender) -> Contender:
    """Return a contender whose figure is the median time of an append instead of appends a second."""

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
        Goal(subject=Ours.name, peer=Nats.name, at_most=0.9),
        Goal(subject=Ours.name, peer=Postgres.name, at_most=1.6),
    ],
    measure=_measure,
    compares="median time of an append of one caller over one connection; each system alone on the machine",
)
