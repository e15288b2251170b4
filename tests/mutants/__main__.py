"""``make mutants``: plant each known mistake in the simulated cluster, and show the seed that finds it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.mutants import records as records_module
from tests.mutants.hunt import SEEDS_MAX, hunt, run_aimed
from tests.mutants.mutants import MUTANTS
from tests.mutants.records import RECORDS, Record
from tests.mutants.table import DOCUMENT, document, records_source
from viewstamp.sim.run import Verdict


def main() -> int:
    """Hunt; print one row for each mutant. Returns 1 if one survives, or the real code fails on a seed of theirs."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help=f"one of {', '.join(MUTANTS)}; none = all")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="run only the seeds that are on record")
    how.add_argument("--record", action="store_true", help="write what was found to the records and to the docs")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.mutants if name not in MUTANTS]
    if unknown:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    if arguments.record and arguments.mutants:
        parser.error("--record hunts them all")
    chosen = [record for record in RECORDS if not arguments.mutants or record.mutant in arguments.mutants]
    found = [_show(record, is_quick=arguments.quick) for record in chosen]
    complete = [record for record in found if record is not None]
    if arguments.record and len(complete) == len(MUTANTS):
        source = Path(records_module.__file__)
        source.write_text(records_source(source.read_text(encoding="utf-8"), complete), encoding="utf-8")
        DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8"), complete), encoding="utf-8")
    return 0 if len(complete) == len(chosen) else 1


def _show(record: Record, *, is_quick: bool) -> Record | None:
    """Hunt the mutant of ``record`` and print its row; None where it survives or the real code fails as well."""
    name, aim = record.mutant, record.aim
    started = time.monotonic()
    verdict: Verdict | None
    if is_quick:
        verdict = run_aimed(aim, record.seed, mutant=name)
    else:
        verdict = hunt(name, aim, progress=lambda seed: _tell(f"{name}: {aim}, seed {seed}"))
    _tell("")
    seconds = time.monotonic() - started
    if verdict is None or not verdict.invariant:
        tried = f"seed {record.seed}" if is_quick else f"{SEEDS_MAX} seeds"
        sys.stdout.write(f"{name:28} {aim:16} SURVIVES {tried} ({seconds:.1f} s)\n")
        return None
    sys.stdout.write(f"{name:28} {aim:16} seed {verdict.seed:<4} {verdict.invariant} ({seconds:.1f} s)\n")
    sys.stdout.flush()
    for seed in range(verdict.seed if is_quick else 1, verdict.seed + 1):
        _tell(f"{name}: {aim}, seed {seed}, the real code")
        healthy = run_aimed(aim, seed)
        if healthy.invariant:
            _tell("")
            sys.stdout.write(f"{'':28} THE REAL CODE FAILS on seed {seed}: {healthy.invariant}: {healthy.detail}\n")
            return None
    _tell("")
    return Record(name, aim, verdict.seed, verdict.invariant)


def _tell(text: str) -> None:
    """Show the progress, on one line of a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


sys.exit(main())
