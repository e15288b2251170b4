"""A result that is too large fails its own call and no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.node.group import Group, term
from tests.streams.actors import CLASSES
from viewstamp.errors import ResultTooLargeError, StaleSessionError
from viewstamp.ids import NodeId
from viewstamp.node.service import Limits
from viewstamp.streams import Streams

KIB = 1024


class Generous(Group):
    """Members that allow results as large as a frame."""

    def machine(self, node: NodeId) -> Streams:
        return Streams(CLASSES, call_result_bytes_max=64 * KIB * KIB)


async def test_a_client_fails_a_call_with_an_oversized_answer_and_continues(tmp_path: Path) -> None:
    async with Generous(tmp_path, 1) as group:
        await group.run()
        client = group.client(frame_bytes_max=64 * KIB)
        await client.create_topic("orders")
        leader = await group.leader()
        before = term(leader)
        calls = [client.append("orders", b"1"), client.call("counter", "pad", 200 * KIB), client.append("orders", b"2")]
        async with asyncio.timeout(10):
            first, large, second = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(large, ResultTooLargeError)
            assert [first.position, second.position] == [1, 2]  # type: ignore[union-attr]
            assert await client.call("counter", "add", 2) == 2
        assert term(leader) == before
        assert leader.server is not None
        assert len(leader.server.connections) == 1


async def test_results_that_fit_into_no_frame_are_not_sent_and_the_commands_are_applied(tmp_path: Path) -> None:
    async with Generous(tmp_path, 1) as group:
        limits = Limits(record_bytes_max=KIB, batch_bytes_max=8 * KIB, frame_bytes_max=128 * KIB)
        await group.run(limits=limits)
        client = group.client()
        with pytest.raises(StaleSessionError, match="was applied"):
            await client.call("counter", "pad", 200 * KIB)
        assert await client.call("counter", "add", 2) == 2
