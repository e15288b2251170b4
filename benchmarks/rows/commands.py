"""256 callers in a process of their own call a replicated counter, compared with plain appends to NATS.

Expected: a command is an append that the caller also packs, and that every node decodes, checks and applies, with a
result for each. This is some 10 us more in all processes together, which share two cores. ``benchmarks/commands.py``
measures a command without the network between caller and leader.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.actors import Counter
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.rows.appends import append_side, contender, plural
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Turn, alternate, side_of
from viewstamp.bench.load import repeat

__all__ = ["ROW"]

_CALLERS = 256
_COMMANDS = f"{Ours.name}, commands"
_APPENDS = f"{Ours.name}, appends"


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    ours = Ours(settings={"actors.counter": "benchmarks.actors:Counter"})

    async def commands_and_appends(stack: AsyncExitStack) -> list[Contender]:
        return [await _commands(stack, ours), await contender(stack, ours, _CALLERS, name=_APPENDS)]

    sides = [
        side_of(ours, directory, options, result, commands_and_appends),
        append_side(Nats(), directory, options, result, _CALLERS),
    ]
    await alternate(sides, options, result, "/s")
    return result


async def _commands(stack: AsyncExitStack, ours: Ours) -> Contender:
    client = await stack.enter_async_context(ours.cluster.target.connect())
    counter = client.actor("counter", Counter)
    counted = await counter.add(1)
    await repeat([lambda: counter.add(1)], _CALLERS, ours.warm_up_seconds, warm_up=0)

    async def work(seconds: float) -> Turn:
        nonlocal counted
        figures = await repeat([lambda: counter.add(1)], _CALLERS, seconds, servers=ours.cpu_used)
        before, counted = counted, await counter.read()
        assert counted - before >= figures.count, f"{figures.count} were acknowledged, {counted - before} counted"
        return Turn.of(figures)

    return Contender(name=_COMMANDS, peer=ours, work=work, how=plural(1, "session"))


ROW = Row(
    name="commands",
    title="256 callers, replicated commands",
    unit="/s",
    goals=[Goal(subject=_COMMANDS, peer=Nats.name, at_least=2.2)],
    measure=_measure,
    compares="commands of a replicated counter beside appends, 256 callers over one connection; each system alone",
    rounds=5,
)
