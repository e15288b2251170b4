"""Sinks over topics with streams on real nodes: a batch of several groups is visible at one moment, and once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node.group import wait_for
from tests.node.test_stream_topics import Spreading
from viewstamp.client import Attempt, Sealed, Sink, SinkCommit
from viewstamp.client.aio import Client
from viewstamp.errors import FencedError, RequestError, StagingError
from viewstamp.ids import NodeId
from viewstamp.node import fitness
from viewstamp.node.ordering import Ordering
from viewstamp.node.peers.probe import Unfit
from viewstamp.node.sink_part_queries import GroupPartsQuery, HasPartsCommitsQuery
from viewstamp.wire.batch import Kind
from viewstamp.wire.sink_requests import AbortAttempts, BeginPart, CommitParts, ForgetSink

pytestmark = pytest.mark.slow


async def begin(sink: Sink, batch: int) -> Attempt:
    attempt = await sink.begin(batch)
    assert isinstance(attempt, Attempt)
    return attempt


async def sealed(sink: Sink, batch: int, *values: bytes) -> Sealed:
    """Stage records with keys of their own, so that they go to all streams, and seal them."""
    attempt = await begin(sink, batch)
    await attempt.stage_records("orders", values, keys=values)
    return await attempt.seal()


async def values_of(client: Client, topic: str = "orders") -> list[bytes]:
    return [record.value async for record in client.read(topic)]


def rows(batch: int, count: int = 12) -> list[bytes]:
    return [b"%d-%d" % (batch, row) for row in range(count)]


async def spread(group: Spreading, streams: int = 3) -> Client:
    """Return a client of a running group with a topic over two groups."""
    await group.run()
    await group.established("s1")
    await group.established("s2")
    client = group.client()
    await client.create_spread_topic("orders", streams)
    return client


async def nothing_is_left(group: Spreading) -> None:
    """Wait until no node has a part, and no commit is pending."""

    def is_left() -> bool:
        return any(
            hosted.machine.query(GroupPartsQuery()) or hosted.machine.query(HasPartsCommitsQuery())
            for node in group.nodes.values()
            for hosted in node.groups.values()
        )

    await wait_for(lambda: not is_left(), group.journal.tail)


async def test_a_batch_over_two_groups_is_visible_at_one_moment_and_once(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        client = await spread(group)
        before = [b"before %d" % each for each in range(6)]
        for value in before:
            await client.append("orders", value, key=value)
        sink = client.sink("lake", owner="query", run="run1")
        first = await sealed(sink, 0, *rows(0, 8))
        second = await sealed(sink, 0, *rows(0, 12)[8:])
        assert {part.group for part in first.parts} == set((await client.describe_spread_topic("orders")).groups)
        assert first.records == 8
        assert b"0-0" not in await values_of(client)

        seen: list[list[bytes]] = []

        async def watch() -> None:
            while True:
                seen.append(await values_of(client))

        watching = asyncio.ensure_future(watch())
        commit = await sink.commit(0, [first, second])
        assert not commit.duplicate
        assert sorted(await values_of(client)) == sorted([*before, *rows(0)]), "it is visible when the call returns"
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        batches = [sum(value in rows(0) for value in values) for values in seen]
        assert set(batches) <= {0, 12}, "a reader by position sees all of the batch or nothing"

        again = await sink.commit(0, [first, second])
        assert again.duplicate
        assert isinstance(await client.sink("lake", owner="query", run="run2").begin(0), SinkCommit)
        await sink_batch(client, 1)
        await client.append("orders", b"after", ordered=True)
        assert sorted(await values_of(client)) == sorted([*before, *rows(0), *rows(1), b"after"])
        for node in ("n1", "n2", "n3"):
            found = [record.value async for record in client.read("orders", node=node)]
            assert found == await values_of(client)
        await nothing_is_left(group)
        info = await client.describe_sink("lake")
        assert (info.batch, info.attempts, info.bytes, info.ranges) == (1, 0, 0, None)


async def sink_batch(client: Client, batch: int, run: str = "run3") -> SinkCommit:
    sink = client.sink("lake", owner="query", run=run)
    return await sink.commit(batch, [await sealed(sink, batch, *rows(batch))])


async def test_what_is_not_committed_is_dropped_in_all_groups(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        client = await spread(group)
        old = client.sink("lake", owner="query", run="run1")
        part = await sealed(old, 0, *rows(0))
        open_attempt = await begin(old, 0)
        await open_attempt.stage_records("orders", rows(7), keys=rows(7))
        new = client.sink("lake", owner="query", run="run2")
        kept = await sealed(new, 0, *rows(0))
        with pytest.raises(FencedError):
            await old.commit(0, [part])
        with pytest.raises(StagingError):
            await open_attempt.seal()
        await new.commit(0, [kept])
        assert sorted(await values_of(client)) == sorted(rows(0))
        dropped = await sealed(new, 1, *rows(1))
        await new.abort(1)
        with pytest.raises(StagingError, match="does not exist"):
            await new.commit(1, [dropped])
        await nothing_is_left(group)
        assert sorted(await values_of(client)) == sorted(rows(0))


async def test_topics_with_and_without_streams_are_not_mixed_in_a_batch(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        client = await spread(group)
        await client.create_topic("plain")
        sink = client.sink("lake", owner="query")
        attempt = await begin(sink, 0)
        await attempt.stage_records("plain", [b"x"])
        with pytest.raises(RequestError, match="topics without"):
            await attempt.stage_records("orders", [b"x"])
        other, one = await begin(sink, 0), await sealed(sink, 0, b"a")
        await other.stage_records("plain", [b"x"])
        with pytest.raises(RequestError, match="topics without"):
            await sink.commit(0, [one, await other.seal()])
        assert await values_of(client) == []
        assert await values_of(client, "plain") == []


async def test_a_decided_batch_becomes_visible_after_a_restart_of_all_nodes(tmp_path: Path) -> None:
    """The nodes stop right after the decision, so other leaders place and release it. Until then each look is late."""
    async with Spreading(tmp_path) as group:
        client = await spread(group)
        await client.append("orders", b"before", ordered=True)
        sink = client.sink("lake", owner="query", run="run1")
        part = await sealed(sink, 0, *rows(0))
        with patched(Ordering, on_decision=lambda self: None):
            committing = asyncio.ensure_future(sink.commit(0, [part]))
            await wait_for(
                lambda: (
                    committing.done()
                    or any(node.machine.query(HasPartsCommitsQuery()) for node in group.nodes.values())
                ),
                group.journal.tail,
            )
        for name in tuple(group.nodes):
            await group.stop(name)
        await group.run()
        with suppress(Exception):
            await committing
        again = client.sink("lake", owner="query", run="run2")
        assert isinstance(await again.begin(0), SinkCommit)
        assert (await sink.commit(0, [part])).duplicate
        assert sorted(await values_of(client)) == sorted([b"before", *rows(0)])
        await nothing_is_left(group)


async def test_a_member_of_an_earlier_release_and_a_wrong_group_get_no_record_about_parts(tmp_path: Path) -> None:
    asked: list[Kind] = []
    unfit = Unfit({NodeId("n2"): "reads records up to kind 45"}, {})

    async def find(network: object, cluster: object, others: object, kind: Kind) -> Unfit:
        asked.append(kind)
        return unfit

    async with Spreading(tmp_path, 1) as group:
        client = await spread(group)
        await client.describe_stream("orders", 1)
        sink = client.sink("lake", owner="query")
        with patched(fitness, find_unfit=find):
            attempt = await begin(sink, 0)
            with pytest.raises(RequestError, match="nothing was staged: n2: reads records up to kind 45"):
                await attempt.stage_records("orders", [b"x"])
            unfit = Unfit({}, {})
            for batch in (0, 1):
                await sink.commit(batch, [await sealed(sink, batch, *rows(batch))])
        assert asked.count(Kind.COMMIT_PARTS) == 2, "a refused probe is made again, and a passed one never"
        with pytest.raises(RequestError, match="belongs to another group than 0"):
            await client._router.ask_leader(BeginPart(attempt=1, sink="lake"), None)
        with client._groups.call((await client.describe_spread_topic("orders")).group_of(1)) as parts:
            for request in (
                ForgetSink(name="-attempt 1"),
                AbortAttempts(sink="-attempt 1", run="", batch=0, attempt=0),
                CommitParts(sink="lake", owner="query", run="r", batch=2, parts=[]),
            ):
                with pytest.raises(RequestError, match="group 0"):
                    await parts.router.ask_leader(request, None)
