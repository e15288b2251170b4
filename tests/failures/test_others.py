"""Failures of neighbouring systems that no other test covers; ``docs/proof.md`` lists all fifteen with their tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.consensus.group import Group as Cores
from tests.node.damage import flip
from tests.node.group import Group
from tests.node.test_repair import fill, take_snapshots, wait_dropped
from tests.node.test_scrub import NEVER
from viewstamp.consensus.membership import AddMember, RemoveMember
from viewstamp.consensus.messages import AppendRequest
from viewstamp.consensus.roles import Lifecycle, Role
from viewstamp.ids import NodeId

ROOT = Path(__file__).parents[2]


def leading(members: int) -> Cores:
    """Return a RUNNING group led by n1; from here on writes become durable only when a test makes them so."""
    group = Cores(members)
    group.elect("n1")
    group.run(5)
    assert group["n1"].core.lifecycle is Lifecycle.RUNNING
    group.is_quick_disk = False
    return group


def committed(group: Cores) -> int:
    return group["n1"].core.log.commit_end


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_machine_that_loses_power_and_one_that_stands_still_lose_nothing_and_do_not_split(writes: int) -> None:
    """Failure 1. n2 has accepted a record and loses its unsynced writes; n1, the leader, stands still and comes back.

    If members acknowledged before their sync, two of three would forget a committed record here.
    """
    group = leading(3)
    group.propose("n1", b"r")
    index = group["n1"].core.log.end - 1
    group.deliver(AppendRequest, target="n2")
    group.drop(target="n3")
    group.sync("n1")
    group.sync("n2", writes)
    group.deliver(target="n1")
    was_committed = committed(group) > index
    assert was_committed == (writes > 0), "an acknowledgement means a sync"
    group.restart("n2")
    group.run(60, "n2", "n3")
    [new] = [member for member in group.up() if member.core.role is Role.LEADER and member.me != "n1"]
    assert (f"1.{index}" in new.disk.records()) == was_committed
    group.run(10)
    assert group["n1"].core.role is Role.FOLLOWER
    assert len({tuple(member.disk.records()) for member in group.up()}) == 1


def test_a_single_node_acknowledges_no_record_that_its_disk_does_not_hold() -> None:
    """Failure 4. A single node waits for its own write only; applying first would be quicker, but wrong."""
    group = leading(1)
    before = committed(group)
    group.propose("n1", b"r")
    group.run(0)
    assert committed(group) == before
    assert group["n1"].disk.end == before
    group.restart("n1")
    group.sync("n1")
    group.run(30)
    assert "1.2" not in group["n1"].disk.records(), "the record was never acknowledged"
    viewstamp = group.propose("n1", b"s")
    group.sync("n1")
    assert committed(group) > viewstamp.index
    group.restart("n1")
    assert str(viewstamp) in group["n1"].disk.records()


@pytest.mark.parametrize("synced", [["n1", "n2"], ["n2", "n3"], ["n1", "n2", "n3"], ["n3", "n4", "n5"]])
def test_five_members_that_all_lose_their_unsynced_writes_keep_committed_records(synced: list[str]) -> None:
    """Failure 4. All power fails at once; only the members in ``synced`` had the record on their disks."""
    group = leading(5)
    group.propose("n1", b"r")
    group.deliver(AppendRequest)
    for me in synced:
        group.sync(me)
    group.deliver(target="n1")
    was_committed = committed(group) > 2
    assert was_committed == (len(synced) >= 3)
    for me in group.members:
        group.crash(me)
    group.is_quick_disk = True
    for me in group.members:
        group.start(me)
    group.run(60)
    logs = {tuple(member.disk.records()) for member in group.up()}
    assert len(logs) == 1
    if was_committed:
        assert "1.2" in logs.pop()


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_restart_with_the_settings_of_before_brings_no_removed_member_back(with_snapshot: bool) -> None:
    """Failure 15.

    The membership has one home, the log with its snapshots; the settings count only while it is empty.
    """
    group = leading(3)
    group.is_quick_disk = True
    group.add("n4")
    group.change("n1", AddMember(NodeId("n4"), "at-n4"))
    group.run(15)
    group.change("n1", RemoveMember(NodeId("n3")))
    group.run(15)
    wanted = {"n1", "n2", "n4"}
    assert {*group["n1"].core.membership.voters} == wanted
    if with_snapshot:
        for me in ("n1", "n2", "n4"):
            assert group.snapshot(me) is not None
            group.trim(me)
            assert group[me].disk.records() == []
    for me in group.members:
        group.crash(me)
    for me in group.members:
        group.start(me)  # the settings still name the first members
    for me in ("n1", "n2", "n4"):
        assert {*group[me].core.membership.voters} == wanted
    group.run(60)
    assert {member.me for member in group.up() if member.core.role is Role.LEADER} <= wanted
    assert {*group["n2"].core.membership.voters} == wanted
    assert group["n3"].core.role is not Role.LEADER
    assert group["n4"].core.role in (Role.LEADER, Role.FOLLOWER), "a promoted learner stays a voter"


async def leave_n3_behind(group: Group) -> list[bytes]:
    """Stop n3, and wait until no log holds the records that it lacks; return the values of the topic."""
    values = await fill(group, 10)
    await group.caught_up()
    behind = group.nodes[NodeId("n3")].group.applied_index
    await group.stop("n3")
    values += await fill(group, 12, 10)
    await take_snapshots(group)
    values += await fill(group, 10, 22)
    await group.client().trim_topic("orders", 31)
    # Makes the second-newest snapshot the base: it holds no record that is still needed.
    await take_snapshots(group)
    await wait_dropped(group, behind + 1)
    return values


@pytest.mark.slow
async def test_a_leader_with_a_rotten_newest_snapshot_sends_the_one_before(tmp_path: Path) -> None:
    """Failure 10. The log is kept from the second-newest snapshot on, which is sent if the newest one is damaged."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await leave_n3_behind(group)
        for name in group.nodes:
            newest = max((tmp_path / name / "snapshots").glob("*.snapshot"))
            flip(newest, 300)
        await group.start("n3")
        await group.caught_up_with_leader("n3")
        assert group.journal.of("= fetching a snapshot", node="n3")
        assert [record.value async for record in group.client().read("orders", 31, node="n3")] == values[30:]


@pytest.mark.slow
async def test_a_leader_that_cannot_read_its_own_snapshot_does_not_leave_a_member_behind_for_ever(
    tmp_path: Path,
) -> None:
    """Failure 10. n3 needs a snapshot, but the leader's is damaged: the leader takes another, or steps down."""
    async with Group(tmp_path, 3, scrub=NEVER) as group:
        await group.run()
        values = await leave_n3_behind(group)
        leader = await group.leader()
        for path in (tmp_path / leader.options.node / "snapshots").glob("*.snapshot"):
            flip(path, path.stat().st_size // 2)
        await group.start("n3")
        await group.caught_up_with_leader("n3")
        assert group.journal.of("! snapshot not fetched", node="n3") or group.journal.of("! damaged snapshot"), (
            "it was read"
        )
        for name in group.members:
            assert [record.value async for record in group.client().read("orders", node=name)] == values[30:]


def test_each_of_the_fifteen_has_a_test_or_a_reason() -> None:
    """The table in ``docs/proof.md`` has all rows, and each claim names a test or a reason."""
    text = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    section = text.split("## Fifteen failures of others")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \|(.*)$", section, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 16))
    assert [number for number, row in rows if "::test_" not in row and "cannot happen" not in row] == []
    assert [number for number, row in rows if "#" not in row and "Jepsen" not in row] == [], "a row without its source"
