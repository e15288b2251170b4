"""Run by ``make explore``: visit every world of a scope, with the code as it is or with a planted mistake."""

from __future__ import annotations

import argparse
import contextlib
import sys

from tests.explore.mutants import EXPLORED
from tests.explore.scopes import SCOPES, explore
from tests.explore.search import Result


def main() -> int:
    """Explore and print the findings. Returns 1 if an invariant is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("scopes", nargs="*", metavar="SCOPE", help=f"one of {', '.join(SCOPES)}; none = all")
    parser.add_argument("--mutant", metavar="NAME", choices=EXPLORED, help=f"one of {', '.join(EXPLORED)}")
    parser.add_argument("--states", type=int, metavar="N", help="stop after N worlds")
    parser.add_argument("--seconds", type=float, metavar="S", help="stop after S seconds in each scope")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.scopes if name not in SCOPES]
    if unknown:
        parser.error(f"no such scope: {', '.join(unknown)}; there are {', '.join(SCOPES)}")
    is_broken = False
    for name in arguments.scopes or SCOPES:
        with EXPLORED[arguments.mutant].plant() if arguments.mutant else contextlib.nullcontext():
            found = explore(
                name, states_max=arguments.states, seconds_max=arguments.seconds, progress=lambda result: _tell(result)
            )
        sys.stdout.write(f"\n{name}: {SCOPES[name].sentence}\n  {found}\n")
        for number, step in enumerate(found.trace, start=1):
            sys.stdout.write(f"  {number:3}. {step}\n")
        sys.stdout.flush()
        is_broken = is_broken or found.broken is not None
    return 1 if is_broken else 0


def _tell(result: Result) -> None:
    """Show the progress on one line of a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{result.states:,} worlds, depth {result.depth}, {result.seconds:.0f} s")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
