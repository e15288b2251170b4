"""Memory of three nodes: idle, with 256 callers, and for each idle connection.

The figure is PSS, the proportional set size. It counts memory that several processes share only once, for example the
code of three processes of the same program. The resident sizes (RSS), which count it three times, are in the notes.
MB are 1,000,000 bytes. Memory is read several times a second, and a turn under load counts with its largest value.

With ``--minutes`` the load lasts for this time, and docs/memory.svg shows the three nodes over time. The topic then
keeps 256 MB, because an unlimited log needs 60 bytes of memory for each 64 KiB, and an unlimited disk.

Expected: an interpreter with asyncio takes 10 MB, our classes and their imports as much again. Under load the core
keeps the newest 16 MiB of its log for followers that are a little behind. A connection is a socket of uvloop, a
protocol and a few small dictionaries: some KiB.
"""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.pysyncobj import PySyncObj
from benchmarks.rows.appends import VALUE
from benchmarks.rows.row import Goal, Options, Row, RowResult, Subject
from benchmarks.rows.turns import open_sessions, running
from viewstamp.bench.load import drive
from viewstamp.bench.plot import check_installed

__all__ = ["ROW", "megabytes"]

_CALLERS = 256
_CONNECTIONS = 500
_KEPT_BYTES = 256_000_000
_SETTLE_SECONDS = 3.0
_LOOK_SECONDS = 0.5
_IDLE, _LOADED = "idle", "256 callers"
_CONNECTION = f"{Ours.name}, idle connection"
_GROWTH = f"{Ours.name}, growth in the second half"


async def _measure(options: Options, directory: Path) -> RowResult:
    if options.minutes:
        check_installed("--minutes")
    result = RowResult(subjects=[])
    ours = Ours()
    async with AsyncExitStack() as stack:
        if await stack.enter_async_context(running(ours, directory, options, result)):
            await _idle(ours, options, result)
            await _connections(ours, options, result)
            await _loaded(ours, options, result)
            if options.minutes:
                await _over_time(ours, options, options.minutes * 60, result)
    for peer in (PySyncObj(), Etcd()):
        async with AsyncExitStack() as stack:
            if await stack.enter_async_context(running(peer, directory, options, result)):
                await _idle(peer, options, result)
                await _loaded(peer, options, result)
    return result


async def _idle(peer: Peer, options: Options, result: RowResult) -> None:
    await asyncio.sleep(_SETTLE_SECONDS)
    turns = []
    for _ in range(options.rounds):
        turns.append(megabytes(peer))
        await asyncio.sleep(_LOOK_SECONDS)
    _add(result, options, peer, _IDLE, turns)


async def _loaded(peer: Peer, options: Options, result: RowResult) -> None:
    turns = []
    async with open_sessions(peer, peer.sessions(_CALLERS)) as sessions:
        for _ in range(options.rounds):
            async with _watched(peer) as looks:
                figures = await drive(
                    [each.append for each in sessions], VALUE, callers=_CALLERS, seconds=options.seconds
                )
            turns.append(max(sum(look.megabytes) for look in looks))
    _add(result, options, peer, _LOADED, turns, note=f"{figures.per_second:,.0f} records a second")


async def _connections(ours: Ours, options: Options, result: RowResult) -> None:
    before, sockets = megabytes(ours), _descriptors(ours)
    async with AsyncExitStack() as stack:
        for number in range(_CONNECTIONS):
            session = await ours.connect_apart(number)
            stack.push_async_callback(session.close)
            await session.append(VALUE)  # Because an unused connection might take less memory.
        await asyncio.sleep(_SETTLE_SECONDS)
        opened = _descriptors(ours) - sockets
        assert opened >= _CONNECTIONS, f"{opened} connections are open, not {_CONNECTIONS}"
        each_kib = (megabytes(ours) - before) * 1e6 / 1024 / opened
    options.say(f"{_CONNECTION}: {each_kib:.1f} KiB")
    result.subjects.append(
        Subject(name=_CONNECTION, turns=[each_kib], unit="KiB", note=f"{_CONNECTIONS} clients, one append each")
    )


async def _over_time(ours: Ours, options: Options, seconds: float, result: RowResult) -> None:
    async with ours.cluster.target.connect() as client:
        await client.configure_topic("bench", retain_bytes=_KEPT_BYTES)
    async with open_sessions(ours, 1) as sessions, _watched(ours) as looks:
        figures = await drive([sessions[0].append], VALUE, callers=_CALLERS, seconds=seconds)
    draw(looks, figures.per_second, _CALLERS, CHART)
    totals = [sum(look.megabytes) for look in looks]
    half = len(totals) // 2
    growth = max(totals[half:]) - max(totals[:half])
    options.say(f"{_GROWTH}: {growth:+.1f} MB, {figures.per_second:,.0f} records a second; drawn in {CHART}")
    note = f"{seconds / 60:g} minutes, {figures.count:,} records, at most {max(totals):.1f} MB"
    result.subjects.append(Subject(name=_GROWTH, turns=[growth], note=note))


@asynccontextmanager
async def _watched(peer: Peer) -> AsyncIterator[list[Look]]:
    """Yield a list of a peer's memory readings. It grows until the context ends, and then has at least one."""
    started = time.monotonic()
    looks: list[Look] = []

    def look() -> None:
        megabytes = [_proportional(pid) for pid in peer.pids().values()]
        looks.append(Look(seconds=time.monotonic() - started, megabytes=megabytes))

    async def watch() -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            look()

    watching = asyncio.ensure_future(watch())
    try:
        yield looks
        look()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _add(
    result: RowResult, options: Options, peer: Peer, state: str, turns: Sequence[float], *, note: str = ""
) -> None:
    subject = Subject(name=f"{peer.name}, {state}", turns=list(turns), durability=peer.durability, note=note)
    resident = sum(_field(pid, "Rss") for pid in peer.pids().values()) / 1e6
    options.say(f"{subject.name}: {subject.value:.1f} MB (RSS {resident:.1f} MB) {note}")
    result.subjects.append(subject)
    result.notes.append(f"{subject.name}: {resident:.1f} MB resident (RSS), in the end")


def megabytes(peer: Peer) -> float:
    """Return the proportional memory (PSS) of all servers."""
    return sum(map(_proportional, peer.pids().values()))


def _proportional(pid: int) -> float:
    return _field(pid, "Pss") / 1e6


def _field(pid: int, name: str) -> int:
    """Return a field of ``smaps_rollup`` of a process, in bytes."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith(f"{name}:"))


def _descriptors(peer: Peer) -> int:
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in peer.pids().values())


ROW = Row(
    name="memory",
    title="memory of three nodes (PSS)",
    unit="MB",
    goals=[
        Goal(subject=f"{Ours.name}, {_IDLE}", at_most=90.0),
        Goal(subject=f"{Ours.name}, {_LOADED}", at_most=180.0),
        Goal(subject=_CONNECTION, at_most=64.0),
        Goal(subject=_GROWTH, at_most=5.0),
    ],
    measure=_measure,
    compares="proportional memory (PSS) of the three servers, idle and under the load of 256 callers",
    seconds=10.0,
)


CHART = Path(__file__).parents[2] / "docs" / "memory.svg"
_POINTS_MAX = 200
"""Points that are drawn at most, because the picture must stay small after a long measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The memory of the nodes at one time."""

    seconds: float
    """Seconds since the beginning."""
    megabytes: Sequence[float]
    """PSS of each node, in MB of 1,000,000 bytes."""


def draw(looks: Sequence[Look], per_second: float, callers: int, path: Path) -> None:
    """Write the picture, an SVG of some ten kilobytes.

    Raises:
      OSError: the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure  # Not pyplot, because it needs a screen and keeps all figures.

    shown = looks[:: -(-len(looks) // _POINTS_MAX)]
    minutes = [look.seconds / 60 for look in shown]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "viewstamp", "font.family": "sans-serif"}):
        figure = Figure(figsize=(8, 3), layout="constrained")
        axes = figure.add_subplot()
        nodes = list(zip(*(look.megabytes for look in shown), strict=True))
        axes.stackplot(minutes, *nodes, labels=[f"node {number}" for number in range(1, len(nodes) + 1)], alpha=0.6)
        axes.axhline(180, color="black", linewidth=0.8, linestyle="--", label="goal")
        axes.set_xlim(minutes[0], minutes[-1])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("minutes")
        axes.set_ylabel("MB (PSS)")
        axes.set_title(f"{callers} callers, {per_second:,.0f} records a second", loc="left", fontsize=9)
        axes.legend(fontsize=7, frameon=False, loc="lower left", ncols=4)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    path.write_text(picture.getvalue(), encoding="utf-8")
