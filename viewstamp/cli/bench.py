"""``viewstamp bench``: measure, and say under which conditions.

A caller awaits each append before the next. They run in a process of their own, which is this one: the nodes are
other processes. With ``--embedded`` this process is also the leader.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from viewstamp.cli.options import ClusterOption, DirOption, Output, OutputOption, print_json, print_table, say
from viewstamp.cli.target import Target, run_async
from viewstamp.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from viewstamp.cli.local import LocalCluster

__all__ = ["app"]

app = typer.Typer(help="Measure.", no_args_is_help=True)

TOPIC: Final = "bench"
NODES: Final = 3
WARM_UP_SECONDS: Final = 0.5
WAIT_SECONDS: Final = 30.0

Append = Callable[[str, bytes], Awaitable[object]]


@app.callback()
def _group() -> None:
    # With a callback `append` stays a command of its own although it is the only one.
    pass


@app.command()
def append(
    callers: Annotated[int, typer.Option("--callers", metavar="N", min=1, help="Each awaits its append.")] = 64,
    size: Annotated[int, typer.Option("--bytes", metavar="N", min=0, help="Of a record.")] = 256,
    in_flight: Annotated[
        int | None, typer.Option("--in-flight", metavar="N", min=1, help="Appends outstanding, instead of callers.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", min=0.1, help="To measure for.")] = 5.0,
    embedded: Annotated[bool, typer.Option("--embedded", help="Call from inside the leader's process.")] = False,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure appends. Without --dir or --cluster against three nodes of its own, on the current directory's disk.

    A given cluster gets a topic "bench" with the records in it.
    """
    if embedded and (directory is not None or cluster is not None):
        raise ConfigError("--embedded starts a cluster of its own", remedy="leave out --dir and --cluster")
    value = os.urandom((size + 1) // 2).hex().encode()[:size]

    async def measure() -> tuple[_Figures, str]:
        async with _cluster(directory, cluster, embedded=embedded) as (call, filesystem):
            return await _drive(call, value, in_flight or callers, seconds), filesystem

    figures, filesystem = run_async(measure())
    result = {
        "appends_per_second": round(figures.count / figures.seconds, 1),
        "megabytes_per_second": round(figures.count * size / figures.seconds / 1e6, 3),
        "p50_ms": figures.percentile_ms(50),
        "p99_ms": figures.percentile_ms(99),
        "callers": 1 if in_flight else callers,
        "bytes": size,
        "in_flight": in_flight or callers,
        "durability": figures.durability,
        "filesystem": filesystem,
        "embedded": embedded,
    }
    if output is Output.JSON:
        print_json(result)
    else:
        print_table(["", ""], [(name.replace("_", " "), str(shown)) for name, shown in result.items()])
    if filesystem in ("tmpfs", "ramfs"):
        say(f"WARNING: the data was on {filesystem}: MEMORY, NOT A DISK. These are not the figures of a disk.")


@dataclass(frozen=True, slots=True)
class _Figures:
    """What was measured: the milliseconds of each append that began and ended inside the time."""

    latencies: array[float]
    seconds: float
    durability: str

    @property
    def count(self) -> int:
        return len(self.latencies)

    def percentile_ms(self, percent: int) -> float | None:
        if not self.latencies:
            return None
        ordered = sorted(self.latencies)
        return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 3)


async def _drive(call: Append, value: bytes, outstanding: int, seconds: float) -> _Figures:
    """Keep ``outstanding`` appends going for a while; the first moments do not count."""
    first = await call(TOPIC, value)
    latencies = array("d")
    clock = time.perf_counter
    start = clock() + WARM_UP_SECONDS
    end = start + seconds

    async def caller() -> None:
        began = clock()
        while began < end:
            await call(TOPIC, value)
            now = clock()
            if began >= start and now <= end:
                latencies.append((now - began) * 1000)
            began = now

    await asyncio.gather(*(caller() for _ in range(outstanding)))
    return _Figures(latencies, seconds, str(getattr(first, "durability", "unknown")))


@asynccontextmanager
async def _cluster(directory: Path | None, cluster: str | None, *, embedded: bool) -> AsyncIterator[tuple[Append, str]]:
    """Yield what appends, and the file system that it ends on."""
    if directory is not None or cluster is not None:
        async with _client(Target.resolve(directory, cluster)) as call:
            yield call, _filesystem(directory) if directory is not None else "unknown"
        return
    # Beside the current directory's files and not in the system's temporary directory, which may be memory.
    own = tempfile.mkdtemp(prefix="viewstamp-bench-", dir=os.getcwd())
    try:
        async with _own_cluster(own, embedded=embedded) as call:
            yield call, _filesystem(own)
    finally:
        shutil.rmtree(own, ignore_errors=True)


@asynccontextmanager
async def _own_cluster(directory: str, *, embedded: bool) -> AsyncIterator[Append]:
    from viewstamp.cli.local import LocalCluster

    local = LocalCluster.open_or_create(directory, NODES)
    nodes = list(local.nodes.values())
    processes = nodes[1:] if embedded else nodes
    try:
        for node in processes:
            local.spawn(node)
        if embedded:
            async with _embedded_leader(local) as call:
                yield call
        else:
            await local.wait_running(processes, WAIT_SECONDS)
            async with _client(local.target) as call:
                yield call
    finally:
        for node in processes:
            await node.kill()


@asynccontextmanager
async def _embedded_leader(local: LocalCluster) -> AsyncIterator[Append]:
    """Run n1, which campaigns first, in this process and on this loop."""
    from viewstamp.cli.node import logger
    from viewstamp.embed.open_node import open_node

    settings = next(iter(local.nodes.values())).settings
    async with open_node(settings, thread=False, timeout=WAIT_SECONDS, log=logger("error")) as node:
        await node.create_topic(TOPIC)
        if node.node_status["role"] != "leader":
            raise UnavailableError("another node was elected than the one in this process", remedy="run it again")
        yield node.append


@asynccontextmanager
async def _client(target: Target) -> AsyncIterator[Append]:
    async with target.connect() as client:
        await client.create_topic(TOPIC)
        yield client.append


def _filesystem(directory: str | Path) -> str:
    from viewstamp.host.disk import RealDisk

    return RealDisk().filesystem(os.path.abspath(directory))
