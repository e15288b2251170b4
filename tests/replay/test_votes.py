"""The disks that count as a majority, by the rules of the core: recovering, reborn, unknown and joint members."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from tests.replay.members import (
    MEMBERSHIP,
    NAMES,
    Log,
    change_control,
    flip,
    opened,
    places_of,
    replayed,
    shown,
    visible,
    write_member,
)
from viewstamp.consensus.membership import Membership
from viewstamp.errors import ConfigError, NoQuorumError
from viewstamp.ids import NodeId
from viewstamp.node.running_mark import INTERVAL
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wire.batch import Kind

REBORN = "n2~8c21f0aa"


def members(*names: str) -> dict[NodeId, str]:
    return {NodeId(name): f"127.0.0.1:{7000 + at}" for at, name in enumerate(names)}


@pytest.fixture(name="logs")
def acknowledged_and_short() -> tuple[Log, Log]:
    """A log with a record that n1 and n2 acknowledged, and the same log without it."""
    log = Log()
    log.membership()
    log.topic()
    log.records(b"first")
    short = log.copy()
    log.records(b"acknowledged")
    return log, short


def disks(**logs: Log) -> SimulatedDisk:
    disk = SimulatedDisk()
    for name, log in logs.items():
        write_member(disk, name, log)
    return disk


def test_a_member_that_lost_a_part_of_its_log_does_not_vote(logs: tuple[Log, Log]) -> None:
    """Rule 17. n2 acknowledged the last record, its repair has cut the log, and n3 never had the record."""
    log, short = logs
    disk = disks(n1=log, n2=short, n3=short)
    change_control(disk, "n2", recovering_until=(1, log.end))
    with pytest.raises(NoQuorumError, match="n2 lost a part of its log") as caught:
        opened(disk, "n2", "n3")
    assert "a majority of n1, n2, n3 is needed (missing: n1, n2)" in caught.value.message
    assert replayed(disk, "n1", "n3") == visible(log)
    assert replayed(disk) == visible(log)
    assert [finding.kind for finding in opened(disk).findings] == ["recovering"]


def test_a_member_that_regained_what_it_lost_votes_again(logs: tuple[Log, Log]) -> None:
    """Its next start would end its recovery, because it has reached the pair that it stored."""
    log, short = logs
    disk = disks(n2=log, n3=short)
    change_control(disk, "n2", recovering_until=(1, log.end))
    replay = opened(disk, "n2", "n3")
    assert shown(disk, replay) == visible(log)
    assert replay.findings == []


def test_a_member_that_lost_its_disk_has_no_vote_under_its_old_id(logs: tuple[Log, Log]) -> None:
    """Rule 18. The disk of voter n2 is lost; the node with its name gets a vote only by a record that adds it."""
    log, short = logs
    disk = disks(n1=log, n2=short, n3=short)
    change_control(disk, "n2", member_id=REBORN)
    with pytest.raises(NoQuorumError, match=f"{REBORN} is not a voter") as caught:
        opened(disk, "n2", "n3")
    assert "a majority of n1, n2, n3 is needed (missing: n1, n2)" in caught.value.message
    assert replayed(disk, "n1", "n3") == visible(log)


def test_a_reborn_member_that_took_the_place_of_the_old_one_votes() -> None:
    log = Log()
    log.membership(Membership(members("n1", REBORN, "n3")))
    log.topic()
    log.records(b"first")
    disk = disks(n1=log, n2=log, n3=log)
    change_control(disk, "n2", member_id=REBORN)
    for names in combinations(NAMES, 2):
        assert replayed(disk, *names) == visible(log)


def test_an_empty_disk_under_the_name_of_a_voter_has_no_vote(logs: tuple[Log, Log]) -> None:
    """Rule 18. The node was started on an empty directory, and no member has rejected it yet."""
    log, short = logs
    named = replace(MEMBERSHIP, incarnations={NodeId(name): f"i{name}" for name in NAMES})
    log, short = Log(), Log()
    for each in (log, short):
        each.membership(named)
        each.topic()
    log.records(b"acknowledged")
    disk = disks(n1=log, n2=Log(), n3=short)
    change_control(disk, "n2", incarnation="another", history=((0, 1),))
    with pytest.raises(NoQuorumError, match="n2 has another disk"):
        opened(disk, "n2", "n3")
    assert replayed(disk, "n1", "n3") == visible(log)


def test_the_lost_disk_of_a_reborn_member_is_another_member(logs: tuple[Log, Log]) -> None:
    """Both directories are of node n2. The old one is the voter, and the only one that still has the record."""
    log, short = logs
    disk = disks(n1=short, n2=log, new=Log())
    change_control(disk, "new", node_id="n2", member_id=REBORN, history=((0, 1),))
    assert replayed(disk, "n1", "n2", "new") == visible(log)
    with pytest.raises(NoQuorumError):
        opened(disk, "n1", "new")
    write_member(disk, "copy", log, node="n2")
    with pytest.raises(ConfigError, match="both belong to member n2"):
        opened(disk, "n1", "n2", "copy")


def test_a_joint_membership_needs_both_majorities() -> None:
    """Rule 15. n1, n4 and n5 are all of the new voters, and one of the three old ones."""
    joint = Membership(members("n1", "n4", "n5"), {}, 3, members(*NAMES))
    log = Log()
    log.membership()
    log.topic()
    log.records(b"first")
    short = log.copy()
    log.membership(joint)
    disk = disks(n1=log, n4=log, n5=log, n2=short, n3=short)
    with pytest.raises(NoQuorumError, match=r"a majority of n1, n2, n3 is needed \(missing: n2, n3\)"):
        opened(disk, "n1", "n4", "n5")
    with pytest.raises(NoQuorumError, match=r"a majority of n1, n4, n5 is needed \(missing: n4, n5\)"):
        opened(disk, "n1", "n2")
    assert replayed(disk, "n1", "n2", "n4") == visible(log)
    assert replayed(disk, "n2", "n3") == visible(short)


def test_members_that_lost_power_in_interval_mode_count_only_if_all_voters_are_there(logs: tuple[Log, Log]) -> None:
    """docs/design/0007. They were not stopped cleanly, and the machine has restarted: each may have lost records."""
    log, short = logs
    disk = disks(n1=log, n2=short, n3=short)
    for name in ("n2", "n3"):
        change_control(disk, name, running=("a boot that is over", INTERVAL))
    with pytest.raises(NoQuorumError, match=r"n2 lost a part of its log.* an unknown index") as caught:
        opened(disk, "n2", "n3")
    assert "a majority of n1, n2, n3 is needed (missing: n1, n2, n3)" in caught.value.message
    assert replayed(disk) == visible(log)


@pytest.mark.parametrize("byte", [30, 110], ids=["header", "body"])
def test_a_member_that_lost_records_which_nobody_has_does_not_vote(logs: tuple[Log, Log], byte: int) -> None:
    """Rule 17. The damage is behind all records known to be committed, so a running n2 would be recovering too."""
    log, short = logs
    for value in (b"third", b"fourth", b"fifth"):
        log.records(value)
    disk = disks(n1=short, n2=log, n3=short)
    path, at = list(places_of(disk, "n2", lambda batch: batch.kind is Kind.RECORDS))[2]
    flip(disk, path, at + byte)
    replay = opened(disk)
    assert shown(disk, replay) == visible(short)
    assert [(each.kind, each.path) for each in replay.findings if each.kind == "recovering"] == [("recovering", "/n2")]
    problem = opened(disk, "n1", "n2").problem
    assert problem is not None, "n3 may have acknowledged what n2 has lost"
    change_control(disk, "n2", commit_hint=log.end)
    assert opened(disk).problem is not None, "what was committed is missed"


def test_unsafely_a_recovering_member_is_read_as_well(logs: tuple[Log, Log]) -> None:
    log, short = logs
    disk = disks(n2=log, n3=short)
    change_control(disk, "n2", recovering_until=(1, log.end + 5))
    replay = opened(disk, "n2", "n3", unsafe=True)
    assert not replay.is_majority
    assert shown(disk, replay) == visible(log)
