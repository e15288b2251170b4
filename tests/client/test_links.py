"""Clients of one process share connections; the actions and failures of one never harm the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from tests.client.cluster import Act, Cluster
from viewstamp.client import Client
from viewstamp.client.aio import links_of_loop
from viewstamp.client.link import USERS_MAX
from viewstamp.errors import ClosedError, OutcomeUnknownError, UnavailableError, WrongClusterError
from viewstamp.host.interfaces import Connection, ConnectionHandler, Network
from viewstamp.node.state_machine import Result
from viewstamp.wire.batch import Batch, Kind


@pytest.fixture
async def clients(cluster: Cluster) -> list[Client]:
    """Eight clients of the leader, each with an open session and a described topic."""
    made = [cluster.client(0, seed=seed, timeout=5.0, back_off_max=0.02) for seed in range(8)]
    await made[0].create_topic("orders")
    for number, client in enumerate(made):
        await client.append("orders", b"first of %d" % number)
    cluster.arrived.clear()
    return made


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come to that")


async def test_clients_of_a_process_share_a_connection_until_the_last_one_closes(
    cluster: Cluster, clients: list[Client]
) -> None:
    leader = cluster.nodes[0]
    assert len(leader.connections) == 1
    for client in clients[1:]:
        await client.close()
    await clients[0].append("orders", b"alone")
    assert len(leader.connections) == 1
    await clients[0].close()
    await until(lambda: not leader.connections)
    assert links_of_loop()._open == {}


async def test_more_clients_than_one_link_takes_get_another_link(cluster: Cluster) -> None:
    await cluster.client(0).create_topic("orders")
    many = [cluster.client(0, seed=seed) for seed in range(2 * USERS_MAX)]
    await asyncio.gather(*(client.append("orders", b"one") for client in many))
    assert len(cluster.nodes[0].connections) == 3


async def test_records_of_all_sessions_in_one_turn_arrive_in_one_write(cluster: Cluster, clients: list[Client]) -> None:
    arrivals: list[int] = []
    peer = cluster.nodes[0].connections[0]
    on_bytes = peer.on_bytes

    def count(data: bytes) -> None:
        arrivals.append(len(data))
        on_bytes(data)

    peer.on_bytes = count  # type: ignore[method-assign]
    await asyncio.gather(*(client.append("orders", b"one") for client in clients))
    assert len(cluster.arrived) == len(clients)
    assert len(arrivals) == 1


async def test_closing_one_among_many_in_mid_append_fails_its_calls_alone(
    cluster: Cluster, clients: list[Client]
) -> None:
    cluster.default = Act.APPLY_AND_HOLD
    appends = [asyncio.ensure_future(client.append("orders", b"n%d" % n)) for n, client in enumerate(clients)]
    await until(lambda: len(cluster.held) == len(clients))
    await clients[3].close()
    with pytest.raises(OutcomeUnknownError):
        await appends[3]
    cluster.release()
    receipts = await asyncio.gather(*(append for append in appends if append is not appends[3]))
    assert len({receipt.position for receipt in receipts}) == len(clients) - 1
    assert len(cluster.arrived) == len(clients), "no client sent its batch again"
    assert [client.batches_retried for client in clients] == [0] * len(clients)


async def test_cancelling_calls_of_one_client_changes_nothing_for_the_others(
    cluster: Cluster, clients: list[Client]
) -> None:
    cluster.default = Act.HOLD
    appends = [asyncio.ensure_future(client.append("orders", b"n%d" % n)) for n, client in enumerate(clients)]
    await until(lambda: len(cluster.held) == len(clients))
    for append in appends[:4]:
        append.cancel()
    cluster.release()
    await asyncio.gather(*appends[4:])
    assert [append.cancelled() for append in appends[:4]] == [True] * 4
    assert cluster.nodes[0].connections[0].connection is not None


@pytest.mark.parametrize("act", [Act.LOSE, Act.APPLY_AND_LOSE])
async def test_a_break_in_mid_answer_has_each_session_send_its_own_again(
    cluster: Cluster, clients: list[Client], act: str
) -> None:
    held = len(clients) - 1
    cluster.script.extend([Act.APPLY_AND_HOLD] * held + [act])
    appends = [client.append("orders", b"n%d" % n) for n, client in enumerate(clients)]
    receipts = await asyncio.gather(*appends)
    assert len({receipt.position for receipt in receipts}) == len(clients)
    values = cluster.values()
    assert sorted(values[len(clients) :]) == [b"n%d" % n for n in range(len(clients))], "each once"
    assert len(cluster.nodes[0].connections) == 1


async def test_a_client_that_is_closed_while_it_opens_leaves_the_opening_to_another(cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    leader.is_silent = True
    opener, other = cluster.client(0), cluster.client(0, seed=2)
    opening = asyncio.ensure_future(opener.create_topic("orders"))
    await until(lambda: bool(leader.connections))
    waiting = asyncio.ensure_future(other.create_topic("orders"))
    await asyncio.sleep(0)
    assert len(leader.connections) == 1
    leader.is_silent = False
    await opener.close()
    with pytest.raises(ClosedError):
        await opening
    assert (await waiting).name == "orders"


async def test_a_caller_that_is_cancelled_while_its_client_opens_leaves_the_opening_to_another(
    cluster: Cluster,
) -> None:
    leader = cluster.nodes[0]
    leader.is_silent = True
    opener, other = cluster.client(0, connect_timeout=30.0), cluster.client(0, seed=2, connect_timeout=30.0)
    opening = asyncio.ensure_future(opener.list_topics())
    await until(lambda: bool(leader.connections))
    waiting = asyncio.ensure_future(other.list_topics())
    await asyncio.sleep(0)
    leader.is_silent = False
    opening.cancel()
    assert await waiting == []


class CountingNetwork(Network):
    """A network that counts the attempts to connect."""

    def __init__(self, network: Network) -> None:
        self.dialled = 0
        self._network = network

    async def listen(self, address: str, accept: Callable[[Connection], ConnectionHandler]) -> object:  # type: ignore[override]
        return await self._network.listen(address, accept)

    async def connect(self, address: str, accept: Callable[[Connection], ConnectionHandler]) -> Connection:
        self.dialled += 1
        return await self._network.connect(address, accept)


async def test_a_node_that_cannot_be_reached_is_dialled_once_for_all_that_wait(cluster: Cluster) -> None:
    """One after another, the last client would wait for all timeouts together."""
    network = CountingNetwork(cluster.network("client"))
    cluster.network = lambda node: network
    cluster.nodes[0].is_silent = True
    clients = [cluster.client(0, seed=seed, connect_timeout=0.1, timeout=0.15) for seed in range(8)]
    asked = await asyncio.gather(*(client.list_topics() for client in clients), return_exceptions=True)
    assert all(isinstance(answer, UnavailableError) for answer in asked), asked
    assert network.dialled <= 3


async def test_a_server_that_closes_on_one_bad_request_harms_its_session_alone(
    cluster: Cluster, clients: list[Client]
) -> None:
    """The client sends the request again on each new connection.

    After two ends it gets a connection that no other client uses.
    """
    cluster.poison = b"poison"
    bad = asyncio.ensure_future(clients[0].append("orders", b"poison", timeout=5.0))
    for number in range(20):
        await asyncio.gather(*(client.append("orders", b"n%d" % number) for client in clients[1:]))
    await until(lambda: clients[0].batches_retried > 5)
    retried, of_bad = [client.batches_retried for client in clients[1:]], clients[0].batches_retried
    while clients[0].batches_retried < of_bad + 10:
        await asyncio.gather(*(client.append("orders", b"still there") for client in clients[1:]))
    assert [client.batches_retried for client in clients[1:]] == retried
    bad.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await bad


async def test_a_client_of_another_cluster_is_refused_and_the_others_keep_the_link(
    cluster: Cluster, clients: list[Client]
) -> None:
    stranger = cluster.client(0, cluster_id="another")
    with pytest.raises(WrongClusterError):
        await stranger.list_topics()
    await asyncio.gather(*(client.append("orders", b"one") for client in clients))
    assert len(cluster.nodes[0].connections) == 1


async def test_a_slow_session_does_not_hold_up_a_quick_one(cluster: Cluster, clients: list[Client]) -> None:
    """All batches of the slow client are sent and unanswered, and 4,096 more records wait behind them."""
    slow, quick = clients[:2]
    cluster.script.extend([Act.HOLD] * 8)
    waiting = [asyncio.ensure_future(slow.append("orders", bytes(64_000))) for _ in range(4096 // 16)]
    await until(lambda: len(cluster.held) == 8)
    receipt = await quick.append("orders", b"quick", timeout=5.0)
    assert receipt.position
    assert not any(append.done() for append in waiting)
    cluster.release()
    cluster.default = Act.OK
    await asyncio.gather(*waiting)


async def test_a_leader_that_is_silent_is_left_by_all_and_the_answers_go_to_their_own_sessions(
    cluster: Cluster,
) -> None:
    clients = [cluster.client(seed=seed, silence=0.2) for seed in range(4)]
    await clients[0].create_topic("orders")
    await asyncio.gather(*(client.append("orders", b"first") for client in clients))
    cluster.nodes[0].is_silent = True
    appends = [asyncio.ensure_future(client.append("orders", b"n%d" % n)) for n, client in enumerate(clients)]
    await asyncio.sleep(0.05)
    cluster.leader = cluster.nodes[1]
    receipts = await asyncio.gather(*appends)
    values = cluster.values()
    assert [values[receipt.position - 1] for receipt in receipts] == [b"n%d" % n for n in range(4)]


async def test_a_session_that_was_opened_and_never_used_is_replaced_after_the_connection_was_lost(
    cluster: Cluster,
) -> None:
    client = cluster.client(timeout=5.0)
    await client.create_topic("orders")
    cancelled = asyncio.ensure_future(client.append("orders", b"cancelled"))
    propose = cluster.propose

    def cancel_and_propose(batch: Batch) -> Result:
        if batch.kind is Kind.OPEN_SESSION:
            cancelled.cancel()
        return propose(batch)

    cluster.propose = cancel_and_propose  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await client.list_topics()
    cluster.nodes[0].lose_connections()
    await client.append("orders", b"kept")
    assert cluster.values() == [b"kept"]
