"""Limits on the resources that all connections of a node may hold together, before and after a HELLO."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
from crc32c import crc32c

from tests.node.caller import HELLO, body_of, call
from tests.node.group import Group, wait_for
from viewstamp.errors import OverloadedError
from viewstamp.ids import NodeId
from viewstamp.node.crowd import Crowd, CrowdLimits
from viewstamp.node.server import Server
from viewstamp.node.service import Limits
from viewstamp.wire.frame import FrameKind, encode_frame

CROWD = CrowdLimits(
    clients_max=4, handshakes_max=3, hello_seconds=0.2, buffered_bytes_max=100_000, requests_max=5, one_peer_max=2
)
LIMITS = Limits(record_bytes_max=10_000, batch_bytes_max=20_000, frame_bytes_max=90_000, crowd=CROWD)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path, 1, limits=LIMITS) as group:
        await group.run()
        yield group
        assert not group.nodes[NodeId("n1")].failed.done(), group.journal.tail()


def server_of(group: Group) -> Server:
    server = group.nodes[NodeId("n1")].server
    assert server is not None
    return server


def header(kind: int, body_size: int, payload_size: int) -> bytes:
    """Return the header of a frame; the tests need not send the rest."""
    checked = kind.to_bytes(4, "little") + body_size.to_bytes(4, "little") + payload_size.to_bytes(4, "little")
    return b"VSF\x01" + crc32c(checked).to_bytes(4, "little") + checked


@pytest.mark.parametrize("size", [5000, 30_000_000])
async def test_before_a_hello_nothing_larger_than_a_hello_is_read(group: Group, size: int) -> None:
    """Without the limit, 30 MB of empty maps took 2 GB of memory when decoded."""
    async with call(group, greet=False) as caller:
        caller.write(header(FrameKind.HELLO, size, 0))
        assert await caller.is_ended()
    assert "where a HELLO of at most 4096 has to come first" in group.journal.of("! connection ended")[0]["reason"]


async def test_nodes_that_ask_to_join_take_no_place_of_a_member(group: Group) -> None:
    """A node that lost its disk gives an id that no record has, so anyone can make up as many as there are places."""
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(call(group, greet=False)) for _ in range(3)]
        for number, caller in enumerate(callers):
            hello = {"node": f"n9~{number:08x}", "incarnation": f"{number:016x}", "address": "127.0.0.1:9"}
            assert (await caller.hello(**hello)).kind == FrameKind.WELCOME
        assert await callers[0].is_ended()
        assert server_of(group).crowd.status["peers"] == CROWD.one_peer_max


async def test_requests_behind_a_hello_in_the_same_write_are_answered(group: Group) -> None:
    async with call(group, greet=False) as caller:
        hello = b"".join(encode_frame(FrameKind.HELLO, HELLO))
        status = b"".join(encode_frame(FrameKind.STATUS, {"id": 1, "padding": b"x" * 10_000}))
        caller.write(hello + status * 2 + status[:100])
        assert [(await caller.frame()).kind for _ in range(3)] == [FrameKind.WELCOME, FrameKind.OK, FrameKind.OK]
        caller.write(status[100:])
        assert (await caller.frame()).kind == FrameKind.OK


@pytest.mark.parametrize("start", [b"", b"VS", header(FrameKind.HELLO, 100, 0)])
async def test_a_connection_without_a_hello_ends_after_a_while(group: Group, start: bytes) -> None:
    async with call(group, greet=False) as caller:
        caller.write(start)
        assert await caller.is_ended()
    assert group.journal.of("! connection ended", reason="no HELLO within 0.2 s")


async def test_a_connection_that_is_greeted_may_be_idle(group: Group) -> None:
    async with call(group) as caller:
        await asyncio.sleep(0.25)
        body_of(await caller.ask(FrameKind.STATUS))


async def test_of_too_many_connections_without_a_hello_the_oldest_ends(group: Group) -> None:
    async with AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(call(group, greet=False)) for _ in range(CROWD.handshakes_max)]
        async with call(group) as caller:
            body_of(await caller.ask(FrameKind.STATUS))
            assert await silent[0].is_ended()
        assert server_of(group).crowd.status["handshakes"] == CROWD.handshakes_max - 1


async def test_too_many_clients_are_refused_by_name_and_a_place_that_is_left_is_given(group: Group) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(CROWD.clients_max - 1):
            await stack.enter_async_context(call(group))
        async with call(group), call(group, greet=False) as late:
            refused = await late.hello()
            assert refused.kind == FrameKind.REFUSED
            assert refused.body["error"] == "OverloadedError"
            assert "connections_max" in refused.body["remedy"]
        await wait_for(lambda: server_of(group).crowd.status["clients"] == CROWD.clients_max - 1, lambda: "not freed")
        async with call(group) as caller:
            body_of(await caller.ask(FrameKind.STATUS))


async def test_unfinished_frames_have_a_total_and_the_largest_holder_is_disconnected(group: Group) -> None:
    frame = b"".join(encode_frame(FrameKind.STATUS, {"id": 1}, [bytes(80_000)]))
    async with call(group) as large, call(group) as small, call(group) as other:
        large.write(frame[:70_000])
        small.write(frame[:20_000])
        await wait_for(lambda: server_of(group).crowd._bytes == 90_000, lambda: "not counted")
        other.write(frame[:30_000])
        assert await large.is_ended()
        small.write(frame[20_000:])
        assert (await small.frame()).kind == FrameKind.OK
    await wait_for(lambda: server_of(group).crowd._bytes == 0, lambda: "not given back")


async def test_unread_answers_have_a_total(group: Group) -> None:
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(call(group)) for _ in range(3)]
        status = b"".join(encode_frame(FrameKind.STATUS, {"id": 1}))
        while not (ended := group.journal.of("! connection ended")):
            for caller in callers:  # Many requests, because bytes in the system's socket buffers do not count.
                caller.write(status * 200)
                with suppress(ConnectionResetError):
                    await caller.drain()
        assert "over the limit of" in ended[0]["reason"] or "answers wait" in ended[0]["reason"]
        assert server_of(group).crowd._bytes <= CROWD.buffered_bytes_max


async def test_requests_that_wait_have_a_total(group: Group) -> None:
    async with call(group) as caller:
        read = {"topic": 1, "position": 1, "bytes_max": 1000, "applied_index": 1000, "wait": 600.0}
        for number in range(CROWD.requests_max + 1):
            caller.send(FrameKind.READ, {"id": number, **read})
        refused = await caller.frame()
        assert refused.body["id"] == CROWD.requests_max
        assert refused.body["error"] == "OverloadedError"
    await wait_for(lambda: server_of(group).crowd.requests == 0, lambda: "not given back")


async def test_of_too_many_connections_of_one_peer_the_oldest_ends(group: Group) -> None:
    """A connection that a broken network left behind looks like a live one, so the limit must not block the new one."""
    joining = {"node": "n1~00000001", "incarnation": "x"}
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(call(group, greet=False)) for _ in range(CROWD.one_peer_max + 1)]
        for peer in peers:
            assert (await peer.hello(**joining)).kind == FrameKind.WELCOME
        assert await peers[0].is_ended()
        assert server_of(group).crowd.status["peers"] == CROWD.one_peer_max


class Link:
    """A connection of a peer that holds no bytes."""

    counted_bytes = buffered_bytes = 0
    reason = ""

    def cut(self, reason: str) -> None:
        self.reason = reason


def test_the_links_of_a_peer_are_counted_in_each_group() -> None:
    """With more shared groups than connections of one peer, each new link ended the oldest, which came back."""
    crowd = Crowd(CROWD)
    links = [Link() for _ in range(3 * CROWD.one_peer_max)]
    for number, link in enumerate(links):
        crowd.arrived(link)
        crowd.greeted(link, "n2", number % 3)
    assert [link.reason for link in links] == [""] * len(links)
    another = Link()
    crowd.arrived(another)
    crowd.greeted(another, "n2", 1)
    assert [link for link in links if link.reason] == [links[1]]


def test_surplus_connections_of_peers_keep_no_only_link_out() -> None:
    crowd = Crowd(replace(CROWD, peers_max=4))

    def greet(peer: str, group: int) -> Link:
        link = Link()
        crowd.arrived(link)
        crowd.greeted(link, peer, group)
        return link

    only, *surplus = greet("n2", 0), greet("n3", 1), greet("n3", 1), greet("n2", 1)
    late = greet("n3", 0)
    assert [link.reason != "" for link in (only, *surplus, late)] == [False, True, False, False, False]
    with pytest.raises(OverloadedError, match="4 connections of peers are open, each of another peer or group"):
        greet("n4", 0)
    assert late.reason == ""
    assert greet("n2", 0).reason == ""
    assert only.reason


@pytest.mark.parametrize("field", ["version", "cluster", "node", "incarnation"])
async def test_a_long_value_in_a_hello_makes_no_long_line_in_the_log(group: Group, field: str) -> None:
    value = "x" * 3500
    async with call(group, greet=False) as caller:
        await caller.hello(**{"node": "n9", field: value})
    line = group.journal.of("! refused")[0]
    assert len(msgpack.packb({name: str(text) for name, text in line.items()})) < 2000


@pytest.mark.parametrize(("descriptors", "clients"), [(80, 35), (1024, 672), (65_536, 8192)])
def test_the_limits_leave_descriptors_for_the_log_and_the_peers(descriptors: int, clients: int) -> None:
    limits = CrowdLimits.within(descriptors, connections_max=8192, buffered_bytes_max=1)
    assert limits.clients_max == clients
    kept = min(256, descriptors // 2) + max(0, limits.peers_max - 64)
    assert limits.clients_max + limits.handshakes_max + kept <= descriptors


@pytest.mark.parametrize(("descriptors", "peers"), [(80, 8), (1024, 64), (4096, 256), (65_536, 2048)])
def test_more_descriptors_are_for_the_links_of_more_groups(descriptors: int, peers: int) -> None:
    limits = CrowdLimits.within(descriptors, connections_max=8192, buffered_bytes_max=1)
    assert limits.peers_max == peers
