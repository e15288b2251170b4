"""All nodes are killed at once and started again: how long until a record is acknowledged, a million on disk?

Records have 256 B. There are a million in viewstamp and in NATS, and 300,000 in etcd, because more would take minutes
to write. viewstamp is also measured with 190,000 batches of one record each, because a node reads the header of each
batch of its log but not each record.

A second row, ``restart-large``, has larger states of viewstamp alone: ten million records of 64 B, 100,000 batches of
one record, and snapshots with a million instances of an actor.

All three servers get SIGKILL and are then started. The client connects to each as soon as it listens, and sends it a
record every 20 ms. The files are still in the page cache, so that the processor is measured and not the disk. The
notes have the processor time of each server until the acknowledgement, because it varies less than the seconds, and
its memory then.

Expected: a Python process with our imports starts in 0.3 to 0.5 s, three at once on two cores in 0.7 s. An election
takes 0.2 s or more. So a second is the floor, and reading the log must fit into a second one: the checksums of 300 MB
at 3 GB/s take a tenth of a second, any work for each record half a second or more. Ten million records take as long as
one million, because a node replays only the log after its newest snapshot. Each instance in a snapshot takes 2 us.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.actors import Counter
from benchmarks.peers.etcd import Etcd
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.rows.appends import VALUE
from benchmarks.rows.memory import megabytes
from benchmarks.rows.pipeline import fill
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Turn, open_sessions, running, take_turns
from viewstamp.bench.load import keep_going

__all__ = ["LARGE", "ROW", "Filled", "batches", "instances", "measure_restarts", "records"]

_IN_FLIGHT = 4096
_SETTLE_SECONDS = 1.0
_SHORT_VALUE = bytes(range(64))
_SESSIONS = 64
_CALLS = 512
_SNAPSHOT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A subject: a peer, and the state that its servers have on disk when they are killed."""

    peer: Peer
    state: str
    """For example "1,000,000 records"."""
    fill: Callable[[], Awaitable[None]]
    name: str


def records(peer: Peer, number: int, value: bytes = VALUE, *, name: str = "") -> Filled:
    """Return a peer with this many records; ``name``: another name than the peer's."""
    state = f"{number:,} records of {len(value)} B"
    return Filled(peer=peer, state=state, fill=partial(fill, peer, value, number, _IN_FLIGHT), name=name or peer.name)


def batches(number: int) -> Filled:
    """Return viewstamp with this many batches of one record."""
    ours, state = Ours(), f"{number:,} batches of a record"
    return Filled(peer=ours, state=state, fill=partial(_fill_singly, ours, number), name=f"{ours.name}, {state}")


def instances(number: int) -> Filled:
    """Return viewstamp with this many instances of an actor, in a snapshot on each node."""
    ours, state = Ours(settings={"actors.counter": "benchmarks.actors:Counter"}), f"{number:,} actor instances"
    return Filled(peer=ours, state=state, fill=partial(_fill_actors, ours, number), name=f"{ours.name}, {state}")


async def _fill_singly(peer: Peer, number: int) -> None:
    """Append each record as a batch of its own, by one unanswered append for each session."""
    async with open_sessions(peer, _SESSIONS) as sessions:
        free = [partial(each.append, VALUE) for each in sessions]

        async def append() -> None:
            session = free.pop()
            await session()
            free.append(session)

        await keep_going(append, _SESSIONS, count=number)


async def _fill_actors(ours: Ours, number: int) -> None:
    keys = count()
    async with ours.cluster.target.connect() as client:

        async def create() -> None:
            await client.actor("counter", Counter, key=f"key-{next(keys)}").add(1)

        await keep_going(create, _CALLS, count=number)
        for node in ours.pids():
            await client.create_snapshot(node, timeout=_SNAPSHOT_SECONDS)


async def measure_restarts(subjects: Sequence[Filled], options: Options, directory: Path) -> RowResult:
    """Start and fill one peer after the other, and restart it in turns. The notes have processor time and memory."""
    result = RowResult(subjects=[])
    for each in subjects:
        async with AsyncExitStack() as stack:
            if await stack.enter_async_context(running(each.peer, directory, options, result, each.name)):
                await take_turns([_restarted(each, options, result)], options, result, "s")
    return result


def _restarted(filled: Filled, options: Options, result: RowResult) -> Contender:
    peer, used = filled.peer, list[tuple[float, float]]()

    async def work(_: float) -> Turn:
        if not used:
            began = time.perf_counter()
            await filled.fill()
            options.say(f"{filled.name}: {filled.state} written in {time.perf_counter() - began:.1f} s")
        await asyncio.sleep(_SETTLE_SECONDS)
        await peer.kill_all()
        began = time.perf_counter()
        await peer.start_again()
        took = await peer.first_acknowledged(VALUE) - began
        used.append((peer.cpu_used() / len(peer.pids()), megabytes(peer) / len(peer.pids())))
        if len(used) == options.rounds:
            result.notes.append(_note(filled, used))
        return Turn(value=took)

    return Contender(name=filled.name, peer=peer, work=work, how=f"{filled.state} on disk")


def _note(filled: Filled, used: Sequence[tuple[float, float]]) -> str:
    cpu, memory = zip(*used, strict=True)
    return (
        f"{filled.name}: each server took {median(cpu):.2f} s of processor time ({min(cpu):.2f} to {max(cpu):.2f})"
        f" and {median(memory):.0f} MB of memory (PSS)"
    )


async def _measure(options: Options, directory: Path) -> RowResult:
    subjects = [records(Ours(), 1_000_000), batches(190_000), records(Nats(), 1_000_000), records(Etcd(), 300_000)]
    return await measure_restarts(subjects, options, directory)


async def _measure_large(options: Options, directory: Path) -> RowResult:
    many = records(Ours(), 10_000_000, _SHORT_VALUE, name=f"{Ours.name}, 10,000,000 records")
    return await measure_restarts([many, batches(100_000), instances(1_000_000)], options, directory)


ROW = Row(
    name="restart",
    title="all killed to the first write, 1 M records on disk",
    unit="s",
    goals=[
        Goal(subject=Ours.name, at_most=2.0),
        Goal(subject=f"{Ours.name}, 190,000 batches of a record", at_most=1.0),
    ],
    measure=_measure,
    compares="time from the start of three killed servers to an acknowledged record, with a log in the page cache",
)
LARGE = Row(
    name="restart-large",
    title="all killed to the first write, 10 M records on disk",
    unit="s",
    goals=[Goal(subject=f"{Ours.name}, 10,000,000 records", at_most=2.0)],
    measure=_measure_large,
    compares="time from the start of three killed servers to an acknowledged record, with all files in the page cache",
)
