"""Run by ``make mutants``: plants each known mistake and shows the check that finds it."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.mutants import records as records_module
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.killers import Case, Killer, Schedule, Seed, find, hunt
from tests.mutants.records import RECORDS, Record
from tests.mutants.table import AIMS_DOCUMENT, DOCUMENT, aims_document, document, records_source


def main() -> int:
    """Hunt, and print one row for each mutant. Returns 1 if one survives, or if the real code fails the same check."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help=f"one of {', '.join(CATALOGUE)}; none = all")
    parser.add_argument("--quick", action="store_true", help="run the recorded killers only, hunt nothing")
    parser.add_argument("--no-simulator", action="store_true", help="leave the simulator's seeds as they are")
    parser.add_argument("--record", action="store_true", help="write the findings to the records and to the docs")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.mutants if name not in CATALOGUE]
    if unknown:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    survivors = 0
    records = []
    for record in RECORDS:
        if arguments.mutants and record.mutant not in arguments.mutants:
            records.append(record)
            continue
        found = _show(record, is_quick=arguments.quick, with_simulator=not arguments.no_simulator)
        survivors += found is None
        records.append(found or record)
    if arguments.record and not survivors:
        _write(records)
    return 1 if survivors else 0


def _show(record: Record, *, is_quick: bool, with_simulator: bool) -> Record | None:
    """Hunt a mutant and print its rows; return None if it survives or the real code fails as well."""
    found = _hunt(record.mutant, record.killer, is_quick=is_quick)
    if found is None or isinstance(found[0], Seed):
        return None
    record = record._replace(killer=found[0], found="" if isinstance(found[0], Case) else found[1])
    if record.seed is None or not with_simulator:
        return record
    violated = _hunt(record.mutant, record.seed, is_quick=is_quick)
    if violated is None or not isinstance(violated[0], Seed):
        return None
    return record._replace(seed=violated[0], violated=violated[1])


def _hunt(mutant: str, killer: Killer, *, is_quick: bool) -> tuple[Killer, str] | None:
    started = time.monotonic()
    found: tuple[Killer, str] | None
    if is_quick:
        found = killer, find(mutant, killer)
    else:
        found = hunt(mutant, killer, progress=lambda at: _tell(f"{mutant}: {at}"))
    _tell("")
    seconds = time.monotonic() - started
    if found is None or not found[1]:
        sys.stdout.write(f"{mutant:28} SURVIVES {killer} ({seconds:.1f} s)\n")
        return None
    sys.stdout.write(f"{mutant:28} {found[0]}: {found[1]} ({seconds:.1f} s)\n")
    sys.stdout.flush()
    healthy = found[0].find() if isinstance(found[0], Seed | Schedule) else ""
    if healthy:
        sys.stdout.write(f"{'':28} THE REAL CODE FAILS there too: {healthy}\n")
        return None
    return found


def _write(records: list[Record]) -> None:
    source = Path(records_module.__file__)
    source.write_text(records_source(source.read_text(encoding="utf-8"), records), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(source)], check=True)
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8"), records), encoding="utf-8")
    AIMS_DOCUMENT.write_text(aims_document(AIMS_DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


def _tell(text: str) -> None:
    """Show the progress on one line of a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
