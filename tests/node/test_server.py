"""Input from a node's port, well-formed or not: no input from clients or strangers brings a node down."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.caller import HELLO, body_of, call
from tests.node.group import Group, wait_for
from viewstamp.ids import GROUP_0, Index, NodeId, Position, Sequence, SessionId, Term, TopicId
from viewstamp.node.service import Limits
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.frame import FrameKind, encode_frame
from viewstamp.wire.identity_proof import identity_proof

REQUESTS: dict[FrameKind, dict[str, Any]] = {
    FrameKind.APPEND: {},
    FrameKind.OPEN_SESSION: {},
    FrameKind.OUTCOME: {"session": 3, "sequence": 1},
    FrameKind.CREATE_TOPIC: {"name": "orders"},
    FrameKind.LIST_TOPICS: {"stale": False},
    FrameKind.DESCRIBE_TOPIC: {"name": "orders", "stale": False},
    FrameKind.READ: {"topic": 1, "position": 1, "bytes_max": 1000, "applied_index": 0, "wait": 0},
    FrameKind.STATUS: {},
}
"""Every request, with valid fields."""

LIMITS = Limits(batch_bytes_max=10_000, frame_bytes_max=100_000, in_flight_bytes_max=12_000)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    """One RUNNING node with a topic (id 1) and a session."""
    async with Group(tmp_path, 1, limits=LIMITS, request_seconds=0.05) as group:
        await group.run()
        async with call(group) as caller:
            body_of(await caller.ask(FrameKind.CREATE_TOPIC, name="orders"))
        yield group
        assert not group.nodes[next(iter(group.nodes))].failed.done(), group.journal.tail()


async def works(group: Group) -> None:
    """Check that the node still serves other connections."""
    async with call(group) as caller:
        assert body_of(await caller.ask(FrameKind.STATUS))["status"]["lifecycle"] == "running"


def records(session: int, sequence: int, size: int = 10) -> Batch:
    return build_batch([b"x" * size], topic=TopicId(1), session=SessionId(session), sequence=Sequence(sequence))


async def test_a_client_that_was_welcomed_under_an_old_node_id_has_to_reconnect(group: Group) -> None:
    """A node that lost its disk gets a new id after its log is replayed, but it listens before that.

    Without the reconnect, the client would look for the new id in vain for as long as the connection lasts.
    """
    node = group.nodes[NodeId("n1")]
    async with call(group, greet=False) as caller:
        assert (await caller.hello()).body["node"] == "n1"
        body_of(await caller.ask(FrameKind.STATUS))
        node.group.me = NodeId("n1~8c21f0aa")
        node.end_connections(GROUP_0)
        assert await caller.is_ended()
    async with call(group, greet=False) as caller:
        assert (await caller.hello()).body["node"] == "n1~8c21f0aa"


# -- Bytes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("greet", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        bytes(20),
        b"VSF\x02" + bytes(16),
        b"VSF\x01" + b"\xff" * 16,
    ],
    ids=["http", "tls", "zeros", "another version", "a length of 8 GB"],
)
async def test_bytes_that_are_no_frame_end_the_connection_at_once(group: Group, data: bytes, greet: bool) -> None:
    async with call(group, greet=greet) as caller:
        caller.write(data)
        assert await caller.is_ended()
    assert group.journal.of("! connection ended")
    await works(group)


async def test_a_frame_over_the_limit_is_refused_by_its_header(group: Group) -> None:
    """The node neither waits for the rest of the frame nor holds any of it."""
    async with call(group) as caller:
        frame = b"".join(encode_frame(FrameKind.APPEND, {"id": 1}, [bytes(LIMITS.frame_bytes_max)]))
        caller.write(frame[:20])
        assert await caller.is_ended()
    assert "over the limit of 85536" in group.journal.of("! connection ended")[0]["reason"]
    await works(group)


async def test_a_damaged_frame_changes_nothing_and_ends_the_connection(group: Group) -> None:
    frame = bytearray(b"".join(encode_frame(FrameKind.CREATE_TOPIC, {"id": 1, "name": "payments"})))
    frame[-3] ^= 1
    async with call(group) as caller:
        caller.write(bytes(frame))
        assert await caller.is_ended()
    async with call(group) as caller:
        topics = body_of(await caller.ask(FrameKind.LIST_TOPICS, stale=False))["topics"]
        assert [topic["name"] for topic in topics] == ["orders"]


async def test_frames_may_come_byte_by_byte_and_many_at_once(group: Group) -> None:
    async with call(group) as caller:
        status = b"".join(encode_frame(FrameKind.STATUS, {"id": 1}))
        for at in range(len(status)):
            caller.write(status[at : at + 1])
            await asyncio.sleep(0)
        assert (await caller.frame()).body["id"] == 1
        caller.write(b"".join(b"".join(encode_frame(FrameKind.STATUS, {"id": number})) for number in range(50)))
        assert [(await caller.frame()).body["id"] for _ in range(50)] == list(range(50))


async def test_half_a_frame_and_the_end_of_the_connection_change_nothing(group: Group) -> None:
    frame = b"".join(encode_frame(FrameKind.CREATE_TOPIC, {"id": 1, "name": "payments"}))
    async with call(group) as caller:
        caller.write(frame[:-1])
    await works(group)
    assert len(group.journal.of("! connection ended")) == 0


# -- The handshake ----------------------------------------------------------------------------------------------


async def test_the_welcome_contains_the_nodes_identity_and_limits(group: Group) -> None:
    async with call(group, greet=False) as caller:
        welcome = await caller.hello(cluster="")
        assert welcome.kind == FrameKind.WELCOME
        assert welcome.body["node"] == "n1"
        assert welcome.body["cluster"] == HELLO["cluster"]
        assert welcome.body["limits"]["batch_bytes_max"] == LIMITS.batch_bytes_max


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster": "another"}, "WrongClusterError"),
        ({"version": 99}, "PeerError"),
        ({"version": "1"}, "PeerError"),
        ({"node": "n9", "incarnation": "1"}, "WrongClusterError"),
        ({"node": "n1", "incarnation": "1"}, "WrongClusterError"),
        ({"node": "n1", "cluster": "", "incarnation": "1"}, "WrongClusterError"),
        ({"cluster": 7}, "FrameError"),
        ({"cluster": None}, "FrameError"),
        ({"node": 7}, "FrameError"),
        ({"node": ["n1"]}, "FrameError"),
        ({"node": {"n1": 1}}, "FrameError"),
        ({"incarnation": 7}, "FrameError"),
    ],
    ids=str,
)
async def test_a_hello_that_does_not_fit_is_refused_with_the_reason(
    group: Group, changes: dict[str, Any], error: str
) -> None:
    async with call(group, greet=False) as caller:
        refused = await caller.hello(**changes)
        assert refused.kind == FrameKind.REFUSED
        assert refused.body["error"] == error
        assert refused.body["message"]
        assert await caller.is_ended()
    assert group.journal.of("! refused")
    await works(group)


async def test_a_node_proves_its_directory_without_showing_its_incarnation(group: Group) -> None:
    node = group.nodes[NodeId("n1")]
    challenge = bytes(range(16))
    async with call(group, greet=False) as caller:
        welcome = await caller.hello(challenge=challenge)
        status = body_of(await caller.ask(FrameKind.STATUS, challenge=challenge))
        assert status["status"]["membership"]["voters"].keys() == {"n1"}
        assert "proof" not in body_of(await caller.ask(FrameKind.STATUS))
    assert welcome.body["proof"] == status["proof"] == identity_proof(node.group.incarnation, challenge)
    assert len(node.group.incarnation) == 16
    assert node.group.incarnation not in repr((welcome.body, status))


@pytest.mark.parametrize("challenge", [b"", bytes(15), bytes(17), "x" * 16, 16, None, [0] * 16], ids=repr)
async def test_a_challenge_that_is_no_16_bytes_is_refused(group: Group, challenge: object) -> None:
    async with call(group, greet=False) as caller:
        assert (await caller.hello(challenge=challenge)).kind == FrameKind.REFUSED
    async with call(group) as caller:
        assert await caller.refusal(FrameKind.STATUS, challenge=challenge) == "RequestError"
    await works(group)


async def test_a_hello_that_lacks_a_field_is_refused(group: Group) -> None:
    for missing in HELLO:
        async with call(group, greet=False) as caller:
            caller.send(FrameKind.HELLO, {key: value for key, value in HELLO.items() if key != missing})
            refused = await caller.frame()
            assert (refused.kind, refused.body["error"]) == (FrameKind.REFUSED, "FrameError"), missing
            assert await caller.is_ended()


async def test_a_hello_that_is_no_map_is_refused(group: Group) -> None:
    for body in (None, 1, "hello", [1, 2], b"x", True):
        async with call(group, greet=False) as caller:
            caller.send(FrameKind.HELLO, body)
            assert (await caller.frame()).kind == FrameKind.REFUSED, body
            assert await caller.is_ended()
    await works(group)


async def test_nothing_is_answered_before_hello(group: Group) -> None:
    for kind in (*REQUESTS, FrameKind.PEER, FrameKind.WELCOME, FrameKind.OK, 99):
        async with call(group, greet=False) as caller:
            caller.send(kind, {"id": 1})
            assert (await caller.frame()).kind == FrameKind.REFUSED, kind
            assert await caller.is_ended()


# -- Requests ---------------------------------------------------------------------------------------------------


async def test_a_request_that_does_not_exist_is_refused_and_the_connection_goes_on(group: Group) -> None:
    async with call(group) as caller:
        for kind in (FrameKind.HELLO, FrameKind.WELCOME, FrameKind.PEER, FrameKind.OK, 99, 255):
            assert await caller.refusal(kind) == "RequestError", kind
        body_of(await caller.ask(FrameKind.STATUS))


async def test_a_request_without_an_id_ends_the_connection(group: Group) -> None:
    """Without an id there is no request to answer."""
    bodies: list[object] = [None, 1, "x", [1], [], b"x", {}, {"id": None}, {"id": "x"}, {"id": [1]}, {"id": 1.5}]
    for kind in (FrameKind.STATUS, FrameKind.APPEND, FrameKind.READ):
        for body in bodies:
            async with call(group) as caller:
                caller.send(kind, body)
                assert await caller.is_ended(), (kind, body)
    await works(group)


async def test_a_request_that_lacks_a_field_is_refused(group: Group) -> None:
    async with call(group) as caller:
        for kind, fields in REQUESTS.items():
            for missing in fields:
                some = {key: value for key, value in fields.items() if key != missing}
                assert await caller.refusal(kind, **some) == "RequestError", (kind, missing)


async def test_no_body_brings_a_node_down(group: Group) -> None:
    """For any value of a field, the client gets one answer with the request's id or the connection ends.

    The node stays alive.
    """
    entropy = random.Random(1)
    junk: list[object] = [
        None,
        True,
        -1,
        0,
        1,
        2**63,
        2**64 - 1,
        -(2**63),
        1.5,
        float("nan"),
        float("inf"),
        "",
        "orders",
        "x" * 200,
    ]
    junk += [b"", b"\xff", [], [1], {}, {"a": 1}, ["orders"]]
    answered = 0
    for _ in range(40):
        async with call(group) as caller:
            for _ in range(25):
                kind, fields = entropy.choice(list(REQUESTS.items()))
                changed = dict(fields)
                for key in fields:
                    if entropy.random() < 0.5:
                        changed[key] = entropy.choice(junk)
                if changed.get("wait") == 1:
                    changed["wait"] = 0
                answer = await caller.ask(kind, **changed)
                assert answer.kind in (FrameKind.OK, FrameKind.ERROR)
                answered += 1
    assert answered == 1000
    await works(group)


@pytest.mark.parametrize(
    "fields", [{"position": 0}, {"position": -1}, {"bytes_max": 0}, {"bytes_max": -5}, {"wait": -1}], ids=str
)
async def test_a_read_that_can_bring_nothing_is_refused(group: Group, fields: dict[str, Any]) -> None:
    """An empty answer means that there is no record yet, so a client would ask for ever."""
    async with call(group) as caller:
        assert await caller.refusal(FrameKind.READ, **{**REQUESTS[FrameKind.READ], **fields}) == "RequestError"


async def test_a_read_is_bounded_however_much_is_asked_for(group: Group) -> None:
    """The answer is one frame, and is held in memory until the reader takes it."""
    client = group.client()
    for _ in range(30):
        await client.append("orders", b"x" * 9000)
    async with call(group) as caller:
        answer = await caller.ask(FrameKind.READ, topic=1, position=1, bytes_max=2**40, applied_index=0, wait=0)
        assert body_of(answer)["last_position"] == 30
        assert 9000 < len(answer.payload) < LIMITS.frame_bytes_max


async def test_an_unknown_topic_is_a_wrong_request(group: Group) -> None:
    async with call(group) as caller:
        assert await caller.refusal(FrameKind.DESCRIBE_TOPIC, name="missing", stale=False) == "UnknownTopicError"
        assert await caller.refusal(FrameKind.DESCRIBE_TOPIC, name="missing", stale=True) == "UnknownTopicError"
        fields = {**REQUESTS[FrameKind.READ], "topic": 99}
        assert await caller.refusal(FrameKind.READ, **fields) == "UnknownTopicError"
        batch = build_batch([b"x"], topic=TopicId(99), session=SessionId(3), sequence=Sequence(1))
        assert await caller.refusal(FrameKind.APPEND, batch.buffer) in ("UnknownTopicError", "StaleSessionError")


# -- Appends ----------------------------------------------------------------------------------------------------


async def test_a_payload_that_is_not_one_clients_batch_is_refused_and_not_written(group: Group) -> None:
    async with call(group) as caller:
        session = body_of(await caller.ask(FrameKind.OPEN_SESSION))["session"]
        good = bytes(records(session, 1).buffer)
        flipped = bytearray(good)
        flipped[-1] ^= 1
        stamped = records(session, 1)
        stamped.stamp(term=Term(1), first_index=Index(1), previous_term=Term(0), log_time=1, first_position=Position(1))
        membership = build_batch([b"\x80"], kind=Kind.MEMBERSHIP)
        bad = {
            "nothing": b"",
            "half of it": good[: len(good) // 2],
            "two": good + bytes(records(session, 2).buffer),
            "one and a little": good + b"x",
            "garbage": b"x" * 500,
            "a flipped bit": bytes(flipped),
            "stamped already": bytes(stamped.buffer),
            "a membership": bytes(membership.buffer),
            "a fence": bytes(build_batch([b""], kind=Kind.FENCE, session=SessionId(session)).buffer),
        }
        for name, payload in bad.items():
            assert await caller.refusal(FrameKind.APPEND, payload) in ("RequestError", "FrameError"), name
        assert (
            await caller.refusal(FrameKind.APPEND, bytes(records(session, 1, 11_000).buffer)) == "RecordTooLargeError"
        )
        assert await caller.refusal(FrameKind.APPEND, records(0, 1).buffer) == "StaleSessionError"
        receipt = body_of(await caller.ask(FrameKind.APPEND, good))["receipt"]
        assert receipt[0] == 1, "position 1: no earlier batch was written"
        again = body_of(await caller.ask(FrameKind.APPEND, good))["receipt"]
        assert again == receipt


async def test_the_bytes_that_wait_for_an_answer_are_bounded(tmp_path: Path) -> None:
    """A batch over the bound is refused at once and is not in the log; the earlier ones are answered in the end."""
    async with Group(tmp_path, 3, limits=LIMITS) as group:
        await group.run()
        leader = await group.leader()
        name = leader.options.node
        async with call(group, name) as caller:
            body_of(await caller.ask(FrameKind.CREATE_TOPIC, name="orders"))
            session = body_of(await caller.ask(FrameKind.OPEN_SESSION))["session"]
            group.isolate(name)  # Nothing can be committed, and it keeps leading for an election timeout.
            caller.send(FrameKind.APPEND, {"id": 100}, records(session, 1, 7000).buffer)
            assert await caller.refusal(FrameKind.APPEND, records(session, 2, 7000).buffer) == "OverloadedError"
            assert leader.server is not None
            assert 7000 < leader.server.budget.used < LIMITS.in_flight_bytes_max
            answer = await caller.frame()
            assert (answer.body["id"], answer.body["error"]) == (100, "OutcomeUnknownError")
            assert leader.server.budget.used == 0


async def test_an_append_goes_on_when_its_connection_ends(group: Group) -> None:
    async with call(group) as caller:
        session = body_of(await caller.ask(FrameKind.OPEN_SESSION))["session"]
        caller.send(FrameKind.APPEND, {"id": 9}, records(session, 1).buffer)
        await asyncio.sleep(0)
    node = group.nodes[next(iter(group.nodes))]
    assert node.server is not None
    server = node.server
    await wait_for(lambda: not server.connections, lambda: "the connection is still held")
    async with call(group) as caller:
        answer = body_of(await caller.ask(FrameKind.OUTCOME, session=session, sequence=1))
        assert answer["receipt"] is None or answer["receipt"][0] == 1
        again = body_of(await caller.ask(FrameKind.OUTCOME, session=session, sequence=1))
        assert again["receipt"] == answer["receipt"], "a retry gets the first receipt"
    assert server.budget.used == 0


# -- Peers ------------------------------------------------------------------------------------------------------


async def test_a_peer_must_speak_for_itself_and_to_this_node(tmp_path: Path) -> None:
    """A message with a wrong source or target shows that an address is wrong, so it must not reach the core."""
    async with Group(tmp_path, 3) as group:
        await group.run("n1", "n2")
        term = 10**6
        for source, target in (("n2", "n1"), ("n3", "n2"), ("n1", "n1"), ("n9", "n1")):
            async with call(group, greet=False) as caller:
                assert (await caller.hello(node="n3", incarnation="made up")).kind == FrameKind.WELCOME
                caller.send(FrameKind.PEER, [14, source, target, term])
                assert await caller.is_ended()
        for body in ([14, "n3", "n1"], [99, "n3", "n1", 1], [14, "n3", "n1", "1"], {"id": 1}, None, []):
            async with call(group, greet=False) as caller:
                assert (await caller.hello(node="n3", incarnation="made up")).kind == FrameKind.WELCOME
                caller.send(FrameKind.PEER, body)
                assert await caller.is_ended()
        async with call(group, greet=False) as caller:
            assert (await caller.hello(node="n3", incarnation="made up")).kind == FrameKind.WELCOME
            caller.send(FrameKind.STATUS, {"id": 1})
            assert await caller.is_ended(), "a peer is no client"
        for node in group.nodes.values():
            assert node.replica is not None
            assert node.replica.raft.core.term < term


@pytest.mark.parametrize(
    ("kind", "body"),
    [(FrameKind.PEER, [14, "n2", "n1", 10**6]), (FrameKind.JOIN, {"address": "127.0.0.1:1", "member": "n9"})],
)
async def test_a_client_that_sends_a_peers_message_is_no_peer(group: Group, kind: FrameKind, body: object) -> None:
    async with call(group) as caller:
        caller.send(kind, body)
        caller.send(FrameKind.STATUS, {"id": 1})
        assert await caller.is_ended()
    node = group.nodes[next(iter(group.nodes))]
    assert node.replica is not None
    assert node.replica.raft.core.term < 10**6
