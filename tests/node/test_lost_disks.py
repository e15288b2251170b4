"""Members lose their disks one after another, over years, while the settings never change."""

import shutil
from pathlib import Path

import pytest

from tests.node.group import Group, wait_for
from viewstamp.ids import NodeId, name_of

pytestmark = pytest.mark.slow


async def test_every_member_loses_its_disk_in_turn_and_rejoins(tmp_path: Path) -> None:
    """In the end the settings contain the current id of no member, not even the leader's."""
    async with Group(tmp_path) as group:
        await group.run()
        client = group.client()
        await client.create_topic("t")
        await client.append("t", b"before")
        for name in ("n2", "n3", "n1"):
            await group.stop(name)
            shutil.rmtree(tmp_path / name)
            await group.start(name)
            node = group.nodes[NodeId(name)]

            def votes(name: str = name) -> bool:
                replica = group.nodes[NodeId(name)].replica
                membership = replica.raft.core.membership if replica is not None else None
                me = group.nodes[NodeId(name)].me
                return me != name and membership is not None and not membership.is_joint and me in membership.voters

            await wait_for(votes, lambda node=node: f"{node.status}\n{group.journal.tail(80)}")  # type: ignore[misc]
            leader = await group.leader()
            if leader is not node:
                await leader.group.transfer_leadership(node.me)
        await group.caught_up()
        leader = await group.leader()
        assert leader.replica is not None
        assert sorted(map(name_of, leader.replica.raft.core.membership.voters)) == ["n1", "n2", "n3"]
        assert all("~" in voter for voter in leader.replica.raft.core.membership.voters)
        assert [record.value async for record in group.client().read("t")] == [b"before"]
