"""The same client, unchanged, in simulated time and on the simulated network, whose connections keep breaking."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.client.cluster import Act, Cluster, Refuse
from viewstamp.client import Receipt
from viewstamp.errors import OutcomeUnknownError, OverloadedError, UnavailableError, ViewstampError
from viewstamp.sim.loop import SimulatedLoop
from viewstamp.sim.network import LinkOptions, SimulatedNetwork

CALLERS = 8
APPENDS = 12


async def history(loop: SimulatedLoop, seed: int) -> list[object]:
    """Let callers append one record after the other through all kinds of trouble; check and return what they saw."""
    entropy = random.Random(seed)
    network = SimulatedNetwork(loop, options=LinkOptions(split=0.2, break_connection=entropy.choice([0.0, 0.01, 0.05])))
    cluster = Cluster(network.view)
    await cluster.start(3)
    client = cluster.client(seed=seed, batch_bytes=300, timeout=entropy.choice([1.0, 30.0]))
    await client.create_topic("orders", timeout=30)
    acts: list[str | Refuse] = [Act.OK] * 12 + [Act.LOSE, Act.APPLY_AND_LOSE, Refuse(OverloadedError("later"))]
    cluster.script.extend(entropy.choices(acts, k=100))
    results: dict[bytes, Receipt | ViewstampError] = {}

    async def caller(n: int) -> None:
        for m in range(APPENDS):
            await asyncio.sleep(entropy.uniform(0, 1))
            value = b"%02d.%02d" % (n, m)
            try:
                results[value] = await client.append("orders", value)
            except (UnavailableError, OutcomeUnknownError) as error:
                results[value] = error

    async def trouble() -> None:
        nodes = [node.name for node in cluster.nodes]
        while True:
            await asyncio.sleep(entropy.uniform(0, 1.5))
            source, target = entropy.sample(["client", *nodes], 2)
            network.partition(source, target)
            cluster.leader = entropy.choice([None, *cluster.nodes])
            await asyncio.sleep(entropy.uniform(0, 3))
            network.heal()
            cluster.leader = entropy.choice(cluster.nodes)

    troubled = asyncio.create_task(trouble())
    await asyncio.gather(*(caller(n) for n in range(CALLERS)))
    troubled.cancel()
    network.heal()
    network.options = LinkOptions()
    cluster.script.clear()
    cluster.leader = cluster.nodes[0]

    assert len(results) == CALLERS * APPENDS
    values = cluster.values()
    assert len(values) == len(set(values)), "nothing is applied twice"
    for value, result in results.items():
        if isinstance(result, Receipt):
            assert values[result.position - 1] == value
        elif isinstance(result, UnavailableError):
            assert value not in values
        else:
            assert isinstance(result, OutcomeUnknownError)
            assert result.token is not None
            outcome = await client.outcome(result.token, timeout=30)
            assert outcome.applied == (value in cluster.values())
            assert [cluster.values()[r.position - 1] for r in outcome.receipts] == [value] * outcome.applied
    assert [record.value async for record in client.read("orders")] == cluster.values()
    await cluster.close()
    return [(value, str(result)) for value, result in results.items()] + [loop.time()]


def run(seed: int) -> list[object]:
    loop = SimulatedLoop(seed)
    try:
        return loop.run_until_complete(history(loop, seed))
    finally:
        loop.close()


@pytest.mark.slow
def test_whatever_the_network_does_what_callers_are_told_is_true() -> None:
    for seed in range(40):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_the_same_seed_is_the_same_history() -> None:
    """No wall clock, no random number of its own, no order that depends on hashes."""
    assert run(3) == run(3)
