"""The explored scopes, by name, with the number of their worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tests.explore.scope import Scope
from tests.explore.search import Result, search
from tests.explore.start import (
    Script,
    changing,
    diverged,
    halfway,
    leading,
    nothing,
    outgrown,
    replacing,
    snapped,
    unnamed,
)
from tests.explore.world import World

__all__ = ["SCOPES", "Exploration", "explore"]


class Exploration(NamedTuple):
    """A scope and its initial world."""

    sentence: str
    scope: Scope
    begin: Callable[[Script], None] = nothing


_REPLACING = Scope(spares=1, changes=1, has_gate=True, records=0, added=("n4>n3",))

SCOPES = {
    "t2": Exploration("two terms", Scope(announcements=1)),
    "t1-crash": Exploration("one term, a crash", Scope(terms=1, crashes=1)),
    "t2-quits": Exploration("two terms, leaders give up", Scope(announcements=1, quits=True)),
    "t2-tells": Exploration("two terms, commits are sent at once", Scope(announcements=1, tells=True)),
    "t2-notices": Exploration("two terms, leaders tell how far they are durable", Scope(announcements=1, notices=True)),
    "t1-notices-slow": Exploration(
        "one term, such notices, every write takes time", Scope(terms=1, notices=True, slow_disks=True)
    ),
    "t1-crash-notices": Exploration("one term, a crash, and such notices", Scope(terms=1, crashes=1, notices=True)),
    "damage-notices": Exploration(
        "one term, a crash that may lose durable records, and such notices",
        Scope(terms=1, crashes=1, damages=True, notices=True),
    ),
    "diverged-notices": Exploration(
        "three terms, from a record of term 1 on one member and one of term 2 on another, and such notices",
        Scope(terms=3, announcements=1, notices=True),
        diverged,
    ),
    "halfway-notices": Exploration(
        "three terms, from two records on one member and the first of them on another, and such notices",
        Scope(terms=3, announcements=1, notices=True),
        halfway,
    ),
    "learning-notices": Exploration(
        "two voters and a learner to be, and such notices",
        replace(_REPLACING, members=2, records=3, added=("n3",), announcements=1, notices=True),
        leading,
    ),
    "replacing-notices": Exploration(
        "a member is being replaced, two terms, and such notices", replace(_REPLACING, notices=True), replacing
    ),
    "t2-loses": Exploration("two terms, leaders are taken for dead", Scope(announcements=1, loses=True)),
    "t2-refuses": Exploration("two terms, refusals are said", Scope(announcements=1, refuses=True)),
    "t2-gate": Exploration(
        "two terms, the whole protocol: a membership record first", Scope(announcements=1, records=2, has_gate=True)
    ),
    "t2-slow": Exploration("two terms, every write takes time", Scope(announcements=1, slow_disks=True)),
    "t3": Exploration("three terms", Scope(terms=3, announcements=1)),
    "t2-crash": Exploration("two terms, a crash at any step", Scope(crashes=1)),
    "t2-two-records": Exploration("two terms, two records", Scope(records=2, announcements=1)),
    "t2-old": Exploration("two terms, nothing that was sent is ever left out", Scope(announcements=1, keeps_old=True)),
    "t2-damage": Exploration("two terms, a crash that may lose durable records", Scope(crashes=1, damages=True)),
    "t2-power": Exploration("two terms, a power loss in interval mode", Scope(crashes=1, powers=True)),
    "unnamed-power": Exploration(
        "one more term, a power loss in interval mode, from a voter whose disk no record names",
        Scope(crashes=1, powers=True, has_gate=True, records=2, names=True, announcements=1),
        unnamed,
    ),
    "t2-wipe": Exploration("two terms, a crash that may lose the disk", Scope(crashes=1, wipes=True)),
    "t2-transfers": Exploration("two terms, leaders hand over", Scope(announcements=1, transfers=True)),
    "t2-asks": Exploration("two terms, leaders ask again", Scope(announcements=1, asks=True)),
    "t2-answers": Exploration("two terms, lower terms are answered", Scope(announcements=1, answers_terms=True)),
    "t3-crash": Exploration("three terms, a crash at any step", Scope(terms=3, crashes=1)),
    "diverged": Exploration(
        "four terms, from a record of term 1 on one member and one of term 2 on another",
        Scope(terms=4, announcements=1),
        diverged,
    ),
    "diverged-t3": Exploration("the same, three terms", Scope(terms=3, announcements=1), diverged),
    "diverged-slow": Exploration(
        "the same, every write takes time", Scope(terms=3, announcements=1, slow_disks=True), diverged
    ),
    "outgrown": Exploration(
        "three terms, from two records of term 1 on one member", Scope(terms=3, announcements=1), outgrown
    ),
    "halfway": Exploration(
        "three terms, from two records on one member and the first of them on another",
        Scope(terms=3, announcements=1),
        halfway,
    ),
    "t2-snapshots": Exploration("two terms, snapshots at every point", Scope(announcements=1, snapshots=True)),
    "snapped": Exploration(
        "four terms, a crash, from a log that begins behind a snapshot, beside one that differs before it",
        Scope(terms=4, crashes=1, snapshots=True),
        snapped,
    ),
    "learning": Exploration(
        "two voters and a learner to be, two terms",
        replace(_REPLACING, members=2, records=3, added=("n3",), announcements=1),
        leading,
    ),
    "replacing": Exploration("a member is being replaced, two terms", _REPLACING, replacing),
    "replacing-crash": Exploration("the same, and a crash", replace(_REPLACING, crashes=1), replacing),
    "changing": Exploration(
        "four members, two leaders remove one each, three terms",
        Scope(members=4, terms=3, changes=1, removed=("n3",), has_gate=True, records=0, quits=True, announcements=1),
        changing,
    ),
}
"""The scopes by name."""


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
