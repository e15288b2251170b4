"""Frames with heartbeats of several groups, checked one by one; ``tests/sim/test_beats.py`` sends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgpack
import pytest

from tests.node.caller import Caller, call
from tests.node.group import wait_for
from tests.node.test_groups import SEVEN, Hosting
from viewstamp.consensus.messages import HeartbeatRequest, HeartbeatResponse, TermResponse
from viewstamp.errors import FrameError, LostDiskError, ViewstampError
from viewstamp.ids import GroupId, Index, NodeId, Term
from viewstamp.node import Node
from viewstamp.node.beats import decode_beats
from viewstamp.node.group import Group
from viewstamp.node.inbox import FromPeer
from viewstamp.node.peers.codec import encode_heartbeat, encode_message
from viewstamp.node.replica import Replica
from viewstamp.node.server import Server
from viewstamp.node.service import GroupService
from viewstamp.wire.frame import FRAME_HEADER_SIZE, GROUPS_VERSION, PROTOCOL_VERSION, Frame, FrameKind

N1, N2 = NodeId("n1"), NodeId("n2")


def response(node: Node, **changes: object) -> HeartbeatResponse:
    """Return a heartbeat's response of n2 to ``node`` in group 7, in its term."""
    hosted = node.groups[SEVEN]
    assert hosted.replica is not None
    fields: dict[str, object] = {"source": N2, "target": N1, "term": hosted.replica.raft.core.term}
    return HeartbeatResponse(**{**fields, "number": 1, "end": Index(1), "round": 0, **changes})  # type: ignore[arg-type]


def replica(node: Node, group: GroupId) -> Replica:
    found = node.groups[group].replica
    assert found is not None
    return found


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list to which the messages of ``DISK`` that a group takes are added; it does not handle them.

    Clusters of other tests may run in this process.
    """
    stepped: list[object] = []
    step = Group.step

    def note(self: Group, item: FromPeer, incarnation: str) -> None:
        if incarnation == DISK:
            stepped.append(item)
        else:
            step(self, item, incarnation)

    monkeypatch.setattr(Group, "step", note)
    return stepped


@asynccontextmanager
async def calling(directory: Path) -> AsyncIterator[tuple[Node, Callable[..., AbstractAsyncContextManager[Caller]]]]:
    """Yield n1, which hosts group 7, and a function that opens a connection to it as n2 of that group."""
    async with Hosting(directory, 1) as group:
        group.members["n2"] = "127.0.0.1:1"
        await group.start("n1")
        await group.host("n1")

        @asynccontextmanager
        async def connected(**changes: object) -> AsyncIterator[Caller]:
            async with call(group, "n1", greet=False) as caller:
                welcome = await caller.hello(**{**GREETING, **changes})
                assert welcome.kind == FrameKind.WELCOME, welcome.body
                yield caller

        yield group.nodes[N1], connected


DISK = "e" * 16
GREETING = {"node": N2, "incarnation": DISK, "group": SEVEN, "version": GROUPS_VERSION, "address": "n2:1"}


async def test_a_heartbeat_of_another_disk_ends_the_connections_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before it, and those of a group that is not hosted here, do not."""
    refused: list[type[ViewstampError]] = []
    refuse = Server.refuse

    def note(self: Server, peer: NodeId, group: GroupService, error: ViewstampError) -> None:
        refused.append(type(error))
        refuse(self, peer, group, error)

    monkeypatch.setattr(Server, "refuse", note)
    async with calling(tmp_path) as (node, connected), connected() as caller, connected() as other:
        beat = encode_heartbeat(response(node))
        caller.send(FrameKind.BEATS, [[99, DISK, beat], [SEVEN, DISK, beat], [SEVEN, DISK, beat]])
        caller.send(FrameKind.BEATS, [[SEVEN, "f" * 16, beat], [SEVEN, "f" * 16, beat]])
        caller.send(FrameKind.BEATS, 0)
        assert await caller.is_ended()
        assert refused == [LostDiskError]
        assert await other.is_ended()


@pytest.mark.parametrize("changes", [{"source": "n3"}, {"source": N1}, {"target": "n1-2"}])
async def test_only_heartbeats_of_the_sender_for_this_member_are_taken(
    tmp_path: Path, stepped: list[object], changes: dict[str, object]
) -> None:
    """A heartbeat in the name of another node ends the connection, one for an earlier id of this node is dropped."""
    async with calling(tmp_path) as (node, connected), connected() as caller:
        caller.send(FrameKind.BEATS, [[SEVEN, DISK, encode_heartbeat(response(node, **changes))]])
        caller.send(FrameKind.BEATS, 0)
        assert await caller.is_ended()
    assert stepped == []


@pytest.mark.parametrize(
    "changes", [{"group": 0, "version": PROTOCOL_VERSION}, {"address": ""}], ids=["group 0", "a repair"]
)
async def test_heartbeats_are_read_only_on_links_of_other_groups_than_0(
    tmp_path: Path, stepped: list[object], changes: dict[str, object]
) -> None:
    async with calling(tmp_path) as (node, connected), connected(**changes) as caller:
        caller.send(FrameKind.BEATS, [[SEVEN, DISK, encode_heartbeat(response(node))]])
        caller.send(FrameKind.BEATS, 0)
        assert await caller.is_ended()
    assert stepped == []


async def test_a_node_that_only_asks_to_join_may_send_no_heartbeats_of_other_groups(
    tmp_path: Path, stepped: list[object]
) -> None:
    """No entry ends the connection on which it arrived, so nothing else would end a flood of them."""
    async with Hosting(tmp_path, 1) as group:
        await group.run()
        await group.host()
        await wait_for(lambda: group.leader_of_seven() is not None, group.journal.tail)
        beat = encode_heartbeat(response(group.nodes[N1], source="n2~1"))
        async with call(group, "n1", greet=False) as caller:
            assert (await caller.hello(**{**GREETING, "node": "n2~1"})).kind == FrameKind.WELCOME
            caller.send(FrameKind.BEATS, [[SEVEN, DISK, beat]])
            caller.send(FrameKind.BEATS, 0)
            assert await caller.is_ended()
    assert stepped == []


async def test_group_0_does_not_ask_for_beats(tmp_path: Path) -> None:
    """So two releases talk about group 0 as before."""
    async with Hosting(tmp_path, 1) as group:
        group.members["n2"] = "127.0.0.1:1"
        await group.start("n1")
        async with call(group, "n1", greet=False) as caller:
            welcome = await caller.hello(node=N2, incarnation="e" * 16, address="n2:1")
            assert welcome.kind == FrameKind.WELCOME
            assert "takes_beats" not in welcome.body


BEAT = encode_heartbeat(
    HeartbeatRequest(source=N2, target=N1, term=Term(1), number=1, commit_end=Index(1), sent_end=Index(1), round=0)
)
OTHER = msgpack.unpackb(b"".join(encode_message(TermResponse(source=N2, target=N1, term=Term(1))))[FRAME_HEADER_SIZE:])


@pytest.mark.parametrize(
    "body",
    [
        None,
        7,
        {"a": 1},
        [[SEVEN, "e"]],
        [[0, "e", BEAT]],
        [[-1, "e", BEAT]],
        [["7", "e", BEAT]],
        [[True, "e", BEAT]],
        [[SEVEN, b"e", BEAT]],
        [[SEVEN, "e", None]],
        [[SEVEN, "e", BEAT[:-1]]],
        [[SEVEN, "e", OTHER]],
        [[SEVEN, "e", BEAT]] * 257,
    ],
)
def test_a_frame_with_anything_else_than_heartbeats_is_refused(body: object) -> None:
    assert len(decode_beats(Frame(FrameKind.BEATS, [[SEVEN, "e", BEAT]] * 256, memoryview(b"")))) == 256
    with pytest.raises(FrameError):
        decode_beats(Frame(FrameKind.BEATS, body, memoryview(b"")))
