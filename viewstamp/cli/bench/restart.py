"""The command ``viewstamp bench restart``: kills all nodes, starts them, and times the next acknowledged write."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewstamp.bench.cluster import TOPIC, WAIT_SECONDS, connected_to, filesystem_of, own_cluster, own_directory
from viewstamp.bench.fill import fill, value_of
from viewstamp.bench.report import print_result
from viewstamp.cli.options import OutputOption, size
from viewstamp.consensus.standing import majority
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_table, say
from viewstamp.terminal.show import Show

if TYPE_CHECKING:
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.local.node import LocalNode

__all__ = ["restart"]


def restart(
    records: Annotated[
        int, typer.Option("--records", metavar="N", min=1, help="Records in the log when the nodes are killed.")
    ] = 1_000_000,
    size: Annotated[
        int, typer.Option("--bytes", metavar="SIZE", parser=size(minimum=0), help="Size of a record.")
    ] = 256,
    times: Annotated[int, typer.Option("--times", metavar="N", min=1, help="Number of restarts.")] = 1,
    output: OutputOption = Output.TABLE,
) -> int:
    """Measure a restart: kill all of three new nodes, start them, and time the first acknowledged write.

    The log is still in the page cache, as after a crash of the processes alone. Exit 1 if an acknowledged record is
    missing at the end.
    """
    from statistics import median

    async def measure() -> tuple[list[_Restart], int, str | None, str]:
        with own_directory() as directory, closing(Show(output)) as show:
            show.phase("starting three nodes")
            async with own_cluster(directory) as cluster:
                async with connected_to(cluster.target, 1) as (client,):
                    appended = await fill(client, records, size, show)
                restarts = []
                for number in range(1, times + 1):
                    show.phase("killing and starting all nodes")
                    restarts.append(await _restart(cluster, value_of(size)))
                    show.note(f"{number} of {times}: {restarts[-1].first_write_seconds} s")
                async with connected_to(cluster.target, 1) as (client,):
                    kept = (await client.describe_topic(TOPIC)).last_position
            return restarts, records + times - kept, appended.durability, filesystem_of(directory)

    restarts, lost, durability, filesystem = run_async(measure())
    seconds = [each.first_write_seconds for each in restarts]
    result: dict[str, Any] = {
        "median_seconds": round(median(seconds), 3),
        "worst_seconds": max(seconds),
        "records": records,
        "bytes": size,
        "lost": lost,
        "durability": durability,
        "filesystem": filesystem,
    }
    rows = [asdict(each) for each in restarts]
    if output is Output.JSON:
        result = {"restarts": rows, **result}
    else:
        print_table([name.replace("_", " ") for name in rows[0]], [list(row.values()) for row in rows])
    print_result(result, output)
    if lost:
        say(f"viewstamp: {lost} acknowledged records are lost")
    return 1 if lost else 0


@dataclass(frozen=True, slots=True)
class _Restart:
    """Seconds from the start of the first process; None = the nodes' logs do not contain the event."""

    process_seconds: float | None
    """Until a majority of the processes had imported all modules and locked their directories."""
    recovered_seconds: float | None
    """Until a majority had read their logs and joined the cluster."""
    elected_seconds: float | None
    """Until a node became the leader."""
    first_write_seconds: float
    """Until a write was acknowledged."""


async def _restart(cluster: LocalCluster, value: bytes) -> _Restart:
    """Kill all nodes, start them, and append a record as soon as possible; return the times."""
    nodes = list(cluster.nodes.values())
    for node in nodes:
        node.send_signal(signal.SIGKILL)
    for node in nodes:
        await node.kill()
    began = time.time()  # Not a monotonic clock, because the events in the nodes' logs have the time of day.
    for node in nodes:
        cluster.spawn(node)
    async with cluster.target.connect() as client:
        await client.append(TOPIC, value, timeout=WAIT_SECONDS)
        wrote = time.time()
    await cluster.wait_running(nodes, WAIT_SECONDS)
    locked = sorted(os.stat(os.path.join(node.directory, "lock")).st_mtime for node in nodes)
    started = sorted(filter(None, (_logged(node, "= node started") for node in nodes)))
    led = sorted(filter(None, (_logged(node, "= state", role="leader") for node in nodes)))
    last = majority(len(nodes)) - 1

    def since(moments: list[float], at: int) -> float | None:
        return round(moments[at] - began, 3) if at < len(moments) else None

    return _Restart(since(locked, last), since(started, last), since(led, 0), round(wrote - began, 3))


def _logged(node: LocalNode, event: str, **fields: str) -> float | None:
    """Return the time of a node's first such event since its last start; None = there is none."""
    for logged in node.events(event):
        if all(logged.get(name) == value for name, value in fields.items()):
            return datetime.fromisoformat(logged["timestamp"]).timestamp()
    return None
