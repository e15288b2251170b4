"""How late is the leader's event loop while each sync of its disk takes 50 ms, and are there elections?

64 callers append to three nodes, whose disks are slowed down as by ``viewstamp chaos slow-disk``: the thread that syncs
takes 50 ms longer. The leader reports the lateness: the worst delay of its tick timer (10 ms) in the last five to ten
seconds. The row also measures it without the slow disk. Then the processors are the limit, and the lateness includes
the time slices of four processes on two cores.

Expected: writes and syncs are in a thread that releases the interpreter lock while it waits, so that the loop is late
by the work of one turn, a few ms.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.peers.ours import Ours
from benchmarks.rows.appends import VALUE
from benchmarks.rows.row import Goal, Options, Row, RowResult, Subject
from benchmarks.rows.turns import open_sessions, running
from viewstamp.bench.load import Figures, drive
from viewstamp.host.chaos import Fault, FaultKind, write_faults

__all__ = ["ROW"]

_CALLERS = 64
_SYNC_MS = 50
_LOOK_SECONDS = 1.0
_FORGETS_SECONDS = 10.5
"""After this time a node no longer reports earlier lateness."""
_SLOW = f"{Ours.name}, a sync takes {_SYNC_MS} ms"
_QUICK = f"{Ours.name}, without this delay"
_ELECTIONS = "elections meanwhile"


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    ours = Ours(chaos=True)
    async with AsyncExitStack() as stack:
        if not await stack.enter_async_context(running(ours, directory, options, result)):
            return result
        term = (await _leader(ours))["term"]
        slow = await _lags(ours, options, _SYNC_MS)
        elections = (await _leader(ours))["term"] - term
        quick = await _lags(ours, options, 0)
    result.subjects = [
        Subject(name=_SLOW, turns=slow[0], durability=ours.durability, note=slow[1]),
        Subject(name=_QUICK, turns=quick[0], durability=ours.durability, note=quick[1]),
        Subject(name=_ELECTIONS, turns=[elections], unit="elections"),
    ]
    return result


async def _lags(ours: Ours, options: Options, sync_ms: int) -> tuple[list[float], str]:
    """Return the leader's worst lateness in each turn, in ms, and a note about the appends meanwhile."""
    _slow_disks(ours, sync_ms)
    await asyncio.sleep(_FORGETS_SECONDS)
    worst = []
    try:
        async with open_sessions(ours, 1) as sessions:
            for _ in range(options.rounds):
                looking = asyncio.ensure_future(_worst(ours, options.seconds))
                figures = await drive([sessions[0].append], VALUE, callers=_CALLERS, seconds=options.seconds)
                worst.append(await looking)
                note = _note(figures)
                options.say(f"sync + {sync_ms} ms: {worst[-1]:.1f} ms late; {note}")
    finally:
        _slow_disks(ours, 0)
    return worst, note


async def _worst(ours: Ours, seconds: float) -> float:
    """Read the leader's lateness repeatedly for ``seconds``; return the worst, in ms."""
    worst = 0.0
    for _ in range(max(1, round(seconds / _LOOK_SECONDS))):
        await asyncio.sleep(_LOOK_SECONDS)
        worst = max(worst, float((await _leader(ours))["loop_lag_ms"]))
    return worst


async def _leader(ours: Ours) -> dict[str, Any]:
    """Return the status of the leader."""
    name = await ours.leader()
    async with ours.cluster.target.connect() as client:
        return next(dict(status) for status in await client.status() if status.get("id") == name)


def _slow_disks(ours: Ours, sync_ms: int) -> None:
    faults = [Fault(kind=FaultKind.SLOW_DISK, milliseconds=sync_ms)] if sync_ms else []
    for node in ours.cluster.nodes.values():
        write_faults(node.directory, faults)


def _note(figures: Figures) -> str:
    return f"{figures.per_second:,.0f} records a second, p50 {figures.percentile_ms(50)} ms"


ROW = Row(
    name="loop-lag",
    title=f"the leader's event loop while a sync takes {_SYNC_MS} ms",
    unit="ms",
    goals=[Goal(subject=_SLOW, at_most=20.0), Goal(subject=_ELECTIONS, at_most=0.0)],
    measure=_measure,
    compares="lateness of a 10 ms timer of the leader, as the leader reports it, with a slow disk and without",
    seconds=8.0,
)
