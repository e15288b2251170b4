"""A stale answer contains its age; an answer older than the caller's bound is refused."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest

from tests.node.caller import Caller, body_of, call
from tests.node.group import PATIENCE_SECONDS, Group
from tests.node.switchboard import CLIENT
from viewstamp.errors import UnavailableError
from viewstamp.ids import NodeId
from viewstamp.wire.frame import FrameKind


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    """A topic with one record, and members that soon give up a request that cannot be answered."""
    async with Group(tmp_path, 3, request_seconds=0.2) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        await client.append("orders", b"before")
        await group.caught_up()
        yield group


async def follower(group: Group) -> str:
    leader = (await group.leader()).options.node
    return next(name for name in group.members if name != leader)


async def asked(caller: Caller, max_staleness: float | None) -> tuple[int, float]:
    """Return the topic's last position from a stale read, and its age in seconds."""
    answer = await caller.ask(FrameKind.DESCRIBE_TOPIC, name="orders", stale=True, max_staleness=max_staleness)
    body = body_of(answer)
    return body["topic"]["last_position"], body["age"]


async def test_a_healthy_member_reports_a_small_age(group: Group) -> None:
    for name in group.members:
        async with call(group, name) as caller:
            async with asyncio.timeout(PATIENCE_SECONDS):
                # On a busy machine an occasional heartbeat is late, and so is the age; but not all of them.
                answer = await asked(caller, None)
                while answer[1] >= 0.2:
                    answer = await asked(caller, None)
            assert answer[0] == 1
            last, age = await asked(caller, 60)
            assert (last, 0 <= age < 60) == (1, True)


async def test_no_staleness_at_all_is_linearizable_on_every_member(group: Group) -> None:
    client = group.client()
    async with call(group, await follower(group)) as caller:
        for number in range(2, 12):
            await client.append("orders", b"x")
            assert await asked(caller, 0) == (number, 0)


async def test_an_answer_within_its_bound_needs_no_other_member_and_beyond_it_is_refused(group: Group) -> None:
    away = await follower(group)
    leader = (await group.leader()).options.node
    async with call(group, away) as caller:
        known_at = monotonic()
        await asked(caller, 0)
        group.isolate(away)
        await group.client(leader).append("orders", b"after")
        last, age = await asked(caller, 60)
        assert last == 1
        assert 0 < age <= monotonic() - known_at
        await asyncio.sleep(0.05)
        answer = await caller.ask(FrameKind.DESCRIBE_TOPIC, name="orders", stale=True, max_staleness=0.05)
        assert answer.body["error"] == "NoQuorumError"
        assert f"{away} last knew " in answer.body["message"]
        assert "0.05 s are allowed" in answer.body["message"]
        assert (await asked(caller, None))[0] == 1, "a read without a bound is still answered"
        group.heal()
        await group.caught_up()
        assert await asked(caller, 0) == (2, 0)


async def test_a_member_that_was_never_up_to_date_reports_an_unknown_age(tmp_path: Path) -> None:
    """A message from a node that claims to lead does not prove that this member is up to date."""
    async with Group(tmp_path, 3, request_seconds=0.1) as group:
        await group.run()
        await group.client().create_topic("orders")
        await group.caught_up()
        await group.stop(*group.members)
        await group.start("n2")
        async with call(group, "n2") as caller:
            last, age = await asked(caller, None)
            assert (last, math.isinf(age)) == (0, True)
            answer = await caller.ask(FrameKind.LIST_TOPICS, stale=True, max_staleness=3600)
            assert "n2 has not known since its start" in answer.body["message"]
            assert math.isinf(body_of(await caller.ask(FrameKind.LIST_TOPICS, stale=True))["age"])


async def test_a_client_is_served_by_any_member_that_is_fresh_enough(group: Group) -> None:
    away = await follower(group)
    group.isolate(away)
    client = group.client()
    await client.append("orders", b"after")
    for _ in range(3):
        stale = await client.read_stale("orders", max_staleness=0.01)
        assert [record.value async for record in stale.value] == [b"before", b"after"]
        assert stale.age_seconds <= 0.01
    pinned = await client.read_stale("orders", node=away)
    assert [record.value async for record in pinned.value] == [b"before"]
    for name, address in group.members.items():
        if name != away:
            group.board.cut(CLIENT, address)
    with pytest.raises(UnavailableError):
        await group.client(away, timeout=0.5).describe_topic("orders", max_staleness=0.01)


async def test_an_invalid_bound_is_refused(group: Group) -> None:
    requests: dict[FrameKind, dict[str, object]] = {
        FrameKind.LIST_TOPICS: {},
        FrameKind.DESCRIBE_TOPIC: {"name": "orders"},
        FrameKind.QUERY: {"actor": "a", "key": "", "method": "m", "arguments": b"", "applied_index": 0},
    }
    async with call(group) as caller:
        for bound in (-1, "1", math.nan, [], True):
            for kind, fields in requests.items():
                assert await caller.refusal(kind, stale=True, max_staleness=bound, **fields) == "RequestError"


@pytest.mark.slow
async def test_a_member_that_receives_heartbeats_but_cannot_answer_does_not_count_as_up_to_date(group: Group) -> None:
    """The received messages may be old, or come from a leader that has been replaced."""
    deaf = (await group.leader()).options.node
    away = await follower(group)
    async with call(group, away) as caller:
        await asked(caller, 0)
        group.board.cut(away, group.members[NodeId(deaf)])
        await asyncio.sleep(0.3)
        replica = group.nodes[NodeId(away)].replica
        assert replica is not None
        assert replica.raft.core.leader == deaf, "the leader's messages still arrive"
        assert (await asked(caller, 60))[1] >= 0.3


@pytest.mark.slow
async def test_an_age_counts_from_the_request_to_the_leader_and_not_from_its_answer(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        await group.client().create_topic("orders")
        await group.caught_up()
        away = await follower(group)
        async with call(group, away) as caller:
            group.isolate(away)
            question = asyncio.create_task(caller.ask(FrameKind.DESCRIBE_TOPIC, name="orders", stale=False))
            await asyncio.sleep(0.2)
            assert not question.done()
            group.heal()
            await question
            assert (await asked(caller, 60))[1] >= 0.2
