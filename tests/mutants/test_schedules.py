"""Each mistake in the core is found by the random schedules of its mix too; the real code passes the same seeds.

These run the core alone: where the simulator is the whole house, they are its foundation, and far quicker.
"""

import pytest

from tests.consensus.schedule import run
from tests.mutants.mutants import MUTANTS, Mutant
from viewstamp.errors import PeerError

SEEDS_MAX = 500
OF_THE_CORE = {name: mutant for name, mutant in MUTANTS.items() if mutant.mix}


def kill(mutant: Mutant) -> tuple[int, str]:
    """Return the first seed that finds the mutant, and the invariant that it breaks, or the error that it raises."""
    with mutant.plant():
        for seed in range(SEEDS_MAX):
            try:
                run(mutant.mix, seed)
            except (AssertionError, PeerError) as found:
                return seed, getattr(found, "invariant", type(found).__name__)
    raise AssertionError(f"{mutant.name} survives {SEEDS_MAX} seeds of {mutant.mix!r}")


@pytest.mark.slow
@pytest.mark.parametrize("mutant", OF_THE_CORE.values(), ids=OF_THE_CORE)
def test_a_planted_mistake_is_found_and_the_real_code_passes_the_same_seeds(mutant: Mutant) -> None:
    seed, _ = kill(mutant)
    for each in range(seed + 1):
        run(mutant.mix, each)


def test_a_mutant_leaves_nothing_behind() -> None:
    """Planted and pulled out, the code is what it was: the same seed gives the same run."""
    before = run("even", 3).trace
    for mutant in MUTANTS.values():
        with mutant.plant():
            pass
    assert run("even", 3).trace == before
