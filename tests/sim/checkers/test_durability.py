"""Only data that every power cut leaves counts as durable, and a disk that lies about its syncs is detected."""

from __future__ import annotations

import random

import pytest

from viewstamp.consensus.membership import Membership
from viewstamp.ids import NodeId
from viewstamp.sim.checkers.durability import agreed_end, check_durable
from viewstamp.sim.disk_log import DiskLog
from viewstamp.sim.run import run_seed
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.violation import Violation
from viewstamp.sim.volume import Inode

N1, N2, N3 = (NodeId(f"n{number}") for number in (1, 2, 3))
THREE = Membership({N1: "a", N2: "b", N3: "c"})


def log(end: int, *terms: tuple[int, int]) -> DiskLog:
    found = DiskLog("/n")
    found.end, found.terms = end, terms or ((1, 1),)
    return found


def complaint(logs: dict[NodeId, DiskLog], *, membership: Membership = THREE, damaged: tuple[NodeId, ...] = ()) -> str:
    try:
        check_durable(membership, logs, [(1, 1), (2, 5)], 8, damaged.__contains__)
    except Violation as violation:
        return violation.invariant
    return ""


def test_a_committed_record_is_on_a_majority_in_its_term() -> None:
    right, short, of_another_term = log(9, (1, 1), (2, 5)), log(7, (1, 1), (2, 5)), log(9, (1, 1), (3, 6))
    assert complaint({N1: right, N2: right, N3: short}) == ""
    assert complaint({N1: right, N2: short, N3: short}) == "CommittedIsDurable"
    assert complaint({N1: right, N2: of_another_term}) == "CommittedIsDurable"
    assert agreed_end(of_another_term, [(1, 1), (2, 5)], 8) == 5


def test_a_damaged_disk_counts_as_before_and_is_never_the_only_one() -> None:
    """A disk that was damaged on purpose counts towards the majority; at least one intact disk must hold the record."""
    right, short = log(8, (1, 1), (2, 5)), log(4)
    assert complaint({N1: right, N2: short, N3: short}, damaged=(N3,)) == ""
    assert complaint({N1: short, N2: short, N3: short}, damaged=(N2, N3)) == "NeverTheLastCopy"


def test_of_a_joint_membership_the_incoming_voters_count() -> None:
    right, short = log(8, (1, 1), (2, 5)), log(4)
    joint = Membership({N2: "b", N3: "c"}, outgoing={N1: "a", N2: "b", N3: "c"})
    assert complaint({N1: right, N2: right, N3: short}, membership=joint) == "CommittedIsDurable"
    assert complaint({N1: short, N2: right, N3: right}, membership=joint) == ""


def test_only_bytes_that_survive_every_power_cut_are_certain() -> None:
    file = Inode(1)
    file.write(0, [b"a" * 5000])
    assert file.certain_size() == 0
    file.sync()
    assert file.certain_size() == 5000
    file.write(4998, [b"aab"])
    assert file.certain_size() == 5000, "two bytes are unchanged, and the third is new"
    file.write(4200, [b"xy"])
    assert file.certain_size() == 4200
    file.sync()
    file.truncate(100)
    assert file.certain_size() == 100
    for seed in range(20):
        assert file.after_cut(random.Random(seed))[:100] == b"a" * 100


@pytest.mark.slow
def test_a_disk_that_lies_about_its_syncs_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log, core and node believe the disk, and a run without a power cut shows no other sign of the lie."""
    swarm = Swarm(faults={}, seconds=1.0)
    assert run_seed(1, swarm=swarm).invariant == ""
    monkeypatch.setattr(Inode, "sync_data", lambda self, through=None: None)
    assert run_seed(1, swarm=swarm).invariant == "CommittedIsDurable"
