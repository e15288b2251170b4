"""The client in a trio program, against real nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import pytest
import trio
import trio.testing

import viewstamp as vs
from tests.in_thread import InThread, in_thread
from tests.trio.late import late_error, until
from viewstamp.embed.local_cluster import ClusterHandle, local_cluster
from viewstamp.trio import Client, connect

pytestmark = pytest.mark.slow

Nodes = InThread[ClusterHandle]
topics = (f"topic{n}" for n in count())


class Short(vs.CommandError):
    """An item is asked for in a greater quantity than there is."""


class Account(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.balance = 0

    @vs.command
    def pay_in(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    @vs.command
    def pay_out(self, amount: int) -> int:
        if amount > self.balance:
            raise Short(f"{self.balance} left")
        self.balance -= amount
        return self.balance

    @vs.query
    def show(self) -> int:
        return self.balance


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Three real nodes for all tests here; each test makes its own topics, and leaves the nodes running."""
    with in_thread(lambda: local_cluster(nodes=3, actors={"account": Account})) as cluster:
        yield cluster


@asynccontextmanager
async def opened(nodes: Nodes) -> AsyncIterator[tuple[Client, str]]:
    """Open a client, and create a topic."""
    topic = next(topics)
    with trio.fail_after(60):
        async with connect([nodes.held.address(node) for node in nodes.held.ids]) as client:
            await client.create_topic(topic)
            yield client, topic


async def leader(nodes: Nodes) -> str:
    """Wait for a leader, because a busy machine may cost the cluster its leader for a moment."""
    found: list[str] = []

    def look() -> bool:
        found.extend(str(node.id) for node in nodes.held.nodes.values() if node.node_status["role"] == "leader")
        return bool(found)

    await until(look)
    return found[0]


def test_appended_records_are_read_from_their_topic(nodes: Nodes) -> None:
    async def main() -> None:
        async with opened(nodes) as (client, topic):
            receipts = await client.append_many(topic, [b"a", b"b"])
            assert [receipt.position for receipt in receipts] == [1, 2]
            assert [record.value async for record in client.read(topic)] == [b"a", b"b"]
            assert [record.value async for record in client.read(topic, 2, node="n2")] in ([b"b"], [])
            assert {node["id"] for node in await client.status()} == {"n1", "n2", "n3"}

    trio.run(main)


def test_the_leader_is_killed_amid_appends_and_every_record_is_there_once(nodes: Nodes) -> None:
    """Every append has a receipt with its own position, and a reader that follows sees exactly these, in order."""
    seen: list[bytes] = []
    receipts: dict[bytes, int] = {}
    total = 600

    async def main() -> None:
        async with opened(nodes) as (client, topic), trio.open_nursery() as nursery:
            amid = trio.Event()

            async def append(caller: int) -> None:
                for n in range(total // 20):
                    value = f"{caller}/{n}".encode()
                    receipts[value] = (await client.append(topic, value)).position
                    if len(receipts) == total // 4:
                        amid.set()

            async def follow() -> None:
                async for record in client.read(topic, follow=True, end=total + 1):
                    seen.append(record.value)

            async def kill() -> None:
                await amid.wait()
                victim = await leader(nodes)
                assert len(receipts) < total, "the leader is stopped amid them"
                await trio.to_thread.run_sync(nodes.run, nodes.held.stop(victim))
                await trio.to_thread.run_sync(nodes.run, nodes.held.start(victim))

            nursery.start_soon(follow)
            nursery.start_soon(kill)
            for caller in range(20):
                nursery.start_soon(append, caller)

    trio.run(main)
    assert len(receipts) == total
    assert sorted(receipts.values()) == list(range(1, total + 1))
    assert seen == sorted(receipts, key=lambda value: receipts[value])


def test_the_outcome_of_an_append_that_timed_out_can_be_asked_for(nodes: Nodes) -> None:
    """Without a majority nothing is committed; once there is one again, the outcome is known, and final."""
    clock = trio.testing.MockClock(rate=1.0)

    async def main() -> None:
        async with opened(nodes) as (client, topic):
            await client.append(topic, b"first")
            leading = await leader(nodes)
            followers = [node for node in nodes.held.ids if node != leading]
            for node in followers:
                await trio.to_thread.run_sync(nodes.run, nodes.held.stop(node))
            append = partial(client.append, topic, b"second", timeout=5.0)
            unknown = await late_error(clock, 5.0, lambda: client._sender.session.is_owed, append)
            assert isinstance(unknown, vs.OutcomeUnknownError)
            assert unknown.token is not None

            async with trio.open_nursery() as nursery:  # A single node does not become RUNNING.
                for node in followers:
                    nursery.start_soon(trio.to_thread.run_sync, nodes.run, nodes.held.start(node))
            outcome = await client.outcome(unknown.token)
            values = [record.value async for record in client.read(topic)]
            assert values == ([b"first", b"second"] if outcome.applied else [b"first"])

    trio.run(main, clock=clock)


def test_actors_are_called_asked_and_watched(nodes: Nodes) -> None:
    async def main() -> None:
        async with opened(nodes) as (client, _):
            account = client.actor("account", Account, key="7")
            changes = client.watch("account", Account, key="7", index=1)
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(account.pay_in, 2)
            assert await account.show() == 100
            with pytest.raises(Short, match="100 left"):
                await account.pay_out(101)
            assert await client.call("account", "pay_out", 40, key="7") == 60
            assert await client.query("account", "show", key="7") == 60
            with pytest.raises(vs.UnknownActorError):
                await client.call("account", "burn", key="7")
            with trio.CancelScope() as scope:
                scope.cancel()
                await account.pay_in(1)
            assert scope.cancelled_caught
            async with changes:
                balance = 0
                for _ in range(52):
                    change = await anext(changes)
                    assert change.key == "7"
                    balance = change.result if change.error is None else balance
                assert balance == 60
                with trio.move_on_after(0.05) as waiting:
                    await anext(changes)
                assert waiting.cancelled_caught
                await account.pay_in(5)
                assert (await anext(changes)).result == 65

    trio.run(main)


def test_a_topic_with_streams_is_read_in_one_order_and_goes_on_after_a_cancellation(nodes: Nodes) -> None:
    async def main() -> None:
        async with opened(nodes) as (client, topic):
            for number in (1, 2):
                await client.place_group(f"{topic}.group{number}")
            while True:
                if all(group.is_established for group in await client.list_groups()):
                    break
                await trio.sleep(0.05)
            name = f"{topic}.spread"
            await client.create_spread_topic(name, 2)
            for number in range(6):
                await client.append(name, b"%d" % number, stream=number % 2 + 1)
            found: list[vs.Record] = []
            items = client.read(name, 1, follow=True)
            while len(found) < 6:
                with trio.move_on_after(0.05):
                    found.append(await anext(items))
            await items.aclose()
            assert [record.position for record in found] == [1, 2, 3, 4, 5, 6]
            for stream, values in ((1, [b"0", b"2", b"4"]), (2, [b"1", b"3", b"5"])):
                own = [record for record in found if isinstance(record, vs.SpreadRecord) and record.stream == stream]
                assert [(record.stream_position, record.value) for record in own] == list(enumerate(values, 1))
            with pytest.raises(vs.RequestError, match="a batch has positions of one stream"):
                await anext(client.read_batches(name))

    trio.run(main)
