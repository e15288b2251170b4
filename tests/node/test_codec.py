"""Consensus messages survive encoding unchanged, and a frame with other contents is rejected when it is decoded."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.consensus.messages import MESSAGES, NUMBER_END, AppendRequest, BatchesRead, Message
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import FrameError
from viewstamp.ids import Index, NodeId, Position, Term
from viewstamp.node.peers.codec import decode_message, encode_message
from viewstamp.wire.batch import Batch, build_batch
from viewstamp.wire.frame import Frame, FrameDecoder, FrameKind, encode_frame

SENT = [kind for kind in MESSAGES if kind is not BatchesRead]
"""All messages except BatchesRead, which a node sends only to its own core."""

numbers = st.integers(min_value=0, max_value=NUMBER_END - 1)
names = st.text(min_size=1, max_size=20).map(NodeId)


@st.composite
def histories(draw: st.DrawFn) -> TermHistory:
    terms = sorted(draw(st.sets(st.integers(1, 2**40), max_size=8)))
    begins = sorted(draw(st.lists(st.integers(1, 2**40), min_size=len(terms), max_size=len(terms))))
    return TermHistory([(0, 1), *zip(terms, begins, strict=True)])


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, ...]:
    made = []
    index = draw(st.integers(1, 2**40))
    for values in draw(st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=5), max_size=4)):
        batch = build_batch(values)
        batch.stamp(
            term=Term(3), first_index=Index(index), previous_term=Term(2), log_time=7, first_position=Position(0)
        )
        index = batch.end
        made.append(batch)
    return tuple(made)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(SENT))
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "NodeId": names,
        "Term": numbers,
        "Index": numbers,
        "int": numbers,
        "bool": st.booleans(),
        "TermHistory": histories(),
        "tuple[Batch, ...]": batches(),
    }
    return kind(**{field.name: draw(strategies[str(field.type)]) for field in dataclasses.fields(kind)})


def shown(message: Message) -> dict[str, object]:
    """Return the fields of a message, with batches as bytes."""
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
    if isinstance(message, AppendRequest):
        fields["batches"] = [bytes(batch.buffer) for batch in message.batches]
    return fields


def sent(message: Message) -> Frame:
    (frame,) = FrameDecoder().feed(b"".join(encode_message(message)))
    return frame


@given(messages())
def test_every_message_arrives_as_it_was_sent(message: Message) -> None:
    frame = sent(message)
    assert frame.kind == FrameKind.PEER
    received = decode_message(frame)
    assert type(received) is type(message)
    assert shown(received) == shown(message)


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_every_kind_of_message_can_be_sent(kind: type[Message]) -> None:
    """The property above draws kinds at random; this test names the kind that fails."""
    values: dict[str, object] = {
        "NodeId": NodeId("n1"),
        "Term": Term(1),
        "Index": Index(1),
        "int": 1,
        "bool": True,
        "TermHistory": TermHistory([(0, 1), (1, 1)]),
        "tuple[Batch, ...]": (),
    }
    message = kind(**{field.name: values[str(field.type)] for field in dataclasses.fields(kind)})  # type: ignore[arg-type]
    assert shown(decode_message(sent(message))) == shown(message)


@given(messages(), st.data())
def test_a_field_of_another_type_is_no_message(message: Message, data: st.DataObject) -> None:
    """Such a field must not reach the core, because comparing a string with a number there would stop the node."""
    body = list(sent(message).body)
    at = data.draw(st.integers(0, len(body) - 1))
    right = body[at]
    wrong = data.draw(
        st.one_of(
            st.none(), st.booleans(), st.text(), st.integers(-9, -1), st.floats(), st.lists(st.text(), min_size=1)
        )
    )
    if type(wrong) is type(right) and not isinstance(wrong, int | list):
        return
    body[at] = wrong
    if at and type(wrong) is bool and type(right) is bool:
        return
    with pytest.raises(FrameError):
        decode_message(again(body, sent(message).payload))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
def test_anything_else_is_no_message(body: object) -> None:
    try:
        message = decode_message(again(body, b""))
    except FrameError:
        return
    assert shown(decode_message(sent(message))) == shown(message)


def test_a_message_that_a_node_sends_to_itself_is_rejected_from_a_connection() -> None:
    message = BatchesRead(
        source=NodeId("n1"),
        target=NodeId("n1"),
        term=Term(1),
        member=NodeId("n2"),
        number=1,
        start=Index(1),
        batches=(),
    )
    with pytest.raises(FrameError):
        decode_message(sent(message))


@given(messages(), st.data())
def test_a_damaged_batch_is_no_message(message: Message, data: st.DataObject) -> None:
    frame = sent(message)
    if not len(frame.payload):
        return
    payload = bytearray(frame.payload)
    bit = data.draw(st.integers(0, 8 * len(payload) - 1))
    payload[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameError):
        decode_message(again(frame.body, bytes(payload)))


def again(body: object, payload: bytes | memoryview) -> Frame:
    (frame,) = FrameDecoder().feed(b"".join(encode_frame(FrameKind.PEER, body, [payload])))
    return frame
