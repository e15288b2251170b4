"""A session that has lost acknowledged batches, as in interval mode when a majority loses power."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.cluster import Act, Cluster, Refuse
from tests.client.test_client import ready, until
from tests.streams.log import Log
from viewstamp.client import Client
from viewstamp.errors import OverloadedError
from viewstamp.streams import Streams
from viewstamp.wire.frame import FrameKind


def lose_acknowledged(cluster: Cluster, count: int) -> None:
    """Remove the latest batches from the cluster's log and state, and close its connections."""
    kept, machine = cluster.log.applied[:-count], Streams()
    for batch in kept:
        machine.apply(batch)
    cluster.log = Log(machine, first_index=kept[-1].first_index + kept[-1].count)
    cluster.log.applied = kept
    for node in cluster.nodes:
        node.lose_connections()


async def in_flight(cluster: Cluster, client: Client, value: bytes) -> asyncio.Task[object]:
    """Send an append that the leader neither applies nor answers."""
    cluster.default = Act.HOLD
    sent = len(cluster.arrived)
    task: asyncio.Task[object] = asyncio.create_task(client.append("orders", value))
    await until(lambda: len(cluster.arrived) == sent + 1)
    cluster.default = Act.OK
    cluster.held.clear()
    return task


@pytest.mark.parametrize("gone", [1, 2])
async def test_appends_continue_after_their_session_has_lost_acknowledged_batches(cluster: Cluster, gone: int) -> None:
    """The lost sequences are fenced, so that they stay lost, and the batch in flight is the next one, once."""
    client = await ready(cluster, timeout=5.0)
    for value in (b"a", b"b"):
        await client.append("orders", value)
    task = await in_flight(cluster, client, b"c")
    lose_acknowledged(cluster, gone)
    await asyncio.wait_for(task, 2)
    await client.append("orders", b"d")
    assert cluster.values() == [*[b"first", b"a", b"b"][: 3 - gone], b"c", b"d"]
    assert len({arrival.session for arrival in cluster.arrived}) == 1


async def test_a_leader_without_room_is_asked_once_for_its_session(cluster: Cluster) -> None:
    """The refusal for lack of space looks like one because of lost batches.

    The client asks once whether batches were lost, and then only retries.
    """
    client = await ready(cluster, timeout=5.0, back_off_min=0.01, back_off_max=0.01)
    await client.append("orders", b"a")
    task = await in_flight(cluster, client, b"b")
    cluster.requests.clear()
    cluster.script.extend([Refuse(OverloadedError("no room"))] * 5)
    cluster.nodes[0].lose_connections()
    await asyncio.wait_for(task, 2)
    assert cluster.values() == [b"first", b"a", b"b"]
    assert [kind for _, kind in cluster.requests].count(FrameKind.OUTCOME) == 1


async def test_a_proof_that_is_refused_is_asked_for_again(cluster: Cluster) -> None:
    client = await ready(cluster, timeout=5.0, back_off_min=0.01, back_off_max=0.01)
    for value in (b"a", b"b"):
        await client.append("orders", value)
    task = await in_flight(cluster, client, b"c")
    cluster.refuse_outcomes.extend([OverloadedError("no room")] * 3)
    lose_acknowledged(cluster, 2)
    await asyncio.wait_for(task, 3)
    await client.append("orders", b"d")
    assert cluster.values() == [b"first", b"c", b"d"]
