"""Members are replaced without any notice to a client, which learns the new ones from the remaining ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.node.group import Group, wait_for
from viewstamp.client import Client
from viewstamp.errors import RequestError
from viewstamp.ids import NodeId

pytestmark = pytest.mark.slow


async def replace(group: Group, old: str, new: str) -> None:
    """Start a node, and return when it is a voter in the place of another one, which keeps running."""
    address = f"127.0.0.1:{new.removeprefix('n')}"
    await group.start(new, listen=address)
    leader = await group.leader()
    await leader.group.change_members("replace", new, address, old)

    def is_done() -> bool:
        for node in group.nodes.values():
            if node.replica is not None and node.replica.is_leading and node.me != old:
                membership = node.group.membership
                return not membership.is_joint and new in membership.voters and old not in membership.addresses
        return False

    await wait_for(is_done, lambda: f"{new} does not replace {old}\n{group.journal.tail()}")


async def replace_all(group: Group) -> None:
    for old, new in (("n2", "n4"), ("n3", "n5"), ("n1", "n6")):
        await replace(group, old, new)
        await group.stop(old)


async def values(client: Client) -> Sequence[bytes]:
    return [record.value async for record in client.read("t")]


async def test_a_client_goes_on_while_one_member_after_the_other_is_replaced(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        client = group.client(timeout=10.0)
        await client.create_topic("t")
        appended = []
        for old, new in (("n2", "n4"), ("n3", "n5"), ("n1", "n6")):
            await replace(group, old, new)
            await group.stop(old)
            await client.append("t", new.encode())
            appended.append(new.encode())
            assert await values(client) == appended
        assert set((await client.list_members()).voters) == {"n4", "n5", "n6"}
        with pytest.raises(RequestError, match="n1 is no member"):
            await client.remove_member("n1")


async def test_an_idle_client_finds_the_new_members_after_all_were_replaced(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        client = group.client(timeout=10.0)
        await client.create_topic("t")
        await client.append("t", b"before")
        await replace_all(group)
        await client.append("t", b"after")
        assert await values(client) == [b"before", b"after"]
        # A second round of failures: the client finds the learned members again, and does not need the first ones.
        leader = await group.leader()
        await group.stop(leader.me)
        await client.append("t", b"later")


@pytest.mark.parametrize("removed", [["n3"], ["n2", "n3"]], ids=["one", "two"])
async def test_a_client_with_addresses_of_removed_nodes_only_reports_the_members(
    tmp_path: Path, removed: list[str]
) -> None:
    """The removed nodes keep running without a leader, so asking them again and again does not help."""
    async with Group(tmp_path) as group:
        await group.run()
        for old, new in zip(removed, ("n4", "n5"), strict=False):
            await replace(group, old, new)
            await group.stop(old)
            await group.start(old)
        client = group.client(*removed, timeout=5.0)
        voters = {"n1", "n2", "n3", "n4", "n5"} - set(removed) - ({"n5"} if len(removed) == 1 else set())
        assert set((await client.list_members()).voters) == voters
        await client.create_topic("t")
        await client.append("t", b"1")
        assert await values(client) == [b"1"]
        assert await client.transfer_leadership("n4") == "n4"
        assert set((await client.remove_member("n1")).voters) == voters - {"n1"}


async def test_a_node_sends_the_members_when_a_client_connects_and_when_they_change(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        client = group.client("n1")
        await client.list_members()
        known = client._pool.addresses
        assert sorted(known.all) == sorted(group.members.values())
        await replace(group, "n3", "n4")
        n4 = group.nodes[NodeId("n4")].address
        await wait_for(
            lambda: known.is_member(n4) and not known.is_member(group.members[NodeId("n3")]), lambda: str(known.all)
        )
        assert sorted(known.all) == sorted([group.members[NodeId("n1")], group.members[NodeId("n2")], n4])
