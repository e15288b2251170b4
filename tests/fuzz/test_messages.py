"""Consensus messages, term histories and membership records from any bytes: they are valid, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.material import DEEP, altered, at_most, numbers, only, packables, spoilt, tries
from tests.node.test_codec import messages, sent, shown
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import Message
from viewstamp.consensus.term_history import TermHistory, common_point
from viewstamp.errors import FrameError, PeerError
from viewstamp.ids import Index, NodeId
from viewstamp.node.peers.codec import decode_message
from viewstamp.wire.frame import Frame, FrameKind


def as_sent(body: object, payload: bytes = b"") -> Frame:
    """Return a frame as a decoder returns it: msgpack turns tuples into lists."""
    return Frame(FrameKind.PEER, msgpack.unpackb(msgpack.packb(body), strict_map_key=False), memoryview(payload))


@tries(120)
@given(messages(), st.data())
def test_an_altered_message_is_another_message_or_refused(message: Message, data: st.DataObject) -> None:
    frame = sent(message)
    body = data.draw(altered(frame.body))
    payload = data.draw(spoilt(bytes(frame.payload)) | st.just(bytes(frame.payload)))
    found = only(FrameError, lambda: decode_message(as_sent(body, payload)))
    if found is not None:
        assert shown(decode_message(sent(found))) == shown(found), "it is encoded again unchanged"


@tries(100)
@given(packables() | st.lists(packables(), max_size=8), st.binary(max_size=200))
def test_anything_else_is_no_message(body: Any, payload: bytes) -> None:
    only(FrameError, lambda: decode_message(as_sent(body, payload)))


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_message_nested_a_thousand_deep_is_no_message(at: int) -> None:
    """The error contains the value, and must not fail because of it."""
    deep = msgpack.unpackb(DEEP)
    body: list[object] = [4, "n2", "n1", 3, [[0, 1]], 5]
    body[at] = deep
    frame = Frame(FrameKind.PEER, body, memoryview(b""))
    assert only(FrameError, lambda: decode_message(frame)) is None


@pytest.mark.parametrize("size", [1000, 50_000])
def test_a_history_of_any_length_takes_memory_for_itself_only(size: int) -> None:
    body = [list(each) for each in zip(range(size), range(1, size + 1), strict=True)]
    with at_most(size * 1000):
        history = TermHistory((term, begin) for term, begin in body)
    assert history.last_term == size - 1


@tries(150)
@given(st.lists(st.tuples(numbers(), numbers()), max_size=8), numbers(), numbers())
def test_any_pairs_are_a_history_that_rises_or_none(pairs: list[tuple[int, int]], end: int, other: int) -> None:
    history = only(PeerError, lambda: TermHistory(pairs))
    if history is None:
        return
    terms, begins = [start.term for start in history.starts], [start.begin for start in history.starts]
    assert terms == sorted(set(terms))
    assert begins == sorted(begins)
    own = TermHistory([(0, 1), (1, 5), (4, 9)])
    for leader, member in ((history, own), (own, history), (history, history)):
        only(PeerError, lambda a=leader, b=member: common_point(a, Index(end), b, Index(other)))  # type: ignore[misc]


MEMBERSHIP = Membership({NodeId("n1"): "a:1", NodeId("n2"): "b:2"}, {NodeId("l1"): "c:3"}, 4).encode()


def as_json(value: Any) -> bytes:
    """Return ``value`` as JSON; if it cannot be JSON, as its text."""
    return json.dumps(value, default=repr, skipkeys=True).encode()


@tries(120)
@given(spoilt(MEMBERSHIP) | altered(json.loads(MEMBERSHIP)).map(as_json))
def test_a_membership_record_is_one_or_refused(value: bytes) -> None:
    found = only(PeerError, lambda: Membership.decode(value))
    if found is not None:
        assert Membership.decode(found.encode()) == found


@pytest.mark.parametrize("name", ["voters", "learners", "generation"])
@pytest.mark.parametrize(
    "value",
    [None, 1, "text", [], [["n1", "a:1"]], {"n1": 7}, {"n1": None}, {"n1": ["a"]}, -1, 2.5, 1e400, True],
    ids=str,
)
def test_a_membership_of_other_types_is_refused(name: str, value: object) -> None:
    """Node ids and addresses are text; other values would fail later, when a link is opened, on every member."""
    fields = {**json.loads(MEMBERSHIP), name: value}
    found = only(PeerError, lambda: Membership.decode(json.dumps(fields).encode()))
    if found is not None:
        assert all(type(text) is str for each in (found.voters, found.learners) for text in (*each, *each.values()))
        assert type(found.generation) is int


def test_a_membership_nested_ten_thousand_deep_is_refused() -> None:
    nested = b'{"voters": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    assert only(PeerError, lambda: Membership.decode(nested)) is None
