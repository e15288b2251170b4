"""Whole clusters from one seed: the invariants hold, and the same seed gives the same run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from viewstamp.consensus import reads
from viewstamp.consensus.state import Core, Leading
from viewstamp.sim.many import run_many
from viewstamp.sim.run import SeedVerdict, run_seed
from viewstamp.sim.swarm import FAULTS, Swarm

SEEDS = range(1, 51)
"""The same in each run of the suite, because a change must not fail by chance. ``make sim`` runs fresh ones.

The first 20 seeds find each mutant that is on record with a drawn swarm, and all together have every fault.
"""
RARE = 3
"""Faults that may be missing, because the rarest occurs in one seed of 50, and a change of the product may move it."""
JOBS = os.cpu_count() or 1
FALLEN_LEADERS = Swarm(
    clients=5,
    callers=1,
    seconds=5.0,
    faults={"isolate": 1.0},
    fault_seconds=20.0,
    strike_seconds=0.7,
    down_seconds=2.0,
    visit_seconds=0.2,
    read_seconds=0.02,
)
"""New clients write to the new leader, while old ones still read from the isolated one."""


@pytest.mark.slow
@pytest.mark.timeout(600)  # Half a processor minute, of which a busy machine gives a small part at a time.
def test_no_invariant_is_violated_by_a_fixed_run_of_seeds() -> None:
    verdicts = list(run_many(SEEDS, jobs=JOBS, steps=2500))
    assert wrong(verdicts) == []
    # A run without events would prove nothing.
    assert len(verdicts) == len(SEEDS)
    assert sum(verdict.acknowledged for verdict in verdicts) > 300
    assert sum(verdict.commits for verdict in verdicts) > 20
    assert sum(verdict.operations for verdict in verdicts) > 1500
    assert [verdict.seed for verdict in verdicts if not verdict.is_judged] == []
    assert len(set(FAULTS) - {fault for verdict in verdicts for fault in verdict.faults}) <= RARE


def wrong(verdicts: list[SeedVerdict]) -> list[tuple[str, str, str]]:
    return [(verdict.command, verdict.invariant, verdict.detail) for verdict in verdicts if verdict.invariant]


@pytest.mark.slow
def test_a_read_that_is_not_confirmed_is_found_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that answers reads without a confirmation, even when it is cut off; only the clients' history shows it.

    A leader that is cut off soon steps down. A read is stale only if another member leads and has acknowledged a record
    before that, which happens in one seed of four. So the test tries several seeds until one finds the mistake.
    """
    confirm = reads.confirm

    def confirm_at_once(core: Core, leading: Leading) -> None:
        for progress in leading.progress.values():
            progress.confirmed_round = leading.round
        confirm(core, leading)

    found = 0
    with monkeypatch.context() as mistake:
        mistake.setattr(reads, "confirm", confirm_at_once)
        for seed in range(1, 17):
            verdict = run_seed(seed, swarm=FALLEN_LEADERS)
            assert verdict.invariant in ("", "Linearizable")
            if verdict.invariant:
                found = seed
                break
    assert found
    assert run_seed(found, swarm=FALLEN_LEADERS).invariant == "", "without the mistake, the seed passes"


@pytest.mark.slow
def test_a_cluster_without_faults_acknowledges_every_append() -> None:
    verdict = run_seed(1, swarm=Swarm(faults={}, seconds=3.0))
    assert verdict.invariant == ""
    assert verdict.appends == verdict.acknowledged > 50


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_twice_in_one_process() -> None:
    first, second = run_seed(7, steps=3000), run_seed(7, steps=3000)
    assert (first.digest, first.events) == (second.digest, second.events)
    assert first.digest != run_seed(8, steps=3000).digest


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_in_processes_that_hash_differently() -> None:
    program = "from viewstamp.sim.run import run_seed; print([run_seed(s, steps=1500).digest for s in (3, 6, 9)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "4242")
    }
    assert len(outputs) == 1
