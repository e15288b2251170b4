"""Sinks on real nodes: the visibility of batches while runs race, room is short and leaders are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

import viewstamp
from tests.processes import Processes, running
from viewstamp.client import Attempt, Client, Sealed, Sink, SinkCommit
from viewstamp.errors import FencedError, StagingError
from viewstamp.wire.batch import Kind, build_batch

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
ResultT = TypeVar("ResultT")


async def begin(sink: Sink, batch: int) -> Attempt:
    attempt = await sink.begin(batch)
    assert isinstance(attempt, Attempt)
    return attempt


async def values_of(client: Client, topic: str) -> list[bytes]:
    return [record.value async for record in client.read(topic)]


async def test_a_batch_becomes_visible_at_once_and_is_read_like_any_other() -> None:
    async with viewstamp.local_cluster(nodes=3) as cluster:
        client = cluster.client()
        for topic in ("orders", "bills"):
            await client.create_topic(topic)
        await client.append("orders", b"before")
        sink = client.sink("lake", owner="query", run="run1")
        first, second = await begin(sink, 0), await begin(sink, 0)
        await second.stage_records("orders", [b"c", b"d"], keys=[b"k", None], headers=[None, {"h": b"1"}])
        await first.stage("orders", build_batch([b"a"]).columns())
        await first.stage("bills", build_batch([b"x"]).columns())
        parts = [await first.seal(), await second.seal()]
        await client.append("orders", b"between")
        assert await values_of(client, "orders") == [b"before", b"between"]
        assert await values_of(client, "bills") == []

        commit = await sink.commit(0, parts)
        assert commit.ranges == [("orders", 3, 3), ("bills", 1, 1)]
        await client.append("orders", b"after")
        records = [record async for record in client.read("orders")]
        assert [record.value for record in records] == [b"before", b"between", b"a", b"c", b"d", b"after"]
        assert [record.position for record in records] == list(range(1, 7))
        assert [(record.key, record.headers) for record in records[3:5]] == [(b"k", None), (None, {"h": b"1"})]
        times = [record.timestamp for record in records]
        assert times == sorted(times), "the time of a batch is that of its commit"
        assert {record.timestamp for record in records[2:5]} == {commit.timestamp}
        kinds = [batch.kind async for batch in client.read_batches("orders", 2)]
        assert kinds == [Kind.RECORDS, Kind.STAGED, Kind.STAGED, Kind.RECORDS]
        assert await values_of(client, "bills") == [b"x"]
        for node in cluster.nodes:
            assert [record.value async for record in client.read("orders", 4, end=6, node=node)] == [b"c", b"d"]

        assert (await client.split_topic("orders", 1, 7, MIB)) == [1, 7]
        assert await client.find_time("orders", commit.timestamp) <= 3
        again = await client.sink("lake", owner="query", run="run2").begin(0)
        assert isinstance(again, SinkCommit)
        assert (again.duplicate, again.ranges) == (True, commit.ranges)
        (info,) = await client.list_sinks()
        assert (info.batch, info.attempts, info.bytes) == (0, 0, 0)


async def test_of_two_runs_that_race_each_batch_is_written_once() -> None:
    """Two drivers of one query, as after a restart of a slow one: the last one to begin continues."""
    async with viewstamp.local_cluster(nodes=3) as cluster:
        client = cluster.client()
        await client.create_topic("orders")

        async def run(runs: int) -> list[int]:
            """Write all missing batches, and begin another run halfway; return the batches that both committed."""
            sink = cluster.client().sink("lake", owner="query", run=f"run{runs}")
            others = None
            committed = []
            for number in range(20):
                if number == 5 * (4 - runs) and runs > 1:
                    others = asyncio.create_task(run(runs - 1))
                try:
                    attempt = await sink.begin(number)
                    if isinstance(attempt, SinkCommit):
                        continue
                    await attempt.stage_records("orders", [b"%d.%d.%d" % (number, n, runs) for n in range(3)])
                    commit = await sink.commit(number, [await attempt.seal()])
                except (FencedError, StagingError):
                    continue
                if not commit.duplicate:
                    committed.append(number)
            return committed + (await others if others is not None else [])

        assert sorted(await run(3)) == list(range(20)), "the last one to begin is never refused, and each is once"
        values = [value.split(b".") for value in await values_of(client, "orders")]
        assert [(int(number), int(n)) for number, n, _ in values] == [
            (number, n) for number in range(20) for n in range(3)
        ]
        assert len({value[2] for value in values}) > 1


async def test_the_quota_makes_writers_wait_for_the_commits_of_others() -> None:
    async with viewstamp.local_cluster(nodes=3, settings={"limits.staged_bytes_max": 2 * MIB}) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        waited = 0

        async def write(name: str) -> None:
            nonlocal waited
            own = cluster.client()
            sink = own.sink(name)
            for number in range(3):
                attempt = await begin(sink, number)
                await attempt.stage("orders", build_batch([bytes(1000)] * 900).columns())
                await sink.commit(number, [await attempt.seal()])
            waited += own.batches_retried

        await asyncio.gather(*(write(f"s{n}") for n in range(4)))
        assert (await client.describe_topic("orders")).last_position == 4 * 3 * 900
        assert waited > 0


async def test_leaders_are_killed_while_batches_are_staged_sealed_and_committed(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster, cluster.connect() as client:
        for topic in ("orders", "bills"):
            await client.create_topic(topic)
        sink = client.sink("lake", owner="query", run="run1")

        async def stage(attempt: Attempt, name: bytes) -> None:
            for n in range(20):
                await attempt.stage("orders" if n % 4 else "bills", build_batch([b"%s.%02d" % (name, n)] * 5).columns())

        for number, step in enumerate(("stage", "seal", "commit")):
            attempts = [await begin(sink, number) for _ in range(2)]
            names = [b"%d.%d" % (number, n) for n in range(2)]

            async def stage_all(attempts: list[Attempt] = attempts, names: list[bytes] = names) -> None:
                await asyncio.gather(*map(stage, attempts, names))

            async def seal_all(attempts: list[Attempt] = attempts) -> list[Sealed]:
                return list(await asyncio.gather(*(attempt.seal() for attempt in attempts)))

            await while_the_leader_is_killed(cluster, client, stage_all, when=step == "stage")
            parts = await while_the_leader_is_killed(cluster, client, seal_all, when=step == "seal")
            commit = await while_the_leader_is_killed(
                cluster, client, lambda number=number, parts=parts: sink.commit(number, parts), when=step == "commit"
            )
            assert commit.ranges == [("bills", 1 + 50 * number, 50), ("orders", 1 + 150 * number, 150)]
        written = [(b"%d.%d.%02d" % (number, n, at), at) for number in range(3) for n in range(2) for at in range(20)]
        assert await values_of(client, "orders") == [value for value, at in written if at % 4 for _ in range(5)]
        assert await values_of(client, "bills") == [value for value, at in written if not at % 4 for _ in range(5)]


async def while_the_leader_is_killed(
    cluster: Processes, client: Client, work: Callable[[], Awaitable[ResultT]], *, when: bool
) -> ResultT:
    """Run ``work``; if ``when``, kill the leader meanwhile and start it again."""
    if not when:
        return await work()
    leader = next(str(status["leader"]) for status in await client.status() if status.get("leader"))
    doing = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    await cluster.kill(leader)
    result = await doing
    await cluster.run()
    return result
