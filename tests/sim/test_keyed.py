"""A keyed topic in simulated clusters: whatever fails, a get sees the last acknowledged record of its key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mutants.catalogue import CATALOGUE
from viewstamp.ids import Index, Position, Term
from viewstamp.sim.keyed import judge
from viewstamp.sim.loop import SimulatedLoop
from viewstamp.sim.run import run_seed
from viewstamp.sim.swarm import STORE_FAULTS, Swarm, draw_swarm, with_keyed
from viewstamp.sim.violation import Violation
from viewstamp.wire.batch import Record

CALM = Swarm(nodes=1, clients=1, callers=1, seconds=5.0, faults={}, keyed=True, segment_bytes=4096, snapshot_bytes=4096)
WILD = replace(CALM, nodes=3, archive_faults=STORE_FAULTS, faults=Swarm().faults, segment_bytes=16 * 1024)


def test_gets_and_scans_see_what_was_acknowledged_while_runs_are_dumped_and_merged() -> None:
    verdict = run_seed(1, swarm=CALM)
    assert verdict.invariant == "", verdict.detail
    assert verdict.key_runs >= 8
    assert verdict.key_ranges > 1
    assert verdict.key_reads >= 300


@pytest.mark.parametrize("mutant", ["keys-oldest-wins", "keys-read-stale"])
def test_a_mistake_in_reads_or_merges_is_found_without_any_fault(mutant: str) -> None:
    with CATALOGUE[mutant].plant():
        assert run_seed(1, swarm=CALM).invariant == "GetSeesLastAcknowledged"


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_bucket"), [(2, False), (3, True)])
def test_no_fault_of_the_store_or_of_a_node_changes_what_a_get_sees(seed: int, is_bucket: bool) -> None:
    verdict = run_seed(seed, swarm=replace(WILD, archive_bucket=is_bucket))
    assert verdict.invariant == "", verdict.detail
    assert verdict.key_runs
    assert sum(count for kind, count in verdict.faults.items() if kind.startswith("store ")) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_bucket"), [(3, False), (6, True)])
def test_a_store_of_keys_that_is_gone_for_a_time_changes_nothing_that_a_get_sees(seed: int, is_bucket: bool) -> None:
    swarm = replace(CALM, archive_bucket=is_bucket, archive_faults=("gone",), fault_seconds=1.0, down_seconds=0.7)
    verdict = run_seed(seed, swarm=swarm)
    assert verdict.invariant == "", verdict.detail
    assert verdict.faults["store gone"] >= 3
    assert verdict.key_runs >= 5


def test_some_fresh_seeds_have_a_keyed_topic_and_none_has_an_archive_too() -> None:
    swarms = []
    for seed in range(300):
        loop = SimulatedLoop(seed)
        swarms.append(with_keyed(draw_swarm(loop.entropy("swarm")), loop.entropy("keyed")))
    keyed = [swarm for swarm in swarms if swarm.keyed]
    assert len(keyed) > 100
    assert {swarm.archive_bucket for swarm in keyed} == {False, True}
    assert not any(swarm.archives or swarm.tokens or swarm.majority_loses_power for swarm in keyed)


def record(position: int, value: bytes) -> Record:
    return Record(Position(position), Term(1), Index(position), 1, value, b"k", None)


@pytest.mark.parametrize(
    ("acknowledged", "found", "invariant"),
    [
        (1, (1, b"one"), ""),
        (1, (2, b"two"), ""),
        (2, (1, b"one"), "GetSeesLastAcknowledged"),
        (2, (2, b"other"), "GetInventsNothing"),
        (2, None, ""),
        (3, None, ""),
        (3, (2, b"two"), "GetSeesLastAcknowledged"),
        (4, None, "GetSeesLastAcknowledged"),
        (3, (3, b""), "GetInventsNothing"),
        (0, None, ""),
    ],
)
def test_the_judge_knows_what_a_get_may_return(
    acknowledged: int, found: tuple[int, bytes] | None, invariant: str
) -> None:
    records = [record(1, b"one"), record(2, b"two"), record(3, b""), record(4, b"four")]
    from viewstamp.sim.keyed import _Seen

    seen = [_Seen(b"k", acknowledged, found)]
    if not invariant:
        judge(seen, records)
        return
    with pytest.raises(Violation) as caught:
        judge(seen, records)
    assert caught.value.invariant == invariant
