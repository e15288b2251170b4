"""256 callers in a process of their own call a replicated counter, beside NATS taking plain appends.

What to expect. A command is an append that is also packed by its caller, decoded, checked and applied by every node,
with a result for each: some 10 us more in all processes together, on two cores that they share. See
``benchmarks/commands.py`` for what it costs without the network between caller and leader.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.actors import Counter
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.rows.appends import contender, plural
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Turn, running, slug, take_turns
from viewstamp.bench.load import repeat
from viewstamp.local.cluster import LocalCluster

__all__ = ["ROW"]

_CALLERS = 256
_COMMANDS = f"{Ours.name}, commands"
_APPENDS = f"{Ours.name}, appends"


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    ours, nats = Ours(), Nats()
    # The files of the cluster, made before it starts: it takes the settings that it finds.
    LocalCluster.open_or_create(directory / slug(ours.name), 3, {"actors.counter": "benchmarks.actors:Counter"})
    async with AsyncExitStack() as stack:
        contenders = []
        if await stack.enter_async_context(running(ours, directory, options, result)):
            contenders.append(await _commands(stack, ours))
            contenders.append(await contender(stack, ours, _CALLERS, name=_APPENDS))
        if await stack.enter_async_context(running(nats, directory, options, result)):
            contenders.append(await contender(stack, nats, _CALLERS))
        await take_turns(contenders, options, result, "/s")
    return result


async def _commands(stack: AsyncExitStack, ours: Ours) -> Contender:
    client = await stack.enter_async_context(ours.cluster.target.connect())
    counter = client.actor("counter", Counter)
    counted = await counter.add(1)

    async def work(seconds: float) -> Turn:
        nonlocal counted
        figures = await repeat([lambda: counter.add(1)], _CALLERS, seconds)
        before, counted = counted, await counter.read()
        assert counted - before >= figures.count, f"{figures.count} were acknowledged, {counted - before} counted"
        return Turn.of(figures)

    return Contender(name=_COMMANDS, peer=ours, work=work, how=plural(1, "connection"))


ROW = Row(
    name="commands",
    title="256 callers, replicated commands",
    unit="/s",
    goals=[Goal(subject=_COMMANDS, peer=Nats.name, at_least=3.5)],
    measure=_measure,
    rounds=5,
)
