"""``local_cluster``, on which a service's own tests can run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import viewstamp
from tests.processes import eventually, leader_of
from viewstamp.embed.local_cluster import local_cluster
from viewstamp.errors import ConfigError, NoQuorumError, RequestError


async def test_three_real_nodes_in_a_temporary_directory_that_is_gone_afterwards() -> None:
    async with viewstamp.local_cluster(nodes=3) as cluster:
        directory = cluster.directory
        assert sorted(cluster.nodes) == ["n1", "n2", "n3"]
        client = cluster.client()
        await client.create_topic("orders")
        receipt = await client.append("orders", b"x")
        assert receipt.position == 1
        assert [record.value async for record in client.read("orders")] == [b"x"]
        assert (directory / "n3").is_dir()
    assert not directory.exists()


async def test_a_service_can_test_the_absence_of_a_node(tmp_path: Path) -> None:
    async with local_cluster(nodes=3, directory=tmp_path) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        leader = await eventually(lambda: leader_of(client))
        await cluster.stop(leader)
        assert leader not in cluster.nodes
        await client.append("orders", b"without it")
        await cluster.start(leader)
        values = [record.value async for record in cluster.nodes[leader].read("orders")]
        assert values == [b"without it"]
        with pytest.raises(RequestError, match="n9"):
            await cluster.start("n9")
    assert (tmp_path / "n1").is_dir(), "the caller's own directory stays"


async def test_two_clusters_stand_side_by_side() -> None:
    async with local_cluster(nodes=1) as one, local_cluster(nodes=1) as other:
        for cluster, value in ((one, b"one"), (other, b"other")):
            client = cluster.client()
            await client.create_topic("orders")
            await client.append("orders", value)
        assert [record.value async for record in one.client().read("orders")] == [b"one"]
        assert [record.value async for record in other.client().read("orders")] == [b"other"]


async def test_a_number_of_nodes_that_makes_no_cluster_is_refused() -> None:
    with pytest.raises(ConfigError):
        async with local_cluster(nodes=0):
            pytest.fail("no cluster without nodes")


async def test_nodes_that_do_not_come_up_in_time_are_all_stopped() -> None:
    """Nodes that would have started later are stopped too."""
    with pytest.raises(NoQuorumError):
        async with local_cluster(nodes=3, timeout=0.005):
            pytest.fail("no group is that quick")


async def test_an_error_inside_passes_through_and_everything_stops() -> None:
    with pytest.raises(KeyError):
        async with local_cluster(nodes=3) as cluster:
            raise KeyError(str(cluster.directory))


async def test_cancelled_while_it_starts_it_leaves_nothing_behind() -> None:
    async def enter() -> None:
        async with local_cluster(nodes=3):
            await asyncio.Event().wait()

    for seconds in (0.0, 0.01, 0.1):
        entering = asyncio.create_task(enter())
        await asyncio.sleep(seconds)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
