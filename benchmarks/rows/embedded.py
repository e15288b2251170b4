"""256 callers inside the leader's process: how fast are appends, compared with an asyncio program without any safety?

The leader is embedded with ``open_node(..., thread=False)``, so its callers share its loop and reach it without a
socket; the two other nodes are processes. The bare program is ``benchmarks/ceiling.py``: the same callers, the same
bytes on three disks, a response after two syncs.

Expected: nearly all of the ceiling's 5 us a record is the caller's task, which waits for a future. viewstamp adds work
for each batch (header, checksums, frames, consensus), some 0.5 us a record, and work for each record (a size, a place
in the batch, a receipt), some 1 us.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.ceiling import Ceiling
from benchmarks.rows.appends import VALUE
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Side, Turn, alternate
from viewstamp.bench.cluster import embedded_leader, own_directory
from viewstamp.bench.load import drive
from viewstamp.local.process import cpu_seconds

__all__ = ["ROW"]

_CALLERS = 256
_TOPIC = "bench"
_OURS = "viewstamp, embedded"
_CEILING = "Python ceiling"


@dataclass(slots=True)
class _Embedded:
    durability: str
    client: str = "256 tasks on the leader's loop"


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])

    @asynccontextmanager
    async def ours() -> AsyncIterator[list[Contender]]:
        with own_directory(directory) as nodes:
            async with embedded_leader(nodes, {}, thread=False) as members:
                await members.node.create_topic(_TOPIC)
                receipt = await members.node.append(_TOPIC, VALUE)
                others = partial(_cpu_seconds, members.others)

                async def work(seconds: float) -> Turn:
                    append = partial(members.node.append, _TOPIC)
                    turn = Turn.of(await drive([append], VALUE, callers=_CALLERS, seconds=seconds, servers=others))
                    members.check_leading()
                    return turn

                yield [Contender(name=_OURS, peer=_Embedded(receipt.durability), work=work)]

    @asynccontextmanager
    async def bare() -> AsyncIterator[list[Contender]]:
        with own_directory(directory) as files:
            async with Ceiling.running(files) as ceiling:
                followers = partial(_cpu_seconds, ceiling.pids)

                async def work(seconds: float) -> Turn:
                    return Turn.of(
                        await drive([ceiling.append], VALUE, callers=_CALLERS, seconds=seconds, servers=followers)
                    )

                yield [Contender(name=_CEILING, peer=ceiling, work=work)]

    await alternate([Side(start=ours), Side(start=bare)], options, result, "/s")
    return result


def _cpu_seconds(pids: Sequence[int]) -> float:
    return sum(sum(cpu_seconds(pid)) for pid in pids)


ROW = Row(
    name="embedded",
    title=f"{_CALLERS} callers inside the leader's process, 256 B",
    unit="/s",
    goals=[Goal(subject=_OURS, peer=_CEILING, at_least=0.8)],
    measure=_measure,
    compares="callers in the leader's process beside a bare asyncio program without elections or checksums",
)
