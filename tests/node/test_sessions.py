"""Sessions on real nodes: the leader ends them by a record, and clients get an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.caller import body_of, call
from tests.node.group import Group, wait_for
from viewstamp.errors import OutcomeToken, PositionMismatchError, UnavailableError
from viewstamp.ids import NodeId, Sequence, SessionId, TopicId
from viewstamp.streams import Streams
from viewstamp.wire.batch import build_batch
from viewstamp.wire.frame import FrameKind

IDLE_SECONDS = 0.3


class ForgetfulGroup(Group):
    """Members that soon expire idle sessions."""

    def machine(self, node: NodeId) -> Streams:
        return Streams(session_seconds=IDLE_SECONDS)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with ForgetfulGroup(tmp_path, 3) as group:
        await group.run()
        yield group


def sessions(group: Group) -> list[int]:
    """Return the number of open sessions on each member."""
    return [
        int(str(node.replica.applier.machine.status()["sessions"])) for node in group.nodes.values() if node.replica
    ]


@pytest.mark.slow
async def test_an_idle_session_ends_on_all_members_and_its_client_goes_on_in_another_one(group: Group) -> None:
    client, busy = group.client(), group.client(seed=2)
    await client.create_topic("orders")
    await client.append("orders", b"a")
    token = OutcomeToken(session=client._sender.session.id, sequence=Sequence(1), topic=TopicId(1), offset=0, count=1)
    assert (await busy.outcome(token)).answer == "applied"

    async def keep_busy() -> None:
        while True:
            await busy.append("orders", b"busy")
            await asyncio.sleep(IDLE_SECONDS / 10)

    task = asyncio.create_task(keep_busy())
    await wait_for(lambda: max(sessions(group)) == 2, lambda: f"{sessions(group)} sessions")
    await wait_for(lambda: sessions(group) == [1, 1, 1], lambda: f"{sessions(group)} sessions")
    outcome = await client.outcome(token)
    assert (outcome.answer, outcome.receipts) == ("expired", [])
    with pytest.raises(UnavailableError, match="nothing was written"):
        await client.append("orders", b"b")
    receipt = await client.append("orders", b"b")
    assert client._sender.session.id != token.session
    assert not task.done(), "a session in use does not expire"
    task.cancel()
    values = [record.value async for record in client.read("orders")]
    assert values[receipt.position - 1] == b"b"
    assert values.count(b"b") == 1
    await group.caught_up()
    machines = [node.replica.applier.machine for node in group.nodes.values() if node.replica]
    assert len({machine.digest() for machine in machines}) == 1


@pytest.mark.slow
async def test_in_a_log_that_stands_still_sessions_end_too(group: Group) -> None:
    await group.client().create_topic("orders")
    await group.client().append("orders", b"a")
    assert max(sessions(group)) == 1
    await wait_for(lambda: sessions(group) == [0, 0, 0], lambda: f"{sessions(group)} sessions")


async def test_an_append_that_expects_a_position_goes_there_through_a_change_of_leader(group: Group) -> None:
    client = group.client()
    await client.create_topic("orders")
    for number in range(1, 4):
        assert (await client.append("orders", b"x", expected_position=number)).position == number
    old = (await group.leader()).options.node
    await group.stop(old)
    assert (await client.append("orders", b"x", expected_position=4)).position == 4
    with pytest.raises(PositionMismatchError) as refused:
        await client.append("orders", b"y", expected_position=4)
    assert refused.value.actual == 5
    assert [record.value async for record in client.read("orders")] == [b"x"] * 4


async def test_a_position_in_a_clients_batch_is_ignored(group: Group) -> None:
    await group.client().create_topic("orders")
    leader = (await group.leader()).options.node
    async with call(group, leader) as caller:
        session = SessionId(body_of(await caller.ask(FrameKind.OPEN_SESSION))["session"])
        batch = build_batch([b"x"], topic=TopicId(1), session=session, sequence=Sequence(1))
        assert await caller.refusal(FrameKind.APPEND_AT, batch.buffer, position=0) == "RequestError"
        assert await caller.refusal(FrameKind.APPEND_AT, batch.buffer) == "RequestError"
        assert await caller.refusal(FrameKind.APPEND_AT, batch.buffer, position=9) == "PositionMismatchError"
        again = await caller.ask(FrameKind.APPEND_AT, batch.buffer, position=9)
        assert (again.body["error"], again.body["actual"]) == ("PositionMismatchError", 1)
        batch = build_batch([b"x"], topic=TopicId(1), session=session, sequence=Sequence(2))
        answer = body_of(await caller.ask(FrameKind.APPEND_AT, batch.buffer, position=1))
        assert answer["receipt"][0] == 1
        again = await caller.ask(FrameKind.APPEND_AT, batch.buffer, position=1)
        assert body_of(again)["receipt"] == answer["receipt"]
