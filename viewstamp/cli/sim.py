"""``viewstamp sim``: run the real core, WAL and node on a simulated world; one seed is the whole reproduction."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from viewstamp.cli.options import Output, OutputOption, print_json, say

__all__ = ["app"]

FAILED = 1

app = typer.Typer(help="Run the simulator.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    # With a callback `run` stays a command of its own although it is the only one.
    pass


@app.command()
def run(
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="One seed.")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", metavar="N", min=1, help="Seeds 1 to N.")] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", min=1, help="End the faults after so many.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print every event to stderr.")] = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Run seeds and check every invariant after every event. Exit 1 where one was violated."""
    from viewstamp.sim.run import run_seed

    if seed is not None and seeds is not None:
        raise typer.BadParameter("--seed and --seeds are both given; name one")
    chosen = [seed] if seed is not None else range(1, (seeds or 1) + 1)
    events = 0
    failures = []
    for number in chosen:
        verdict = run_seed(number, steps=steps, sink=say if trace else None)
        events += verdict.events
        if verdict.invariant:
            command = verdict.command + (f" --steps {steps}" if steps else "")
            failures.append({"seed": number, "invariant": verdict.invariant, "command": command})
            if output is Output.TABLE:
                print(f"seed {number}: {verdict.invariant}: {verdict.detail}\n  repeat it: {command}", flush=True)
        elif output is Output.TABLE and sys.stderr.isatty():
            print(f"\rseed {number}: {verdict.events:,} events ", end="", file=sys.stderr, flush=True)
    if output is Output.JSON:
        print_json({"seeds": len(chosen), "events": events, "failures": failures})
    else:
        print(f"{len(chosen):,} seeds, {events:,} events, {len(failures):,} failures")
    return FAILED if failures else 0
