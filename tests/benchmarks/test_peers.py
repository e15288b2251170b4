"""Each peer accepts records, and continues when one of its servers is killed; its client reads the responses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.peers.etcd import Etcd, EtcdConnection
from benchmarks.peers.nats import Nats, NatsConnection
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import Servers
from benchmarks.peers.rqlite import Rqlite
from viewstamp.errors import UnavailableError
from viewstamp.local.cluster import LocalCluster


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Ours, Nats, Etcd, Rqlite], ids=lambda kind: kind.name)
async def test_a_record_is_acknowledged_while_one_server_is_dead(kind: Callable[[], Peer], tmp_path: Path) -> None:
    """Peers that are not installed are skipped; viewstamp is always tested."""
    peer = kind()
    if absent := peer.absent():
        pytest.skip(absent)
    async with peer.running(tmp_path / "peer"):
        assert sorted(peer.pids()) == ["n1", "n2", "n3"]
        leader = await peer.leader()
        session = await peer.connect()
        await asyncio.gather(*(session.append(b"%d" % number) for number in range(100)))
        follower = next(server for server in peer.pids() if server != leader)
        await peer.kill(follower)
        assert set(peer.pids()) == {"n1", "n2", "n3"} - {follower}
        await asyncio.wait_for(session.append(b"with one dead"), 10)
        await peer.start_again()
        assert sorted(peer.pids()) == ["n1", "n2", "n3"]
        await session.close()
    assert peer.pids() == {}


@pytest.mark.slow
async def test_the_first_acknowledgement_comes_from_whoever_leads_next(tmp_path: Path) -> None:
    peer = Ours()
    async with peer.running(tmp_path / "peer"):
        standing = await peer.stand_by()
        leader = await peer.leader()
        await peer.kill(leader)
        await peer.first_acknowledged(b"next", standing, timeout=20)
        assert await peer.leader() != leader
        for session in standing:
            await session.close()


async def test_a_server_that_does_not_come_up_is_reported_with_its_last_words(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    servers.spawn("n1", ["/bin/sh", "-c", "echo the disk is full; exit 3"])
    with pytest.raises(UnavailableError, match=r"(?s)n1 has ended with 3.*the disk is full"):
        await servers.wait_listening("n1", "127.0.0.1:1")
    assert servers.pids() == {}


@asynccontextmanager
async def answering(answers: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """Serve one connection: apply ``answers`` to the received bytes, and send the result one byte at a time."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            for byte in answers(data):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield f"{host}:{port}"
        await asyncio.wait_for(ended.wait(), 5)


async def test_answers_of_nats_are_read_wherever_they_are_cut() -> None:
    """A refusal is a response too, and a refused record must not be counted as stored."""

    def answers(data: bytes) -> bytes:
        if data.startswith(b"CONNECT"):
            return b"INFO {}\r\nPONG\r\n"
        reply = [line.split(b" ")[2] for line in data.split(b"\r\n") if line.startswith(b"PUB")]
        if len(reply) != 2:
            return b""
        taken, refused = b'{"stream":"bench", "seq":1}', b'{"error":{"description":"no space"},"stream":"bench"}'
        return b"MSG %b 1 %d\r\n%b\r\nPING\r\nMSG %b 1 %d\r\n%b\r\n" % (
            *(reply[1], len(taken), taken),
            *(reply[0], len(refused), refused),
        )

    async with answering(answers) as address:
        connection = await NatsConnection.open(address)
        first, second = connection.append(b"a"), connection.append(b"b")
        assert await asyncio.wait_for(second, 5) == b'{"stream":"bench", "seq":1}'
        with pytest.raises(UnavailableError, match="no space"):
            await asyncio.wait_for(first, 5)
        unanswered = connection.append(b"c")
        await connection.close()
        with pytest.raises(ConnectionResetError):
            await unanswered


async def test_answers_of_grpc_are_read_wherever_they_are_cut() -> None:
    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body

    def status(code: bytes) -> bytes:
        return bytes.fromhex("00889acac8b21234da8f") + bytes([len(code)]) + code

    def answers(data: bytes) -> bytes:
        if data.startswith(b"PRI"):
            return frame(4, 0, 0, b"")
        if not data.endswith(b"b"):
            return b""
        return (
            frame(1, 4, 3, b"\x88")
            + frame(0, 0, 3, bytes(5))
            + frame(8, 0, 0, (100).to_bytes(4, "big"))
            + frame(1, 5, 3, status(b"0"))
            + frame(1, 5, 1, b"\x88" + status(b"14"))
        )

    async with answering(answers) as address:
        connection = await EtcdConnection.open(address)
        first, second = connection.append(b"a"), connection.append(b"b")
        await asyncio.wait_for(second, 5)
        with pytest.raises(UnavailableError, match="gRPC status 14"):
            await asyncio.wait_for(first, 5)
        await connection.close()


@pytest.mark.parametrize("method", ["connect", "connect_apart", "reader"])
async def test_connecting_that_is_cancelled_leaves_no_client(tmp_path: Path, method: str) -> None:
    """No node runs, as in the row about a restart."""
    peer = Ours()
    peer._cluster = LocalCluster.open_or_create(tmp_path, 1)
    arguments = {"connect_apart": (1,), "reader": ("n1",)}.get(method, ())
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await getattr(peer, method)(*arguments)
    left = asyncio.all_tasks() - before
    for task in left:
        task.cancel()
    assert not left
