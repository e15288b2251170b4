"""Random schedules: the invariants hold in any order of messages, writes, crashes and timeouts."""

import os
from collections import Counter

import pytest

from tests.consensus.schedule import MIXES, run

SEEDS = 25 if os.environ.get("VIEWSTAMP_SOAK") else 18


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_no_schedule_breaks_an_invariant_and_every_group_recovers(mix: str) -> None:
    """Leaders start at or above all committed records, commit indices only rise, and the group recovers.

    This is line 13 of checklist B3. A failure names its seed: ``run(mix, seed).trace`` describes the events.
    """
    totals: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            schedule = run(mix, seed, finish=True)
        except BaseException as error:
            error.add_note(f"mix {mix!r}, seed {seed}")
            raise
        totals.update(schedule.counts)
        totals["records"] += len(schedule.group.applied)
        totals["terms"] += len(schedule.group.facts.leaders)
    assert totals["records"] > 2 * SEEDS, f"the schedules do too little to mean anything: {totals}"
    assert totals["terms"] > SEEDS, f"the schedules do too little to mean anything: {totals}"
    assert totals["crashes"] > 0
    assert totals["changes"] > 0 or not MIXES[mix].change, "the membership never changed"
    assert totals["damaged"] > 0 or not MIXES[mix].damage, "nothing was ever damaged"
    assert totals["losses"] > 0 or not MIXES[mix].lose, "no leader was ever taken for dead"
    assert totals["found"] > 0 or not MIXES[mix].tell, "no member ever found a commit by itself"
    assert totals["installed"] > 0 or not MIXES[mix].snapshot, "no snapshot was ever installed"


def test_the_same_seed_gives_the_same_run() -> None:
    """A seed reproduces a run completely."""
    first, second = run("even", 5), run("even", 5)
    assert first.trace == second.trace
    assert [m.disk.log for m in first.group.members.values()] == [m.disk.log for m in second.group.members.values()]
