"""The memory that the groups of a node share: no group takes the share of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.caller import body_of, call
from tests.node.group import CLUSTER, wait_for
from tests.node.test_groups import SEVEN, Hosting
from viewstamp.consensus.raft import share_of
from viewstamp.errors import StorageError
from viewstamp.ids import GroupId, NodeId
from viewstamp.node import Node
from viewstamp.node.service import Limits
from viewstamp.streams import Streams
from viewstamp.wire.frame import GROUPS_VERSION, FrameKind

LIMITS = Limits(batch_bytes_max=10_000, frame_bytes_max=100_000, in_flight_bytes_max=12_000)
OF_SEVEN = {"cluster": CLUSTER, "node": "", "incarnation": "", "group": SEVEN, "version": GROUPS_VERSION}
MIB = 1024 * 1024


def shares(node: Node) -> list[tuple[float, ...]]:
    """Return for each group the bytes of its windows, of its cache and of its links, and its part of the scrub rate."""
    parts = [group.parts for group in node.groups.values() if group.parts is not None]
    return [
        (core.window_bytes, core.log.cache_bytes_max, each.peers._unsent_bytes_max, 1 / each.scrubber.groups)
        for each, core in ((each, each.raft.core) for each in parts)
    ]


async def test_appends_of_a_group_without_answers_leave_the_others_their_share(tmp_path: Path) -> None:
    """Of 12,000 bytes each of the two groups has 3,000 for itself, and both together may use 6,000 more."""
    async with Hosting(tmp_path, 1) as group:
        await group.run(limits=LIMITS)
        await group.host()
        await wait_for(lambda: group.leader_of_seven() is not None, group.journal.tail)
        node = group.nodes[NodeId("n1")]
        async with call(group, "n1") as caller, call(group, "n1", greet=False) as other:
            assert (await other.hello(**OF_SEVEN)).kind == FrameKind.WELCOME
            body_of(await caller.ask(FrameKind.CREATE_TOPIC, name="before"))
            node.groups[SEVEN].in_flight_bytes += 11_500
            node.group.in_flight_bytes += 1_000
            body_of(await caller.ask(FrameKind.CREATE_TOPIC, name="during"))
            assert (await other.ask(FrameKind.OPEN_SESSION)).body["error"] == "OverloadedError"
            node.group.in_flight_bytes += 1_990
            assert (await caller.ask(FrameKind.CREATE_TOPIC, name="refused")).body["error"] == "OverloadedError"
            node.groups[SEVEN].in_flight_bytes -= 11_500
            body_of(await caller.ask(FrameKind.CREATE_TOPIC, name="after"))
            node.group.in_flight_bytes -= 2_990
        assert node.server is not None
        assert node.server.budget.used == 0


async def test_the_groups_of_a_node_divide_its_memory_and_its_scrub_rate(tmp_path: Path) -> None:
    async with Hosting(tmp_path, 1) as group:
        await group.run()
        node = group.nodes[NodeId("n1")]
        alone = shares(node)
        await group.host()
        assert shares(node) == [tuple(each / 2 for each in alone[0])] * 2
        group.refuses = "", "groups/8/", StorageError
        with pytest.raises(StorageError):
            await node.host_group(node.options.of_group(GroupId(8), group.members, learners={}), Streams())
        assert shares(node) == [tuple(each / 2 for each in alone[0])] * 2, "a group that was not opened has no share"


@pytest.mark.parametrize(
    ("total", "groups", "least", "share"),
    [(16 * MIB, 1, MIB, 16 * MIB), (16 * MIB, 4, MIB, 4 * MIB), (16 * MIB, 17, MIB, MIB), (1000, 1, MIB, 1000)],
)
def test_a_share_holds_one_append_if_the_whole_does(total: int, groups: int, least: int, share: int) -> None:
    assert share_of(total, groups, least) == share
