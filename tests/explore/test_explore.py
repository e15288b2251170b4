"""Small scopes are explored to the end, without an error; and a planted mistake is found in them."""

import pytest

from tests.explore.mutants import EXPLORED
from tests.explore.scopes import explore


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["t1", "t2"])
def test_a_small_scope_is_exhausted_without_an_error(scope: str) -> None:
    found = explore(scope)
    assert found.broken is None, "\n".join(found.trace)
    assert found.is_exhausted
    assert found.states > 1000


@pytest.mark.parametrize("name", ["vote-before-durable", "announce-early"])
def test_a_planted_mistake_is_found_with_a_shortest_trace(name: str) -> None:
    with EXPLORED[name].plant():
        found = explore("t1")
    assert found.broken is not None
    assert len(found.trace) < 10
