"""A short soak in every run of the suite, so that the long one, `make soak`, works when it is needed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.soak.checks import file_complaints
from tests.soak.run import soak
from viewstamp.local import damage
from viewstamp.sim.checkers.linearizability import Answer

pytestmark = pytest.mark.slow


async def test_some_seconds_of_faults_break_no_promise(tmp_path: Path) -> None:
    """Real processes are killed and cut off from each other during calls; then rot in their files is found."""
    outcome = await soak(
        tmp_path, seed=1, seconds=5, kinds=["kill-leader", "transfer", "one-way", "drop"], progress=lambda *_: None
    )
    assert outcome.violations == []
    assert outcome.linearizable is Answer.LINEARIZABLE
    assert any(event.is_done for event in outcome.events)
    assert outcome.fates["ok"] > 50
    assert outcome.fates["unknown"] == 0
    history = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(history) == len(outcome.events) + sum(outcome.fates[name] for name in ("ok", "refused"))
    assert [row["at"] for row in history] == sorted(row["at"] for row in history)

    directory = str(tmp_path / "n1")
    assert await asyncio.to_thread(lambda: list(file_complaints("n1", directory, {}))) == []
    damage.flip_bit(directory)
    assert len(await asyncio.to_thread(lambda: list(file_complaints("n1", directory, {})))) == 1


async def test_a_network_that_loses_packets_keeps_its_leader_and_goes_on(tmp_path: Path) -> None:
    """Between all members: round trips of 100 ms, 10 % of the pieces held up by up to 1.6 s, 1 % resets."""
    outcome = await soak(tmp_path, seed=1, seconds=17, kinds=["lossy-network"], progress=lambda *_: None)
    assert outcome.violations == []
    assert [event.kind for event in outcome.events][:1] == ["lossy-network"]
    assert outcome.terms is not None
    assert outcome.terms <= 12, "the term rose by one each second"
