"""Reads are linearizable on every member; a stale answer is given only to a caller that allows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.caller import Caller, body_of, call
from tests.node.group import PATIENCE_SECONDS, Group, wait_for
from viewstamp.client import Client
from viewstamp.ids import NodeId
from viewstamp.node.service import Limits
from viewstamp.wire.frame import Frame, FrameKind


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path, 3) as group:
        await group.run()
        await group.client().create_topic("orders")
        yield group


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[Group]:
    """The same group, with members that soon give up a request that cannot be answered."""
    async with Group(tmp_path, 3, request_seconds=0.2) as group:
        await group.run()
        await group.client().create_topic("orders")
        yield group


async def last_position(caller: Caller, *, stale: bool = False) -> int:
    answer = await caller.ask(FrameKind.DESCRIBE_TOPIC, name="orders", stale=stale)
    return int(body_of(answer)["topic"]["last_position"])


async def read(caller: Caller, position: int, *, wait: float = 0.0, applied_index: int = 0) -> Frame:
    fields: dict[str, Any] = {"topic": 1, "position": position, "bytes_max": 100_000}
    return await caller.ask(FrameKind.READ, **fields, applied_index=applied_index, wait=wait)


async def test_every_member_sees_every_append_that_was_acknowledged_before_it_was_asked(group: Group) -> None:
    client = group.client()
    async with call(group, "n1") as one, call(group, "n2") as two, call(group, "n3") as three:
        for number in range(1, 31):
            await client.append("orders", b"x")
            assert await asyncio.gather(*(last_position(caller) for caller in (one, two, three))) == [number] * 3


async def test_an_isolated_member_answers_only_stale_reads(impatient: Group) -> None:
    group, client = impatient, impatient.client()
    await client.append("orders", b"before")
    await group.caught_up()
    leader = (await group.leader()).options.node
    away = next(name for name in group.members if name != leader)
    group.isolate(away)
    await group.client(leader).append("orders", b"after")
    async with call(group, away) as caller:
        assert await caller.refusal(FrameKind.DESCRIBE_TOPIC, name="orders", stale=False) == "NoQuorumError"
        assert await last_position(caller, stale=True) == 1
        group.heal()
        await group.caught_up()
        assert await last_position(caller) == 2


async def test_an_isolated_leader_with_a_successor_gives_no_stale_answer(group: Group) -> None:
    """A leader asks its quorum before each answer.

    Without a quorum it waits, and then catches up with the next leader.
    """
    old = (await group.leader()).options.node
    async with call(group, old) as caller:
        group.isolate(old)
        asked = asyncio.create_task(caller.ask(FrameKind.DESCRIBE_TOPIC, name="orders", stale=False))
        new = (await group.leader(not_=old)).options.node
        await group.client(new).append("orders", b"x")
        assert not asked.done()
        group.heal()
        answer = await asked
        assert answer.kind == FrameKind.ERROR or answer.body["topic"]["last_position"] == 1


async def test_a_read_without_a_leader_is_answered_once_there_is_one(group: Group) -> None:
    leader = await group.leader()
    follower = next(name for name in group.members if name != leader.options.node)
    async with call(group, follower) as caller:
        await group.stop(leader.options.node)
        assert await last_position(caller) == 0


async def test_a_read_whose_confirmation_was_lost_is_retried_however_many_others_arrive(tmp_path: Path) -> None:
    """A busy member must keep the reads that arrived during a change of leader until they time out."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        await group.client().create_topic("orders")
        leader = await group.leader()
        follower = next(name for name in group.members if name != leader.options.node)
        async with call(group, follower) as caller, call(group, follower) as others:
            group.isolate(leader.options.node)
            asked = asyncio.create_task(last_position(caller))
            await group.leader(not_=leader.options.node)
            group.heal()
            while not asked.done():
                await last_position(others)
            assert await asked == 0


async def test_a_read_waits_for_a_record_and_comes_with_it(group: Group) -> None:
    client = group.client()
    for name in group.members:
        async with call(group, name) as caller:
            position = await last_position(caller) + 1
            waiting = asyncio.create_task(read(caller, position, wait=PATIENCE_SECONDS))
            await asyncio.sleep(0.03)
            assert not waiting.done()
            await client.append("orders", b"at last")
            answer = await waiting
            assert body_of(answer)["last_position"] == position
            assert b"at last" in bytes(answer.payload)


async def test_a_read_that_waits_in_vain_returns_nothing(group: Group) -> None:
    async with call(group) as caller:
        answer = await read(caller, 1, wait=0.03)
        assert (body_of(answer)["last_position"], len(answer.payload)) == (0, 0)


async def test_reads_that_waited_in_vain_are_dropped(group: Group) -> None:
    """Readers may follow the end of a log for days although no record is appended."""
    node = group.nodes[NodeId("n1")]
    assert node.replica is not None
    async with call(group) as caller:
        for _ in range(50):
            await read(caller, 1, wait=0.001)
        assert node.replica.applier.held_waiters <= 2


async def test_reads_without_a_leader_to_confirm_them_are_dropped(tmp_path: Path) -> None:
    """Clients keep asking a member that has no leader, for as long as that lasts."""
    async with Group(tmp_path, 3, request_seconds=0.01) as group:
        await group.start("n2")
        replica = group.nodes[NodeId("n2")].replica
        assert replica is not None
        async with call(group, "n2") as caller:
            for _ in range(50):
                assert await caller.refusal(FrameKind.LIST_TOPICS, stale=False) == "NoQuorumError"
            await wait_for(lambda: replica.held_readers < 20, lambda: f"{replica.held_readers} are held")


async def test_many_waiting_reads_on_one_connection_are_each_answered(group: Group) -> None:
    """When the connection ends, no task waits for it any longer."""
    node = group.nodes[NodeId("n1")]
    async with call(group) as caller:
        tasks = len(asyncio.all_tasks())
        fields = {"topic": 1, "position": 1, "bytes_max": 1000, "applied_index": 0, "wait": 20.0}
        for number in range(50):
            caller.send(FrameKind.READ, {"id": number, **fields})
        await wait_for(lambda: len(asyncio.all_tasks()) >= tasks + 50, lambda: "the requests are not taken")
        await group.client().append("orders", b"x")
        assert {(await caller.frame()).body["id"] for _ in range(50)} == set(range(50))
        for number in range(50):
            caller.send(FrameKind.READ, {"id": number, **fields, "position": 9})
        await wait_for(lambda: len(asyncio.all_tasks()) >= tasks + 50, lambda: "the requests are not taken")
    await wait_for(lambda: len(asyncio.all_tasks()) < tasks + 10, lambda: "the requests outlive their connection")
    assert not node.failed.done()


async def test_a_read_waits_until_the_member_has_applied_the_records_that_the_reader_has_seen(impatient: Group) -> None:
    """So a reader that continues at another member never goes back in time."""
    group, client = impatient, impatient.client()
    leader = (await group.leader()).options.node
    away = next(name for name in group.members if name != leader)
    group.isolate(away)
    receipt = await group.client(leader).append("orders", b"x")
    async with call(group, away) as caller:
        answer = await read(caller, 1, applied_index=receipt.index)
        assert answer.body["error"] == "UnavailableError", "an empty answer would mean that there is no record"
        group.heal()
        await group.caught_up()
        assert body_of(await read(caller, 1, applied_index=receipt.index))["last_position"] == 1
    assert await appended(client) == [b"x"]


async def test_a_node_does_not_buffer_answers_for_a_client_that_reads_none(tmp_path: Path) -> None:
    """Reads have back-pressure: the next answer is built only when most of the previous one has been taken."""
    async with Group(tmp_path, 1, limits=Limits(frame_bytes_max=2_000_000)) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        for _ in range(30):
            await client.append("orders", b"." * 100_000)
        server = group.nodes[NodeId("n1")].server
        assert server is not None
        async with call(group) as caller:
            fields = {"topic": 1, "position": 1, "bytes_max": 1_000_000, "applied_index": 0, "wait": 0.0}
            for number in range(100):
                caller.send(FrameKind.READ, {"id": number, **fields})
            held = []
            for _ in range(50):
                await asyncio.sleep(0.002)
                held += [connection.buffered_bytes for connection in server.connections]
            assert max(held) < 2_000_000
            assert {(await caller.frame()).body["id"] for _ in range(100)} == set(range(100)), (
                "late answers still arrive"
            )


async def test_a_client_with_too_many_unread_bytes_is_disconnected(tmp_path: Path) -> None:
    async with Group(tmp_path, 1, limits=Limits(frame_bytes_max=200_000)) as group:
        await group.run()
        client = group.client()
        for number in range(60):
            await client.create_topic(f"topic-{number}")
        async with call(group) as caller:

            def is_disconnected() -> bool:
                for number in range(200):
                    caller.send(FrameKind.LIST_TOPICS, {"id": number, "stale": True})
                return any("answers wait" in line["reason"] for line in group.journal.of("! connection ended"))

            await wait_for(is_disconnected, lambda: "its answers are held for ever")
        async with call(group) as caller:
            body_of(await caller.ask(FrameKind.STATUS))


async def test_the_requests_that_wait_on_one_connection_are_bounded(group: Group) -> None:
    async with call(group) as caller:
        fields = {"topic": 1, "position": 9, "bytes_max": 1000, "applied_index": 0, "wait": 20.0}
        for number in range(1025):
            caller.send(FrameKind.READ, {"id": number, **fields})
        answer = await caller.frame()
        assert (answer.body["id"], answer.body["error"]) == (1024, "OverloadedError")


async def appended(client: Client) -> list[bytes]:
    return [record.value async for record in client.read("orders")]
