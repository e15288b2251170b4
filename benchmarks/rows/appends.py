"""64 and 256 callers append 256 B each, over 1, 8 and 64 sessions: how many records a second?

Every caller awaits its append before the next. All callers are tasks of one process, and the servers are processes of
their own. NATS, PostgreSQL and Redis get as many connections as viewstamp has sessions.

Expected: with one session 64 records share a batch, a frame and a sync, so that the cost of a round, about 2 ms of
processor in four processes, is divided by 64. With 64 sessions each record is a batch of its own. With 256 callers
batches are four times as large, so the cost of a batch matters less.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.postgres import Postgres
from benchmarks.peers.pysyncobj import PySyncObj
from benchmarks.peers.redis import Redis
from benchmarks.peers.rqlite import Rqlite
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Side, alternate, appending, open_sessions, side_of
from viewstamp.bench.load import drive

__all__ = ["APPEND_64", "APPEND_256", "VALUE", "append_side", "contender", "plural"]

_SESSIONS = (1, 8, 64)
VALUE = os.urandom(256)
"""A value of random bytes, so that compression makes no system faster."""

_COMPARES = (
    "records a second of callers that each await their append, on three servers, over the same number of sessions "
    "(ours) and connections (theirs); each system alone on the machine"
)
_OTHERS_ROUNDS = 2


def _session_goals(times: Mapping[int, float]) -> list[Goal]:
    """Return a goal for each number of sessions: a multiple of the rate of NATS over as many connections."""
    return [
        Goal(subject=_with_sessions(Ours.name, count), peer=_with_sessions(Nats.name, count), at_least=bound)
        for count, bound in times.items()
    ]


async def _measure(
    options: Options,
    directory: Path,
    *,
    callers: int,
    by_sessions: Sequence[Peer] = (),
    others: Sequence[Peer] = (),
) -> RowResult:
    """Measure ``callers`` that each await their append before the next.

    Args:
      options: those of the run.
      directory: for the servers' files.
      callers: divided evenly over the sessions.
      by_sessions: further peers that are measured over 1, 8 and 64 connections.
      others: peers that are measured over the number of connections that is fastest for them.
    """
    result = RowResult(subjects=[])
    few = min(options.rounds, _OTHERS_ROUNDS)
    several = [(Ours(), 0), (Nats(), 0), *((peer, few) for peer in by_sessions)]
    sides = [
        append_side(peer, directory, options, result, callers, sessions=_SESSIONS, rounds=rounds)
        for peer, rounds in several
    ]
    sides += [append_side(peer, directory, options, result, callers, rounds=few) for peer in others]
    await alternate(sides, options, result, "/s")
    return result


def append_side(
    peer: Peer,
    directory: Path,
    options: Options,
    result: RowResult,
    callers: int,
    *,
    sessions: Sequence[int] = (),
    rounds: int = 0,
) -> Side:
    """Return a peer's side with a contender for each number of sessions; no number = the fastest one for this peer."""

    async def contenders(stack: AsyncExitStack) -> list[Contender]:
        if not sessions:
            return [await contender(stack, peer, callers)]
        return [
            await contender(stack, peer, callers, sessions=count, name=_with_sessions(peer.name, count))
            for count in sessions
        ]

    return side_of(peer, directory, options, result, contenders, rounds=rounds)


async def contender(stack: AsyncExitStack, peer: Peer, callers: int, *, sessions: int = 0, name: str = "") -> Contender:
    """Return callers of a running peer over ``sessions``; 0 = the fastest number for this peer."""
    count = sessions or peer.sessions(callers)
    opened = await stack.enter_async_context(open_sessions(peer, count))
    await drive([each.append for each in opened], VALUE, callers=callers, seconds=peer.warm_up_seconds, warm_up=0)
    how = plural(count, peer.session_noun)
    return Contender(name=name or peer.name, peer=peer, work=appending(peer, opened, VALUE, callers), how=how)


def plural(count: int, noun: str) -> str:
    """Return "1 session" or "8 sessions"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _with_sessions(name: str, count: int) -> str:
    return f"{name}, {plural(count, 'session')}"


async def _measure_64(options: Options, directory: Path) -> RowResult:
    others = [Etcd(), Kafka(), Rqlite(), PySyncObj(), PySyncObj(sync=True)]
    return await _measure(options, directory, callers=64, by_sessions=[Postgres(), Redis()], others=others)


async def _measure_256(options: Options, directory: Path) -> RowResult:
    return await _measure(options, directory, callers=256, by_sessions=[Redis()], others=[Etcd(), Kafka()])


APPEND_64 = Row(
    name="append-64",
    title="64 callers, 256 B",
    unit="/s",
    compares=_COMPARES,
    goals=_session_goals({1: 2.5, 8: 2.0, 64: 1.8}),
    measure=_measure_64,
    rounds=5,
)
APPEND_256 = Row(
    name="append-256",
    title="256 callers, 256 B",
    unit="/s",
    compares=_COMPARES,
    goals=_session_goals({1: 3.5, 64: 2.2}),
    measure=_measure_256,
    rounds=5,
)
