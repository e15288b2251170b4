"""A record of a newer kind waits until every member can read it, also one that is added during the probe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node.group import Group
from tests.node.test_archivist import Store
from viewstamp.client.aio import Client
from viewstamp.errors import UnavailableError
from viewstamp.host.interfaces import Network
from viewstamp.ids import ClusterId, NodeId
from viewstamp.node import fitness
from viewstamp.node.peers.probe import Unfit, find_unfit
from viewstamp.wire.batch import Kind


async def place(client: Client) -> None:
    await client.place_group("left")


async def archive(client: Client) -> None:
    await client.archive_topic("orders")


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")
@pytest.mark.parametrize("begin", [place, archive])
async def test_a_member_that_is_added_during_the_probe_is_probed_too(
    tmp_path: Path, begin: Callable[[Client], Awaitable[None]]
) -> None:
    probed: list[set[NodeId]] = []
    async with Group(tmp_path, 1, run_stores=lambda _: Store(tmp_path)) as group:
        await group.run()
        client = group.client(timeout=2)
        await client.create_topic("orders")
        await client.append_many("orders", [b"record"] * 3)

        async def find(network: Network, cluster: ClusterId, members: Mapping[NodeId, str], kind: Kind) -> Unfit:
            if not probed:
                await group.client().add_member("n9", "127.0.0.1:9", voter=False)
            probed.append(set(members))
            return await find_unfit(network, cluster, members, kind)

        with patched(fitness, find_unfit=find), pytest.raises(UnavailableError, match="n9: no answer"):
            await begin(client)
        assert probed[:2] == [set(), {NodeId("n9")}]
        assert (await client.list_groups(), await client.list_runs()) == ([], [])
