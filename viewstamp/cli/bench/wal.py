"""The command ``viewstamp bench wal``: commits to the log of one node, in this process and without a cluster."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from viewstamp.bench.cluster import filesystem_of, own_directory
from viewstamp.bench.fill import value_of
from viewstamp.bench.load import WARM_UP_SECONDS, Figures, repeat
from viewstamp.bench.plot import check_plot, draw
from viewstamp.bench.report import latencies, print_result
from viewstamp.cli.options import OutputOption, PlotOption, duration, size
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output
from viewstamp.terminal.show import Show

__all__ = ["wal"]


def wal(
    records: Annotated[
        int, typer.Option("--records", metavar="N", min=1, help="Records in each commit of the one caller.")
    ] = 100,
    callers: Annotated[
        int, typer.Option("--callers", metavar="N", min=1, help="Callers that each commit one record at a time.")
    ] = 256,
    size: Annotated[
        int, typer.Option("--bytes", metavar="SIZE", parser=size(minimum=0), help="Size of a record.")
    ] = 256,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="TIME", parser=duration(minimum=0.1), help="Length of each of the two measurements."
        ),
    ] = 5.0,
    plot: PlotOption = None,
    parent: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Directory on the disk to measure. [default: current]")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure the log alone: one caller that commits many records at once, and many callers with one record each."""
    check_plot(plot)

    async def measure() -> tuple[dict[str, Any], dict[str, Figures]]:
        result: dict[str, Any] = {}
        measured = {}
        with own_directory(parent) as directory, closing(Show(output)) as show:
            for key, name, count, commits in (
                ("commits", f"{records} records a commit", 1, records),
                ("callers", f"{callers} callers", callers, 1),
            ):
                show.phase(name)
                figures, syncs = await _measure(f"{directory}/{key}", value_of(size), commits, count, seconds)
                measured[name] = figures
                result[key] = {
                    "records_per_second": round(figures.per_second * commits, 1),
                    "megabytes_per_second": round(figures.per_second * commits * size / 1e6, 3),
                    **latencies(figures),
                    "syncs_per_second": round(syncs / figures.seconds, 1),
                    "callers": count,
                    "records_per_commit": commits,
                }
            result |= {"bytes": size, "durability": "this disk, synced", "filesystem": filesystem_of(directory)}
        return result, measured

    result, measured = run_async(measure())
    draw(plot, f"commits to the log alone, records of {size} bytes", measured)
    print_result(result, output, is_apart=False)


async def _measure(directory: str, value: bytes, records: int, callers: int, seconds: float) -> tuple[Figures, int]:
    """Let ``callers`` commit ``records`` at a time; return the figures, and the number of syncs."""
    from viewstamp.host.disk import RealDisk
    from viewstamp.ids import Position, Term
    from viewstamp.wal.budget import WalOptions
    from viewstamp.wal.log import Wal
    from viewstamp.wire.batch import build_batch

    log = Wal.open(RealDisk(), directory, WalOptions(), on_batch=lambda *_: None)
    log.start(lambda _: None)  # ``append`` raises a write error to its caller.
    values = [value] * records

    async def commit() -> None:
        batch = build_batch(values)
        end = log.end
        batch.stamp(
            term=Term(1), first_index=end, previous_term=Term(end > 1), log_time=end, first_position=Position(end)
        )
        await log.append([batch])

    try:
        await repeat([commit], callers, min(WARM_UP_SECONDS, seconds), warm_up=0)
        groups = log.groups
        figures = await repeat([commit], callers, seconds, warm_up=0)
        return figures, log.groups - groups
    finally:
        await log.close()
