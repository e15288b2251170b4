"""Any frames from clients and peers get an answer or end the connection, and the node keeps running.

One node serves all examples of a test, so each example meets the topics, sessions, sinks and unfinished commits of
earlier ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fuzz.material import DEEP, altered, numbers, packables, spoilt, tries
from tests.fuzz.test_wire import sealed_batch
from tests.integration.actor_group import ActorGroup
from tests.node.caller import HELLO, Caller, body_of, call
from tests.node.group import Journal, wait_for
from tests.node.test_codec import messages, sent
from tests.node.test_server import LIMITS
from viewstamp.consensus.messages import Message
from viewstamp.errors import FrameError
from viewstamp.host.network import RealNetwork
from viewstamp.ids import NodeId, Sequence, SessionId, TopicId
from viewstamp.node.peers.codec import decode_message
from viewstamp.node.peers.connection import PeerConnection
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.commands import encode_command
from viewstamp.wire.frame import Frame, FrameKind
from viewstamp.wire.staged import pack_entry
from viewstamp.wire.values import pack

REQUESTS: dict[FrameKind, dict[str, Any]] = {
    FrameKind.OPEN_SESSION: {},
    FrameKind.OUTCOME: {"session": 3, "sequence": 1},
    FrameKind.CREATE_TOPIC: {"name": "orders", "retain_bytes": 0, "retain_seconds": 0.0},
    FrameKind.CONFIGURE_TOPIC: {"name": "orders", "retain_bytes": 10_000, "retain_seconds": 5.5},
    FrameKind.TRIM_TOPIC: {"name": "orders", "position": 1},
    FrameKind.LIST_TOPICS: {"stale": False},
    FrameKind.DESCRIBE_TOPIC: {"name": "orders", "stale": False},
    FrameKind.READ: {"topic": 1, "position": 1, "bytes_max": 1000, "applied_index": 0, "wait": 0},
    FrameKind.STATUS: {},
    FrameKind.QUERY: {
        "actor": "ledger",
        "key": "",
        "method": "state",
        "arguments": pack([[], {}]),
        "stale": False,
        "applied_index": 0,
    },
    FrameKind.WATCH: {"actor": "ledger", "key": None, "index": 1, "wait": 0},
    FrameKind.LIST_ACTORS: {"stale": False},
    FrameKind.DESCRIBE_ACTOR: {"name": "ledger"},
    FrameKind.CREATE_SNAPSHOT: {},
    FrameKind.LIST_SNAPSHOTS: {},
    FrameKind.BEGIN_ATTEMPT: {
        "sink": "s",
        "owner": "o",
        "run": "r",
        "batch": 0,
        "name": "p",
        "reset": False,
        "keep_seconds": 60,
    },
    FrameKind.SEAL_ATTEMPT: {"attempt": 1, "batches": 1, "checksum": 7},
    FrameKind.ABORT_ATTEMPTS: {"sink": "s", "run": "r", "batch": 0, "attempt": 0},
    FrameKind.COMMIT: {"sink": "s", "owner": "o", "run": "r", "batch": 0, "parts": [[1, pack_entry(5, 1, 2, 300)]]},
    FrameKind.LIST_SINKS: {"stale": False},
    FrameKind.DESCRIBE_SINK: {"name": "s", "stale": False},
    FrameKind.FORGET_SINK: {"name": "s"},
    FrameKind.SPLIT_TOPIC: {"name": "orders", "start": 1, "end": 5, "bytes": 100},
    FrameKind.FIND_TIME: {"name": "orders", "timestamp": 5},
    FrameKind.CHANGE_MEMBERS: {"action": "learn", "node": "n9", "address": "127.0.0.1:9", "replaces": ""},
    FrameKind.TRANSFER_LEADERSHIP: {"node": "n9"},
    FrameKind.LIST_TOKENS: {},
    FrameKind.PLACE_GROUP: {"streams": ["s1"], "founders": ["n9"], "since": 0},
    FrameKind.CANCEL_GROUP: {"group": 9},
    FrameKind.HOST_GROUP: {"group": 9, "node": "n9"},
    FrameKind.UNHOST_GROUP: {"group": 9, "node": "n9"},
    FrameKind.REMOVE_GROUP: {"group": 9, "seen": 3, "is_lost": False},
    FrameKind.LIST_GROUPS: {},
    FrameKind.ARCHIVE_TOPIC: {"name": "orders", "end": 9},
    FrameKind.CHECK_RUN: {"run": 9},
    FrameKind.FIND_ORPHANS: {"remove": True},
    FrameKind.LIST_RUNS: {},
    FrameKind.CONFIGURE_ARCHIVE: {"name": "orders", "is_on": True, "delete_seconds": 60.0},
    FrameKind.CONFIGURE_SCHEMA: {"name": "orders", "schema": "id: int64"},
    FrameKind.SPREAD_TOPIC: {"name": "orders", "streams": 2, "groups": [7]},
    FrameKind.CONFIGURE_SPREAD: {"name": "orders", "retain_bytes": 7, "retain_seconds": None, "since": 0},
    FrameKind.CONFIGURE_SPREAD_SCHEMA: {"name": "orders", "schema": "id: int64"},
    FrameKind.CONFIGURE_SPREAD_ARCHIVE: {"name": "orders", "since": 0, "is_on": True},
    FrameKind.TRIM_SPREAD: {"name": "orders", "position": 1},
    FrameKind.ADD_STREAM: {"name": "orders", "stream": 3, "group": 7},
    FrameKind.GONE_STREAM: {"name": "orders", "stream": 1, "behind": 1},
    FrameKind.SEAL_STREAM: {"name": "orders", "stream": 1, "into": 0},
    FrameKind.LOSE_STREAM: {"name": "orders", "stream": 1, "into": 0},
    FrameKind.DESCRIBE_SPREAD: {"name": "orders", "stale": True},
    FrameKind.WAIT_ORDERED: {"stream": "orders.1", "position": 1},
    FrameKind.LIST_SPREADS: {"stale": False},
    FrameKind.SPREAD_ACTOR: {"name": "ledger", "groups": [7]},
    FrameKind.LIST_SPREAD_ACTORS: {"stale": False},
    FrameKind.READ_ORDERED: {
        "name": "orders",
        "stream": 1,
        "position": 1,
        "needed": 0,
        "bytes_max": 1000,
        "wait": 0.0,
    },
    FrameKind.LIST_AUDIT: {"since": 0},
    FrameKind.NOTE_TRANSFER: {"group": 7, "node": "n1"},
    FrameKind.DESCRIBE_LOG: {"stale": True},
    FrameKind.COPY_LOG: {"start": 1, "end": 100, "bytes_max": 100_000},
    FrameKind.COPY_SNAPSHOT: {"end": 3, "term": 1, "offset": 0, "bytes_max": 1000},
}
"""Requests without a payload, with valid fields: all but those that could switch access control on for the others."""

BATCHES = {
    FrameKind.APPEND: Kind.RECORDS,
    FrameKind.CALL: Kind.COMMANDS,
    FrameKind.STAGE: Kind.STAGED,
}
OTHERS = sorted(set(range(max(FrameKind) + 2)) - {int(kind) for kind in (*REQUESTS, *BATCHES)})


class Served:
    """A node with an event loop of its own, which runs only while an example waits for it."""

    def __init__(self, directory: Path, size: int, running: tuple[str, ...]) -> None:
        self.loop = asyncio.new_event_loop()
        self.group = ActorGroup(directory, size, limits=LIMITS, request_seconds=0.05)
        self.session = 0
        self.sequence = 0
        self.loop.run_until_complete(self._begin(running))

    async def _begin(self, running: tuple[str, ...]) -> None:
        await self.group.run(*running)
        leader = (await self.group.leader()).options.node
        async with call(self.group, leader) as caller:
            body_of(await caller.ask(FrameKind.CREATE_TOPIC, name="orders"))
            self.session = body_of(await caller.ask(FrameKind.OPEN_SESSION))["session"]

    def close(self) -> None:
        self.loop.run_until_complete(self.group.close())
        self.loop.close()

    def send(self, hello: Any, frames: list[tuple[int, Any, bytes]]) -> None:
        """Send a HELLO and frames, and check that each request gets at most one answer and that the node still runs."""
        self.loop.run_until_complete(self._send(hello, frames))

    async def _send(self, hello: Any, frames: list[tuple[int, Any, bytes]]) -> None:
        async with call(self.group, greet=False) as caller:
            caller.send(FrameKind.HELLO, hello)
            for kind, body, payload in frames:
                caller.send(kind, body, payload)
            caller.send(FrameKind.STATUS, {"id": -7})
            await self._answers(caller, frames)
        for node in self.group.nodes.values():
            assert not node.failed.done(), self.group.journal.tail()
        links = len(self.group.nodes) * (len(self.group.nodes) - 1)
        await wait_for(lambda: self._held() <= links, lambda: "a connection is still held")
        async with call(self.group) as caller:
            assert body_of(await caller.ask(FrameKind.STATUS))["status"]["lifecycle"] == "running"

    def _held(self) -> int:
        return sum(len(node.server.connections) for node in self.group.nodes.values() if node.server is not None)

    async def _answers(self, caller: Caller, frames: list[tuple[int, Any, bytes]]) -> None:
        asked = [body["id"] for _, body, _ in frames if isinstance(body, dict) and type(body.get("id")) is int]
        try:
            if (await caller.frame()).kind != FrameKind.WELCOME:
                return
            while (answer := await caller.frame()).body["id"] != -7:
                assert answer.kind in (FrameKind.OK, FrameKind.ERROR)
                assert answer.body["id"] in asked
                asked.remove(answer.body["id"])
                if answer.kind == FrameKind.ERROR:
                    assert len(answer.body["message"]) < 10_000, "an answer does not repeat the refused value"
        except (EOFError, ConnectionResetError):
            return


@pytest.fixture(scope="module", name="node")
def _node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("one"), 1, ("n1",))
    yield served
    served.close()


def requests(served: Served) -> st.SearchStrategy[tuple[int, Any, bytes]]:
    """Return nearly valid requests: kind, body, payload."""

    @st.composite
    def one(draw: st.DrawFn) -> tuple[int, Any, bytes]:
        kind = draw(st.sampled_from([*REQUESTS, *BATCHES, *BATCHES, *BATCHES]))
        number = draw(st.integers(0, 2**32))
        if kind in BATCHES:
            return kind, {"id": number}, draw(payloads(served, BATCHES[kind]))
        body = draw(altered(REQUESTS[kind]) | st.just(REQUESTS[kind]))
        if isinstance(body, dict):
            body = {"id": number, **body}
            if type(body.get("wait")) in (int, float) and body["wait"] > 0:
                body["wait"] = 0
        return kind, body, draw(st.just(b"") | st.binary(max_size=200))

    return one()


def payloads(served: Served, kind: Kind) -> st.SearchStrategy[bytes]:
    """Return batches of the session: intact ones, spoilt ones, and spoilt ones with right checksums."""
    served.sequence += 1
    names = {"session": SessionId(served.session), "sequence": Sequence(served.sequence)}
    records = [
        encode_command("ledger", "", 1, "enter", ["a", 1], {}),
        encode_command("ledger", "k", 1, "keep", [1, b""], {}),
    ]
    whole = bytes(build_batch(records, kind=kind, topic=TopicId(kind is not Kind.COMMANDS), attempt=0, **names).buffer)
    anything = st.lists(packables().map(msgpack.packb) | st.binary(), min_size=1, max_size=3).map(
        lambda values: bytes(build_batch(values, kind=kind, topic=TopicId(1), **names).buffer)
    )
    return st.just(whole) | spoilt(whole) | spoilt(whole).map(sealed_batch) | anything


@pytest.mark.slow
@tries(80)
@given(st.data())
def test_requests_that_are_nearly_right_bring_no_node_down(node: Served, data: st.DataObject) -> None:
    node.send(HELLO, data.draw(st.lists(requests(node), min_size=1, max_size=4)))


@pytest.mark.slow
@tries(60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([int(kind) for kind in REQUESTS] + OTHERS),
            packables()
            | st.fixed_dictionaries({"id": numbers()}, optional={"name": packables(), "stale": packables()}),
            st.binary(max_size=100),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_body_of_any_kind_of_frame_brings_no_node_down(node: Served, frames: list[tuple[int, Any, bytes]]) -> None:
    node.send(HELLO, frames)


@pytest.mark.slow
@tries(60)
@given(altered(HELLO))
def test_any_hello_brings_no_node_down(node: Served, hello: Any) -> None:
    node.send(hello, [(FrameKind.LIST_TOPICS, {"id": 1, "stale": True}, b"")])


ADDRESSES = [
    "",
    "x",
    ":",
    "a:b",
    "127.0.0.1:0",
    "127.0.0.1:99999999",
    "127.0.0.1:-1",
    "\0:1",
    "127.0.0.1:" + "9" * 5000,
]


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: repr(address)[:20])
def test_no_member_is_added_at_an_invalid_address(node: Served, address: str) -> None:
    """It would be in the log, and would fail every member at every start."""

    async def ask() -> None:
        async with call(node.group) as caller:
            for action in ("learn", "add", "replace"):
                fields = {"action": action, "node": "n9", "address": address, "replaces": "n1" * (action == "replace")}
                assert await caller.refusal(FrameKind.CHANGE_MEMBERS, **fields) == "RequestError"

    node.loop.run_until_complete(ask())


async def test_a_link_to_an_invalid_address_keeps_trying_and_stops_no_node() -> None:
    """It may be in a log from before such addresses were refused; and an unreachable peer may move."""
    for address in [*ADDRESSES, "é:1", "a" * 300 + ":1"]:
        link = PeerConnection(
            NodeId("n2"),
            lambda address=address: address,  # type: ignore[misc]
            hello=dict,
            network=RealNetwork(),
            entropy=random.Random(1),
            unsent_bytes_max=1000,
            on_lost=lambda _: None,
            on_lost_disk=lambda _: None,
            on_unreached=lambda _: asyncio.sleep(0),
            greeting=list,
            is_meant=lambda _: True,
            log=Journal().logger(),
        )
        running = asyncio.create_task(link.run())
        await asyncio.sleep(0.03)
        assert not running.done(), address
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def deep() -> Any:
    return msgpack.unpackb(DEEP[30:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.name)
def test_a_field_that_is_nested_a_thousand_deep_or_a_megabyte_long_is_refused(node: Served, kind: FrameKind) -> None:
    """The check has to describe the value: it must not fail because of it, and the answer must stay short."""
    fields = REQUESTS[kind]
    frames = []
    for name in (*fields, "more"):
        for value in (deep(), "x" * 60_000, b"x" * 60_000, [0] * 60_000):
            frames.append((int(kind), {"id": len(frames), **fields, name: value}, b""))
    for frame in frames:
        node.send(HELLO, [frame])


@pytest.mark.slow
def test_commands_whose_arguments_are_nested_a_thousand_deep_bring_no_node_down(node: Served) -> None:
    """Every member applies them, packs their results, and takes a snapshot of the state that keeps them."""
    records = [
        DEEP,
        b"\x96" + pack("ledger") + pack("") + pack(1) + pack("keep") + b"\x92\x07" + DEEP[60:] + b"\x80",
        b"\x96" + pack("ledger") + pack("") + pack(1) + pack("enter") + b"\x92" + DEEP[60:] + b"\x01" + b"\x80",
        b"\x96" + DEEP[60:] + pack("") + pack(1) + pack("enter") + b"\x90\x80",
    ]
    for record in records:
        node.sequence += 1
        batch = build_batch(
            [record],
            kind=Kind.COMMANDS,
            session=SessionId(node.session),
            sequence=Sequence(node.sequence),
        )
        node.send(HELLO, [(FrameKind.CALL, {"id": 1}, bytes(batch.buffer))])
    node.send(HELLO, [(FrameKind.CREATE_SNAPSHOT, {"id": 1}, b"")])
    query = {**REQUESTS[FrameKind.QUERY], "id": 1, "arguments": b"\x92" + DEEP[60:] + b"\x80"}
    node.send(HELLO, [(FrameKind.QUERY, query, b""), (FrameKind.QUERY, {**query, "arguments": DEEP}, b"")])


# -- Peers ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="pair")
def _pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two of three members run; the test plays the third."""
    served = Served(tmp_path_factory.mktemp("two"), 3, ("n1", "n2"))
    yield served
    served.close()


HELLO_N3 = {**HELLO, "node": "n3", "incarnation": "made up"}
DIGESTS = [
    {"end": 5, "chain": 7, "lineage": 1},
    {"end": 5, "odd": "n2", "trail": [[1, 2], [3, 4]]},
]


def is_message(body: Any, payload: bytes) -> bool:
    try:
        packed = msgpack.unpackb(msgpack.packb(body), strict_map_key=False)
        message = decode_message(Frame(FrameKind.PEER, packed, memoryview(payload)))
    except FrameError:
        return False
    return message.source == NodeId("n3") and message.target == NodeId("n1")


@pytest.mark.slow
@tries(60)
@given(messages(), st.data())
def test_an_invalid_message_of_a_peer_brings_no_node_down(pair: Served, message: Message, data: st.DataObject) -> None:
    """A valid message is accepted: peers keep to the protocol, or the node stops and names the one that did not."""
    frame = sent(message)
    body = list(frame.body)
    body[1:3] = ["n3", "n1"]
    changed, payload = data.draw(altered(body)), data.draw(spoilt(bytes(frame.payload)) | st.just(bytes(frame.payload)))
    assume(not is_message(changed, payload))
    pair.send(HELLO_N3, [(FrameKind.PEER, changed, payload)])


@pytest.mark.slow
@tries(40)
@given(st.sampled_from(DIGESTS).flatmap(altered) | packables())
def test_a_digest_that_is_none_brings_no_node_down(pair: Served, body: Any) -> None:
    assume(not (isinstance(body, dict) and body.get("odd") == "n1"))  # this would report that n1 has diverged
    pair.send(HELLO_N3, [(FrameKind.DIGEST, body, b"")])


@pytest.mark.slow
@tries(40)
@given(altered({"id": 1, "end": 5, "term": 1, "offset": 0, "bytes_max": 1000}))
def test_a_request_for_a_piece_of_a_snapshot_that_is_none_brings_no_node_down(pair: Served, body: Any) -> None:
    pair.send(HELLO_N3, [(FrameKind.READ_SNAPSHOT, body, b"")])


@pytest.mark.slow
@tries(40)
@given(altered({"id": 1, "start": 1, "end": 5, "bytes_max": 1000}))
def test_a_request_for_a_part_of_the_log_that_is_none_brings_no_node_down(pair: Served, body: Any) -> None:
    pair.send(HELLO_N3, [(FrameKind.READ_LOG, body, b"")])


@pytest.mark.slow
@tries(40)
@given(altered({**HELLO_N3, "address": "127.0.0.1:3"}), st.sampled_from(ADDRESSES) | packables())
def test_any_join_request_brings_no_node_down(pair: Served, hello: Any, address: Any) -> None:
    pair.send(hello, [(FrameKind.JOIN, {"address": address}, b""), (FrameKind.JOIN, address, b"")])


@pytest.mark.slow
@tries(20)
@given(altered({"group": 7, "incarnation": "e" * 16}))
def test_any_report_of_a_disk_brings_no_node_down(pair: Served, body: Any) -> None:
    pair.send(HELLO_N3, [(FrameKind.HOSTED, body, b"")])


@pytest.mark.slow
@tries(20)
@given(altered({"group": 7, "node": "n1"}))
def test_any_report_of_a_host_that_has_left_brings_no_node_down(pair: Served, body: Any) -> None:
    pair.send(HELLO_N3, [(FrameKind.LEFT_GROUP, body, b"")])


@pytest.mark.slow
@tries(20)
@given(altered({"group": 7, "ends": [["s1", 9, 1], ["s2", 2, 2]]}))
def test_any_report_of_streams_brings_no_node_down(pair: Served, body: Any) -> None:
    pair.send(HELLO_N3, [(FrameKind.REPORT_STREAMS, body, b"")])
