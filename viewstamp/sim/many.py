"""Many seeds, in as many processes as there are processors."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from viewstamp.sim.run import Verdict, run_seed

__all__ = ["run_many"]

_AHEAD = 2
"""So many seeds for each process are handed out beforehand, so that none waits for the next one."""


def run_many(
    seeds: Iterable[int], *, jobs: int, steps: int | None = None, seconds: float | None = None
) -> Iterator[Verdict]:
    """Run seeds, and yield their verdicts as they come, in any order.

    Args:
      seeds: which; an endless supply where ``seconds`` ends it.
      jobs: in so many processes.
      steps: as for ``run_seed``.
      seconds: begin no seed after so long; None = run all.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    supply = iter(seeds)
    # Not forked: what this process has (threads, an event loop) is none of theirs.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Verdict]] = set()
        try:
            while True:
                if deadline is None or time.monotonic() < deadline:
                    for seed in islice(supply, jobs * _AHEAD - len(running)):
                        running.add(pool.submit(run_seed, seed, steps=steps))
                else:
                    for future in [each for each in running if each.cancel()]:
                        running.remove(future)
                if not running:
                    return
                done, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()
