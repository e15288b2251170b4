"""Runs many seeds, in as many processes as there are processors."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice

from viewstamp.errors import ViewstampError
from viewstamp.sim.run import SeedVerdict, run_seed

__all__ = ["run_many"]

_AHEAD = 2
"""Seeds handed to each worker in advance, so that no worker waits for its next one."""


def run_many(
    seeds: Iterable[int], *, jobs: int, steps: int | None = None, seconds: float | None = None
) -> Iterator[SeedVerdict]:
    """Run seeds, and yield their verdicts in the order of completion.

    Ctrl-C, a caller that closes the iterator, or the death of this process ends the worker processes at once; pending
    verdicts are dropped.

    Args:
      seeds: the seeds; may be endless if ``seconds`` is given.
      jobs: the number of worker processes.
      steps: as for ``run_seed``.
      seconds: no seed is begun after this time; None = run all.

    Raises:
      ViewstampError: a worker process has died, for example because the memory was used up.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    supply = iter(seeds)
    others = set(multiprocessing.active_children())
    # Spawned, not forked, because a fork would copy this process's threads and event loop.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_end_with_parent) as pool:
        running: dict[Future[SeedVerdict], int] = {}
        try:
            while True:
                if deadline is None or time.monotonic() < deadline:
                    for seed in islice(supply, jobs * _AHEAD - len(running)):
                        with _interrupts_held():
                            running[pool.submit(run_seed, seed, steps=steps)] = seed
                else:
                    for future in [each for each in running if each.cancel()]:
                        del running[future]
                if not running:
                    return
                done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    verdict = future.result()
                    del running[future]
                    yield verdict
        except BaseException as error:
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            if isinstance(error, BrokenProcessPool):
                seeds_left = ", ".join(map(str, running.values()))
                raise ViewstampError(
                    f"a process of the simulator has died; seeds {seeds_left} have no verdict",
                    remedy="look for a lack of memory, and run these seeds one by one with --seed",
                ) from error
            raise


def _end_with_parent() -> None:
    """End this worker process when its parent has died, because the pool itself would go on for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker was spawned"

    def wait_for_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back SIGINT while a worker starts and inherits the mask, because a terminal sends Ctrl-C to workers, too.

    Only this process reacts to it. A worker that reacted would print a stack and be restarted.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
