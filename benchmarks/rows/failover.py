"""The leader is killed by SIGKILL: how long until the next record is acknowledged?

A record is appended, and then the leader is killed. Each surviving server gets a record every 20 ms, over connections
that are already open and whether or not earlier records failed, so that no back-off of a client counts. viewstamp uses
its own client with its retries.

The row also counts elections while 256 callers keep every core busy, because a short election timeout is no gain if
leaders lose their role under load.

Expected: a killed process closes its connections, which a follower notices within a millisecond. A machine that is cut
off closes none, so its followers wait for the election timeout. An election is two messages each way and a sync of the
vote.
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
from benchmarks.rows.row import Goal, Options, Row, RowResult, Subject
from benchmarks.rows.turns import Contender, Turn, open_sessions, running, take_turns
from viewstamp.bench.load import drive

__all__ = ["ROW"]

_BUSY_CALLERS = 256
_SETTLE_SECONDS = 2.0
_ELECTIONS = "elections under load"
_TUNED = f"{Etcd.name}, tuned"


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    ours = Ours()
    async with AsyncExitStack() as stack:
        if await stack.enter_async_context(running(ours, directory, options, result)):
            elections = await _elections_under_load(ours, options)
            await take_turns([_killed(ours, ours.name)], options, result, "ms", rounds=2 * options.rounds + 1)
            result.subjects.append(
                Subject(name=_ELECTIONS, turns=[elections], unit="elections", note=f"{_BUSY_CALLERS} callers append")
            )
    peers: dict[str, Peer] = {_TUNED: Etcd(tuned=True), Etcd.name: Etcd(), Nats.name: Nats()}
    for name, peer in peers.items():
        async with AsyncExitStack() as stack:
            if await stack.enter_async_context(running(peer, directory, options, result, name)):
                await take_turns([_killed(peer, name)], options, result, "ms")
    return result


def _killed(peer: Peer, name: str) -> Contender:
    async def work(_: float) -> Turn:
        leader = await peer.leader()
        standing = await peer.stand_by()
        try:
            for session in standing:  # Each client has sent a record, so it has found the leader.
                await session.append(VALUE)
            began = time.perf_counter()
            # The signal is sent before this task continues. Waiting for the end of the process takes longer.
            killing = asyncio.ensure_future(peer.kill(leader))
            await asyncio.sleep(0)
            acknowledged = await peer.first_acknowledged(VALUE, standing)
            await killing
        finally:
            await asyncio.gather(*(each.close() for each in standing), return_exceptions=True)
        await peer.start_again()
        await peer.leader()
        await asyncio.sleep(_SETTLE_SECONDS)  # The restarted server must catch up before the next kill.
        return Turn(value=(acknowledged - began) * 1000)

    return Contender(name=name, peer=peer, work=work, how="standing connections, a record every 20 ms")


async def _elections_under_load(ours: Ours, options: Options) -> float:
    before = await _term(ours)
    async with open_sessions(ours, 8) as sessions:
        seconds = options.seconds * options.rounds
        figures = await drive([each.append for each in sessions], VALUE, callers=_BUSY_CALLERS, seconds=seconds)
    terms = await _term(ours) - before
    options.say(f"{terms:.0f} elections while {figures.per_second:,.0f} records a second were appended")
    return terms


async def _term(ours: Ours) -> float:
    async with ours.cluster.target.connect() as client:
        return float(max(status.get("term", 0) for status in await client.status()))


ROW = Row(
    name="failover",
    title="SIGKILL of the leader to the next acknowledged write",
    unit="ms",
    goals=[Goal(subject=Ours.name, at_most=300.0), Goal(subject=_ELECTIONS, at_most=0.0)],
    measure=_measure,
    compares="time without an acknowledgement after SIGKILL of the leader, offered a record every 20 ms",
)
