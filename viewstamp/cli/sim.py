"""``viewstamp sim``: runs the real core, WAL and node in a simulated world. One seed repeats a run exactly."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import OutputOption, duration
from viewstamp.errors import ViewstampError
from viewstamp.terminal.output import Output, print_json, say

if TYPE_CHECKING:
    from viewstamp.sim.run import SeedVerdict

__all__ = ["app"]

FAILED = 1
_BAR_WIDTH = 16

app = typer.Typer(cls=CommandGroup, help="Run the simulator.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    # Without a callback, the parser would make the only command of a group the group itself.
    pass


@app.command()
def run(
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Run this seed only.")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", metavar="N", min=1, help="Run seeds 1 to N.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin at a random seed, and print it.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", metavar="TIME", parser=duration(minimum=0.1), help="Begin no seed after this time, e.g. 60s."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Number of processes. [default: one per core]")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", min=1, help="End faults and work after N events.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print every event to stderr.")] = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Run seeds, and check every invariant after every event. Exits with 1 if one was violated."""
    if seed is not None and (seeds is not None or seconds is not None or fresh):
        raise typer.BadParameter("--seed runs one seed; it cannot be combined with --seeds, --seconds or --fresh")
    if seeds is not None and seconds is not None:
        raise typer.BadParameter("--seeds and --seconds are both given; name one")
    first = seed if seed is not None else int.from_bytes(os.urandom(4)) if fresh else 1
    count = None if seconds is not None else seeds if seeds is not None else 1
    if fresh and output is Output.TABLE:
        print(f"seeds from {first} on", flush=True)
    chosen: Iterable[int] = itertools.count(first) if count is None else range(first, first + count)
    verdicts = _verdicts(chosen, count, jobs or os.cpu_count() or 1, steps, seconds, is_traced=trace)
    bar = _Bar(count, seconds) if output is Output.TABLE and sys.stderr.isatty() and not trace else None
    events = ran = 0
    failures: list[dict[str, object]] = []
    is_interrupted = False
    death: ViewstampError | None = None
    try:
        for verdict in verdicts:
            ran += 1
            events += verdict.events
            if bar is not None:
                bar.show(ran, events, len(failures))
            if verdict.invariant:
                failures.append({"seed": verdict.seed, "invariant": verdict.invariant, "command": verdict.command})
                if output is Output.TABLE:
                    if bar is not None:
                        bar.clear()
                    print(f"seed {verdict.seed}: {verdict.invariant}: {verdict.detail}")
                    print(f"  to repeat it: {verdict.command}", flush=True)
    except KeyboardInterrupt:
        is_interrupted = True
    except ViewstampError as error:
        death = error
    if bar is not None:
        bar.clear()
    if output is Output.JSON:
        print_json({"seeds": ran, "events": events, "failures": failures, "interrupted": is_interrupted})
    else:
        note = " before the interruption" if is_interrupted else ""
        print(f"{ran:,} seeds, {events:,} events, {len(failures):,} failures{note}", flush=True)
    if is_interrupted:
        raise KeyboardInterrupt
    if death is not None:
        raise death
    return FAILED if failures else 0


def _verdicts(
    seeds: Iterable[int], count: int | None, jobs: int, steps: int | None, seconds: float | None, *, is_traced: bool
) -> Iterator[SeedVerdict]:
    """Run seeds: one seed, or traced seeds, in this process; else in several processes."""
    from viewstamp.sim.many import run_many
    from viewstamp.sim.run import run_seed

    if count == 1 or is_traced:
        return (run_seed(seed, steps=steps, sink=say if is_traced else None) for seed in seeds)
    return run_many(seeds, jobs=jobs if count is None else min(jobs, count), steps=steps, seconds=seconds)


class _Bar:
    """The progress on one line of the terminal."""

    def __init__(self, count: int | None, seconds: float | None) -> None:
        self._count = count
        self._seconds = seconds
        self._started = time.monotonic()

    def show(self, ran: int, events: int, failures: int) -> None:
        gone = max(time.monotonic() - self._started, 1e-9)
        share = ran / self._count if self._count is not None else gone / (self._seconds or gone)
        bar = "#" * int(min(share, 1.0) * _BAR_WIDTH)
        total = f"/{self._count:,}" if self._count is not None else ""
        left = f", {gone / share - gone:.0f} s left" if 0 < share < 1 else ""
        text = f"[{bar:{_BAR_WIDTH}}] {ran:,}{total} seeds, {events / gone:,.0f} events/s, {failures} failures{left}"
        # A line that wraps could not be overwritten by the next.
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\033[K{text[:width]}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
