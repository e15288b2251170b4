"""The scopes that are explored, by name, and how many worlds each has."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.explore.scope import Scope
from tests.explore.search import Result, search
from tests.explore.start import Script, nothing
from tests.explore.world import World

__all__ = ["SCOPES", "Exploration", "explore"]


class Exploration(NamedTuple):
    """A scope, and where it begins."""

    sentence: str
    scope: Scope
    begin: Callable[[Script], None] = nothing


SCOPES = {
    "t1": Exploration("one term, a crash", Scope(terms=1, crashes=1)),
    "t2": Exploration("two terms", Scope(terms=2, announcements=1)),
    "t2-slow": Exploration("two terms, and every write takes time", Scope(terms=2, announcements=1, slow_disks=True)),
    "t2-crash": Exploration("two terms, a crash at any step", Scope(terms=2, crashes=1)),
}
"""By name, the small ones first."""


def explore(
    name: str,
    *,
    states_max: int | None = None,
    seconds_max: float | None = None,
    progress: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Explore one of the scopes; see :func:`search`."""
    _, scope, begin = SCOPES[name]
    world = World(scope)
    script = Script(world)
    begin(script)
    return search(
        world,
        script.state,
        states_max=states_max,
        seconds_max=seconds_max,
        prefix=script.trace,
        progress=progress,
    )
