"""Three servers without any request: how much of a processor do they use?

Expected: the cost of timers. A node of viewstamp checks its timeouts at each tick, and the leader sends a heartbeat to
each follower. An idle server that uses 3 % of a core costs as much as 1 in 30 busy ones, and keeps a laptop awake.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.postgres import Postgres
from benchmarks.peers.redis import Redis
from benchmarks.peers.rqlite import Rqlite
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Side, Turn, alternate, side_of

__all__ = ["ROW"]

_SETTLE_SECONDS = 3.0


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    peers = (Ours(), Nats(), Etcd(), Postgres(), Redis(), Rqlite(), Kafka())
    sides = [
        _side(peer, directory, options, result, rounds=0 if number < 3 else 1) for number, peer in enumerate(peers)
    ]
    await alternate(sides, options, result, "%")
    return result


def _side(peer: Peer, directory: Path, options: Options, result: RowResult, rounds: int) -> Side:
    async def work(seconds: float) -> Turn:
        await asyncio.sleep(_SETTLE_SECONDS)
        before = peer.cpu_used()
        await asyncio.sleep(seconds)
        return Turn(value=100 * (peer.cpu_used() - before) / seconds)

    async def contenders(_: AsyncExitStack) -> list[Contender]:
        return [Contender(name=peer.name, peer=peer, work=work)]

    return side_of(peer, directory, options, result, contenders, rounds=rounds)


ROW = Row(
    name="idle",
    title="three idle servers, of one core",
    unit="%",
    goals=[Goal(subject=Ours.name, at_most=2.0)],
    measure=_measure,
    compares="processor time of all three servers, with their child processes, while no client is connected",
    seconds=10.0,
    rounds=2,
)
