"""256 callers inside the leader's process: how near do we come to Python without any safety?

The leader is embedded with ``open_node(..., thread=False)``, so its callers share its loop and reach it without a
socket; the two other nodes are processes. In turns with it goes ``benchmarks/ceiling.py``: the same callers, the same
bytes on three disks, an answer after two, and none of what makes it safe.

What to expect. Of the ceiling's 5 us a record nearly all is the caller's task that waits for a future; ours adds what
is once a batch (header, checksums, frames, consensus), some 0.5 us a record, and what is once a record (a size, a place
in the batch, a receipt), some 1 us.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.ceiling import Ceiling
from benchmarks.rows.appends import VALUE
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Turn, take_turns
from viewstamp.bench.cluster import embedded_leader
from viewstamp.bench.load import drive

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
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(embedded_leader(directory / "nodes", {}, thread=False))
        await members.node.create_topic(_TOPIC)
        receipt = await members.node.append(_TOPIC, VALUE)
        ceiling = await stack.enter_async_context(Ceiling.running(directory))

        append = partial(members.node.append, _TOPIC)

        async def ours(seconds: float) -> Turn:
            turn = Turn.of(await drive([append], VALUE, callers=_CALLERS, seconds=seconds))
            members.check_leading()
            return turn

        async def bare(seconds: float) -> Turn:
            return Turn.of(await drive([ceiling.append], VALUE, callers=_CALLERS, seconds=seconds))

        contenders = [
            Contender(name=_OURS, peer=_Embedded(receipt.durability), work=ours),
            Contender(name=_CEILING, peer=ceiling, work=bare),
        ]
        await take_turns(contenders, options, result, "/s")
    return result


ROW = Row(
    name="embedded",
    title=f"{_CALLERS} callers inside the leader's process, 256 B",
    unit="/s",
    goals=[Goal(subject=_OURS, peer=_CEILING, at_least=0.8)],
    measure=_measure,
)
