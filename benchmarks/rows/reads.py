"""Linearizable reads of one value by 64 and 256 callers, from the leader and from a follower.

Ours is a query of a replicated actor. etcd is a Range of one key with its default, which is linearizable. NATS is the
newest message of a subject, as its key-value store reads it: the leader of the stream answers from its own state
without asking a follower, so a leader that was deposed may answer with an old value.

Expected: a leader confirms its role once for all reads that arrived meanwhile, with two messages to each follower. A
read is then a request, a call of the query and a response. A follower requests the index to wait for from the leader,
once for all reads that arrived meanwhile.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Side, Turn, alternate, side_of
from viewstamp.bench.load import repeat

__all__ = ["ROW"]

_CALLERS = (64, 256)


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    ours = Ours(settings={"actors.counter": "benchmarks.actors:Counter"})
    sides = [_side(peer, directory, options, result) for peer in (ours, Nats(), Etcd())]
    await alternate(sides, options, result, "/s")
    return result


def _side(peer: Peer, directory: Path, options: Options, result: RowResult) -> Side:
    async def contenders(stack: AsyncExitStack) -> list[Contender]:
        leader = await peer.leader()
        follower = next(server for server in peer.pids() if server != leader)
        return [
            await _contender(stack, peer, server, f"{callers} callers, {place}", callers)
            for place, server in (("leader", leader), ("follower", follower))
            for callers in _CALLERS
        ]

    return side_of(peer, directory, options, result, contenders)


async def _contender(stack: AsyncExitStack, peer: Peer, server: str, kind: str, callers: int) -> Contender:
    reader = await peer.reader(server)
    stack.push_async_callback(reader.close)
    await repeat([reader.read], callers, peer.warm_up_seconds, warm_up=0)

    async def work(seconds: float) -> Turn:
        return Turn.of(await repeat([reader.read], callers, seconds, servers=peer.cpu_used))

    return Contender(name=f"{peer.name}, {kind}", peer=peer, work=work, how="1 connection")


ROW = Row(
    name="reads",
    title="linearizable reads of one value",
    unit="/s",
    goals=[
        Goal(subject=f"{Ours.name}, 64 callers, {place}", peer=f"{Etcd.name}, 64 callers, {place}", at_least=3.0)
        for place in ("leader", "follower")
    ],
    measure=_measure,
    compares="reads a second over one connection to the server named; each system alone on the machine",
)
