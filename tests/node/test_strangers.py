"""A message that breaks a protocol rule ends its connection and is logged; the node continues."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from tests.node.caller import Caller, call
from tests.node.group import Group, wait_for
from viewstamp.consensus.messages import HeartbeatRequest, Message, TermResponse
from viewstamp.ids import Index, NodeId, Term
from viewstamp.node import Node
from viewstamp.node.peers.codec import encode_message
from viewstamp.wire.frame import FrameKind, encode_frame
from viewstamp.wire.identity_proof import CHALLENGE_BYTES, hello_proof


def frame_of(message: Message) -> bytes:
    return b"".join(encode_message(message))


def term_of(node: Node) -> Term:
    assert node.replica is not None
    return node.replica.raft.core.term


async def greet(caller: Caller, group: Group, name: str) -> None:
    """Shake hands with a member's own id and incarnation, so that the node cannot distinguish it from the member."""
    incarnation = group.nodes[NodeId(name)].group.incarnation
    assert (await caller.hello(node=name, incarnation=incarnation)).kind == FrameKind.WELCOME


async def test_a_second_leader_of_a_term_stops_no_node(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        leader = await group.leader()
        me, other = (name for name in group.members if name != leader.me)
        term = term_of(leader)
        async with call(group, str(other), greet=False) as caller:
            await greet(caller, group, str(me))
            heartbeat = HeartbeatRequest(
                source=me, target=other, term=term, number=1, commit_end=Index(1), sent_end=Index(1), round=1
            )
            caller.write(frame_of(heartbeat))
            assert await caller.is_ended()
        [line] = group.journal.of("! message refused")
        assert (line["peer"], line["rule"]) == (me, "one-leader")
        assert not any(node.failed.done() for node in group.nodes.values())
        assert term_of(leader) == term


async def test_the_same_complaint_is_logged_once(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        leader = await group.leader()
        source = next(name for name in group.members if name != leader.me)
        for _ in range(5):
            async with call(group, str(leader.me), greet=False) as caller:
                await greet(caller, group, str(source))
                caller.write(frame_of(TermResponse(source=source, target=leader.me, term=Term(1 << 60))))
                assert await caller.is_ended()
        assert len(group.journal.of("! message refused")) == 1
        assert term_of(leader) < 100


async def test_a_stranger_reaches_the_core_only_with_a_proof(tmp_path: Path) -> None:
    """A peer that became a member by a record missing here knows this node's incarnation, and may need its vote."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        leader = await group.leader()
        term = term_of(leader)
        follower = next(node for name, node in group.nodes.items() if name != leader.me)
        await group.caught_up()
        peering = follower.group.parts.peers
        assert peering is not None
        await wait_for(lambda: not peering._raft.core.is_newcomer or None, group.journal.tail)
        hello: dict[str, object] = {"node": "n9~x", "incarnation": "i", "address": "127.0.0.1:1"}
        async with call(group, str(follower.me), greet=False) as caller:
            assert (await caller.hello(**hello)).kind == FrameKind.WELCOME, "it may ask to join"
            caller.write(frame_of(TermResponse(source=NodeId("n9~x"), target=follower.me, term=Term(term + 1))))
            assert await caller.is_ended()
        assert term_of(follower) == term
        assert peering.address(NodeId("n9~x")) is None, "it is not called back"
        hello["cluster"] = "c1"
        async with call(group, str(follower.me), greet=False) as caller:
            proof = hello_proof(follower.group.incarnation, hello)
            assert (await caller.hello(**hello, proof=proof)).kind == FrameKind.WELCOME
            caller.write(frame_of(TermResponse(source=NodeId("n9~x"), target=follower.me, term=Term(term + 1))))
            await wait_for(lambda: term_of(follower) > term or None, group.journal.tail)
            assert peering.address(NodeId("n9~x")) == "127.0.0.1:1"


async def test_a_stranger_reads_neither_log_nor_snapshots(tmp_path: Path) -> None:
    """The log and the snapshots contain the incarnations of all members."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        node = await group.leader()
        assert node.replica is not None
        core = node.replica.raft.core
        await wait_for(lambda: not core.is_newcomer or None, group.journal.tail)
        wanted: dict[FrameKind, dict[str, int]] = {
            FrameKind.READ_LOG: {"start": 1, "end": 2, "bytes_max": 1000},
            FrameKind.READ_SNAPSHOT: {"end": 2, "term": 1, "offset": 0, "bytes_max": 1000},
            FrameKind.LIST_SNAPSHOTS: {},
        }
        for kind, fields in wanted.items():
            async with call(group, str(node.me), greet=False) as caller:
                assert (await caller.hello(node="n9~x", incarnation="i")).kind == FrameKind.WELCOME
                caller.send(kind, {"id": 1, **fields})
                assert await caller.is_ended(), kind


async def test_the_answer_to_a_challenge_opens_no_log(tmp_path: Path) -> None:
    """A client can choose a challenge, and every node answers it with a function of its incarnation."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        node = await group.leader()
        assert node.replica is not None
        core = node.replica.raft.core
        await wait_for(lambda: not core.is_newcomer or None, group.journal.tail)
        hello: dict[str, object] = {"node": "n9~x", "incarnation": "i", "address": "127.0.0.1:1"}
        said = "\n".join(("c1", *map(str, hello.values()))).encode()
        async with call(group, str(node.me), greet=False) as caller:
            answer = (await caller.hello(challenge=blake2b(said, digest_size=CHALLENGE_BYTES).digest())).body["proof"]
        async with call(group, str(node.me), greet=False) as caller:
            assert (await caller.hello(**hello, proof=answer)).kind == FrameKind.WELCOME
            caller.send(FrameKind.READ_LOG, {"id": 1, "start": 1, "end": 2, "bytes_max": 1000})
            assert await caller.is_ended()


async def test_a_verdict_of_a_stranger_stops_no_node(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        leader = await group.leader()
        me, other = (name for name in group.members if name != leader.me)
        digest = {"end": 5, "odd": str(other), "trail": []}
        async with call(group, str(other), greet=False) as caller:
            await greet(caller, group, str(me))
            caller.write(b"".join(encode_frame(FrameKind.DIGEST, digest)))
            caller.write(frame_of(TermResponse(source=me, target=other, term=Term(1 << 60))))
            assert await caller.is_ended()
        assert not group.nodes[other].failed.done()
