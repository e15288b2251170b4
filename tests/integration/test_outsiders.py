"""Attacks on a TLS cluster of processes by three outsiders: none of them gets further than an error.

The outsiders have no certificate, a client's certificate, or a client's certificate and a token that may read. Each of
them knows everything else: the cluster's id, the members' ids, the incarnations of their disks, the term and the log.

All attacks run against one cluster, because the start of a cluster takes longer than they do. After each outsider, the
members have the same terms, roles, voters, records and snapshots as before, and have connected to no foreign address.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority, client, member
from tests.node.caller import HELLO, Caller
from tests.processes import Processes, eventually, is_level, leader_of, running, statuses
from viewstamp.client import Client
from viewstamp.config import make_certificates
from viewstamp.consensus import messages as m
from viewstamp.consensus.term_history import TermHistory
from viewstamp.embed.connect import connect
from viewstamp.host.tls import TlsFiles
from viewstamp.ids import Index, NodeId, Position, Sequence, SessionId, Term, TopicId
from viewstamp.node.peers.codec import encode_message
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.frame import Frame, FrameKind, encode_frame
from viewstamp.wire.identity_proof import hello_proof
from viewstamp.wire.values import pack

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
CLIENTS_MAX = 24
SMALL = {"limits.record_bytes_max": "256KiB", "limits.batch_bytes_max": "512KiB", "limits.frame_bytes_max": "2MiB"}
"""Limits below the default, so that they are reached in less time."""
FORGED_TERM = 1000
"""A term that the group reaches by no election of its own."""
DENIALS = ("AccessDeniedError", "NotLeaderError", "UnavailableError", "NoQuorumError")
"""The answers to a request without a right. All but the first come from a node that does not lead any more."""
MARK = -7
"""The id of the request that follows an attack, to see whether the connection is still there."""


def encoded(*frames: tuple[int, object]) -> bytes:
    return b"".join(b"".join(encode_frame(kind, body)) for kind, body in frames)


@dataclass
class Known:
    """The facts about the cluster that every outsider has."""

    processes: Processes
    leader: str
    followers: list[str]
    term: int
    end: int
    history: list[list[int]]
    incarnations: dict[str, str]
    listening: str
    """An address of the outsider, at which no node may connect."""

    @property
    def cluster(self) -> str:
        return self.processes.cluster.id

    def hello(self, node: str, target: str) -> dict[str, object]:
        """Return the HELLO of a peer with a valid proof, as a member would send it."""
        hello: dict[str, object] = {
            **HELLO,
            "cluster": self.cluster,
            "node": node,
            "incarnation": self.incarnations.get(node, "00"),
            "address": self.listening,
        }
        return {**hello, "proof": hello_proof(self.incarnations[target], hello)}


@dataclass
class Outsider:
    """One attacker. Its calls return the frames that a node has answered."""

    known: Known
    files: TlsFiles | None
    token: str = ""

    @asynccontextmanager
    async def knock(self, node: str) -> AsyncIterator[Caller]:
        """Connect to a node by hand, without a check of its certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.files is not None:
            context.load_cert_chain(self.files.certificate, self.files.key)
        host, _, port = self.known.processes.node(node).address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="")
        try:
            yield Caller(reader, writer)
        finally:
            writer.transport.abort()
            await asyncio.sleep(0)

    async def send(self, node: str, hello: dict[str, object], data: bytes) -> list[Frame]:
        """Send a HELLO and bytes behind it, and return all answers until the connection ends, or until the mark."""
        answers: list[Frame] = []
        with suppress(EOFError, ConnectionError, ssl.SSLError):
            async with self.knock(node) as caller:
                caller.write(encoded((FrameKind.HELLO, hello)) + data + encoded((FrameKind.STATUS, {"id": MARK})))
                while not answers or answers[-1].body.get("id") != MARK:
                    answers.append(await caller.frame())
        return answers

    async def attack(self, node: str, name: str, data: bytes) -> None:
        """Send frames as a peer of this name, "" = as a client; none may be answered with OK."""
        known = self.known
        hello = known.hello(name, node) if name else {**HELLO, "cluster": known.cluster, "token": self.token}
        for answer in await self.send(node, hello, data):
            self.check(answer)

    def check(self, answer: Frame) -> None:
        """Check that a frame shows that the attack had no effect."""
        assert self.files is not None, f"a process without a certificate got {answer}"
        allowed = {FrameKind.WELCOME, FrameKind.REFUSED, FrameKind.ERROR}
        assert answer.kind in allowed or answer.body.get("id") == MARK, answer


def encoded_message(message: m.Message) -> bytes:
    return b"".join(bytes(part) for part in encode_message(message))


def messages_of(known: Known) -> dict[str, list[m.Message]]:
    """Return the messages of consensus that could end the cluster, or change its log, if a node took them."""
    leader = NodeId(known.leader)
    first, second = map(NodeId, known.followers)
    term, end = Term(known.term), Index(known.end)

    def heartbeat(source: NodeId, target: NodeId, term: Term = term) -> m.Message:
        return m.HeartbeatRequest(
            source=source, target=target, term=term, number=99, commit_end=end, sent_end=end, round=1
        )

    def announcement(source: NodeId, target: NodeId, start: int) -> m.Message:
        history = TermHistory([*((each, at) for each, at in known.history), (term + 1, start)])
        return m.Announcement(
            source=source, target=target, term=Term(term + 1), number=99, history=history, start=Index(start)
        )

    forged = build_batch([b"FORGED"], kind=Kind.RECORDS, topic=TopicId(1))
    forged.stamp(
        term=Term(term + 1),
        first_index=end,
        previous_term=term,
        log_time=1_800_000_000_000_000,
        first_position=Position(21),
    )
    injected = m.AppendRequest(
        source=leader,
        target=first,
        term=Term(term + 1),
        number=99,
        start=end,
        previous_term=term,
        commit_end=Index(end + 1),
        batches=(forged,),
    )
    offers: list[m.Message] = [
        m.SnapshotOffer(source=leader, target=each, term=Term(term + 5), end=Index(10**9), last_term=term)
        for each in (first, second)
    ]
    others = other_messages(leader, first, second, term, end, TermHistory((each, at) for each, at in known.history))
    return {
        "term_max": [m.TermResponse(source=first, target=leader, term=Term((1 << 63) - 1))],
        "term_leap": [m.TermResponse(source=first, target=leader, term=Term(FORGED_TERM))],
        "term_flood": [m.TermResponse(source=first, target=leader, term=Term(term + step)) for step in range(1, 2000)],
        "heartbeat_to_leader": [heartbeat(first, leader)],
        "two_leaders": [heartbeat(first, second)],
        "kill_all": [heartbeat(first, leader), heartbeat(second, first), heartbeat(first, second)],
        "cut_committed": [announcement(leader, first, 1), announcement(leader, second, 1)],
        "inject": [announcement(leader, first, end), injected, heartbeat(leader, first, Term(term + 1))],
        "snapshot_offer": offers,
        "timeout_now": [m.TimeoutNow(source=leader, target=first, term=term)],
        "vote": [
            m.VoteRequest(source=first, target=second, term=Term(term + 1), last_term=term, end=end, transfers=True)
        ],
        "other": others,
    }


def other_messages(
    leader: NodeId, first: NodeId, second: NodeId, term: Term, end: Index, history: TermHistory
) -> list[m.Message]:
    """Return forged answers, which acknowledge lost records, elect a leader or confirm a stale read, and the rest."""
    far, soon = Index(end + 1000), Term(term + 1)
    return [
        m.PreVoteRequest(source=first, target=second, term=soon, last_term=term, end=far),
        m.PreVoteResponse(source=first, target=second, term=soon, granted=True),
        m.VoteResponse(source=first, target=second, term=soon, granted=True, history=history, end=end),
        m.HistoryRequest(source=leader, target=first, term=term, number=99),
        m.HistoryResponse(source=first, target=leader, term=term, number=1, history=history, end=far),
        m.AnnouncementResponse(source=first, target=leader, term=term, number=1, end=far),
        m.AppendResponse(source=first, target=leader, term=term, number=1, end=far, received_end=far, rejected=False),
        m.AppendResponse(
            source=first, target=leader, term=term, number=1, end=Index(1), received_end=end, rejected=True
        ),
        m.HeartbeatResponse(
            source=first, target=leader, term=term, number=1, end=far, round=1 << 40, promise_us=1 << 60
        ),
        m.DurableNotice(source=leader, target=first, term=term, number=1, end=far),
        m.ReadIndexRequest(source=first, target=leader, term=term, token=1),
        m.ReadIndexResponse(source=leader, target=first, term=term, token=1, index=Index(1)),
    ]


REQUESTS: dict[str, tuple[int, dict[str, object]]] = {
    "readlog": (FrameKind.READ_LOG, {"start": 1, "end": 1000, "bytes_max": MIB}),
    "read_snapshot": (FrameKind.READ_SNAPSHOT, {"end": 10, "term": 1, "offset": 0, "bytes_max": MIB}),
    "join": (FrameKind.JOIN, {"address": "127.0.0.1:1"}),
    "join_as": (FrameKind.JOIN, {"address": "127.0.0.1:1", "member": "n2~8c21f0aa"}),
    "digest": (FrameKind.DIGEST, {"end": 5, "odd": "n1", "trail": []}),
    "report_streams": (FrameKind.REPORT_STREAMS, {"group": 7, "ends": [["s1", 9, 1]]}),
    "hosted": (FrameKind.HOSTED, {"group": 7, "incarnation": "e" * 16}),
    "left_group": (FrameKind.LEFT_GROUP, {"group": 7, "node": "n1"}),
    "prove_directory": (FrameKind.PROVE_DIRECTORY, {"node": "n1", "proof": bytes(32)}),
}
"""Requests of members, and a guessed proof of an administrator."""

DENIED: dict[str, tuple[int, dict[str, object]]] = {
    "create_topic": (FrameKind.CREATE_TOPIC, {"name": "mine", "retain_bytes": 0, "retain_seconds": 0.0}),
    "trim_topic": (FrameKind.TRIM_TOPIC, {"name": "orders", "position": 10}),
    "configure_topic": (FrameKind.CONFIGURE_TOPIC, {"name": "orders", "retain_bytes": 1, "retain_seconds": None}),
    "open_session": (FrameKind.OPEN_SESSION, {}),
    "begin_attempt": (
        FrameKind.BEGIN_ATTEMPT,
        {"sink": "s", "owner": "o", "run": "r", "batch": 0, "name": "p", "reset": False, "keep_seconds": 60},
    ),
    "forget_sink": (FrameKind.FORGET_SINK, {"name": "s"}),
    "change_members": (
        FrameKind.CHANGE_MEMBERS,
        {"action": "learn", "node": "n9", "address": "127.0.0.1:9", "replaces": ""},
    ),
    "transfer_leadership": (FrameKind.TRANSFER_LEADERSHIP, {"node": "n2"}),
    "create_snapshot": (FrameKind.CREATE_SNAPSHOT, {}),
    "list_snapshots": (FrameKind.LIST_SNAPSHOTS, {}),
    "create_token": (
        FrameKind.CREATE_TOKEN,
        {"token": "t1", "name": "t", "roles": ["administer"], "hash": bytes(32), "expire_seconds": 0},
    ),
    "list_tokens": (FrameKind.LIST_TOKENS, {}),
    "list_audit": (FrameKind.LIST_AUDIT, {"since": 0}),
    "note_transfer": (FrameKind.NOTE_TRANSFER, {"group": 7, "node": "n2"}),
    "describe_log": (FrameKind.DESCRIBE_LOG, {"stale": True}),
    "copy_log": (FrameKind.COPY_LOG, {"start": 1, "end": 100, "bytes_max": MIB}),
    "copy_snapshot": (FrameKind.COPY_SNAPSHOT, {"end": 10, "term": 1, "offset": 0, "bytes_max": MIB}),
    "query": (
        FrameKind.QUERY,
        {
            "actor": "a",
            "key": "",
            "method": "m",
            "arguments": pack([[], {}]),
            "stale": True,
            "applied_index": 0,
        },
    ),
}
"""Requests that a token with ``read:orders`` does not permit."""


async def check_refusals(known: Known, files: TlsFiles, forger: Authority) -> None:
    """Check the reasons: a process without TLS, a client as a peer, a member as another one, a forged certificate."""
    hello = known.hello(known.followers[0], known.leader)
    for uri in (member(known.followers[0], known.cluster), client("mallory", known.cluster)):
        forged = replace(forger.sign(uri), authority=files.authority)
        assert await Outsider(known, forged).send(known.leader, hello, b"") == []
    host, _, port = known.processes.node(known.leader).address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    plain = Caller(reader, writer)
    answer = await plain.hello(**hello)
    assert (answer.kind, answer.body["error"]) == (FrameKind.REFUSED, "TlsError")
    assert await plain.is_ended()
    writer.close()
    of_leader = known.processes.node(known.leader).settings.tls.files
    for shown, reason in ((files, "is a client's certificate"), (of_leader, "is not the certificate of")):
        async with Outsider(known, shown).knock(known.leader) as caller:
            answer = await caller.hello(**hello)
            assert (answer.kind, answer.body["error"]) == (FrameKind.REFUSED, "TlsError")
            assert reason in answer.body["message"]
            assert await caller.is_ended()


async def send_messages(outsider: Outsider) -> None:
    """Send each message as a client, and all together as a peer: if one name were let in, all of them would count."""
    kinds = messages_of(outsider.known).values()
    assert {type(message) for messages in kinds for message in messages} == {*m.MESSAGES} - {m.BatchesRead}
    for target in outsider.known.processes.names:
        mine = [[message for message in messages if message.target == target] for messages in kinds]
        for messages in filter(None, mine):
            await outsider.attack(target, "", b"".join(map(encoded_message, messages)))
        for name in ("n1", "n2", "n3", "n2~8c21f0aa", "n9~x", "mallory"):
            renamed = [replace(message, source=NodeId(name)) for messages in mine for message in messages]
            await outsider.attack(target, name, b"".join(map(encoded_message, renamed)))


async def send_requests_of_members(outsider: Outsider) -> None:
    leader, follower = outsider.known.leader, outsider.known.followers[0]
    requests = [encoded((kind, {"id": 1, **fields})) for kind, fields in REQUESTS.values()]
    for request in requests:
        await outsider.attack(leader, "", request)
    for name in (follower, f"{follower}~8c21f0aa", "n9~x", "mallory"):
        await outsider.attack(leader, name, b"".join(requests))


async def send_requests_without_a_right(outsider: Outsider) -> None:
    known = outsider.known
    batch = build_batch([b"FORGED"], kind=Kind.RECORDS, topic=TopicId(1), session=SessionId(3), sequence=Sequence(1))
    calls = build_batch([b"\x96"], kind=Kind.COMMANDS, session=SessionId(3), sequence=Sequence(1))
    hello = {**HELLO, "cluster": known.cluster, "token": outsider.token}
    async with outsider.knock(known.leader) as caller:
        assert (await caller.hello(**hello)).kind == FrameKind.WELCOME
        for name, (kind, fields) in DENIED.items():
            assert await caller.refusal(kind, **fields) in DENIALS, name
        for kind, payload in ((FrameKind.APPEND, batch), (FrameKind.CALL, calls)):
            assert await caller.refusal(kind, bytes(payload.buffer)) in (*DENIALS, "StaleSessionError")


async def use_up_memory(outsider: Outsider) -> None:
    """A HELLO of 10 MB, a frame of 60 MB, a body that grows when it is decoded, and answers that are not read."""
    known = outsider.known
    hello: dict[str, object] = {**HELLO, "cluster": known.cluster, "token": outsider.token}
    for begin, data in (
        ({**hello, "padding": "x" * 10 * MIB}, b""),
        (hello, b"".join(encode_frame(FrameKind.APPEND, {"id": 1}, [bytes(60 * MIB)]))[:100_000]),
        (hello, encoded((FrameKind.LIST_TOPICS, {"id": 1, "stale": True, "more": [{}] * (3 * MIB)}))),
    ):
        answers = await outsider.send(known.leader, begin, data)
        assert all(answer.kind == FrameKind.WELCOME for answer in answers), answers
    with suppress(EOFError, ConnectionError, ssl.SSLError):
        async with outsider.knock(known.leader) as caller:
            outsider.check(await caller.hello(**hello))
            while True:  # The node ends the connection when a frame's limit of answers waits.
                caller.write(encoded((FrameKind.STATUS, {"id": 1})) * 200)
                await caller.drain()


async def use_up_connections(outsider: Outsider) -> None:
    """Clients beyond their limit are refused, so that members and the log keep descriptors."""
    known = outsider.known
    async with AsyncExitStack() as stack:
        kinds = []
        for _ in range(CLIENTS_MAX + 5):
            with suppress(EOFError, ConnectionError, ssl.SSLError):
                caller = await stack.enter_async_context(outsider.knock(known.leader))
                kinds.append((await caller.hello(cluster=known.cluster, token=outsider.token)).kind)
        assert kinds.count(FrameKind.WELCOME) <= CLIENTS_MAX
        assert kinds.count(FrameKind.REFUSED) >= 5 or outsider.files is None


@asynccontextmanager
async def half_open_handshakes(known: Known) -> AsyncIterator[None]:
    """Begin more handshakes of TLS than may be open, and complete none; each of them is ended within 5 s."""
    host, _, port = known.processes.node(known.leader).address.rpartition(":")
    idle = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
    for number, (_, writer) in enumerate(idle):
        writer.write((b"", b"\x16", b"\x16\x03\x01\x02\x00" + bytes(100))[number % 3])
    try:
        yield
        for reader, _ in idle:
            with suppress(ConnectionError):
                assert await reader.read() == b""
    finally:  # A loop with an open connection never ends its close, and a failed test would hang.
        for _, writer in idle:
            writer.close()


async def facts_of(processes: Processes, client: Client, listening: str) -> Known:
    """Return the facts that the outsiders have."""
    await eventually(lambda: is_level(client))
    leader = await eventually(lambda: leader_of(client))
    [status] = [each for each in await eventually(lambda: statuses(client)) if each["id"] == leader]
    return Known(
        processes=processes,
        leader=leader,
        followers=[name for name in processes.names if name != leader],
        term=status["term"],
        end=status["last_index"] + 1,
        history=status["history"],
        incarnations={name: processes.node(name).identity.incarnation for name in processes.names},
        listening=listening,
    )


async def picture(processes: Processes, client: Client) -> dict[str, Any]:
    """Return everything that no outsider may change. On a busy machine, the members may elect a leader themselves."""
    await eventually(lambda: is_level(client))
    return {
        str(status["id"]): (
            status["lifecycle"],
            status["term"] < FORGED_TERM,
            sorted(status["membership"]["voters"]),
            sorted(status["membership"]["learners"]),
            processes.node(str(status["id"])).pid(),
        )
        for status in await eventually(lambda: statuses(client))
    } | {"records": [record.value async for record in client.read("orders")]}


async def attack_with(outsider: Outsider, client: Client) -> None:
    """Try all attacks, and check that nothing has changed."""
    before = await picture(outsider.known.processes, client)
    await send_messages(outsider)
    await send_requests_of_members(outsider)
    if outsider.token:
        await send_requests_without_a_right(outsider)
    await use_up_memory(outsider)
    await use_up_connections(outsider)
    assert await picture(outsider.known.processes, client) == before


async def test_no_outsider_gets_further_than_an_error(tmp_path: Path) -> None:
    dialed: list[str] = []

    def on_dialed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialed.append(str(writer.get_extra_info("peername")))
        writer.close()

    listener = await asyncio.start_server(on_dialed, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    settings = {"limits.connections_max": str(CLIENTS_MAX), **SMALL}
    async with running(tmp_path, settings=settings, tls=True) as processes, processes.connect() as client:
        await client.create_topic("orders")
        await client.append_many("orders", [b"%d" % number for number in range(20)])
        files = make_certificates(processes.cluster.directory, clients=["mallory"])[-1].tls.files
        known = await facts_of(processes, client, f"{host}:{port}")
        await check_refusals(known, files, Authority(tmp_path / "forger"))
        async with half_open_handshakes(known):
            await attack_with(Outsider(known, None), client)
            await attack_with(Outsider(known, files), client)
            _, token = await client.create_token("reader", ["read:orders"])
            await client.create_token("ops", ["administer"])
            addresses = ",".join(node.address for node in processes.cluster.nodes.values())
            async with connect(addresses, tls=files, token=token) as reader:
                assert (await reader.describe_topic("orders")).last_position == 20, "the token may read"
            known = await facts_of(processes, client, f"{host}:{port}")
            await attack_with(Outsider(known, files, token), client)
        await client.append("orders", b"after")
    listener.close()
    assert dialed == []
