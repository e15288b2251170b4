"""The report of the possible loss, by the rules of counting."""

from __future__ import annotations

from dataclasses import replace

from tests.fork.test_fork import batches_of
from tests.replay import members
from viewstamp.consensus.membership import Membership, MembershipEntry, Readdressing
from viewstamp.fork import Basis, PossibleLoss, TopicLoss, judge_source, possible_loss
from viewstamp.ids import Index, NodeId, Term
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wire.batch import Kind, build_batch

FOUR = Membership({NodeId(f"n{at}"): f"127.0.0.1:{at}" for at in range(1, 5)})


def loss_of(disk: SimulatedDisk, *names: str) -> PossibleLoss:
    return possible_loss(judge_source(disk, [f"/{name}" for name in names], basis=Basis.SURVIVORS))


def test_one_of_three_may_lack_acknowledged_records_above_its_log() -> None:
    log = members.orders(4)
    disk = SimulatedDisk()
    members.write_member(disk, "n1", log, hint=7)
    loss = loss_of(disk, "n1")
    assert (loss.survivors, loss.lost, loss.acknowledged) == (["n1"], ["n2", "n3"], True)
    assert (loss.known_end, loss.kept_end) == (7, log.end)
    assert loss.topics == [TopicLoss(name="orders", known=4, kept=8)]


def test_two_of_four_hold_all_acknowledged_records() -> None:
    log = members.Log()
    log.membership(FOUR)
    log.topic()
    log.records(b"a")
    disk = SimulatedDisk()
    for name in ("n1", "n2"):
        members.write_member(disk, name, log)
    assert not loss_of(disk, "n1", "n2").acknowledged
    assert loss_of(disk, "n1").acknowledged


def test_member_that_lost_a_part_of_its_log_does_not_count() -> None:
    log = members.orders(4)
    disk = members.cluster(log)
    assert not loss_of(disk, "n1", "n2").acknowledged
    members.change_control(disk, "n2", recovering_until=(9, 99))
    loss = loss_of(disk, "n1", "n2")
    assert loss.acknowledged
    assert loss.uncounted == {"n2": "it lost a part of its log"}
    assert loss.lost == ["n2", "n3"]


def test_calls_of_actors_that_may_not_have_been_acknowledged_are_counted() -> None:
    log = members.orders(1)
    end = log.end
    log.add(build_batch([b"x", b"y"], kind=Kind.COMMANDS))
    disk = SimulatedDisk()
    members.write_member(disk, "n1", log, hint=end)
    assert loss_of(disk, "n1").calls == 2
    assert [batch.kind for batch in batches_of(disk, "/n1")][-1] is Kind.COMMANDS


def test_addresses_of_an_operator_replace_those_of_memberships_up_to_a_generation() -> None:
    moved = Readdressing(0, {NodeId("n1"): "10.0.0.1:7001"})
    entry = MembershipEntry(Index(1), Term(1), FOUR)
    assert moved.entry(entry).membership.addresses == {**FOUR.addresses, "n1": "10.0.0.1:7001"}
    later = MembershipEntry(Index(9), Term(1), Membership(FOUR.voters, generation=1))
    assert moved.entry(later) is later, "a committed change is newer than the operator's word"


def test_an_empty_disk_under_the_name_of_a_voter_does_not_count() -> None:
    """A node has a voter's name and an empty disk. The voter's records were on the disk that the membership names."""
    named = replace(members.MEMBERSHIP, incarnations={NodeId(name): f"disk-{name}" for name in members.NAMES})
    log = members.Log()
    log.membership(named)
    log.topic()
    log.records(b"a")
    disk = SimulatedDisk()
    members.write_member(disk, "n1", log)
    members.change_control(disk, "n1", incarnation="disk-n1")
    members.write_member(disk, "n2", members.Log())
    members.change_control(disk, "n2", incarnation="another")
    loss = loss_of(disk, "n1", "n2")
    assert loss.acknowledged
    assert (loss.survivors, loss.lost) == (["n1"], ["n2", "n3"])
    assert "another disk" in loss.uncounted["n2"]


def test_a_disk_that_is_no_voter_has_the_name_of_its_node_and_a_reason() -> None:
    log = members.orders(4)
    disk = SimulatedDisk()
    members.write_member(disk, "n1", log)
    members.write_member(disk, "n2", log)
    members.change_control(disk, "n2", member_id="n2~ea71c139", incarnation="another")
    loss = loss_of(disk, "n1", "n2")
    assert (loss.survivors, loss.lost, loss.acknowledged) == (["n1"], ["n2", "n3"], True)
    assert "had lost its disk" in loss.uncounted["n2"]


def test_two_disks_of_one_node_have_different_names() -> None:
    log = members.orders(1)
    names = [NodeId("n1"), NodeId("n2"), NodeId("n2~ea71c139")]
    log.membership(Membership({name: f"127.0.0.1:{at}" for at, name in enumerate(names, 1)}, generation=2))
    disk = SimulatedDisk()
    members.write_member(disk, "n1", log)
    assert loss_of(disk, "n1").lost == ["n2 with its first disk", "n2 with its new disk", "n3"]
