"""The command ``viewstamp bench failover``: kills the leader repeatedly and times the next acknowledged write."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from viewstamp.bench.cluster import TOPIC, WAIT_SECONDS, connected_to, filesystem_of, own_cluster, own_directory
from viewstamp.bench.fill import value_of
from viewstamp.bench.report import print_result
from viewstamp.cli.options import OutputOption, duration, size
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_table, say
from viewstamp.terminal.show import Show

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.local.node import LocalNode

__all__ = ["failover", "lost_and_duplicated"]

LOAD_TOPIC: Final = "bench-load"


def failover(
    times: Annotated[int, typer.Option("--times", metavar="N", min=1, help="Number of leaders to kill.")] = 5,
    load: Annotated[int, typer.Option("--load", metavar="N", min=0, help="Callers that append meanwhile.")] = 0,
    size: Annotated[
        int, typer.Option("--bytes", metavar="SIZE", parser=size(minimum=16), help="Size of a record.")
    ] = 256,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="TIME",
            parser=duration(minimum=0.0),
            help="Time to continue writing after each node is back.",
        ),
    ] = 1.0,
    output: OutputOption = Output.TABLE,
) -> int:
    """Measure failover: the time from SIGKILL of the leader to the next acknowledged write. Starts three nodes.

    Exit 1 if an acknowledged write is missing at the end, or is there twice.
    """
    from statistics import median

    async def measure() -> tuple[_Run, str]:
        with own_directory() as directory, closing(Show(output)) as show:
            show.phase("starting three nodes")
            async with own_cluster(directory) as cluster, connected_to(cluster.target, 2) as (client, beside):
                run = _Run(cluster, client, beside, show, value_of(size))
                await run.work(times, load, seconds)
            return run, filesystem_of(directory)

    run, filesystem = run_async(measure())
    milliseconds = [each.milliseconds for each in run.failovers]
    result: dict[str, Any] = {
        "median_ms": round(median(milliseconds), 1),
        "worst_ms": max(milliseconds),
        "needless_elections": run.needless_elections,
        "acknowledged": run.acknowledged,
        "lost": run.lost,
        "duplicated": run.duplicated,
        "load": load,
        "load_appends": run.load_appends,
        "client_cores": round(run.client_cores, 2),
        "bytes": size,
        "durability": run.durability,
        "filesystem": filesystem,
    }
    rows = [asdict(each) for each in run.failovers]
    if output is Output.JSON:
        result = {"failovers": rows, **result}
    else:
        print_table([name.replace("_", " ") for name in rows[0]], [list(row.values()) for row in rows])
    print_result(result, output)
    if run.lost or run.duplicated:
        say(f"viewstamp: {run.lost} acknowledged records are lost, {run.duplicated} are there twice")
        return 1
    return 0


def lost_and_duplicated(acknowledged: int, found: Sequence[int]) -> tuple[int, int]:
    """Count the numbers below ``acknowledged`` that were not found, and the numbers that were found again."""
    there = set(found)
    return len(set(range(acknowledged)) - there), len(found) - len(there)


@dataclass(frozen=True, slots=True)
class _Failover:
    """One kill of a leader, and the recovery of the cluster."""

    killed: str
    leader: str
    """The leader at the time when the killed node was back."""
    milliseconds: float
    """From the signal to the first write that was acknowledged in a later term."""
    terms: int
    """Terms until a leader was elected; more than 1 if the first election had no winner."""
    back_seconds: float
    """From the start of the killed node's next process until it had applied all records acknowledged by then."""


@dataclass(slots=True)
class _Run:
    """One run: a writer of numbered records, the kills, and the check of the records at the end."""

    cluster: LocalCluster
    client: Client
    beside: Client
    """The client of the load. It differs from ``client`` so that they do not share batches."""
    show: Show
    value: bytes
    failovers: list[_Failover] = field(default_factory=list)
    needless_elections: int = 0
    """Terms that began without a kill before them."""
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    load_appends: int = 0
    client_cores: float = 0.0
    durability: str = ""
    _term: int = 0
    """The term of the last acknowledged write; ``_index`` is its index."""
    _index: int = 0
    _written: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each acknowledged write."""
    _is_over: bool = False

    async def work(self, times: int, load: int, seconds: float) -> None:
        for topic in (TOPIC, LOAD_TOPIC):
            await self.client.create_topic(topic)
        started, cpu = time.perf_counter(), time.process_time()
        writer = asyncio.create_task(self._write())
        tasks = [writer, *(asyncio.create_task(self._append_beside()) for _ in range(load))]
        kills = asyncio.create_task(self._kill_leaders(times, seconds))
        try:
            await asyncio.wait([kills, *tasks], return_when=asyncio.FIRST_COMPLETED)
            self._is_over = kills.done()
            lasted, cpu = time.perf_counter() - started, time.process_time() - cpu
            await asyncio.gather(*tasks)
            await kills
        finally:
            for task in [kills, *tasks]:
                task.cancel()
            await asyncio.gather(kills, *tasks, return_exceptions=True)
        self.client_cores = cpu / lasted
        self.show.phase("reading all records back")
        await self._prove()

    async def _write(self) -> None:
        """Append numbered records, one after the other, and record the receipt of each."""
        while not self._is_over:
            receipt = await self.client.append(TOPIC, b"%015d " % self.acknowledged + self.value[16:])
            self.acknowledged += 1
            self._term, self._index, self.durability = receipt.term, receipt.index, receipt.durability
            self._written.set()

    async def _append_beside(self) -> None:
        while not self._is_over:
            await self.beside.append(LOAD_TOPIC, self.value)
            self.load_appends += 1

    async def _kill_leaders(self, times: int, seconds: float) -> None:
        await self._written.wait()
        term = self._term
        await asyncio.sleep(seconds)
        for number in range(1, times + 1):
            leader, now = await self.cluster.leader(WAIT_SECONDS)
            self.needless_elections += now - term
            killed = await self._kill(leader, now)
            self.failovers.append(killed)
            self.show.note(f"{number} of {times}: {killed.killed} killed, {killed.milliseconds:,.1f} ms")
            term = now + killed.terms
            await asyncio.sleep(seconds)
        _, now = await self.cluster.leader(WAIT_SECONDS)
        self.needless_elections += now - term

    async def _kill(self, leader: LocalNode, term: int) -> _Failover:
        killed_at = time.perf_counter()
        leader.send_signal(signal.SIGKILL)
        # Only an acknowledgement of a later term ends the failover, because earlier ones may still be in transit.
        while self._term <= term:
            self._written.clear()
            await self._written.wait()
        milliseconds = round((time.perf_counter() - killed_at) * 1000, 1)
        terms = self._term - term
        await leader.wait_gone(WAIT_SECONDS)
        started = time.perf_counter()
        self.cluster.spawn(leader)
        await self._wait_back(leader, self._index)
        back = round(time.perf_counter() - started, 3)
        return _Failover(
            str(leader.id), str((await self.cluster.leader(WAIT_SECONDS))[0].id), milliseconds, terms, back
        )

    async def _wait_back(self, node: LocalNode, index: int) -> None:
        await self.cluster.wait_running([node], WAIT_SECONDS)

        def has_it(summary: Mapping[str, Any]) -> bool:
            return any(one["id"] == node.id and (one["applied_index"] or 0) >= index for one in summary["nodes"])

        await self.cluster.wait_until(has_it, WAIT_SECONDS, f"{node.id} lacks acknowledged records")

    async def _prove(self) -> None:
        """Read all records back and count the acknowledged ones that are missing or there twice."""
        found = [int(record.value[:15]) async for record in self.client.read(TOPIC)]
        self.lost, self.duplicated = lost_and_duplicated(self.acknowledged, found)
