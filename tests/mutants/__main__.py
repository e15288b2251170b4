"""``make mutants``: plant each known mistake, and show the seed that finds it and what it says there."""

import sys

from tests.mutants.mutants import MUTANTS
from tests.mutants.test_mutants import kill


def main(names: list[str]) -> int:
    """Print one row for each mutant, of ``names`` or all; exit 1 if one survives."""
    survivors = 0
    sys.stdout.write("| mutant | mistake | schedules | seed | found by |\n| --- | --- | --- | --- | --- |\n")
    for name, mutant in MUTANTS.items():
        if names and name not in names:
            continue
        try:
            seed, found = kill(mutant)
        except AssertionError:
            survivors += 1
            seed, found = -1, "**nobody**"
        sys.stdout.write(f"| {name} | {mutant.mistake} | {mutant.mix} | {seed} | {found} |\n")
        sys.stdout.flush()
    return 1 if survivors else 0


sys.exit(main(sys.argv[1:]))
