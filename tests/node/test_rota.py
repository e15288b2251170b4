"""The share of a turn of the event loop that clients get, and the memory that one of them can take."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

from tests.node.caller import HELLO, body_of, call
from tests.node.group import Group, wait_for
from viewstamp.ids import NodeId
from viewstamp.node.rota import TURN_SECONDS, Rota
from viewstamp.node.server import Server
from viewstamp.node.service import Limits
from viewstamp.wire.frame import FrameKind, encode_frame


class Turns:
    """A clock that only the connections advance, and the order in which these had their turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.order: list[str] = []
        self.rota = Rota(lambda: self.now)


class Flood:
    """A connection whose requests take 0.4 turns each."""

    def __init__(self, turns: Turns, name: str, requests: int) -> None:
        self.turns, self.name, self.requests = turns, name, requests

    def on_turn(self) -> None:
        while self.requests:
            self.turns.order.append(self.name)
            self.turns.now += 0.4 * TURN_SECONDS
            self.requests -= 1
            if self.requests and self.turns.rota.is_over:
                self.turns.rota.wait(self)
                return


async def test_connections_wait_in_rotation_and_a_turn_is_limited() -> None:
    turns = Turns()
    assert turns.rota.begin()
    floods = [Flood(turns, name, 5) for name in "ab"]
    for flood in floods:
        turns.rota.wait(flood)
    assert not turns.rota.begin(), "it has to queue behind those that wait"
    await asyncio.sleep(0)
    assert turns.order == ["a", "b", "a"]
    await asyncio.sleep(0)
    assert turns.order == ["a", "b", "a", "b", "a", "b"]
    turns.rota.leave(floods[0])
    turns.rota.leave(floods[0])
    for _ in range(3):
        await asyncio.sleep(0)
    assert turns.order[6:] == ["b", "b"]
    turns.now += 2 * TURN_SECONDS
    assert turns.rota.begin()


async def test_time_is_counted_over_connections_until_none_was_handled_for_a_while() -> None:
    turns = Turns()
    for _ in range(2):
        assert turns.rota.begin()
        turns.now += 0.6 * TURN_SECONDS
        turns.rota.end()
    assert not turns.rota.begin()
    turns.now += 2 * TURN_SECONDS
    assert turns.rota.begin()


def server_of(group: Group) -> Server:
    server = group.nodes[NodeId("n1")].server
    assert server is not None
    return server


async def test_a_client_is_served_beside_one_that_floods_the_node(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        rota = server_of(group).rota
        async with call(group) as flooding, call(group) as other:
            flooding.write(b"".join(encode_frame(FrameKind.STATUS, {"id": 1})) * 20_000)
            await wait_for(lambda: rota._waiting or None, lambda: "no connection waits")
            body_of(await other.ask(FrameKind.STATUS))
            assert rota._waiting, "the flood was handled before the request of another client"


async def test_all_requests_of_a_flood_are_answered_in_order(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        async with call(group) as caller:
            caller.write(b"".join(b"".join(encode_frame(FrameKind.STATUS, {"id": each})) for each in range(500)))
            assert [(await caller.frame()).body["id"] for _ in range(500)] == list(range(500))
        assert not server_of(group).rota._waiting


async def test_damage_behind_requests_that_waited_ends_the_connection_and_is_logged(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        async with call(group) as caller:
            caller.write(b"".join(encode_frame(FrameKind.STATUS, {"id": 1})) * 500 + b"GET / HTTP/1.1")
            while not await caller.is_ended():
                pass
        assert "not a viewstamp frame" in group.journal.of("! connection ended")[0]["reason"]
        assert not server_of(group).rota._waiting


async def test_a_connection_that_ends_gives_its_memory_back_without_a_collection_of_garbage(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        server = server_of(group)
        gc.collect()
        gc.disable()
        try:
            async with call(group) as caller:
                caller.write(b"".join(encode_frame(FrameKind.APPEND, {"id": 1}, [bytes(100_000)]))[:90_000])
                await wait_for(lambda: server.crowd._bytes >= 90_000 or None, lambda: "not received")
                [connection] = server.connections
                ended = weakref.ref(connection)
                del connection
            await wait_for(lambda: ended() is None or None, lambda: str(gc.get_referrers(ended())))
        finally:
            gc.enable()


QUERY = {"actor": "a", "key": "", "method": "m", "arguments": b"", "stale": True, "applied_index": 0}


async def test_a_client_takes_less_memory_than_a_member_may(tmp_path: Path) -> None:
    """A client sends one batch in a frame, and a byte of lists and maps can take 80 bytes when it is decoded."""
    limits = Limits(record_bytes_max=10_000, batch_bytes_max=20_000, frame_bytes_max=1 << 30)
    async with Group(tmp_path, 1, limits=limits) as group:
        await group.run()
        async with call(group) as caller:
            caller.write(b"".join(encode_frame(FrameKind.APPEND, {"id": 1}, [bytes(200_000)]))[:100])
            assert await caller.is_ended()
        async with call(group) as caller:
            large = {**QUERY, "arguments": bytes(10_001)}
            assert await caller.refusal(FrameKind.QUERY, **large) == "RecordTooLargeError"
            await caller.ask(FrameKind.LIST_TOPICS, stale=True, more=bytes(90_000))
        limits_of = group.journal.of("! connection ended")
        assert "over the limit of 105536" in limits_of[0]["reason"]


async def test_a_hello_does_not_queue_behind_the_requests_of_clients(tmp_path: Path) -> None:
    """Behind many clients it waited for seconds, and a member whose HELLO had arrived was cut off as late."""
    joining = {"node": "n1~00000001", "incarnation": "x"}
    async with Group(tmp_path, 1) as group:
        await group.run()
        rota = server_of(group).rota
        floods = [Flood(Turns(), "", 0) for _ in range(1000)]
        async with call(group, greet=False) as peer, call(group, greet=False) as client:
            rota._is_scheduled = True  # No turn of the rota comes, as if each took long.
            for flood in floods:
                rota.wait(flood)
            client.send(FrameKind.HELLO, HELLO)
            client.send(FrameKind.STATUS, {"id": 1})
            assert (await peer.hello(**joining)).kind == FrameKind.WELCOME
            assert (await client.frame()).kind == FrameKind.WELCOME
            assert len(rota._waiting) == len(floods) + 1, "the request of the client waits in the queue"
            rota._is_scheduled = False
            rota.wait(floods[0])
            body_of(await client.frame())
