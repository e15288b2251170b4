"""Run by ``make traces``: check that runs of the simulator are behaviours of the specification of the announcement.

If JAR names tla2tools.jar, TLC (with the program that JAVA names) checks each run too, and both have to agree. See
docs/design/0023-traces-against-the-specification.md.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import sys
import time
from pathlib import Path

from tests.mutants.catalogue import CATALOGUE
from tests.traces.runs import SWARMS, Run, record
from tests.traces.tla import Outcome, check_trace, follow_trace, module_of


def main() -> int:
    """Check and print a line for each run.

    Returns 1 if a run is rejected or fails, or if TLC does not agree; with a mutant, if no run is rejected or fails.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.traces", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds of each swarm (default 5)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default 0)")
    parser.add_argument("--steps", type=int, default=400, metavar="N", help="steps of each run (default 400)")
    parser.add_argument("--swarm", choices=SWARMS, help="only this swarm (default all)")
    parser.add_argument("--mutant", metavar="NAME", choices=CATALOGUE, help="with a mistake of tests.mutants")
    parser.add_argument("--module", type=Path, metavar="FILE", help="write the module Recorded of the last run to FILE")
    arguments = parser.parse_args()
    runs = found = disagreements = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for swarm in [arguments.swarm] if arguments.swarm else SWARMS:
            with CATALOGUE[arguments.mutant].plant() if arguments.mutant else contextlib.nullcontext():
                run = record(swarm, seed, steps_max=arguments.steps)
            if arguments.module:
                arguments.module.write_text(module_of(run), encoding="utf-8")
            began = time.monotonic()
            outcome = follow_trace(run)
            verdict = _verdict(run, outcome)
            if jar := os.environ.get("JAR"):
                other = check_trace(run, jar=jar, java=os.environ.get("JAVA", "java"))
                verdict += "; TLC agrees" if other == outcome else f"; TLC DOES NOT AGREE: {_verdict(run, other)}"
                disagreements += other != outcome
            sys.stdout.write(f"{swarm}, seed {seed}: {verdict} ({time.monotonic() - began:.1f} s)\n")
            sys.stdout.flush()
            runs += 1
            found += bool(run.failure) or not outcome.is_accepted
            if found and arguments.mutant:
                break
        if found and arguments.mutant:
            break
    sys.stdout.write(f"{runs} runs, {found} rejected or failed, {disagreements} disagreements with TLC\n")
    return int(disagreements > 0 or bool(found) != bool(arguments.mutant))


def _verdict(run: Run, outcome: Outcome) -> str:
    count = len(run.steps)
    failure = f"; THE RUN FAILED: {run.failure}" if run.failure else ""
    if outcome.is_accepted:
        kinds = collections.Counter(step["kind"] for step in run.steps)
        return f"accepted, {count} steps: {', '.join(f'{kinds[kind]} {kind}' for kind in sorted(kinds))}{failure}"
    step = run.steps[outcome.reached] if outcome.reached < count else {}
    reason = f"{outcome.broken} does not hold" if outcome.broken else f"no step: {step}"
    return f"REJECTED after {outcome.reached} of {count} steps: {reason}{failure}"


if __name__ == "__main__":
    sys.exit(main())
