"""The bytes of a bounded log that a leader keeps free, based on its followers' reports."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.node.test_digests import Members
from tests.wal.logs import SMALL, make_batch, new_disk, open_wal, simulated
from viewstamp.errors import StorageError, StorageFullError
from viewstamp.ids import NodeId
from viewstamp.node.health.headroom import Headroom
from viewstamp.wal.budget import cost_of
from viewstamp.wire.batch import Batch

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")


def three(**left: int) -> Members:
    """Return members that have applied records, some of which report the given free bytes."""
    members = Members()
    members.run(1, 10)
    members.left |= {NodeId(name): count for name, count in left.items()}
    return members


def spared(members: Members) -> int:
    """Deliver all reports; return the number of bytes that the leader keeps free."""
    members.compare()
    return members.digests[N1]._headroom.spared_bytes


def test_a_leader_keeps_free_the_bytes_lacked_by_the_follower_that_completes_its_majority() -> None:
    members = three(n1=1000, n2=700, n3=200)
    assert spared(members) == 300, "n2 and n1 are a majority"
    members.left[N2] = 100
    assert spared(members) == 800, "now n3 is nearer"
    members.left |= {N1: 150, N3: 150}
    assert spared(members) == 0


def test_bytes_admitted_or_dropped_since_a_members_report_are_taken_into_account() -> None:
    members = three(n1=1000, n2=700, n3=700)
    assert spared(members) == 300
    headroom = members.digests[N1]._headroom
    members.group.propose("n1", b"x")
    headroom.admit(100)
    members.left[N1] = 1000 - cost_of(100)
    assert headroom.spared_bytes == 300, "both have got it"
    members.left[N1] = 1400
    assert headroom.spared_bytes == 700 + cost_of(100), "n1 dropped a part of its log; the others may not have done so"


@simulated
async def test_a_follower_that_writes_each_batch_alone_has_room_for_all_that_its_leader_admits() -> None:
    """A log that shares its writes among many batches has fewer headers than one that writes each batch alone.

    A follower takes nothing after a batch for which it has no room, not even a trim, so the group would stay full.
    """
    options = replace(SMALL, bytes_max=8 * SMALL.segment_bytes, margin_bytes=4096)
    (leading, _), (following, _) = (open_wal(new_disk(), options) for _ in range(2))
    failures: list[StorageError] = []
    for wal in (leading, following):
        wal.start(failures.append)
    await asyncio.sleep(1.0)  # The files of the bounded logs are made.
    group = Members().group
    raft = group["n1"].raft
    assert raft is not None
    headroom = Headroom(raft, lambda: leading.bytes_left)
    is_full = False
    while not is_full:
        for member in (N2, N3):
            headroom.heard(member, following.bytes_left, raft.core.log.end)
        admitted: list[Batch] = []
        while len(admitted) < 200 and not is_full:
            batches = [make_batch(leading.end + number) for number in range(10)]
            try:
                leading.check_room(sum(batch.size for batch in batches), spared=headroom.spared_bytes)
            except StorageFullError:
                is_full = True
                break
            for batch in batches:
                group.propose("n1", b"x")
                headroom.admit(batch.size)
            await leading.append(batches)
            admitted += batches
        for batch in admitted:
            following.check_room(batch.size)
            await following.append([batch])
    assert following.bytes_used > 0.6 * options.bytes_max
    assert failures == []
    for wal in (leading, following):
        await wal.close()


def test_a_member_without_a_report_lacks_nothing() -> None:
    members = three(n1=1000, n2=700)
    assert spared(members) == 0
    members.left[N3] = 10
    assert spared(members) == 300


def test_a_log_without_a_bound_leaves_nothing_free() -> None:
    members = three()
    assert spared(members) == 0
    members.left |= {N2: 10, N3: 10}
    assert spared(members) == 0


def test_reports_of_an_earlier_term_do_not_count() -> None:
    members = three(n1=1000, n2=700, n3=200)
    assert spared(members) == 300
    members.group.elect("n2")
    members.group.elect("n1")
    assert members.digests[N1]._headroom.spared_bytes == 0
    members.run(2, 10)
    assert spared(members) == 300


def test_records_admitted_in_an_earlier_term_and_cut_do_not_count() -> None:
    members = three(n1=1000, n2=700, n3=700)
    group, headroom = members.group, members.digests[N1]._headroom
    for _ in range(5):
        group.propose("n1", b"x")
        headroom.admit(100)
    group.elect("n2", "n2", "n3")
    group.run(20)  # The first member's uncommitted records are cut.
    group.elect("n1")
    group.propose("n1", b"y")
    headroom.admit(100)
    assert spared(members) == 300 + cost_of(100), "the last batch is still on its way to them"


def test_during_a_joint_membership_the_old_voters_need_room_too() -> None:
    """The record that ends the change also needs a majority of the old voters.

    If those were full, the change would never end.
    """
    members = three(n1=1000, n2=700, n3=200)
    assert spared(members) == 300
    core = members.group[N1].core
    joint = replace(core.membership, voters={N1: "", N2: ""}, outgoing={N1: "", N3: ""})
    core.memberships.append(replace(core.memberships[-1], membership=joint))
    assert members.digests[N1]._headroom.spared_bytes == 800, "n3 is needed among the voters before the change"
