"""A cluster of processes with TLS: it works, and nothing but an error reaches a process without a member's certificate.

The attacks are those of ``tests/node/test_strangers.py``, tried by a process without a certificate and by one with a
client's. Both know everything else: the cluster's id, the ids of the members, and the incarnations of their disks.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority, member
from tests.node.caller import HELLO, Caller
from tests.processes import Processes, eventually, is_connected, is_level, leader_of, running, statuses
from viewstamp.config import make_certificates
from viewstamp.config.certificates import drop_old_authority, make_next_authority
from viewstamp.consensus.messages import HeartbeatRequest, Message, SnapshotOffer, TermResponse
from viewstamp.embed.connect import connect
from viewstamp.errors import ConfigError, TlsError
from viewstamp.host.tls import TlsFiles
from viewstamp.ids import Index, NodeId, Term
from viewstamp.node.peers.codec import encode_message
from viewstamp.wire.frame import FrameKind

pytestmark = pytest.mark.slow

FORGED_TERM = Term(1000)
"""A term that the group reaches by no election of its own."""


def certificate(processes: Processes, name: str = "mallory") -> TlsFiles:
    """Return the certificate of a client."""
    return make_certificates(processes.cluster.directory, clients=[name])[-1].tls.files


@asynccontextmanager
async def caller_of(processes: Processes, node: str, files: TlsFiles | None) -> AsyncIterator[Caller]:
    """Connect to a node by hand. ``files`` None = with TLS, but without a certificate of this side."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    host, _, port = processes.node(node).address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="")
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def state_of(processes: Processes) -> dict[str, Any]:
    """Return each member's voters, and whether its term is one of its own group: a busy machine may elect anew."""
    async with processes.connect() as client:
        nodes = await eventually(lambda: statuses(client))
    return {str(node["id"]): (node["term"] < FORGED_TERM, sorted(node["membership"]["voters"])) for node in nodes}


def attacks(leader: str, follower: str) -> list[Message]:
    """Return the messages with which a stranger could end the cluster, if a node took them."""
    source, target = NodeId(follower), NodeId(leader)
    return [
        TermResponse(source=source, target=target, term=Term((1 << 63) - 1)),
        TermResponse(source=source, target=target, term=FORGED_TERM),
        SnapshotOffer(source=source, target=target, term=FORGED_TERM, end=Index(10**9), last_term=FORGED_TERM),
        HeartbeatRequest(
            source=source, target=target, term=FORGED_TERM, number=1, commit_end=Index(1), sent_end=Index(1), round=1
        ),
    ]


async def test_a_cluster_with_tls_serves_and_outlives_a_leader(tmp_path: Path) -> None:
    async with running(tmp_path, tls=True) as processes, processes.connect() as client:
        await client.create_topic("orders")
        for number in range(50):
            await client.append("orders", b"%d" % number)
        leader = await eventually(lambda: leader_of(client))
        await processes.kill(leader)
        await client.append("orders", b"50")
        await processes.run(leader)
        assert [record.value async for record in client.read("orders")] == [b"%d" % number for number in range(51)]
        await eventually(lambda: is_level(client))
        await eventually(lambda: is_connected(client))
        for status in await eventually(lambda: statuses(client)):
            assert status["tls"]["name"] == f"viewstamp://{processes.cluster.id}/member/{status['id']}"
        files = certificate(processes, "alice")
        addresses = ",".join(node.address for node in processes.cluster.nodes.values())
        async with connect(addresses, tls=files) as other:
            assert (await other.append("orders", b"51")).position == 52
        async with connect(addresses) as plain:
            with pytest.raises(TlsError, match="accepts only connections with TLS"):
                await plain.append("orders", b"never")
        stranger = Authority(tmp_path / "stranger").sign(member("n1", processes.cluster.id))
        async with connect(addresses, tls=stranger) as other:
            with pytest.raises(TlsError, match="was refused: "):
                await other.append("orders", b"never")
        elsewhere = Authority(tmp_path / "stranger").sign(member("n1", "elsewhere"))
        elsewhere = TlsFiles(authority=files.authority, certificate=elsewhere.certificate, key=elsewhere.key)
        async with connect(addresses, tls=files) as other:
            assert (await other.describe_topic("orders")).last_position == 52


async def test_a_process_without_a_certificate_gets_an_error(tmp_path: Path) -> None:
    async with running(tmp_path, tls=True) as processes:
        async with processes.connect() as client:
            leader = await eventually(lambda: leader_of(client))
        before = await state_of(processes)
        follower = next(name for name in processes.names if name != leader)
        identity = processes.node(follower).identity
        hello = {"cluster": processes.cluster.id, "node": follower, "incarnation": identity.incarnation}
        for message in attacks(leader, follower):
            for changes in (hello, {**hello, "node": "n9~x"}, {"cluster": "", "node": ""}):
                async with caller_of(processes, leader, None) as caller:
                    caller.send(FrameKind.HELLO, {**HELLO, **changes})
                    caller.write(b"".join(encode_message(message)))
                    with pytest.raises((EOFError, ConnectionError, ssl.SSLError)):
                        await caller.frame()
        host, _, port = processes.node(leader).address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        plain = Caller(reader, writer)
        answer = await plain.hello(**hello)
        assert (answer.kind, answer.body["error"]) == (FrameKind.REFUSED, "TlsError")
        assert await plain.is_ended()
        writer.close()
        assert await state_of(processes) == before
        async with processes.connect() as client:
            await client.create_topic("orders")


async def test_a_certificate_of_a_client_never_opens_a_connection_of_a_peer(tmp_path: Path) -> None:
    async with running(tmp_path, tls=True) as processes:
        async with processes.connect() as client:
            await client.create_topic("orders")
            await client.append("orders", b"secret")
            leader = await eventually(lambda: leader_of(client))
        before = await state_of(processes)
        follower = next(name for name in processes.names if name != leader)
        files = certificate(processes)
        identity = processes.node(follower).identity
        hello = {
            "cluster": processes.cluster.id,
            "node": follower,
            "incarnation": identity.incarnation,
            "address": "127.0.0.1:1",
        }
        for node in (follower, f"{follower}~8c21f0aa", "n9~x", "mallory"):
            async with caller_of(processes, leader, files) as caller:
                answer = await caller.hello(**{**hello, "node": node})
                assert (answer.kind, answer.body["error"]) == (FrameKind.REFUSED, "TlsError")
                assert "is a client's certificate" in answer.body["message"]
                assert await caller.is_ended()
        others = processes.node(leader).settings.tls.files
        assert others is not None
        async with caller_of(processes, leader, others) as caller:  # A member that takes another one's id.
            answer = await caller.hello(**hello)
            assert answer.kind == FrameKind.REFUSED
            assert f"is not the certificate of {follower}" in answer.body["message"]
        requests: list[tuple[int, dict[str, object]]] = [
            (FrameKind.READ_LOG, {"start": 1, "end": 1000, "bytes_max": 1 << 20}),
            (FrameKind.READ_SNAPSHOT, {"end": 10, "term": 1, "offset": 0, "bytes_max": 1 << 20}),
            (FrameKind.JOIN, {"address": "127.0.0.1:1"}),
            (FrameKind.DIGEST, {"index": 1, "digests": {}}),
        ]
        for kind, fields in requests:
            async with caller_of(processes, leader, files) as caller:
                assert (await caller.hello()).kind == FrameKind.REFUSED or await refused(caller, kind, fields)
        for message in attacks(leader, follower):
            async with caller_of(processes, leader, files) as caller:
                await caller.hello(cluster=processes.cluster.id)
                caller.write(b"".join(encode_message(message)))
                assert await caller.is_ended()
        assert await state_of(processes) == before
        async with processes.connect() as client:
            await client.append("orders", b"after")


async def refused(caller: Caller, kind: int, fields: dict[str, object]) -> bool:
    """Return whether a node answers a request with an error, or ends the connection."""
    caller.send(kind, {"id": 1, **fields})
    try:
        return (await caller.frame()).kind == FrameKind.ERROR
    except (EOFError, ConnectionError):
        return True


async def test_half_open_handshakes_end_and_leave_room_for_others(tmp_path: Path) -> None:
    async with running(tmp_path, 1, tls=True) as processes, processes.connect() as client:
        await client.create_topic("orders")
        host, _, port = processes.node("n1").address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
        for _, writer in idle:
            writer.write(b"\x16\x03\x01\x02\x00")
        [status] = await client.status()
        assert status["connections"]["handshakes"] <= 128
        async with connect(f"{host}:{port}", tls=certificate(processes)) as other:
            await other.append("orders", b"there is room")
        for reader, writer in idle:  # Each of them is ended within 5 s.
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

        async def is_free() -> bool:
            [status] = await client.status()
            return bool(status["connections"]["handshakes"] == 0)

        await eventually(is_free)


async def test_processes_use_a_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, tls=True) as processes, processes.connect() as client:
        await client.create_topic("orders")
        before = {status["id"]: status["tls"]["ends_us"] for status in await eventually(lambda: statuses(client))}
        pids = {name: processes.node(name).pid() for name in processes.names}
        make_certificates(processes.cluster.directory, days=99, renew=True)

        async def are_renewed() -> bool:
            async with processes.connect() as other:
                await other.append("orders", b"one")
                nodes = await statuses(other)
                return bool(nodes) and all(node["tls"]["ends_us"] < before[node["id"]] for node in nodes)

        await eventually(are_renewed)
        key = processes.node("n1").settings.tls.key
        shutil.copy(key, tmp_path / "kept")
        shutil.copy(processes.node("n1").log_file, key)

        async def is_reported() -> bool:
            return any(status["tls"]["trouble"] for status in await statuses(client))

        await eventually(is_reported)
        shutil.copy(tmp_path / "kept", key)
        await eventually(are_renewed)
        assert {name: processes.node(name).pid() for name in processes.names} == pids


async def test_an_authority_is_replaced_while_the_cluster_works_and_a_stolen_certificate_is_refused(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, tls=True) as processes, processes.connect() as client:
        directory = processes.cluster.directory
        await client.create_topic("orders")
        files = certificate(processes)
        stolen = TlsFiles(
            authority=str(tmp_path / "trusted.pem"),
            certificate=str(shutil.copy(files.certificate, tmp_path / "stolen.pem")),
            key=str(shutil.copy(files.key, tmp_path / "stolen.key")),
        )
        shutil.copy(files.authority, stolen.authority)
        addresses = ",".join(processes.node(name).address for name in processes.names)

        async def is_accepted(files: TlsFiles) -> bool:
            """Return whether every node accepts a new connection with this certificate."""
            async with connect(addresses, tls=files) as other:
                return all(status["reachable"] for status in await other.status())

        async def append() -> None:
            async with processes.connect() as other:
                await other.append("orders", b"one", timeout=10.0)

        assert await is_accepted(stolen)
        make_next_authority(directory)
        shutil.copy(files.authority, stolen.authority)  # The thief trusts both, so only its certificate decides.
        await append()
        with pytest.raises(ConfigError, match="has the next authority already"):
            make_next_authority(directory)
        with pytest.raises(ConfigError, match="has signed the certificates of mallory, n1, n2, n3"):
            drop_old_authority(directory)
        await eventually(lambda: is_accepted(stolen))
        make_certificates(directory, clients=["alice"], renew=True)
        with pytest.raises(ConfigError, match="has signed the certificates of mallory; nothing"):
            drop_old_authority(directory)
        alice = make_certificates(directory, clients=["alice"])[-1]
        assert not alice.is_new
        await eventually(lambda: is_accepted(alice.tls.files))
        for name in (files.certificate, files.key):
            await asyncio.to_thread(Path(name).unlink)
        drop_old_authority(directory)
        await append()

        async def is_refused() -> bool:
            async with connect(addresses, tls=stolen) as thief:
                return not any(status["reachable"] for status in await thief.status())

        await eventually(is_refused)
        assert await is_accepted(alice.tls.files)
        await processes.stop("n3")
        await processes.run("n3")  # Its peers accept its new certificate.
        await client.append("orders", b"one")
