"""After the end of its process, a leader is replaced at once, because its closed connections show its death."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.node.group import CLUSTER, Group, Journal, term, wait_for
from viewstamp.consensus.state import RaftOptions
from viewstamp.host.interfaces import Connection, ConnectionHandler
from viewstamp.host.network import Accept, RealNetwork
from viewstamp.ids import NodeId
from viewstamp.node.peers.connection import PeerConnection
from viewstamp.wire.frame import PROTOCOL_VERSION, FrameKind, encode_frame

PATIENT = RaftOptions(election_timeout_ticks=100_000, heartbeat_ticks=3)
"""No member campaigns because of a timeout."""


class PatientGroup(Group):
    """Nodes that do not transfer leadership when they stop, because that too would wait for an election timeout."""

    async def stop(self, *names: str) -> None:
        for name in names:
            self.nodes[NodeId(name)].hands_over = False
        await super().stop(*names)


@pytest.mark.slow
async def test_the_others_do_not_wait_for_a_leader_whose_process_has_ended(tmp_path: Path) -> None:
    async with PatientGroup(tmp_path, core=PATIENT) as group:
        await group.run()
        client = group.client()
        await client.create_topic("t")
        first = await client.append("t", b"first")
        await group.stop("n1")
        second = await client.append("t", b"second", timeout=10)
        assert (second.position, second.term) == (first.position + 1, first.term + 1)
        assert (await group.leader()).options.node == "n2", "the first in the order of their names"


@pytest.mark.slow
async def test_a_member_that_alone_has_lost_the_leader_follows_it_again(tmp_path: Path) -> None:
    """n3 cannot reach the leader n1, but still receives its heartbeats.

    The others refuse n3's pre-vote, because they receive n1's heartbeats too.
    """
    async with PatientGroup(tmp_path, core=PATIENT) as group:
        await group.run()
        leader = await group.leader()
        before = term(leader)
        group.board.cut("n3", group.members[NodeId("n1")])

        def changes() -> list[object]:
            return [line["leader"] for line in group.journal.of("= state", node="n3")]

        await wait_for(lambda: None in changes()[1:] and changes()[-1] == "n1", group.journal.tail)
        group.heal()
        await group.client().create_topic("t")
        await group.caught_up()
        assert [term(node) for node in group.nodes.values()] == [before] * 3
        assert await group.leader() is leader


LIMITS = {"record_bytes_max": 1, "batch_bytes_max": 1}


class Peer:
    """The far end of a link: accepts it, and can be stopped and restarted."""

    def __init__(self) -> None:
        self.open: list[Connection] = []

    def accept(self, connection: Connection) -> ConnectionHandler:
        self.open.append(connection)
        welcome = {"cluster": CLUSTER, "node": "n2", "version": PROTOCOL_VERSION, "limits": LIMITS}
        connection.send(encode_frame(FrameKind.WELCOME, welcome))
        return _Deaf()


class _Deaf:
    def on_bytes(self, data: bytes) -> None:
        pass

    def on_closed(self, error: BaseException | None) -> None:
        pass


class Counted(RealNetwork):
    """Counts the attempts to connect, and those that failed."""

    def __init__(self) -> None:
        self.failures = 0

    async def connect(self, address: str, accept: Accept) -> Connection:
        try:
            return await super().connect(address, accept)
        except OSError:
            self.failures += 1
            raise


@pytest.mark.slow
async def test_a_peer_is_lost_when_its_connection_ends_and_its_port_refuses_connections() -> None:
    """A peer that was never reached or that is back at once is not reported.

    A lost peer is reported a bounded number of times.
    """
    network, peer, lost = Counted(), Peer(), []
    listener = await network.listen("127.0.0.1:0", peer.accept)
    address = listener.address
    await listener.close()
    link = PeerConnection(
        NodeId("n2"),
        lambda: address,
        is_meant=lambda node: node == "n2",
        hello=lambda: {"cluster": CLUSTER},
        network=network,
        entropy=random.Random(1),
        unsent_bytes_max=1000,
        on_lost=lost.append,
        on_lost_disk=lambda _: None,
        on_unreached=lambda _: asyncio.sleep(0),
        greeting=list,
        log=Journal().logger(),
    )
    running = asyncio.create_task(link.run())
    try:
        await wait_for(lambda: network.failures > 1, lambda: "not tried")
        assert lost == [], "it may not have started yet"
        listener = await network.listen(address, peer.accept)
        await wait_for(lambda: link.is_connected, lambda: "not connected")
        peer.open[-1].abort()
        await wait_for(lambda: len(peer.open) > 1 and link.is_connected, lambda: "not connected again")
        assert lost == [], "it was back at once"
        await listener.close()
        peer.open[-1].abort()
        failures = network.failures
        await wait_for(lambda: network.failures > failures + 5, lambda: "not tried")
        assert lost == ["n2"] * 4
    finally:
        running.cancel()
        await asyncio.wait([running])
        await listener.close()
        for connection in peer.open:
            connection.abort()
