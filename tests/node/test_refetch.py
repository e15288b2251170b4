"""Batches that other members send to a repair are checked before they are used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node import group as harness
from tests.node.group import CLUSTER, Group
from tests.node.test_repair import fill
from tests.wal.logs import make_batch, make_batches
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import PeerError, TrimmedError
from viewstamp.host.interfaces import Connection
from viewstamp.host.network import RealNetwork
from viewstamp.ids import Index, NodeId
from viewstamp.node.peers.peer_client import PeerSession
from viewstamp.node.repair.refetch import GoneError, Refetcher, RepairProgress, check_batches
from viewstamp.node.repair.repair import UNKNOWN_END, recovering_pair
from viewstamp.wal.control_file import ControlState
from viewstamp.wire.batch import Batch
from viewstamp.wire.frame import PROTOCOL_VERSION, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.peer_requests import ReadLog

HISTORY = TermHistory(((0, 1), (1, 1), (3, 20)))
N9 = NodeId("n9")


def test_batches_that_fit_are_accepted() -> None:
    check_batches(make_batches(10, 5, count=2), 10, 20, HISTORY, N9)
    check_batches([make_batch(20, 4, term=3)], 20, 30, HISTORY, N9)


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([], "sent no records"),
        (make_batches(11, 2), "expected records from index 10 on"),
        ([make_batch(10), make_batch(12)], "expected records from index 11 on"),
        (make_batches(10, 11), "up to 19"),
        ([make_batch(10, term=3)], "history has term 1"),
        ([make_batch(10, term=2)], "history has term 1"),
    ],
)
def test_batches_that_contradict_the_lost_ones_are_refused(batches: list[Batch], reason: str) -> None:
    with pytest.raises(PeerError, match=reason):
        check_batches(batches, 10, 20, HISTORY, N9)


def test_a_batch_that_reaches_into_the_next_term_is_refused() -> None:
    with pytest.raises(PeerError, match="history has term 1"):
        check_batches([make_batch(18, 4)], 18, 30, HISTORY, N9)


def state(**changes: object) -> ControlState:
    values: dict[str, object] = {"cluster_id": "c1", "node_id": "n1", "incarnation": "i", "history": HISTORY.starts}
    return ControlState(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "pair"),
    [(15, (1, 15)), (20, (3, 20)), (27, (3, 27)), (None, (3, UNKNOWN_END))],
)
def test_the_pair_is_the_one_that_the_node_may_have_advertised(end: int | None, pair: tuple[int, int]) -> None:
    assert recovering_pair(state(), end) == pair


def test_a_stored_pair_survives_later_losses() -> None:
    """A recovering node promises nothing new, and its cut log shows less than it had promised."""
    assert recovering_pair(state(recovering_until=(3, 25)), 12) == (3, 25)
    assert recovering_pair(state(recovering_until=(3, 25)), None) == (3, 25)


class LyingPeer:
    """A member that answers READ_LOG with arbitrary data."""

    def __init__(self, answer: Callable[[dict[str, int]], bytes]) -> None:
        self._answer = answer
        self._decoder = FrameDecoder()
        self._connection: Connection | None = None

    def accept(self, connection: Connection) -> LyingPeer:
        self._connection = connection
        return self

    def on_bytes(self, data: bytes) -> None:
        assert self._connection is not None
        for frame in self._decoder.feed(data):
            if frame.kind == FrameKind.HELLO:
                limits = {"record_bytes_max": 1, "batch_bytes_max": 1}
                welcome = {"cluster": CLUSTER, "node": "n0", "version": PROTOCOL_VERSION, "limits": limits}
                self._connection.send(encode_frame(FrameKind.WELCOME, welcome))
            elif frame.kind == FrameKind.READ_LOG:
                self._connection.send(encode_frame(FrameKind.OK, {"id": frame.body["id"]}, [self._answer(frame.body)]))

    def on_closed(self, error: BaseException | None) -> None:
        """Does nothing: the test ends the connection itself."""


@pytest.mark.parametrize(
    "lie",
    [
        lambda _, __: b"",
        lambda _, __: b"rot" * 100,
        lambda start, term: forged(start, term + 6),
        lambda *at: rotten(*at),
    ],
    ids=["nothing", "rot", "another term", "a wrong bit"],
)
async def test_a_repair_skips_a_peer_that_sends_wrong_batches(tmp_path: Path, lie: Callable[[int, int], bytes]) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        await fill(group, 4)
        await group.caught_up()
        node = group.nodes[NodeId("n1")]
        assert node.replica is not None
        history, end = node.replica.raft.core.history, node.replica.raft.core.log.commit_end
        await group.stop("n3")
        network, term = RealNetwork(), history.term_at(Index(1))  # Above 1 if the first election had no winner.
        liar = LyingPeer(lambda body: lie(body["start"], term))
        listener = await network.listen("127.0.0.1:0", liar.accept)
        refetcher = Refetcher(
            {NodeId("n0"): listener.address, NodeId("n1"): group.board.ports[group.members[NodeId("n1")]]},
            generation=0,
            me=NodeId("n3"),
            node=NodeId("n3"),
            hello=hello_of(group, "n3"),
            address_of=lambda _: None,
            network=network,
            progress=(progress := RepairProgress(sentence="")),
            log=group.journal.logger(),
        )
        batches = await refetcher.fetch(1, end, history)
        refetcher.close()
        check_batches(batches, 1, end, history, N9)
        assert progress.source == "n1"
        await listener.close()


def forged(start: int, term: int) -> bytes:
    return bytes(make_batch(start, term=term).buffer)


def rotten(start: int, term: int) -> bytes:
    """Return a batch that fits except for one flipped bit of its value."""
    data = bytearray(forged(start, term))
    data[-1] ^= 1
    return bytes(data)


def hello_of(group: Group, name: str) -> dict[str, object]:
    """Return the HELLO fields of a stopped member."""
    leader = group.nodes[NodeId("n1")]
    assert leader.group.parts is not None
    incarnation = dict(leader.group.parts.log_store.state.peers)[name]
    return {"cluster": CLUSTER, "node": name, "incarnation": incarnation, "version": PROTOCOL_VERSION}


async def test_only_committed_batches_are_sent_and_trimmed_ones_are_reported_as_trimmed(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        await fill(group, 4)
        await group.caught_up()
        node = group.nodes[NodeId("n1")]
        assert node.replica is not None
        end = node.replica.raft.core.log.commit_end
        await group.stop("n3")
        session = await PeerSession.open(
            RealNetwork(), group.board.ports[group.members[NodeId("n1")]], NodeId("n1"), hello_of(group, "n3")
        )

        async def ask(start: int, stop: int) -> list[Batch]:
            frame = await session.ask(ReadLog(start=start, end=stop, bytes_max=1 << 20))
            return Batch.decode_all(bytes(frame.payload))

        assert [batch.end for batch in await ask(1, end)][-1] == end
        assert (await ask(2, 3))[-1].end == 3
        with pytest.raises(PeerError, match="are known to be committed here"):
            await ask(1, end + 1)
        with pytest.raises(TrimmedError):
            await ask(0, end)
        session.close()


def refetcher_of(group: Group, addresses: dict[NodeId, str], *, generation: int) -> Refetcher:
    """Return the refetcher of n3, which knows the members of ``addresses`` by the membership of that generation."""
    return Refetcher(
        addresses,
        generation=generation,
        me=NodeId("n3"),
        node=NodeId("n3"),
        hello=hello_of(group, "n3"),
        address_of=lambda _: None,
        network=group.board.network("n3"),
        progress=RepairProgress(sentence=""),
        log=group.journal.logger(),
    )


async def test_a_repair_reports_and_does_not_wait_when_all_members_have_dropped_the_batches(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        await fill(group, 2)
        await group.caught_up()
        await group.stop("n3")
        refetcher = refetcher_of(group, {NodeId("n1"): group.members[NodeId("n1")]}, generation=0)
        with pytest.raises(GoneError):
            await refetcher.fetch(0, 2, HISTORY)
        refetcher.close()


async def test_a_repair_does_not_wait_for_a_member_that_was_removed_meanwhile(tmp_path: Path) -> None:
    """The damaged member knows an old membership. The members that answer have replaced n9, which never answers."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        await fill(group, 2)
        await group.caught_up()
        await group.stop("n3")
        refetcher = refetcher_of(group, {NodeId("n1"): group.members[NodeId("n1")], N9: "127.0.0.1:1"}, generation=-1)
        with pytest.raises(GoneError):
            async with asyncio.timeout(harness.PATIENCE_SECONDS):
                await refetcher.fetch(0, 2, HISTORY)
        refetcher.close()
