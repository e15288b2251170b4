"""Any answer of a member to another one that repairs itself or catches up is used, refused, or requested again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.material import SECONDS_MAX, altered, packables, spoilt, tries
from tests.fuzz.test_disk import two_snapshots
from tests.fuzz.test_wire import sealed_batch
from tests.wal.logs import make_batches
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import ConfigError, CorruptionError, PeerError, StorageFullError, TrimmedError
from viewstamp.host.interfaces import Buffer, Connection, ConnectionHandler, Listener, Network
from viewstamp.ids import ClusterId, NodeId
from viewstamp.node.peers.peer_client import PeerSession
from viewstamp.node.repair.refetch import GoneError, Refetcher, RepairProgress
from viewstamp.node.snapshots.store import SnapshotStore
from viewstamp.node.snapshots.transfer import receive_piece
from viewstamp.sim import loop as sim_loop
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wire.frame import PROTOCOL_VERSION, Frame, FrameDecoder, FrameKind, encode_frame

PEER = NodeId("n2")
HELLO: dict[str, object] = {"cluster": "c", "node": "n1", "incarnation": "i", "version": 1, "address": ""}
WELCOME = {
    "cluster": "c",
    "node": "n2",
    "version": PROTOCOL_VERSION,
    "limits": {"record_bytes_max": 1, "batch_bytes_max": 1},
}
REFUSED = (OSError, PeerError, TrimmedError, TimeoutError, ConfigError, CorruptionError)
BATCHES = make_batches(5, 4, count=2)
HISTORY = TermHistory([(0, 1), (1, 1)])
Answer = Callable[[Frame], list[Buffer]]


class _Answering(Connection):
    """The far end of a connection: answers each frame by ``answer``."""

    peer = "n2"

    def __init__(self, accept: Callable[[Connection], ConnectionHandler], answer: Answer) -> None:
        self._decoder = FrameDecoder()
        self._answer = answer
        self._is_over = False
        self._early: list[bytes] = []
        self._handler: ConnectionHandler | None = None
        self._handler = accept(self)
        for data in self._early:
            self._tell(data)

    def send(self, buffers: Sequence[Buffer]) -> None:
        for frame in self._decoder.feed(b"".join(buffers)):
            data = b"".join(self._answer(frame))
            if self._handler is None:
                self._early.append(data)
            else:
                asyncio.get_running_loop().call_soon(self._tell, data)

    def _tell(self, data: bytes) -> None:
        assert self._handler is not None
        if self._is_over:
            return
        try:
            self._handler.on_bytes(data)
        except Exception as error:  # as in the network: an exception of a handler ends its connection
            self._is_over = True
            self._handler.on_closed(error)

    @property
    def unsent_bytes(self) -> int:
        return 0

    async def drain(self) -> None:
        return

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_over and self._handler is not None:
            self._is_over = True
            self._handler.on_closed(None)


class _OnePeer(Network):
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def connect(self, address: str, accept: Callable[[Connection], ConnectionHandler]) -> Connection:
        return _Answering(accept, self._answer)

    async def listen(self, address: str, accept: Callable[[Connection], ConnectionHandler]) -> Listener:
        raise NotImplementedError


def answering(welcome: Any, kind: int, body: Any, payload: bytes) -> Answer:
    """Return a function that answers HELLO with ``welcome``, and requests with ``body`` under their id."""

    def answer(frame: Frame) -> list[Buffer]:
        if frame.kind == FrameKind.HELLO:
            return encode_frame(FrameKind.WELCOME, welcome)
        told = {"id": frame.body["id"], **body} if isinstance(body, dict) else body
        return encode_frame(kind, told, [payload])

    return answer


def ask(answer: Answer, work: Callable[[Refetcher, SnapshotStore, PeerSession], Any]) -> Any:
    """Make requests as a node would, for some virtual seconds; return the result, or the error of a refusal."""

    async def run() -> Any:
        disk = SimulatedDisk()
        disk.make_directory("/data/snapshots")
        store = SnapshotStore.open(disk, "/data/snapshots", ClusterId("c"))
        network = _OnePeer(answer)
        progress = RepairProgress(sentence="")
        refetcher = Refetcher(
            {PEER: "n2:1"},
            generation=0,
            me=NodeId("n1"),
            node=NodeId("n1"),
            hello=HELLO,
            address_of=lambda _: None,
            network=network,
            progress=progress,
            log=structlog.get_logger(),
        )
        try:
            session = await PeerSession.open(network, "n2:1", PEER, HELLO)
            async with asyncio.timeout(SECONDS_MAX):
                return await work(refetcher, store, session)
        except (*REFUSED, GoneError, StorageFullError) as error:
            return error
        finally:
            refetcher.close()

    with structlog.testing.capture_logs():
        return sim_loop.run(run())


def payloads(data: bytes) -> st.SearchStrategy[bytes]:
    return st.just(data) | spoilt(data) | st.binary(max_size=100)


@tries(50)
@given(st.data())
def test_a_members_answer_about_its_log_is_checked(data: st.DataObject) -> None:
    payload = b"".join(bytes(batch.buffer) for batch in BATCHES)
    sent = data.draw(payloads(payload) | spoilt(bytes(BATCHES[0].buffer)).map(sealed_batch))
    kind = data.draw(
        st.sampled_from([FrameKind.OK, FrameKind.OK, FrameKind.ERROR, FrameKind.REFUSED, FrameKind.WELCOME, 99])
    )
    body = data.draw(st.just({}) | packables())
    welcome = data.draw(st.just(WELCOME) | altered(WELCOME))
    found = ask(answering(welcome, kind, body, sent), lambda refetcher, _, __: refetcher.fetch(5, 13, HISTORY))
    if isinstance(found, list):
        assert [batch.first_index for batch in found] == [batch.first_index for batch in BATCHES][: len(found)]
        assert found[-1].end <= 13


@tries(50)
@given(st.data())
def test_a_members_snapshot_chunks_are_checked(data: st.DataObject) -> None:
    whole = two_snapshots()[0]
    body = data.draw(altered({"size": len(whole), "identity": 7}) | st.just({"size": len(whole), "identity": 7}))
    sent = data.draw(payloads(whole))

    async def receive(_: Refetcher, store: SnapshotStore, session: PeerSession) -> None:
        incoming = await store.receive(7, 2)
        try:
            for _ in range(5):
                if incoming.is_complete:
                    break
                await receive_piece(session, incoming)
            if incoming.is_complete:
                await incoming.finish()
        finally:
            await incoming.close()

    ask(answering(WELCOME, FrameKind.OK, body, sent), receive)


@tries(50)
@given(altered({"snapshots": [{"index": 6, "term": 2, "bytes": 10, "created": 1.5}]}), st.binary(max_size=50))
def test_a_list_of_snapshots_that_is_none_is_refused(body: Any, payload: bytes) -> None:
    answer = answering(WELCOME, FrameKind.OK, body, payload)
    ask(answer, lambda refetcher, store, _: refetcher.fetch_snapshot(store, 5, 20))
    ask(answer, lambda refetcher, store, _: refetcher.has(5, 20))
