"""``viewstamp bench restart``: all nodes are killed at once, with a long log; how long until the next write?"""

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
from viewstamp.cli.options import OutputOption
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
        int, typer.Option("--records", metavar="N", min=1, help="In the log when the nodes are killed.")
    ] = 1_000_000,
    size: Annotated[int, typer.Option("--bytes", metavar="N", min=0, help="Of a record.")] = 256,
    times: Annotated[int, typer.Option("--times", metavar="N", min=1, help="To kill and start all nodes.")] = 1,
    output: OutputOption = Output.TABLE,
) -> int:
    """Measure a restart: all of three nodes of its own are killed, then started; time to the first acknowledged write.

    What the nodes had written is still in the system's memory, as it is after a crash of the processes alone. Exit 1
    where an acknowledged record is missing in the end.
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
    """Seconds since the first process was started; None = a node's log does not tell."""

    process_seconds: float | None
    """A majority of the processes has imported everything, and locked its directory."""
    recovered_seconds: float | None
    """A majority has read its log, and takes part."""
    elected_seconds: float | None
    """One of them leads."""
    first_write_seconds: float
    """A write was acknowledged."""


async def _restart(cluster: LocalCluster, value: bytes) -> _Restart:
    """Kill all nodes, start them, and write as soon as it is possible."""
    nodes = list(cluster.nodes.values())
    for node in nodes:
        node.send_signal(signal.SIGKILL)
    for node in nodes:
        await node.kill()
    began = time.time()  # What the nodes log has the time of day, too.
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
    """Return when a node has logged this for the first time since it was started; None = it has not."""
    for told in node.events(event):
        if all(told.get(name) == value for name, value in fields.items()):
            return datetime.fromisoformat(told["timestamp"]).timestamp()
    return None
