"""Run by ``make soak``: breaks a cluster of real processes for some minutes and checks every promise."""

from __future__ import annotations

import argparse
import random
import shlex
import shutil
import sys
import time
from pathlib import Path

from tests.soak.faults import BREAKS, WEATHER
from tests.soak.report import as_json, print_report
from tests.soak.run import soak
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_json
from viewstamp.terminal.show import Show

DIRECTORY = Path("build", "soak")
"""Not in the default directory of clusters and demos, which have to find it empty."""


def main() -> int:
    """Soak and print the outcome. Returns 1 if a promise was broken."""
    kinds = [*BREAKS, *WEATHER]
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, metavar="M", help="minutes of faults [3]")
    parser.add_argument("--seed", type=int, metavar="N", help="decides the faults and their times [a fresh one]")
    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="voters at the start, and at least [3]")
    parser.add_argument("--faults", default="", metavar="KIND,...", help=f"of {', '.join(kinds)} [all]")
    parser.add_argument("--dir", type=Path, default=DIRECTORY, metavar="DIR", help=f"on a disk [./{DIRECTORY}]")
    parser.add_argument("--output", choices=[str(each) for each in Output], default="table")
    parser.add_argument("--keep", action="store_true", help="keep the directories where every promise held, too")
    arguments = parser.parse_args()
    chosen = [kind for kind in arguments.faults.split(",") if kind]
    if unknown := sorted(set(chosen) - set(kinds)):
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(kinds)}")
    if not 3 <= arguments.nodes <= 7 or arguments.minutes <= 0:
        parser.error("from 3 to 7 nodes, for more than 0 minutes")
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1_000_000)
    directory = (arguments.dir / f"seed-{seed}-{time.strftime('%Y%m%d-%H%M%S')}").absolute()
    directory.mkdir(parents=True)
    output = Output(arguments.output)
    show = Show(output)
    show.warn_of_memory(str(directory))
    try:
        outcome = run_async(
            soak(
                directory,
                seed=seed,
                seconds=60 * arguments.minutes,
                nodes=arguments.nodes,
                kinds=chosen,
                progress=lambda done, total, words: show.count(int(done), int(total), f"{done:4.0f} s  {words}"),
            )
        )
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; the files so far are in {directory}\n")
        return 130
    except BaseException:
        sys.stderr.write(f"seed {seed}; the files so far are in {directory}\n")
        raise
    finally:
        show.close()
    kept = directory if arguments.keep or not outcome.holds else None
    if kept is None:
        shutil.rmtree(directory)
    if output is Output.JSON:
        print_json(as_json(outcome, kept))
    else:
        flags = f" --faults {','.join(chosen)}" if chosen else ""
        again = f"python -m tests.soak --seed {seed} --minutes {arguments.minutes:g} --nodes {arguments.nodes}{flags}"
        print_report(outcome, kept, f"{shlex.quote(sys.executable)} -m {again.removeprefix('python -m ')}")
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
