"""The leaders of groups on running nodes are balanced, also after a failure; what cannot move has a reason."""

from __future__ import annotations

from pathlib import Path

from tests.node.group import wait_for
from tests.node.test_stream_topics import Spreading
from viewstamp.ids import GroupId
from viewstamp.node import Node


async def leads(group: Spreading, placed: GroupId) -> Node:
    return await wait_for(lambda: group.leader_of(placed), group.journal.tail)


async def test_leaders_are_balanced_and_moved_back_after_a_failure(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        client = group.client()
        placed = [await group.established(f"s{number}") for number in range(4)]
        alone = await group.established("alone", nodes=("n1",))
        for _ in range(2):  # The second time after a failure, which has moved leaders.
            found = await client.balance_leaders(timeout=30)
            assert [each.group for each in found] == [0, *placed, alone]
            assert not any(each.reason for each in found), found
            leaders = [each.leader for each in found]
            assert leaders[5] == "n1"
            assert sorted(map(leaders.count, ("n1", "n2", "n3"))) == [2, 2, 2]
            again = await client.balance_leaders()
            assert [each.leader for each in again] == leaders
            assert not any(each.is_moved for each in again)
            await group.stop("n3")
            for each in placed:
                assert (await leads(group, each)).options.node != "n3"
            lacking = await client.balance_leaders()
            assert {each.leader for each in lacking} <= {"n1", "n2"}
            blocked = [each.reason for each in lacking if each.reason]
            assert blocked
            assert all("n3 does not answer" in reason for reason in blocked)
            await group.run("n3")
            await wait_for(lambda: not group.nodes["n3"].hosting.unserved, group.journal.tail)  # type: ignore[index]


async def test_a_group_without_a_leader_is_named_and_delays_no_other(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        client = group.client("n1", "n2")
        placed, alone = await group.established("s1"), await group.established("alone", nodes=("n3",))
        await group.stop("n3")
        await leads(group, placed)
        found = {each.group: each for each in await client.balance_leaders()}
        assert found[alone].leader == ""
        assert "it has no leader" in found[alone].reason
        assert found[placed].leader in ("n1", "n2")
