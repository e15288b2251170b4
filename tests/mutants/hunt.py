"""Hunting: one planted mistake in the full simulator, seed after seed, until it is found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tests.mutants.aims import AIMS
from tests.mutants.mutants import MUTANTS
from viewstamp.sim.run import Verdict, run_seed

__all__ = ["SEEDS_MAX", "hunt", "run_aimed"]

SEEDS_MAX = 500
"""So many seeds are tried, 1 and up: a mistake that survives them is one that the simulator does not see."""


def run_aimed(aim: str, seed: int, *, mutant: str | None = None) -> Verdict:
    """Run one seed of an aim, with a mutant planted or without."""
    plant = MUTANTS[mutant].plant() if mutant is not None else contextlib.nullcontext()
    with plant:
        return run_seed(seed, swarm=AIMS[aim].swarm)


def hunt(mutant: str, aim: str, *, progress: Callable[[int], None] = lambda _: None) -> Verdict | None:
    """Return the verdict of the first seed that finds the mutant; None: it survives ``SEEDS_MAX`` of them."""
    for seed in range(1, SEEDS_MAX + 1):
        progress(seed)
        verdict = run_aimed(aim, seed, mutant=mutant)
        if verdict.invariant:
            return verdict
    return None
