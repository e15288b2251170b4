"""The command ``viewstamp bench read``: reads of a whole topic in order, and of its last record repeatedly."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewstamp.bench.cluster import TOPIC, connected
from viewstamp.bench.fill import fill
from viewstamp.bench.load import Figures, repeat
from viewstamp.bench.plot import check_plot, draw
from viewstamp.bench.report import latencies, print_result
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, PlotOption, duration, size
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output
from viewstamp.terminal.show import Show

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from viewstamp.client.aio import Client
    from viewstamp.wire.batch import Record

__all__ = ["read"]


def read(
    records: Annotated[
        int, typer.Option("--records", metavar="N", min=1, help="Records to append and to read.")
    ] = 100_000,
    size: Annotated[
        int, typer.Option("--bytes", metavar="SIZE", parser=size(minimum=0), help="Size of a record.")
    ] = 256,
    callers: Annotated[
        int, typer.Option("--callers", metavar="N", min=1, help="Callers; each reads the last record repeatedly.")
    ] = 16,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="TIME", parser=duration(minimum=0.1), help="Length of each of the two measurements."
        ),
    ] = 5.0,
    stale: Annotated[
        bool, typer.Option("--stale", help="Read from any node without a quorum, instead of linearizably.")
    ] = False,
    plot: PlotOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure reading: all records in order by one reader, and the last record by many callers.

    Without --dir or --cluster it starts three nodes on the current directory's disk. In a given cluster it appends the
    records to the topic "bench", and they remain there.
    """
    check_plot(plot)

    async def measure() -> tuple[dict[str, Any], Figures]:
        with closing(Show(output)) as show:
            show.phase("starting")
            async with connected(directory, cluster, 1) as (clients, filesystem):
                appended = await fill(clients[0], records, size, show)
                assert appended.last_position is not None, "there is at least one record"
                reading = _Reading(clients[0], appended.last_position + 1, records, stale=stale)
                show.phase("reading all records")
                scan = await reading.scan(seconds)
                show.phase("reading the last record")
                last = await reading.read_last(callers, seconds)
        result = {
            "scan": scan,
            "last": {"reads_per_second": round(last.per_second, 1), **latencies(last), "callers": callers},
            "records": records,
            "bytes": size,
            "stale": stale,
            "durability": appended.durability,
            "filesystem": filesystem,
        }
        return result, last

    result, last = run_async(measure())
    kind = "stale" if stale else "linearizable"
    draw(plot, f"{kind} reads of the last record, {size} bytes", {f"{callers} callers": last})
    print_result(result, output)


class _Reading:
    """Reads the last ``count`` records before the position ``end``."""

    def __init__(self, client: Client, end: int, count: int, *, stale: bool) -> None:
        self._client = client
        self._end = end
        self._count = count
        self._stale = stale

    async def scan(self, seconds: float) -> dict[str, Any]:
        """Read all records repeatedly for ``seconds``, and at least once; return the figures."""
        count = size = scans = 0
        started, cpu = time.perf_counter(), time.process_time()
        while not scans or time.perf_counter() - started < seconds:
            async for record in await self._records(self._end - self._count):
                count += 1
                size += len(record.value)
            scans += 1
        lasted, cpu = time.perf_counter() - started, time.process_time() - cpu
        return {
            "records_per_second": round(count / lasted, 1),
            "megabytes_per_second": round(size / lasted / 1e6, 3),
            "client_cores": round(cpu / lasted, 2),
            "scans": scans,
            "records": count,
        }

    async def read_last(self, callers: int, seconds: float) -> Figures:
        """Let ``callers`` read the last record repeatedly for ``seconds``; return the figures."""

        async def read_one() -> None:
            async for record in await self._records(self._end - 1):
                assert record.position == self._end - 1, f"asked for {self._end - 1}, got {record.position}"

        return await repeat([read_one], callers, seconds)

    async def _records(self, start: int) -> AsyncIterator[Record]:
        if self._stale:
            return (await self._client.read_stale(TOPIC, start, end=self._end)).value
        return self._client.read(TOPIC, start, end=self._end)
