"""The parts of a client on their own, and the client's methods that its parts implement."""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.client.cluster import Cluster
from viewstamp.client import Client, Receipt
from viewstamp.client.admin import Admin
from viewstamp.client.aio import AsyncioRuntime, links_of_loop
from viewstamp.client.client import BaseClient
from viewstamp.client.options import ClientOptions
from viewstamp.client.pool import ConnectionPool, LeaderConnection
from viewstamp.client.reader import TopicReader
from viewstamp.client.router import Router
from viewstamp.client.routing import Addresses, LeaderFinder, Roster
from viewstamp.client.topic_calls import TopicCalls
from viewstamp.trio import Client as TrioClient


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.start(2)
    yield made
    await made.close()


def router_of(cluster: Cluster) -> Router:
    """Return a router without a sender, and so without a session."""
    runtime, options, entropy = AsyncioRuntime(), ClientOptions(timeout=2.0), random.Random(1)
    known = Addresses([node.address for node in cluster.nodes])
    finder = LeaderFinder(known, entropy=entropy, back_off=(0.01, 0.1))
    pool = ConnectionPool(
        runtime,
        cluster.network("client"),
        known,
        links_of_loop,
        entropy=entropy,
        options=options,
        roster=Roster(None),
        on_open=lambda connection: None,
    )
    return Router(runtime, options, pool, LeaderConnection(runtime, pool, finder, options))


async def test_topic_calls_and_a_reader_work_without_a_sender(cluster: Cluster) -> None:
    writer = cluster.client()
    router = router_of(cluster)
    topics = TopicCalls(router, Admin(router))
    assert (await topics.create_topic("orders")).name == "orders"
    await writer.append("orders", b"a")
    cluster.leader = cluster.nodes[1]
    assert (await topics.create_topic("bills")).name == "bills"
    reader = TopicReader(AsyncioRuntime(), router, ClientOptions(), "orders", 1, end=2, follow=False, node=None)
    assert [record.value async for record in reader.records()] == [b"a"]
    router.close()


def methods_of_parts() -> Iterator[tuple[str, object]]:
    for name, made in vars(BaseClient).items():
        if type(made).__name__ == "_By":
            yield name, made


def test_a_method_of_a_part_has_its_name_and_shows_its_docstring_and_parameters() -> None:
    assert len(list(methods_of_parts())) > 20
    for face in (Client, TrioClient):
        for name, made in methods_of_parts():
            function = getattr(face, name)
            assert function.__name__ == name
            assert function.__doc__ == made.__doc__
            assert made.__doc__
            assert next(iter(inspect.signature(function).parameters)) == "self"


async def test_a_subclass_may_override_such_a_method_and_call_it(cluster: Cluster) -> None:
    class Counting(Client):
        appended = 0

        async def append(self, *arguments: object, **named: object) -> Receipt:  # type: ignore[override]
            self.appended += 1
            return await super().append(*arguments, **named)  # type: ignore[arg-type]

    addresses = [node.address for node in cluster.nodes]
    async with Counting(addresses, network=cluster.network("client"), entropy=random.Random(1)) as client:
        await client.create_topic("orders")
        for value in (b"a", b"b"):
            await client.append("orders", value)
        assert client.appended == 2
        assert cluster.values() == [b"a", b"b"]
