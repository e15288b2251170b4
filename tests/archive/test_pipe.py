"""The messages between a node and its archive process."""

from __future__ import annotations

import socket

import pytest

from viewstamp.archive.pipe import receive, send


def test_a_message_is_received_as_it_was_sent() -> None:
    left, right = socket.socketpair()
    with left, right:
        send(left, {"call": "add", "end": 7}, [b"one", memoryview(b"two")])
        send(left, {})
        assert receive(right) == ({"call": "add", "end": 7}, bytearray(b"onetwo"))
        assert receive(right) == ({}, bytearray())


@pytest.mark.parametrize("cut", range(1, 12))
def test_an_end_within_a_message_is_an_end(cut: int) -> None:
    left, right = socket.socketpair()
    whole, sink = socket.socketpair()
    with right, whole, sink:
        send(whole, {"a": 1}, [b"xy"])
        left.sendall(sink.recv(100)[:cut])
        left.close()
        assert receive(right) is None


@pytest.mark.parametrize("packed", [b"\xc1", b"\x07", b"\x81\xa1"])
def test_bytes_that_are_no_message_are_refused(packed: bytes) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(len(packed).to_bytes(4, "little") + bytes(4) + packed)
        with pytest.raises(ValueError, match="message"):
            receive(right)
