"""Trio clients of one ``trio.run`` share connections, which outlive the client that opened them."""

from __future__ import annotations

import pytest
import trio

from tests.client.cluster import Act
from tests.trio.test_client import Peers, addresses, gather, hold, release, until
from viewstamp.client import Receipt
from viewstamp.errors import OutcomeUnknownError
from viewstamp.trio import Client, connect


def test_clients_share_a_connection_that_outlives_its_opener(peers: Peers) -> None:
    leader = peers.held.nodes[0]

    async def append_alone(client: Client, value: bytes) -> None:
        receipt = await client.append("orders", value)
        assert isinstance(receipt, Receipt)

    async def main() -> None:
        async with connect([leader.address]) as later:
            async with connect([leader.address]) as opener:
                await opener.create_topic("orders")
                await append_alone(later, b"first")
                assert len(leader.connections) == 1
            await append_alone(later, b"second")
            assert len(leader.connections) == 1
        await until(lambda: not leader.connections)

    trio.run(main)
    assert peers.held.values() == [b"first", b"second"]


def test_leaving_one_client_in_mid_append_fails_its_calls_alone(peers: Peers) -> None:
    outcomes: list[object] = []

    async def main() -> None:
        async with connect(addresses(peers)) as stays, trio.open_nursery() as nursery:
            await stays.create_topic("orders")
            await stays.append("orders", b"first")
            hold(peers, Act.APPLY_AND_HOLD)
            async with connect(addresses(peers)) as leaves:

                async def append(client: Client, value: bytes) -> None:
                    outcomes.extend(await gather(lambda: client.append("orders", value)))

                nursery.start_soon(append, leaves, b"of the one that leaves")
                nursery.start_soon(append, stays, b"of the one that stays")
                await until(lambda: len(peers.held.held) == 2)
            await until(lambda: len(outcomes) == 1)
            release(peers)
            await until(lambda: len(outcomes) == 2)

    trio.run(main)
    assert isinstance(outcomes[0], OutcomeUnknownError)
    assert isinstance(outcomes[1], Receipt)


def test_a_program_that_ends_leaves_no_connection_open(peers: Peers) -> None:
    leader = peers.held.nodes[0]

    async def main() -> None:
        async with connect([leader.address]) as client:
            await client.create_topic("orders")
            raise KeyError("the program's own error")

    with pytest.raises(KeyError, match="own error"):
        trio.run(main)
    trio.run(until, lambda: not leader.connections)
