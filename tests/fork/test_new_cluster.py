"""Nodes on the files of a fork: everything of the old cluster is there, and the two clusters never mix."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.node.group import CLIENT, Group
from tests.node.test_stream_topics import Spreading
from tests.streams.actors import CLASSES
from viewstamp.client import Client, ClientOptions
from viewstamp.errors import ConfigError, OutcomeToken, WrongClusterError
from viewstamp.fork import Basis, ForkResult, NewMember, fork, judge_source
from viewstamp.host.disk import RealDisk
from viewstamp.ids import ClusterId, NodeId, Sequence, TopicId
from viewstamp.node.fork_mark import ForkMark, ForkPhase
from viewstamp.streams import Streams

FORKED = ClusterId("forked")


class ActorGroup(Group):
    """Members with actors."""

    def machine(self, node: NodeId) -> Streams:
        return Streams(CLASSES)


def fork_files(
    old: Path,
    new: Path,
    *,
    size: int = 3,
    basis: Basis = Basis.ELECTED,
    names: str = "n1 n2 n3",
    with_groups: bool = False,
) -> ForkResult:
    paths = [str(old / name) for name in names.split()]
    source = judge_source(RealDisk(), paths, basis=basis, with_groups=with_groups)
    return fork(
        RealDisk(),
        source,
        cluster=FORKED,
        members=[
            NewMember(node=NodeId(f"n{at}"), address=f"127.0.0.1:{at}", directory=str(new / f"n{at}"))
            for at in range(1, size + 1)
        ],
        entropy=random.Random(1),
        segment_bytes=64 * 1024,
    )


def client_of(group: Group, cluster: str) -> Client:
    return Client(
        list(group.members.values()),
        network=group.board.network(CLIENT),
        entropy=random.Random(2),
        cluster_id=cluster,
        options=ClientOptions(back_off_max=0.1, timeout=5.0),
    )


@pytest.mark.parametrize("size", [1, 3])
async def test_new_cluster_serves_topics_and_actors_and_ends_the_old_sessions(tmp_path: Path, size: int) -> None:
    values = [b"%d" % number for number in range(50)]
    async with ActorGroup(tmp_path / "old", 3) as old:
        await old.run()
        client = old.client()
        await client.create_topic("orders")
        for value in values:
            await client.append("orders", value)
        assert await client.call("counter", "add", 7) == 7
        session = client._sender.session.id
        digests = {node.replica.applier.machine.digest() for node in old.nodes.values() if node.replica}
        assert digests
    result = fork_files(tmp_path / "old", tmp_path / "new", size=size)
    async with ActorGroup(tmp_path / "new", size, cluster=FORKED) as new:
        await new.run()
        async with client_of(new, FORKED) as client:
            assert [record.value async for record in client.read("orders")] == values
            assert await client.query("counter", "read") == 7
            token = OutcomeToken(session=session, sequence=Sequence(1), topic=TopicId(1), offset=0, count=1)
            assert (await client.outcome(token)).answer == "expired"
            receipt = await client.append("orders", b"new")
            assert receipt.position == len(values) + 1
            assert receipt.term > result.term
            assert await client.call("counter", "add", 1) == 8
        await new.caught_up()
        machines = [node.replica.applier.machine for node in new.nodes.values() if node.replica]
        assert len({machine.digest() for machine in machines}) == 1
        async with client_of(new, "c1") as stranger:
            with pytest.raises(WrongClusterError, match="forked"):
                await stranger.append("orders", b"for the old cluster")
    async with ActorGroup(tmp_path / "old", 3) as old:
        await old.run()
        assert [record.value async for record in old.client().read("orders")] == values


async def test_directory_of_one_cluster_is_refused_by_a_node_of_the_other(tmp_path: Path) -> None:
    async with Group(tmp_path / "old", 1) as old:
        await old.run()
        await old.client().create_topic("orders")
    fork_files(tmp_path / "old", tmp_path / "new", size=1, names="n1")
    async with Group(tmp_path / "new", 1) as new:
        with pytest.raises(ConfigError, match="holds node n1 of cluster forked"):
            await new.start()


async def test_members_of_a_fork_at_the_addresses_of_the_original_are_not_taken_for_it(tmp_path: Path) -> None:
    """A member of the fork runs where the original's n3 was: neither side counts the other's votes or records."""
    async with Group(tmp_path / "old", 3) as old:
        await old.run()
        await old.client().create_topic("orders")
        await old.client().append("orders", b"a")
    fork_files(tmp_path / "old", tmp_path / "new")
    async with Group(tmp_path / "old", 3) as old:
        await old.start("n1", "n2")
        new = Group(tmp_path / "new", 3, cluster=FORKED)
        new.board = old.board
        async with new:
            await new.start("n3")
            await old.client("n1", "n2").append("orders", b"b")
            node = new.nodes[NodeId("n3")]
            assert node.replica is not None
            assert node.replica.raft.core.leader is None
            assert node.replica.raft.core.log.end == node.replica.applier.applied_end
            values = [record.value async for record in old.client("n1", "n2").read("orders")]
            assert values == [b"a", b"b"]


async def test_node_does_not_start_on_a_directory_with_an_unfinished_fork(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        await group.stop("n1")
        directory = str(tmp_path / "n1")
        mark = ForkMark(
            fork="f", source="c1", cluster="c2", phase=ForkPhase.BUILDING, aside="old", directories=(directory,)
        )
        mark.place(RealDisk(), directory)
        with pytest.raises(ConfigError, match=r"was interrupted in .* \(building\); nothing was started") as caught:
            await group.start("n1")
        assert f"remove {directory}/fork.mark" in caught.value.remedy
        (tmp_path / "n1" / "fork.mark").unlink()
        await group.run("n1")


@pytest.mark.parametrize("size", [1, 4])
async def test_a_new_cluster_reads_topics_with_streams_in_the_same_order_and_goes_on(tmp_path: Path, size: int) -> None:
    async def read(client: Client) -> list[tuple[int, bytes]]:
        return [(record.position, bytes(record.value)) async for record in client.read("orders")]

    async with Spreading(tmp_path / "old", 3) as old:
        await old.run()
        groups = [await old.established("s1"), await old.established("s2", nodes=("n3",))]
        client = old.client()
        await client.create_spread_topic("orders", 3, groups=groups)
        for number in range(30):
            await client.append("orders", b"%d" % number, key=b"%d" % number, ordered=True)
        before = await read(client)
        assert before == [(number + 1, b"%d" % number) for number in range(30)]
    result = fork_files(tmp_path / "old", tmp_path / "new", size=size, with_groups=True)
    assert result.groups == tuple(groups)
    async with Spreading(tmp_path / "new", size, cluster=FORKED) as new:
        await new.run()
        async with client_of(new, FORKED) as client:
            assert await read(client) == before
            receipt = await client.append("orders", b"new", ordered=True, timeout=20.0)
            assert receipt.global_position == len(before) + 1
            assert (await read(client))[-1][1] == b"new"
            topic = await client.describe_spread_topic("orders")
            assert topic.groups == (groups[0], groups[1], groups[0])
            assert [len(each.founders) for each in await client.list_groups()] == [min(size, 3), 1]
