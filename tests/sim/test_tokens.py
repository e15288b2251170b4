"""Runs with access control: tokens are revoked while they are used, and the checker finds a node that ignores it."""

from __future__ import annotations

import pytest

from tests.mutants.token_mutants import TOKEN_MUTANTS
from viewstamp.sim.run import run_seed
from viewstamp.sim.swarm import Swarm

SWARM = Swarm(tokens=True, seconds=4.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 4])
def test_no_token_is_of_use_after_its_revocation(seed: int) -> None:
    verdict = run_seed(seed, swarm=SWARM)
    assert verdict.invariant == "", verdict.detail
    assert verdict.acknowledged


@pytest.mark.slow
def test_a_node_that_ignores_revocations_is_found() -> None:
    with TOKEN_MUTANTS["revoked-is-valid"].plant():
        assert run_seed(0, swarm=SWARM).invariant == "RevokedMeansRevoked"
