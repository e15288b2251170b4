"""How many records a second does one client append if messages between the nodes take 1, 10 or 50 ms?

The client keeps 65,536 records of 256 B unanswered, in groups by ``append_many``. Each message of a node to another one
arrives later by the delay, as by ``viewstamp chaos delay``; so a round trip takes twice the delay. The client is near
the nodes. ``0 ms`` is measured in the same turns, over the same code. Each turn starts new servers.

Expected: the delays change the time of an append, and not their rate, because the leader sends the next batches before
the first ones are acknowledged. At 50 ms 300,000 records a second are 30,000 records, or 8 MB, on their way.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.ours import Ours
from benchmarks.rows.appends import VALUE
from benchmarks.rows.pipeline import puts_of
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Side, Turn, alternate, side_of
from viewstamp.bench.load import keep_going
from viewstamp.client.options import ClientOptions
from viewstamp.host.chaos import Fault, FaultKind, write_faults

__all__ = ["ROW"]

_IN_FLIGHT = 65_536
_DELAYS_MS = (0, 1, 10, 50)
_GROUP = 512
_HELD_BYTES = 64 * 1024 * 1024
_SETTLE_SECONDS = 1.0
"""Time for the nodes to read the new delay, and again for the client to fill its window."""


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])

    def side(delay_ms: int) -> Side:
        # Servers of their own for each delay. With one cluster for all, the last delay would write to pages of memory
        # that the kernel has to get first, which costs a record up to 2 us of processor.
        ours = Ours(chaos=True)

        async def contenders(stack: AsyncExitStack) -> list[Contender]:
            return [_contender(ours, delay_ms)]

        return side_of(ours, directory, options, result, contenders)

    await alternate([side(delay_ms) for delay_ms in _DELAYS_MS], options, result, "/s")
    return result


def _contender(ours: Ours, delay_ms: int) -> Contender:
    async def work(seconds: float) -> Turn:
        _delay(ours, delay_ms)
        await asyncio.sleep(_SETTLE_SECONDS)
        async with AsyncExitStack() as stack:
            held = ClientOptions(bytes_in_flight_max=_HELD_BYTES)
            # A new client, because each one times the way to its leader.
            put, each, _ = await puts_of(stack, ours, VALUE, _GROUP * 8, held)
            outstanding = _IN_FLIGHT // each
            await keep_going(put, outstanding, seconds=_SETTLE_SECONDS)
            figures = await keep_going(put, outstanding, seconds=seconds, servers=ours.cpu_used)
        return Turn.of(figures, figures.per_second * each, records=each)

    return Contender(name=_name(delay_ms), peer=ours, work=work, how=f"append_many of {_GROUP}")


def _name(delay_ms: int) -> str:
    return f"{Ours.name}, {delay_ms} ms"


def _delay(ours: Ours, delay_ms: int) -> None:
    nodes = ours.cluster.nodes.values()
    for node in nodes:
        peers = {str(each.id): each.address for each in nodes if each is not node}
        faults = [Fault(kind=FaultKind.DELAY, peers=peers, milliseconds=delay_ms)] if delay_ms else []
        write_faults(node.directory, faults)


ROW = Row(
    name="distance",
    title="pipelined, 65,536 of 256 B in flight, with delays between the nodes",
    unit="/s",
    goals=[Goal(subject=_name(delay_ms), peer=_name(0), at_least=0.8) for delay_ms in _DELAYS_MS[1:]],
    measure=_measure,
    compares="records a second of one client, with each message between nodes delayed by the given time",
)
