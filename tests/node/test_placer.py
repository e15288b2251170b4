"""Requests that place groups: the probe of the members before, refusals with the next step, and the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node.caller import call
from tests.node.group import SMALL, Group, wait_for
from viewstamp.errors import (
    AccessDeniedError,
    NoQuorumError,
    NotLeaderError,
    PeerError,
    RequestError,
    UnavailableError,
    ViewstampError,
    WrongClusterError,
)
from viewstamp.host.interfaces import Buffer, Connection
from viewstamp.host.network import RealNetwork
from viewstamp.ids import ClusterId, NodeId
from viewstamp.node.peers import probe
from viewstamp.node.peers.probe import Unfit, find_unfit
from viewstamp.node.running_mark import INTERVAL, SYNCED
from viewstamp.wire.answers import error_fields, error_from
from viewstamp.wire.frame import PROTOCOL_VERSION, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.handshake import Welcome

N1 = NodeId("n1")


class Answering:
    """A node as the probe sees it: it sends the same answers to every HELLO, one for each version."""

    def __init__(self, *, node: str = "n1", durability: str = SYNCED, refusal: ViewstampError | None = None) -> None:
        self.welcome = Welcome(
            cluster="c1", node=node, durability=durability, record_bytes_max=1, batch_bytes_max=1, members=None
        )
        self.refusal = refusal
        """The answer to a HELLO of another version; None = none is sent."""
        self._decoder = FrameDecoder()

    def accept(self, connection: Connection) -> Answering:
        other = Answering(node=self.welcome.node, durability=self.welcome.durability, refusal=self.refusal)
        other.connection = connection
        return other

    connection: Connection

    def on_bytes(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            answer: list[Buffer] = []
            if frame.body["version"] == PROTOCOL_VERSION:
                answer = encode_frame(FrameKind.WELCOME, self.welcome.to_map())
            elif self.refusal is not None:
                answer = encode_frame(FrameKind.REFUSED, error_fields(self.refusal))
            self.connection.send(answer)

    def on_closed(self, _: BaseException | None) -> None:
        pass


@asynccontextmanager
async def listening(node: Answering) -> AsyncIterator[str]:
    listener = await RealNetwork().listen("127.0.0.1:0", node.accept)
    try:
        yield listener.address
    finally:
        await listener.close()


async def probed(node: Answering) -> Unfit:
    async with listening(node) as address:
        return await find_unfit(RealNetwork(), ClusterId("c1"), {N1: address})


UNKNOWN_GROUP = UnavailableError("n1 does not host group 9223372036854775807")
OLDER = PeerError("the other side speaks protocol version 3, this node 2")


async def test_a_member_that_refuses_only_the_group_is_fit() -> None:
    assert await probed(Answering(refusal=UNKNOWN_GROUP)) == ({}, {})
    assert await probed(Answering(node="n1~8c21f0aa", refusal=UNKNOWN_GROUP)) == ({}, {}), "after it lost its disk"


async def test_a_member_that_refuses_the_version_runs_an_older_release() -> None:
    unfit = await probed(Answering(refusal=OLDER))
    assert unfit == ({N1: f"runs a release that does not know groups ({OLDER.message})"}, {})


async def test_a_member_in_interval_mode_is_refused() -> None:
    unfit = await probed(Answering(refusal=UNKNOWN_GROUP, durability=INTERVAL))
    assert unfit == ({N1: "acknowledges before it syncs ([wal] durability)"}, {})


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Answering(node="n2", refusal=UNKNOWN_GROUP), "n2 answers at 127.0.0.1:"),
        (Answering(refusal=WrongClusterError("this node belongs to c2")), "this node belongs to c2"),
    ],
)
async def test_a_member_at_whose_address_another_node_answers_is_unknown(node: Answering, reason: str) -> None:
    unfit = await probed(node)
    assert unfit.refusing == {}
    assert reason in unfit.silent[N1]


async def test_a_member_that_does_not_answer_is_unknown() -> None:
    with patched(probe, _SECONDS=0.02):
        unfit = await probed(Answering())
    assert unfit.silent[N1].startswith("no answer from 127.0.0.1:")
    async with listening(Answering()) as address:
        pass
    unfit = await find_unfit(RealNetwork(), ClusterId("c1"), {N1: address})
    assert unfit.silent[N1].startswith(f"no answer from {address}:")


async def test_a_group_is_placed_only_when_each_member_has_answered(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        await group.caught_up()
        await group.stop("n3")
        client = group.client()
        await client.create_topic("one")  # A leader without n3 is known.
        refused: ViewstampError = NotLeaderError("nobody was asked yet")
        while isinstance(refused, NotLeaderError | NoQuorumError):
            async with call(group, (await group.leader()).options.node) as caller:
                fields = {"streams": ["s1"], "founders": ["n1", "n2"], "since": 0}
                refused = error_from((await caller.ask(FrameKind.PLACE_GROUP, **fields)).body)
        assert isinstance(refused, UnavailableError)
        assert "no group was placed: n3: no answer from" in refused.message
        assert "members remove" in refused.remedy
        assert await client.list_groups() == []
        await group.run("n3")
        placed = await client.place_group("s1", founders=["n1", "n2"])
        assert placed.founders == {name: group.members[NodeId(name)] for name in ("n1", "n2")}
        again = await group.client(seed=2).place_group("s1")
        assert (again.id, again.streams, again.founders) == (placed.id, ("s1",), placed.founders)
        with pytest.raises(RequestError, match="the name 's1' belongs to group"):
            await client.place_group("s1", founders=["n3"])
        assert [each.id for each in await client.list_groups()] == [placed.id]
        with pytest.raises(RequestError, match="there is no group 99"):
            await client.cancel_group(99)
        await wait_for(lambda: placed.id in group.nodes[N1].groups, group.journal.tail)
        with pytest.raises(RequestError, match=f"group {placed.id} is established"):
            await client.cancel_group(placed.id)
        async with call(group, greet=False) as caller:
            await caller.hello(group=placed.id, version=3)
            for kind, fields in (
                (FrameKind.PLACE_GROUP, {"streams": ["s2"], "founders": [], "since": 0}),
                (FrameKind.CANCEL_GROUP, {"group": placed.id}),
                (FrameKind.LIST_GROUPS, {}),
            ):
                answer = await caller.ask(kind, **fields)
                assert "groups are placed in group 0" in answer.body["message"]


async def test_groups_need_a_synced_log_and_with_access_control_an_administrator(tmp_path: Path) -> None:
    async with Group(tmp_path, 1, wal=replace(SMALL, sync_seconds=0.01)) as group:
        await group.run()
        with pytest.raises(RequestError, match=r"n1: acknowledges before it syncs"):
            await group.client().place_group("s1")
    async with Group(tmp_path / "other", 1) as group:
        await group.run()
        client = group.client()
        await client.create_token("reader", ["read"])
        placed = await client.place_group("s1")
        assert (await client.list_audit())[-1][3:] == ("group place", f"{placed.id}: s1")
        _, text = await client.create_token("ops", ["administer"])
        with pytest.raises(AccessDeniedError, match="has no token"):
            await client.place_group("s2")
        admin = group.client(token=text)
        second = await admin.place_group("s2")
        assert [each.id for each in await admin.list_groups()] == [placed.id, second.id]
