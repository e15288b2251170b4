"""Small scopes are explored to the end without an error, and each planted mistake is found in its scope.

Scopes that take longer than seconds run with ``VIEWSTAMP_SOAK=1``; those that take minutes run in ``make explore``.
"""

import os

import pytest

from tests.explore.finds import FINDS, NOT_POSSIBLE, Find
from tests.explore.mutants import EXPLORED
from tests.explore.scope import Scope
from tests.explore.scopes import explore
from tests.explore.start import Script, unnamed
from tests.explore.world import State, World
from viewstamp.consensus.messages import Announcement, VoteResponse

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


def test_a_name_in_a_record_of_an_older_term_commits_nothing_that_a_power_loss_takes() -> None:
    """Figure 8 of the Raft paper, with power losses: n3's disk is named by a record of term 1 that nobody committed.

    n3 leads term 3 and counts n1, which then loses power, and with it everything behind that record. n1 compares by
    term 1 again and votes for n2, whose log lacks the record, and which therefore does not wait for n3.
    """
    scope = Scope(
        terms=9, crashes=9, powers=True, has_gate=True, records=9, names=True, announcements=9, small_appends=True
    )
    script = Script(World(scope))
    unnamed(script)
    script.do("n1", "meet", name="n3")
    script.do("n1", "tell")
    script.do("n1", "propose")
    for _ in range(4):
        script.deliver(to="n3", by="n1")
    script.do("n1", "crash")  # Its own writes of both records are lost.
    script.forget()
    script.do("n2", "campaign")
    script.deliver(to="n1", by="n2")
    script.deliver(to="n2", by="n1", kind=VoteResponse)
    script.settle("n2")  # Its record of term 2 stays with it.
    script.forget()
    for _ in range(2):
        script.do("n3", "campaign")
        script.forget() if script.member("n3").core.term < 2 else None
    script.deliver(to="n1", by="n3")
    script.deliver(to="n3", by="n1")
    assert script.member("n3").is_leading
    script.deliver(to="n1", by="n3", kind=Announcement)
    script.deliver(to="n3", by="n1")
    while script.member("n1").core.log.end < 4:  # Up to the term start, and no record of term 3.
        script.deliver_next(to="n1", by="n3")
        script.deliver(to="n3", by="n1")
    script.do("n1", "power", script.member("n1").disk.synced_end)
    script.forget()
    script.do("n2", "crash")
    for _ in range(2):
        script.do("n2", "campaign")
        script.forget() if script.member("n2").core.term < 4 else None
    script.deliver(to="n1", by="n2")
    script.deliver(to="n2", by="n1")
    assert script.member("n2").is_leading, "n2 waits for n3"
