"""Ordered appends to real nodes: a receipt has the place of the record in the order of all streams of its topic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.mutants.mutants import patched
from tests.node.group import PATIENCE_SECONDS, wait_for
from tests.node.test_ordering import Ordered
from viewstamp.client.results import Receipt
from viewstamp.errors import OutcomeUnknownError, TrimmedError, UnavailableError
from viewstamp.ids import GroupId, NodeId, Position, Stream
from viewstamp.node import service
from viewstamp.node.order_queries import OrderedRunsQuery, OrderStatusQuery
from viewstamp.node.order_waits import OrderWaits
from viewstamp.node.ordering import Ordering as NodeOrdering
from viewstamp.node.replica import Replica
from viewstamp.node.state_machine import TopicQuery
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.ordered_requests import WaitOrdered


class Ordering(Ordered):
    """Nodes with a topic that has two streams, in groups of their own."""

    async def spread(self, *, nodes: tuple[str, ...] = ()) -> None:
        groups = [await self.established(f"s{number}", nodes=nodes) for number in (1, 2)]
        await self.client().create_spread_topic("orders", 2, groups=groups)


async def test_an_ordered_append_that_begins_after_another_one_has_a_higher_global_position(tmp_path: Path) -> None:
    async with Ordering(tmp_path) as group:
        await group.run()
        await group.spread()
        one, two = group.client(), group.client(seed=2)
        last = 0
        for number in range(6):
            client = one if number % 2 else two
            receipt = await client.append("orders", b"x", stream=1 + number // 2 % 2, ordered=True)
            assert receipt.global_position == last + 1
            last = receipt.global_position
        receipts = await one.append_many("orders", [b"x"] * 3, stream=2, ordered=True)
        assert [each.global_position for each in receipts] == [7, 8, 9]
        assert await one.append_many("orders", [], ordered=True) == []
        plain = await one.append("orders", b"x", stream=1)
        assert (plain.global_position, plain.stream) == (None, 1)
        found = await one.find_global_position("orders", plain)
        assert found == plain._replace(global_position=10)
        told: list[frozenset[str]] = []
        with patched(Replica, tell_commit_end=lambda self, names: told.append(names)):
            node = next(each for each in group.nodes.values() if each.replica is not None and each.replica.is_leading)
            (ordered, *_) = node.machine.query(OrderStatusQuery())
            node.ordering.take(NodeId("n2"), [ordered], is_awaited=True)
            await wait_for(lambda: {"n2"} in told, group.journal.tail)  # Because it has not applied the ORDER yet.
        await one.create_topic("bills")
        assert (await one.append("bills", b"x", ordered=True)).global_position == 1
        assert (await one.append("bills", b"x")).global_position is None


async def test_one_request_serves_all_callers_of_a_stream(tmp_path: Path) -> None:
    asked: list[int] = []
    original = OrderWaits.wait

    async def wait(self: OrderWaits, *args: Any, **options: Any) -> Any:
        asked.append(args[1])
        return await original(self, *args, **options)

    async with Ordering(tmp_path) as group:
        await group.run()
        await group.spread()
        client = group.client()
        with patched(OrderWaits, wait=wait):
            receipts: list[Receipt] = await asyncio.gather(
                *(client.append("orders", b"x", stream=1 + number % 2, ordered=True) for number in range(256))
            )
        assert sorted(each.global_position or 0 for each in receipts) == list(range(1, 257))
        for stream in (1, 2):
            own = sorted(receipt for receipt in receipts if receipt.stream == stream)
            assert [each.position for each in own] == list(range(1, 129))
            assert sorted(each.global_position or 0 for each in own) == [each.global_position for each in own]
        assert len(asked) < 64


async def test_the_position_of_a_trimmed_record_is_refused_at_once_and_other_callers_go_on(tmp_path: Path) -> None:
    async with Ordering(tmp_path, 1) as group:
        await group.run()
        await group.spread()
        client, (node,) = group.client(), group.nodes.values()
        receipts = [await client.append("orders", b"x", stream=stream, ordered=True) for stream in (1, 2) * 4]
        await client.trim_spread_topic("orders", 6)
        stream = Stream(GroupId((await client.describe_spread_topic("orders")).groups[0]), "orders.1")
        machine = node.groups[stream.group].machine

        def is_trimmed() -> bool:
            """Return whether records 1 to 3 are trimmed, and no state has the position of the first one."""
            known = [each.machine.query(OrderedRunsQuery(stream, Position(1), 1)) for each in node.groups.values()]
            return machine.query(TopicQuery(stream.name))["first_position"] == 4 and not any(known)

        await wait_for(is_trimmed, group.journal.tail)
        with pytest.raises(TrimmedError, match=r"position 1 of 'orders\.1' has been trimmed") as caught:
            await node.order_waits.wait(stream, Position(1), 0)
        assert caught.value.first == 4
        assert await node.order_waits.wait(stream, Position(1), 0, expects=True) == []
        late = asyncio.ensure_future(client.find_global_position("orders", receipts[0], timeout=3600.0))
        kept = asyncio.ensure_future(client.find_global_position("orders", receipts[6], timeout=3600.0))
        with pytest.raises(TrimmedError, match=r"position 1 of 'orders\.1' has been trimmed"):
            await asyncio.wait_for(late, PATIENCE_SECONDS)
        assert await asyncio.wait_for(kept, PATIENCE_SECONDS) == receipts[6]
        assert (await client.append("orders", b"x", stream=1, ordered=True)).global_position == 9


async def test_a_record_that_was_trimmed_before_it_was_ordered_still_gets_its_position(tmp_path: Path) -> None:
    async with Ordered(tmp_path, 1) as group:
        await group.run()
        stream, (node,) = await group.stream("s1"), group.nodes.values()
        with patched(NodeOrdering, take=lambda *_, **__: None):
            await group.append(stream, 2)
            trim = msgpack.packb({"name": stream.name, "position": 3})
            await group.settle(stream.group, build_batch([trim], kind=Kind.TRIM_TOPIC))
            assert await node.order_waits.wait(stream, Position(1), 0) == []
        (run,) = await node.order_waits.wait(stream, Position(1), PATIENCE_SECONDS)
        assert (run.position, run.local, run.length) == (1, 1, 2)


async def test_without_a_majority_of_group_0_records_are_durable_and_the_error_says_so(tmp_path: Path) -> None:
    async with Ordering(tmp_path) as group:
        await group.run()
        await group.spread(nodes=("n1",))
        client = group.client()
        await client.append("orders", b"x", stream=1, ordered=True)
        await group.stop("n2")
        await group.stop("n3")
        assert (await client.append("orders", b"x", stream=1)).position == 2
        with pytest.raises(OutcomeUnknownError, match=r"durable at position 3 of 'orders\.1', and its") as caught:
            await client.append("orders", b"x", stream=1, ordered=True, timeout=1.0)
        assert "do not append again" in caught.value.remedy
        assert caught.value.token is not None
        outcome = await client.outcome(caught.value.token)
        assert outcome.receipts is not None
        (receipt,) = outcome.receipts
        assert (outcome.answer, receipt.position, receipt.stream) == ("applied", 3, 1)
        patient = asyncio.ensure_future(client.find_global_position("orders", receipt, timeout=60.0))
        impatient = (client.find_global_position("orders", receipt, timeout=seconds) for seconds in (0.5, 0.25, 0.5))
        for error in await asyncio.gather(*impatient, return_exceptions=True):
            assert isinstance(error, UnavailableError)
            assert "has no global position after" in error.message
        await group.run("n2")
        assert (await patient).global_position == 3
        await wait_for(
            lambda: not any(node.order_waits.is_awaited(each) for node in group.nodes.values() for each in node.groups),
            group.journal.tail,
        )


async def test_nodes_of_a_release_without_ordered_appends_are_named_as_the_reason(tmp_path: Path) -> None:
    async with Ordering(tmp_path) as group:
        await group.run()
        await group.spread()
        known = dict(service.FROM_CLIENTS)
        del known[WaitOrdered.kind]
        with patched(service, FROM_CLIENTS=known):
            from viewstamp.node import server

            with (
                patched(server, FROM_CLIENTS=known),
                pytest.raises(OutcomeUnknownError, match=r"durable at position 1 .* no ordered appends: ") as caught,
            ):
                await group.client().append("orders", b"x", stream=1, ordered=True)
        assert caught.value.remedy == "do not append again; upgrade all nodes"


async def test_a_caller_that_goes_is_not_waited_for(tmp_path: Path) -> None:
    async with Ordering(tmp_path) as group:
        await group.run()
        await group.spread(nodes=("n1",))
        client = group.client()
        await client.append("orders", b"x", stream=1, ordered=True)
        await group.stop("n2")
        await group.stop("n3")
        waiting = asyncio.ensure_future(client.append("orders", b"x", stream=1, ordered=True))
        node = group.nodes[next(iter(group.nodes))]
        await wait_for(lambda: any(map(node.order_waits.is_awaited, node.groups)), group.journal.tail)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        await wait_for(lambda: not any(map(node.order_waits.is_awaited, node.groups)), group.journal.tail)
