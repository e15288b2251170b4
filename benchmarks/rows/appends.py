"""What the rows of waiting callers share: ours over several numbers of sessions and NATS in turns, then the others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.rows.row import Goal, Options, RowResult
from benchmarks.rows.turns import Contender, appending, open_sessions, running, take_turns

__all__ = ["SESSIONS", "VALUE", "contender", "measure_appends", "plural", "session_goals"]

SESSIONS = (1, 8, 64)
VALUE = os.urandom(256)
"""Nothing that anybody could compress."""


def session_goals(times: Mapping[int, float]) -> list[Goal]:
    """Return the goals "so many times NATS with so many sessions"."""
    return [Goal(subject=_with_sessions(count), peer=Nats.name, at_least=bound) for count, bound in times.items()]


async def measure_appends(options: Options, directory: Path, *, callers: int, others: Sequence[Peer]) -> RowResult:
    """Measure ``callers`` that each await their append before the next.

    The others, for which there is no goal, run by themselves afterwards, so that nobody is in the way of the two.
    """
    result = RowResult(subjects=[])
    async with AsyncExitStack() as stack:
        contenders = []
        ours, nats = Ours(), Nats()
        if await stack.enter_async_context(running(ours, directory, options, result)):
            for count in SESSIONS:
                name = _with_sessions(count)
                contenders.append(await contender(stack, ours, callers, sessions=count, name=name))
        if await stack.enter_async_context(running(nats, directory, options, result)):
            contenders.append(await contender(stack, nats, callers))
        await take_turns(contenders, options, result, "/s")
    for peer in others:
        async with AsyncExitStack() as stack:
            if await stack.enter_async_context(running(peer, directory, options, result)):
                await take_turns([await contender(stack, peer, callers)], options, result, "/s", rounds=2)
    return result


async def contender(stack: AsyncExitStack, peer: Peer, callers: int, *, sessions: int = 0, name: str = "") -> Contender:
    """Return waiting callers of a peer that runs, over ``sessions``; 0 = as many as is fastest for it."""
    count = sessions or peer.sessions(callers)
    opened = await stack.enter_async_context(open_sessions(peer, count))
    how = plural(count, "connection")
    return Contender(name=name or peer.name, peer=peer, work=appending(opened, VALUE, callers), how=how)


def plural(count: int, noun: str) -> str:
    """Return "1 session" or "8 sessions"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _with_sessions(count: int) -> str:
    return f"{Ours.name}, {plural(count, 'session')}"
