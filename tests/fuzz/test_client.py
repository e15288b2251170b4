"""For any answer of a node, the client gets a result or one of our errors, or the connection ends."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.test_connection import Pipe, runtime
from tests.fuzz.material import DEEP, altered, only, packables, spoilt, tries
from tests.wire.test_requests import a_body
from viewstamp.client.checks import read_receipt, read_results
from viewstamp.client.connection import NodeConnection
from viewstamp.client.link import Link
from viewstamp.errors import FrameError, PeerError, ViewstampError
from viewstamp.wire.answers import error_from, is_answer
from viewstamp.wire.frame import PROTOCOL_VERSION, FrameKind, encode_frame
from viewstamp.wire.identity_proof import CHALLENGE_BYTES
from viewstamp.wire.requests import REQUESTS

WELCOME = {
    "cluster": "c1",
    "node": "n1",
    "version": PROTOCOL_VERSION,
    "durability": "synced",
    "limits": {"record_bytes_max": 1000, "batch_bytes_max": 10_000},
}
TOPIC = {
    "name": "t",
    "id": 1,
    "first_position": 1,
    "last_position": 5,
    "bytes": 9,
    "retain_bytes": 0,
    "retain_seconds": 0,
}
COMMIT = {"sink": "s", "batch": 1, "duplicate": False, "ranges": [["t", 1, 5]], "index": 7, "log_time": 8}
ANSWERS: dict[FrameKind, dict[str, Any]] = {
    FrameKind.OPEN_SESSION: {"session": 3},
    FrameKind.OUTCOME: {"receipt": [1, 2, 3, 4, 5], "results": [b"\x91\xc0"]},
    FrameKind.CREATE_TOPIC: {"topic": TOPIC},
    FrameKind.DESCRIBE_TOPIC: {"topic": TOPIC, "applied_index": 9},
    FrameKind.LIST_TOPICS: {"topics": [TOPIC], "applied_index": 9},
    FrameKind.READ: {"last_position": 5, "applied_index": 9},
    FrameKind.STATUS: {"status": {"id": "n1"}},
    FrameKind.QUERY: {"result": b"\x91\xc0", "applied_index": 9, "age": 0.5},
    FrameKind.WATCH: {"changes": [[1, 2, "a", "k", "m", b"", b""]], "index": 7},
    FrameKind.COMMIT: {"commit": COMMIT},
    FrameKind.SPLIT_TOPIC: {"positions": [1, 2]},
}
ERROR = {"error": "NotLeaderError", "message": "no", "remedy": "ask", "leader": "n2", "address": "a:1"}


def frames_of(kind: int, body: Any, payload: bytes = b"") -> bytes:
    return b"".join(encode_frame(kind, body, [payload]))


async def hear(data: bytes, kind: FrameKind | None) -> Any:
    """Send ``data`` to a link that waits for an answer to ``kind``, or for its welcome if None; return the outcome.

    As in a network, an exception from ``on_bytes`` ends the connection, and is the reason that waiters get.
    """
    running = runtime()
    link = Link(running, "n1:1", frame_bytes_max=1 << 16, silence=2.0)
    link.accept(Pipe())
    asking: asyncio.Future[Any]
    if kind is None:
        asking = asyncio.ensure_future(link.greet("c1", None, bytes(CHALLENGE_BYTES)))
    else:
        asking = asyncio.ensure_future(
            NodeConnection(running, link).ask(REQUESTS[kind](**a_body(REQUESTS[kind])), timeout=60.0)
        )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reason: BaseException | None = None
    try:
        link.on_bytes(data)
    except Exception as error:
        reason = error
    link.on_closed(reason)
    try:
        return await asking
    finally:
        assert reason is None or isinstance(reason, ViewstampError), repr(reason)


def ask(data: bytes, kind: FrameKind | None) -> Any:
    return only(ViewstampError, lambda: asyncio.run(hear(data, kind)))


@tries(80)
@given(st.sampled_from(sorted(ANSWERS)), st.data())
def test_an_answer_fits_its_request_or_ends_the_connection(kind: FrameKind, data: st.DataObject) -> None:
    body = data.draw(altered({"id": 1, **ANSWERS[kind]}))
    frame = ask(frames_of(FrameKind.OK, body), kind)
    if frame is not None:
        assert is_answer(kind, frame.body)


@tries(60)
@given(altered(WELCOME))
def test_a_welcome_is_one_or_ends_the_connection(body: Any) -> None:
    ask(frames_of(FrameKind.WELCOME, body), None)


@tries(100)
@given(
    st.sampled_from(sorted(FrameKind)) | st.integers(0, 255), altered({"id": 1, **ERROR}) | packables(), st.booleans()
)
def test_any_frame_at_any_time_is_an_answer_or_ends_the_connection(kind: int, body: Any, greeted: bool) -> None:
    ask(frames_of(kind, body), FrameKind.STATUS if greeted else None)


@tries(60)
@given(spoilt(frames_of(FrameKind.OK, {"id": 1, **ANSWERS[FrameKind.LIST_TOPICS]}) * 2))
def test_spoilt_bytes_end_the_connection(data: bytes) -> None:
    ask(data, FrameKind.LIST_TOPICS)


@tries(100)
@given(altered(ERROR))
def test_an_error_that_a_node_sends_is_one_of_ours(body: Any) -> None:
    if isinstance(body, dict):
        error = only((PeerError, FrameError), lambda: error_from(body))
        assert error is None or isinstance(error, ViewstampError)


@pytest.mark.parametrize("kind", [FrameKind.OK, FrameKind.ERROR, FrameKind.WELCOME, FrameKind.REFUSED])
@pytest.mark.parametrize("at", ["id", "topics", "error", "message", "version", "node", "limits"])
def test_an_answer_nested_a_thousand_deep_ends_the_connection(kind: FrameKind, at: str) -> None:
    body = {"id": 1, **ERROR, **WELCOME, "topics": []}
    body[at] = msgpack.unpackb(DEEP[20:])
    ask(frames_of(kind, body), FrameKind.LIST_TOPICS)
    ask(frames_of(kind, body), None)


@tries(80)
@given(altered([1, 2, 3, 4, 5]), altered([b"\x91\xc0"]))
def test_a_receipt_or_a_result_that_is_none_is_refused(receipt: Any, results: Any) -> None:
    """Decoding raises a ValueError, and the session then ends the connection."""
    for read, value in ((read_receipt, receipt), (read_results, results)):
        refusal = ""
        try:
            read(value)
        except ValueError as error:
            refusal = str(error)
        assert len(refusal) < 1000
