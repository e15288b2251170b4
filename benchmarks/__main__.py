"""Measures the table of viewstamp and its peers, in one run on one disk: ``make bench``, ``python -m benchmarks``.

Progress goes to standard error, tables to standard output. The exit code is 1 if a row, or a subject of a row, could
not be measured; the tables of the others are printed all the same. A missed goal does not change the exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.results import keep
from benchmarks.rows import NAMES, Options, Row, load
from benchmarks.rows.row import as_json
from benchmarks.table import WIDTH, print_details, print_goals
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.terminal.loop import run_async

__all__ = ["main"]

Record = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows that the arguments name; return the exit code."""
    options = _parse(arguments)
    errors = Console(stderr=True)
    if options.list:
        _list()
        return 0
    records: list[Record] = []
    failures: list[str] = []
    started = time.monotonic()
    for number, name in enumerate(options.rows, 1):
        errors.rule(f"{number} of {len(options.rows)}: {name}")
        try:
            record = _measure(load(name), options, errors)
        except KeyboardInterrupt:
            errors.print("interrupted; all servers have been stopped")
            return 130
        except Exception as error:  # A failed row must not stop the other rows.
            traceback.print_exc()
            failures.append(f"{name}: {str(error) or type(error).__name__}")
            continue
        records.append(record)
        failures += [f"{name}: {line}" for line in record["failed"]]
        if options.keep:
            errors.print(f"kept in {keep(record)}", markup=False, highlight=False)
    _show(records, failures, options.output, time.monotonic() - started)
    return 1 if failures else 0


def _measure(row: Row, options: argparse.Namespace, errors: Console) -> Record:
    seconds, rounds = options.seconds or row.seconds, options.rounds or row.rounds
    asked = Options(
        seconds=seconds,
        rounds=rounds,
        minutes=options.minutes,
        say=lambda text: errors.print(f"{datetime.now():%H:%M:%S} {text}", markup=False, highlight=False),
    )
    with own_directory(Path("viewstamp-data")) as directory:
        directory.chmod(0o711)  # A peer that refuses root runs as another user, which needs access to its files.
        found = conditions(directory)
        result = run_async(_in_time(row, asked, directory))
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": found["commit"],
        "machine": found["machine"],
        "python": found["python"],
        "loop_ns": found["loop_ns"],
        "filesystem": found["filesystem"],
        "sync_ms": found["sync_ms_p50"],
        "load": found["load_average"],
        "seconds": seconds,
        "rounds": rounds,
        **as_json(row, result),
    }


async def _in_time(row: Row, options: Options, directory: Any) -> Any:
    # No row takes this long. A row that hangs must end, because its servers end with it.
    async with asyncio.timeout(600 + 60 * (options.minutes or 0) + 30 * options.seconds * options.rounds):
        return await row.measure(options, directory)


def _show(records: Sequence[Record], failures: Sequence[str], output: str, seconds: float) -> None:
    if output == "json":
        print(json.dumps({"rows": records, "failures": failures, "seconds": round(seconds, 1)}, indent=2))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
        for record in records:
            print_details(record, console)
        print_goals(records, console)
        if records:
            console.print("Compare ratios, because figures change with the machine and with its other work.")
    for line in failures:
        print(f"FAILED: {line}", file=sys.stderr)


def _list() -> None:
    for name in NAMES:
        try:
            row = load(name)
        except ImportError as error:
            print(f"{name:12} cannot be measured here: {error}")
        else:
            print(f"{name:12} {row.title}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=_rows, default=NAMES, help="names with commas between them; default: all")
    parser.add_argument("--seconds", type=_positive(float), help="length of each turn; default: depends on the row")
    parser.add_argument("--rounds", type=_positive(int), help="turns of each subject; the result is their median")
    parser.add_argument(
        "--minutes", type=_positive(float), help="length of the load in the row about memory; default: its short form"
    )
    parser.add_argument(
        "--keep", action="store_true", help="append a line for each row to benchmarks/results/ROW.jsonl"
    )
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--list", action="store_true", help="list the rows and measure nothing")
    return parser.parse_args(arguments)


def _rows(text: str) -> tuple[str, ...]:
    names = tuple(name.strip().replace("_", "-") for name in text.split(",") if name.strip())
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"there is no row {name!r}; there are {', '.join(NAMES)}")
    return names


def _positive(kind: type[float] | type[int]) -> Any:
    def positive(text: str) -> float:
        number = kind(text)
        if number <= 0:
            raise argparse.ArgumentTypeError(f"{text} must be greater than 0")
        return number

    return positive


if __name__ == "__main__":
    sys.exit(main())
