from __future__ import annotations

import asyncio
import random

import pytest

from tests.client.cluster import Cluster, network_of_the_loop
from viewstamp.client.aio import Client
from viewstamp.errors import ClosedError


async def test_an_append_that_waits_while_the_client_is_closed_reports_that_nothing_was_sent() -> None:
    network = network_of_the_loop()("client")
    async with Client(["127.0.0.1:1"], network=network, entropy=random.Random(1)) as client:
        appending = asyncio.ensure_future(client.append("orders", b"x"))
        await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await appending


async def test_a_reader_that_connects_while_the_client_is_closed_gets_an_error() -> None:
    """Otherwise a connection that is established after the end would stay open for ever."""
    cluster = Cluster()
    await cluster.start(1)
    await cluster.client().create_topic("orders")
    client = cluster.client()

    async def follow() -> None:
        async for _ in client.read("orders", follow=True):
            pass

    reading = asyncio.create_task(follow())
    await asyncio.sleep(0)
    await client.close()
    try:
        async with asyncio.timeout(5):
            with pytest.raises(ClosedError):
                await reading
    finally:
        await cluster.close()
