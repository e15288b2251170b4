"""A trio program that appends to a topic over streams, against nodes that follow the test's script."""

from __future__ import annotations

from functools import partial

import trio

from tests.client.cluster import Cluster
from tests.in_thread import InThread
from tests.trio.test_client import addresses, gather
from viewstamp.client import Receipt
from viewstamp.trio import connect


def test_appends_that_wait_for_the_route_of_their_topic_stand_in_the_order_of_the_calls(
    peers: InThread[Cluster],
) -> None:
    """Trio runs tasks that were woken together in any order."""

    async def main() -> list[bytes]:
        with trio.fail_after(60):
            async with connect(addresses(peers)) as client:
                group = (await client.place_group("s1")).id
                peers.call(partial(peers.held.establish, group))
                await client.create_spread_topic("orders", 2, groups=[group])
                for stream in (1, 2):
                    await client.create_topic(f"orders.{stream}")
                calls = [partial(client.append, "orders", b"%d" % number, stream=2) for number in range(20)]
                receipts: list[Receipt] = await gather(*calls)
                assert [(receipt.stream, receipt.position) for receipt in receipts] == [(2, n) for n in range(1, 21)]
                return [record.value async for record in client.read("orders.2")]

    assert trio.run(main) == [b"%d" % number for number in range(20)]
