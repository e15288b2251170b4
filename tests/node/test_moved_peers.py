"""Members that moved by a record that this log lacks: whose word counts for their new address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.consensus.group import Group as Cores
from tests.consensus.test_changes import N2, N4, started
from viewstamp.consensus.membership import AddMember
from viewstamp.host.interfaces import Connection
from viewstamp.host.network import RealNetwork
from viewstamp.ids import GROUP_0, ClusterId, NodeId
from viewstamp.node.peers.moved import MovedPeers
from viewstamp.wire.frame import FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.handshake import Welcome


class Naming:
    """A node that answers each HELLO with a WELCOME that names N2 at ``at``; "" = at its own address."""

    def __init__(self, *, generation: int, node: str = N2, at: str = "") -> None:
        self.generation = generation
        self.node = node
        self.at = at
        self.asked = 0

    def accept(self, connection: Connection) -> Answering:
        return Answering(self, connection)


class Answering:
    """One connection to the node."""

    def __init__(self, node: Naming, connection: Connection) -> None:
        self.node = node
        self.connection = connection
        self.decoder = FrameDecoder()

    def on_bytes(self, data: bytes) -> None:
        for _ in self.decoder.feed(data):
            self.node.asked += 1
            members = {
                "members": {"n1": "at-n1", N2: self.node.at, "n3": "at-n3"},
                "generation": self.node.generation,
            }
            welcome = Welcome(
                cluster="c1",
                node=self.node.node,
                durability="sync",
                record_bytes_max=1,
                batch_bytes_max=1,
                members=members,
            )
            self.connection.send(encode_frame(FrameKind.WELCOME, welcome.to_map()))

    def on_closed(self, _: BaseException | None) -> None:
        pass


@asynccontextmanager
async def listening(node: Naming) -> AsyncIterator[str]:
    listener = await RealNetwork().listen("127.0.0.1:0", node.accept)
    node.at = node.at or listener.address
    try:
        yield listener.address
    finally:
        await listener.close()


def moved_peers(cores: Cores) -> MovedPeers:
    raft = cores["n3"].raft
    assert raft is not None
    return MovedPeers(raft, ClusterId("c1"), GROUP_0, RealNetwork())


async def test_a_member_that_names_a_newer_record_is_reached_at_its_new_address() -> None:
    cores = started()
    moved = moved_peers(cores)
    newer = cores["n3"].core.membership.generation + 1
    async with listening(Naming(generation=newer)) as address:
        assert moved.address(N2) is None
        await moved.look(N2, "at-n2")
        assert moved.address(N2) is None, "it has not connected"
        moved.note(N2, address)
        assert moved.address(N2) is None, "a HELLO alone may be of a copy"
        await moved.look(N2, "at-n2")
        assert moved.address(N2) == address
        await moved.look(N2, address)
        assert moved.address(N2) is None, "it was not reached there either, so the recorded address is next"
        await moved.look(N2, "at-n2")
        assert moved.address(N2) == address
        cores.add("n4")
        cores.change("n1", AddMember(N4, "at-n4", becomes_voter=False))
        cores.run(5)
        assert moved.address(N2) is None, "this log has a record of that generation now"


@pytest.mark.parametrize(
    ("newer", "node", "at"),
    [(0, N2, ""), (1, "n1", ""), (1, N2, "at-n2")],
    ids=["no-newer-record", "another-node", "address-of-the-original"],
)
async def test_nothing_else_redirects_answers(newer: int, node: str, at: str) -> None:
    cores = started()
    moved = moved_peers(cores)
    answering = Naming(generation=cores["n3"].core.membership.generation + newer, node=node, at=at)
    async with listening(answering) as address:
        moved.note(N2, address)
        await moved.look(N2, "at-n2")
    assert answering.asked == 1
    assert moved.address(N2) is None


async def test_a_member_that_is_gone_again_is_not_found() -> None:
    moved = moved_peers(started())
    async with listening(Naming(generation=99)) as address:
        pass
    moved.note(NodeId(N2), address)
    await moved.look(N2, "at-n2")
    assert moved.address(N2) is None
