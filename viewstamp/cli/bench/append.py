"""The command ``viewstamp bench append``: many callers, each of which awaits each of its appends."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from viewstamp.bench.cluster import TOPIC, connected
from viewstamp.bench.fill import value_of
from viewstamp.bench.load import Figures, drive
from viewstamp.bench.plot import check_plot, draw
from viewstamp.bench.report import latencies, print_result
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, PlotOption, duration, size
from viewstamp.errors import ConfigError
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output

__all__ = ["append"]


def append(
    callers: Annotated[
        int, typer.Option("--callers", metavar="N", min=1, help="Callers; each awaits its append before the next.")
    ] = 64,
    sessions: Annotated[
        int, typer.Option("--sessions", metavar="N", min=1, help="Clients, over which the callers are divided evenly.")
    ] = 1,
    size: Annotated[
        int, typer.Option("--bytes", metavar="SIZE", parser=size(minimum=0), help="Size of a record.")
    ] = 256,
    in_flight: Annotated[
        int | None,
        typer.Option(
            "--in-flight", metavar="N", min=1, help="Outstanding appends of one caller, instead of --callers."
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="TIME", parser=duration(minimum=0.1), help="Length of the measurement."),
    ] = 5.0,
    embedded: Annotated[bool, typer.Option("--embedded", help="Run the callers inside the leader's process.")] = False,
    plot: PlotOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure appends. Without --dir or --cluster it starts three nodes on the current directory's disk.

    In a given cluster it appends to the topic "bench", and the records remain there.
    """
    if embedded and (directory is not None or cluster is not None):
        raise ConfigError("--embedded starts a new cluster", remedy="leave out --dir and --cluster")
    if embedded and sessions > 1:
        raise ConfigError(f"--sessions {sessions}: an embedded node has one session", remedy="leave out --embedded")
    outstanding = in_flight or callers
    if sessions > outstanding:
        raise ConfigError(
            f"--sessions {sessions}: {outstanding} callers are fewer than one for each session",
            remedy="lower --sessions, or raise --callers",
        )
    check_plot(plot)

    async def measure() -> tuple[Figures, str, str]:
        async with connected(directory, cluster, sessions, embedded=embedded) as (clients, filesystem):
            receipt = await clients[0].append(TOPIC, value_of(size))
            appends = [partial(client.append, TOPIC) for client in clients]
            figures = await drive(appends, value_of(size), callers=outstanding, seconds=seconds)
            return figures, filesystem, receipt.durability

    figures, filesystem, durability = run_async(measure())
    draw(plot, f"appends of {size} bytes, {durability}", {f"{outstanding} callers, {sessions} sessions": figures})
    result = {
        "appends_per_second": round(figures.per_second, 1),
        "megabytes_per_second": round(figures.per_second * size / 1e6, 3),
        **latencies(figures),
        "callers": 1 if in_flight else callers,
        "sessions": sessions,
        "bytes": size,
        "in_flight": outstanding,
        "durability": durability,
        "filesystem": filesystem,
        "embedded": embedded,
    }
    print_result(result, output, is_apart=not embedded)
