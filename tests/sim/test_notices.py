"""Followers find commits by themselves, under all faults: no read goes back, nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from viewstamp.consensus import follower
from viewstamp.consensus.state import Core
from viewstamp.sim.run import run_seed
from viewstamp.sim.swarm import FAULTS, Swarm

NOTICES = Swarm(notices=True, seconds=3.0, read_seconds=0.02, clients=2, nodes=3)


@pytest.mark.parametrize("seed", range(4))
def test_runs_with_notices_lose_nothing_and_are_linearizable(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    find = follower._find_commit

    def counted(core: Core) -> None:
        find(core)
        if core.ahead_end:
            found.append(core.ahead_end)

    monkeypatch.setattr(follower, "_find_commit", counted)
    faults = dict.fromkeys(FAULTS, 1.0) if seed % 2 else {}
    verdict = run_seed(seed, swarm=replace(NOTICES, faults=faults, leases=seed == 2))
    assert (verdict.invariant, verdict.detail) == ("", "")
    assert verdict.is_judged
    assert len(found) > 20
