"""Members and leaders in a trio program; the rules are those of asyncio, so this only tests that the calls exist."""

from __future__ import annotations

import pytest
import trio

from tests.client.cluster import Cluster
from tests.in_thread import InThread
from viewstamp.errors import RequestError
from viewstamp.trio import connect


def test_members_come_and_go_and_the_leader_moves(peers: InThread[Cluster]) -> None:
    async def main() -> None:
        with trio.fail_after(20):
            async with connect([node.address for node in peers.held.nodes]) as client:
                before = await client.list_members()
                assert (await client.add_member("n9", "127.0.0.1:9")).joining == {"n9": ""}
                assert (await client.remove_member("n9")).addresses == before.addresses
                with pytest.raises(RequestError, match="n9 is no member"):
                    await client.remove_member("n9")
                assert await client.transfer_leadership("n2") == "n2"

    trio.run(main)
