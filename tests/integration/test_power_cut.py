"""The power fails at a random disk operation on all members at once, and no promise is broken.

After a kill -9 the page cache survives; after a power cut it does not. So real nodes write through a recording disk,
from which the remainder after a cut is rebuilt: all synced data, and any subset of the unsynced pages and names. Some
of the cuts are always tried; all 200 of them with VIEWSTAMP_SOAK=1, which `make soak-power` sets.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.integration.power import Violation, draw_cuts, find_violation, truncations
from tests.integration.promises import Promises
from tests.integration.recorded import Forgets, record
from viewstamp.sim.recording import Playback, Recording

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
CUTS = 25
"""For each seed: somewhat more than half in a new cluster, the others in the remainder of one of these cuts."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(1, 9 if SOAK else 2))
async def test_nothing_acknowledged_is_lost_or_invented_by_a_power_cut(tmp_path: Path, seed: int) -> None:
    """Acknowledged records are there once, at their positions; refused ones are not; atomic appends are whole.

    Any two of the three members must have everything without the third, and each member still has all that it had
    reported as durable. The load goes on while leaders are deposed and their logs truncated, and while members are
    stopped and killed.
    """
    entropy = random.Random(seed)
    second = tmp_path / "second"
    recording = await _record_truncations(tmp_path, seed)
    cuts = draw_cuts(recording, CUTS - CUTS // 2, entropy)
    assert await find_violation(recording, cuts, tmp_path / "left", entropy) is None

    cut_at = entropy.choice(cuts)
    replay = Playback(recording)
    replay.advance(cut_at)
    replay.write(entropy, str(second))
    earlier = Promises.before(recording, cut_at)
    recording = await record(second, seed=seed + 1000)
    cuts = draw_cuts(recording, CUTS // 2, entropy)
    assert await find_violation(recording, cuts, tmp_path / "left again", entropy, earlier=earlier) is None


async def _record_truncations(directory: Path, seed: int) -> Recording:
    """Record real nodes until a log was truncated, because the seed alone does not decide how a real leader falls."""
    for attempt in range(5):
        live = directory / f"first-{attempt}"
        live.mkdir()
        recording = await record(live, seed=seed + 100 * attempt)
        if truncations(recording):
            return recording
    raise AssertionError("no log was truncated: the recordings are too tame")


async def _mutant(directory: Path, forgets: Forgets, *, cuts: int, recordings: int) -> Violation | None:
    """Run nodes on disks that omit some syncs.

    Return the first violation that the cuts in the given recordings show.
    """
    for seed in range(1, recordings + 1):
        live = directory / f"live-{seed}"
        live.mkdir()
        recording = await record(live, seed=seed, forgets=forgets)
        entropy = random.Random(seed)
        drawn = draw_cuts(recording, cuts, entropy)
        violation = await find_violation(recording, drawn, directory / f"left-{seed}", entropy)
        if violation is not None:
            return violation
    return None


@pytest.mark.parametrize("kind", ["sync_data", "sync", "sync_directory"])
async def test_a_product_without_one_kind_of_sync_fails_the_test(tmp_path: Path, kind: str) -> None:
    """These mutants show that the test above finds violations; 15 cuts are enough."""
    assert await _mutant(tmp_path, lambda call, _: call == kind, cuts=15, recordings=1) is not None


@pytest.mark.skipif(not SOAK, reason="minutes: every place that syncs, one after the other")
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("sync_data", "Writer._sync"),
        ("sync", "Writer._sync"),
        ("sync", "Writer.enter"),
        ("sync", "fill_with_zeros"),
        ("sync", "place_mark"),
        ("sync", "carry_out"),
        ("sync", "ControlFile._write_copy"),
        ("sync_directory", "settle_names"),
        ("sync_directory", "Writer._roll"),
        ("sync_directory", "place_mark"),
        ("sync_directory", "carry_out"),
        ("sync_directory", "ControlFile._write_copy"),
    ],
)
async def test_a_product_without_one_sync_fails_the_test(tmp_path: Path, kind: str, place: str) -> None:
    """The syncs of one place are left out, and one of 480 power cuts has to find it.

    The syncs by which a start makes the page cache's contents durable are not among the places. They matter after a
    kill at one particular call or a failed sync, and are covered in `tests/wal/test_crash.py`. The sync of a clean stop
    only saves a length.
    """
    planted = 0

    def forgets(call: str, caller: str) -> bool:
        nonlocal planted
        is_it = (call, caller) == (kind, place)
        planted += is_it
        return is_it

    violation = await _mutant(tmp_path, forgets, cuts=60, recordings=8)
    assert planted, f"{place} makes no {kind} any more: correct the name"
    assert violation is not None
