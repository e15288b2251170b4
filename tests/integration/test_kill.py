"""kill -9 of real processes under load: acknowledged records are there, once; unknown outcomes can be queried.

The page cache survives kills, so these tests show less about the disk than the power cuts, and more about everything
else: the real command, the real start, sockets that disappear, and sessions that outlive every process.
"""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from pathlib import Path

import pytest

from tests.integration.promises import Acknowledged, Promises, Refused, Sent
from tests.processes import Processes, eventually, is_level, leader_of, running
from viewstamp.client import Client
from viewstamp.errors import OutcomeToken, OutcomeUnknownError, UnavailableError

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
ROUNDS = 30 if SOAK else 5
APPENDERS = 8
TOPIC = "orders"

pytestmark = pytest.mark.slow


class Appenders:
    """Clients that append until they are stopped, and record the answers."""

    def __init__(self, client: Client, promises: Promises, name: str, entropy: random.Random) -> None:
        self.unknown: list[tuple[OutcomeToken | None, bytes]] = []
        self._client = client
        self._promises = promises
        self._entropy = entropy
        self._is_over = False
        self._tasks = [asyncio.create_task(self._run(f"{name}-{number}")) for number in range(APPENDERS)]

    async def stop(self) -> None:
        """Let all clients finish their present append."""
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def _run(self, name: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            value = f"{name}-{number} ".encode() + b"." * self._entropy.randrange(300)
            self._promises.add(Sent(TOPIC, (value,)))
            try:
                receipt = await self._client.append(TOPIC, value)
            except UnavailableError:
                self._promises.add(Refused(TOPIC, (value,)))
                return
            except OutcomeUnknownError as error:
                self.unknown.append((error.token, value))
                return
            self._promises.add(Acknowledged(TOPIC, (value,), receipt.position))


async def resolve(client: Client, promises: Promises, unknown: list[tuple[OutcomeToken | None, bytes]]) -> None:
    """Query the unknown outcomes; they are known afterwards."""
    for token, value in unknown:
        assert token is not None, "a batch of a session has a token"
        outcome = await client.outcome(token)
        if outcome.applied:
            promises.add(Acknowledged(TOPIC, (value,), outcome.receipts[0].position))
        else:
            promises.add(Refused(TOPIC, (value,)))


async def check(cluster: Processes, client: Client, promises: Promises) -> None:
    """Wait until all nodes have applied the same records, then read from each alone and compare with the promises."""
    values = [record.value async for record in client.read(TOPIC)]
    assert list(promises.complaints(TOPIC, values)) == []
    for name in cluster.names:
        await eventually(lambda: is_level(client))
        assert [record.value async for record in client.read(TOPIC, node=name)] == values


async def test_nothing_acknowledged_is_lost_or_doubled_when_all_nodes_are_killed(tmp_path: Path) -> None:
    """In every second round the client dies, too, at a random moment, and another client asks for the outcomes."""
    entropy = random.Random(1)
    promises = Promises()
    unknown = 0
    async with running(tmp_path, 3) as cluster:
        async with cluster.connect() as client:
            await client.create_topic(TOPIC)
        for number in range(ROUNDS):
            async with cluster.connect() as client:
                appenders = Appenders(client, promises, str(number), entropy)
                await eventually(partial(has_acknowledged, promises, promises.count + 25))
                await asyncio.sleep(entropy.uniform(0, 0.3))
                await cluster.kill(*entropy.sample(cluster.names, 3))
                if number % 2:
                    await cluster.run()
                else:
                    await client.close()
                await appenders.stop()
            assert not (appenders.unknown and number % 2), "a client that stays alive gets every outcome in the end"
            await cluster.run()
            async with cluster.connect() as client:
                unknown += len(appenders.unknown)
                await resolve(client, promises, appenders.unknown)
                await check(cluster, client, promises)
        async with cluster.connect() as client:
            await check(cluster, client, promises)
    assert promises.count > 100 * ROUNDS / 5
    assert unknown > 0, "no kill came in the middle of an append"


@pytest.mark.parametrize("failures", [0, 1, 2])
async def test_a_group_tolerates_exactly_as_many_failures_as_it_should(tmp_path: Path, failures: int) -> None:
    """With f of 2f + 1 nodes dead, the leader among them, it continues; with one more it refuses, and then recovers."""
    promises = Promises()

    async def append(client: Client, value: bytes, timeout: float) -> None:
        promises.add(Sent(TOPIC, (value,)))
        try:
            receipt = await client.append(TOPIC, value, timeout=timeout)
        except UnavailableError:
            promises.add(Refused(TOPIC, (value,)))
            raise
        promises.add(Acknowledged(TOPIC, (value,), receipt.position))

    async with running(tmp_path, 2 * failures + 1) as cluster, cluster.connect() as client:
        await client.create_topic(TOPIC)
        await append(client, b"all are well", 60)
        for number in range(failures):
            await cluster.kill(await eventually(lambda: leader_of(client)))
            await append(client, f"{number + 1} dead".encode(), 60)
        await cluster.kill(await eventually(lambda: leader_of(client)))
        await eventually(lambda: has_no_leader(client))
        with pytest.raises(UnavailableError):
            await append(client, b"one dead too many", 0.5)
        await cluster.run()
        await append(client, b"all are back", 60)
        await check(cluster, client, promises)
        assert promises.count == failures + 2


async def has_acknowledged(promises: Promises, count: int) -> bool:
    return promises.count >= count


async def has_no_leader(client: Client) -> bool:
    return not any(node.get("role") == "leader" for node in await client.status())
