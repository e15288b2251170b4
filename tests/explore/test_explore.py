"""Small scopes are explored to the end without an error, and each planted mistake is found in its scope.

Scopes that take longer than seconds run with ``VIEWSTAMP_SOAK=1``; those that take minutes run in ``make explore``.
"""

import os

import pytest

from tests.explore.finds import FINDS, NOT_POSSIBLE, Find
from tests.explore.mutants import EXPLORED
from tests.explore.scope import Scope
from tests.explore.scopes import explore
from tests.explore.world import State, World

IS_SOAK = os.environ.get("VIEWSTAMP_SOAK") == "1"
QUICK_STATES = 700
SCOPES = ("t2", "t1-crash", "t2-quits", "t2-loses", "t2-tells", "t2-gate", "t3", "diverged", "outgrown", "halfway")


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES if IS_SOAK else SCOPES[:1])
def test_a_small_scope_is_exhausted_without_an_error(scope: str) -> None:
    found = explore(scope)
    assert found.broken is None, "\n".join(found.trace)
    assert found.is_exhausted
    assert found.states > 2000


@pytest.mark.slow
@pytest.mark.parametrize(
    "find",
    [find for find in FINDS if IS_SOAK or find.states < QUICK_STATES],
    ids=lambda find: f"{find.mutant}-{find.scope}",
)
def test_a_planted_mistake_is_found_in_its_scope_by_a_shortest_trace(find: Find) -> None:
    with EXPLORED[find.mutant].plant():
        found = explore(find.scope, states_max=2 * find.states + 100)
    assert found.broken is not None, f"{find.mutant} survives {found}"
    assert found.broken.invariant == find.invariant, found.trace[-1]
    assert len(found.trace) == find.steps


@pytest.mark.skipif(not IS_SOAK, reason="VIEWSTAMP_SOAK=1")
@pytest.mark.parametrize(("mutant", "scope"), NOT_POSSIBLE)
def test_a_mistake_that_another_rule_makes_harmless_breaks_nothing(mutant: str, scope: str) -> None:
    with EXPLORED[mutant].plant():
        found = explore(scope)
    assert found.is_exhausted


def test_a_mutant_leaves_nothing_behind() -> None:
    for find in FINDS:
        with EXPLORED[find.mutant].plant():
            pass
    assert explore("t2", states_max=500).broken is None


def test_every_mistake_of_the_core_has_a_scope() -> None:
    tried = {find.mutant for find in FINDS} | {mutant for mutant, _ in NOT_POSSIBLE}
    assert set(EXPLORED) == tried


def test_worlds_that_differ_in_names_only_are_one() -> None:
    world = World(Scope())
    first = world.first()
    after = [follows for _, follows in world.next(first) if isinstance(follows, State)]
    assert len(set(after)) == 3
    assert len({world.canonical(each) for each in after}) == 1
