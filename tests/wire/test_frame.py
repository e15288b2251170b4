"""Frames: any split of the bytes gives the same frames, and any other bytes are a FrameError."""

from __future__ import annotations

import struct
import tracemalloc

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from viewstamp.errors import FrameError
from viewstamp.wire.batch import Buffer
from viewstamp.wire.frame import FRAME_BYTES_MAX, FrameDecoder, FrameKind, TooLarge, encode_frame

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8) | st.binary(max_size=8)
BODIES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
FRAMES = st.lists(st.tuples(st.integers(0, 255), BODIES, st.lists(st.binary(max_size=50), max_size=3)), max_size=5)
Plain = tuple[int, object, bytes]


def join(buffers: list[Buffer]) -> bytes:
    return b"".join(buffers)


def raw(kind: int, packed: bytes, payload: bytes = b"") -> bytes:
    """Return a frame with a correct checksum over any body."""
    checked = struct.pack("<B3xII", kind, len(packed), len(payload))
    return b"VSF\x01" + struct.pack("<I", crc32c(checked + packed)) + checked + packed + payload


def decode(*chunks: Buffer, limit: int = FRAME_BYTES_MAX) -> list[Plain]:
    decoder = FrameDecoder(limit)
    return [(frame.kind, frame.body, bytes(frame.payload)) for chunk in chunks for frame in decoder.feed(chunk)]


@given(FRAMES, st.data())
def test_any_split_into_chunks_gives_the_same_frames(
    frames: list[tuple[int, object, list[bytes]]], data: st.DataObject
) -> None:
    stream = b"".join(join(encode_frame(kind, body, payload)) for kind, body, payload in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = [(kind, body, b"".join(payload)) for kind, body, payload in frames]
    assert decode(*chunks) == expected
    assert decode(*map(bytearray, chunks)) == expected
    assert decode(*(memoryview(chunk) for chunk in chunks)) == expected


def test_a_stream_may_come_byte_by_byte() -> None:
    stream = join(encode_frame(FrameKind.APPEND, {"id": 1}, [b"batch"])) + join(encode_frame(FrameKind.OK, {"id": 1}))
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == [
        (FrameKind.APPEND, {"id": 1}, b"batch"),
        (FrameKind.OK, {"id": 1}, b""),
    ]


def test_an_empty_chunk_is_nothing() -> None:
    assert decode(b"", b"") == []


def test_the_layout_is_the_one_that_the_docstring_draws() -> None:
    frame = join(encode_frame(FrameKind.PEER, ["x"], [b"ab", b"c"]))
    packed = msgpack.packb(["x"])
    assert frame[:4] == b"VSF\x01"
    assert frame[8:12] == bytes([FrameKind.PEER, 0, 0, 0])
    assert struct.unpack_from("<II", frame, 12) == (len(packed), 3)
    assert frame[20:] == packed + b"abc"
    assert struct.unpack_from("<I", frame, 4) == (crc32c(frame[8 : 20 + len(packed)]),)


def test_payload_buffers_are_passed_on_uncopied() -> None:
    payload: list[Buffer] = [bytearray(b"x" * 100), memoryview(b"y" * 100)]
    buffers = encode_frame(FrameKind.APPEND, {}, payload)
    assert len(buffers) == 3
    assert buffers[1] is payload[0]
    assert buffers[2] is payload[1]


def test_a_frame_inside_one_chunk_is_a_view_of_it() -> None:
    chunk = join(encode_frame(FrameKind.APPEND, {}, [b"x" * 1000]))
    (frame,) = FrameDecoder().feed(chunk)
    assert frame.payload.obj is chunk


def test_every_single_bit_flip_outside_the_payload_is_detected() -> None:
    """Batches in the payload have their own checksums. A flip is an error at once, or leaves a frame incomplete."""
    good = join(encode_frame(FrameKind.APPEND, {"id": 7}, [b"payload"]))
    for bit in range(8 * (len(good) - len(b"payload"))):
        damaged = bytearray(good)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        decoder = FrameDecoder(1 << 20)
        try:
            frames = decoder.feed(damaged)
        except FrameError:
            continue
        assert frames == []
        assert 12 <= bit >> 3 < 20, f"a flip of bit {bit} went unseen"
        with pytest.raises(FrameError):
            decoder.feed(bytes(1 << 20))


@settings(max_examples=300)
@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4))
def test_garbage_is_a_frame_error_or_not_yet_a_frame_and_nothing_else(chunks: list[bytes]) -> None:
    decoder = FrameDecoder()
    try:
        for chunk in chunks:
            assert decoder.feed(chunk) == []
    except FrameError:
        return
    stream = b"".join(chunks)
    assert b"VSF\x01".startswith(stream) or stream.startswith(b"VSF\x01")


@settings(max_examples=300)
@given(st.binary(max_size=80), st.integers(0, 255))
def test_any_body_whose_checksum_fits_is_msgpack_or_a_frame_error(packed: bytes, kind: int) -> None:
    try:
        ((found, body, payload),) = decode(raw(kind, packed, b"rest"))
    except FrameError:
        return
    assert (found, payload) == (kind, b"rest")
    msgpack.packb(body)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x81\xa1",
        b"\x01\x02",
        b"\xa1\xff",
        b"\x81\x90\x01",
        b"\x81\x80\x01",
        b"\xd6\xff" + b"\xff" * 4,
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000 + b"\x01",
        b"\x81\x01\x02",
    ],
    ids=[
        "empty",
        "reserved byte",
        "cut off",
        "two values",
        "not UTF-8",
        "list as a key",
        "map as a key",
        "timestamp",
        "timestamp out of range",
        "array of 4 billion",
        "map of 4 billion",
        "4 GiB of bytes",
        "100,000 deep",
        "number as a key",
    ],
)
def test_a_body_that_is_no_plain_msgpack_is_a_frame_error(packed: bytes) -> None:
    try:
        ((_, body, _),) = decode(raw(FrameKind.APPEND, packed))
    except FrameError:
        return
    assert packed == b"\xd6\xff" + b"\xff" * 4  # a timestamp extension is msgpack, if none that we send
    assert isinstance(body, msgpack.Timestamp)


def test_a_frame_over_the_limit_is_refused_at_its_header_before_memory_is_taken() -> None:
    header = b"VSF\x01" + bytes(4) + struct.pack("<B3xII", FrameKind.APPEND, 10, 2**32 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match=r"4294967325 bytes is over the limit of 67108864") as caught:
            FrameDecoder().feed(header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    assert "frame_bytes_max" in caught.value.remedy


def test_the_limit_counts_the_whole_frame_and_is_inclusive() -> None:
    frame = join(encode_frame(FrameKind.APPEND, {"id": 1}, [b"x" * 100]))
    assert len(decode(frame, limit=len(frame))) == 1
    with pytest.raises(FrameError):
        decode(frame, limit=len(frame) - 1)


def test_a_bad_frame_takes_the_good_ones_of_its_chunk_with_it() -> None:
    """The connection ends, so its sender has to ask for the outcome of all unanswered requests anyway."""
    decoder = FrameDecoder(200)
    good = join(encode_frame(FrameKind.OK, {"id": 1}))
    for _ in range(2):
        with pytest.raises(FrameError):
            decoder.feed(good + join(encode_frame(FrameKind.OK, {"id": 2}, [b"x" * 500])))


def test_held_bytes_are_bounded_by_the_limit_and_one_chunk() -> None:
    limit = 100_000
    body = join(encode_frame(FrameKind.APPEND, {}, [b"x" * (limit - 100)]))
    stream = body * 5
    decoder = FrameDecoder(limit)
    count = 0
    for at in range(0, len(stream), 7_000):
        count += len(decoder.feed(stream[at : at + 7_000]))
        assert decoder.held <= limit + 7_000
    assert count == 5


def test_a_frame_in_many_chunks_is_joined_once() -> None:
    """Joining at every chunk would be quadratic, because a frame of 64 MiB arrives in a thousand chunks."""
    frame = join(encode_frame(FrameKind.APPEND, {}, [bytes(4 << 20)]))
    decoder = FrameDecoder()
    chunks = [frame[at : at + 4096] for at in range(0, len(frame), 4096)]
    tracemalloc.start()
    try:
        for chunk in chunks[:-1]:
            assert decoder.feed(chunk) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20  # the held chunks exist already; joining half of them takes 2 MiB
    (frame_out,) = decoder.feed(chunks[-1])
    assert len(frame_out.payload) == 4 << 20


def test_another_protocol_on_the_port_is_named() -> None:
    with pytest.raises(FrameError, match="starts with b'GET '") as caught:
        FrameDecoder().feed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert "address" in caught.value.remedy


def test_another_protocol_is_refused_at_its_first_bytes() -> None:
    """If a peer sends four wrong bytes and waits, the decoder must not wait, too."""
    with pytest.raises(FrameError, match="starts with"):
        FrameDecoder().feed(b"Q")
    decoder = FrameDecoder()
    assert decoder.feed(b"VS") == []
    with pytest.raises(FrameError, match="starts with b'VSX'"):
        decoder.feed(b"X")


def test_after_an_error_the_decoder_is_finished() -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameError):
        decoder.feed(bytes(30))
    with pytest.raises(FrameError):
        decoder.feed(join(encode_frame(FrameKind.OK, {})))


@pytest.mark.parametrize("step", [1, 7, 63, 1000, 1 << 20])
def test_a_decoder_that_skips_an_oversized_frame_continues_after_it(step: int) -> None:
    frames = [
        encode_frame(30, {"id": 1, "receipt": None}),
        encode_frame(30, {"id": 2, "receipt": None, "results": [b"x" * 3000]}),
        encode_frame(30, {"id": 3, "receipt": None}, [b"y" * 3000]),
        encode_frame(30, [b"x" * 3000]),
        encode_frame(30, {"id": 4, "receipt": None}),
    ]
    data = b"".join(bytes(buffer) for frame in frames for buffer in frame)
    decoder = FrameDecoder(1000, skips_too_large=True)
    found = [frame for at in range(0, len(data), step) for frame in decoder.feed(data[at : at + step])]
    sizes = [sum(map(len, frame)) for frame in frames]
    assert [frame.body for frame in found] == [
        {"id": 1, "receipt": None},
        TooLarge(sizes[1], 2),
        TooLarge(sizes[2], 3),
        TooLarge(sizes[3], None),
        {"id": 4, "receipt": None},
    ]


def test_a_body_over_its_limit_is_refused_by_its_header_and_a_payload_is_not() -> None:
    """A byte of msgpack can become a map of 64 bytes."""
    decoder = FrameDecoder(1_000_000, body_bytes_max=1000)
    assert len(decoder.feed(join(encode_frame(FrameKind.APPEND, {"id": 1}, [bytes(5000)])))) == 1
    with pytest.raises(FrameError, match="the body of a frame has 5004 bytes, over the limit of 1000"):
        decoder.feed(join(encode_frame(FrameKind.APPEND, [{}] * 5001))[:20])


@pytest.mark.parametrize("step", [7, 1000, 300_000, 10 << 20])
def test_feeding_returns_no_more_frames_than_asked_for_and_keeps_the_others(step: int) -> None:
    frames = [
        encode_frame(FrameKind.APPEND, {"id": each}, [bytes(size)]) for each, size in enumerate((0, 9, 3 << 20, 5))
    ]
    stream = b"".join(map(join, frames)) * 2
    decoder = FrameDecoder()
    found: list[int] = []
    for at in range(0, len(stream), step):
        decoded = decoder.feed(stream[at : at + step], 2)
        while True:
            assert len(decoded) <= 2
            found += [frame.body["id"] for frame in decoded]
            if not decoder.has_more:
                break
            decoded = decoder.feed(b"", 2)
    assert found == [0, 1, 2, 3] * 2
    assert decoder.held == 0


def test_feeding_for_no_frames_only_takes_the_bytes() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(join(encode_frame(FrameKind.STATUS, {"id": 1})), 0) == []
    assert decoder.has_more
    assert [frame.body for frame in decoder.feed(b"", 5)] == [{"id": 1}]
    assert not decoder.has_more


def test_a_large_frame_is_not_held_twice() -> None:
    frame = join(encode_frame(FrameKind.APPEND, {}, [bytes(range(256)) * (32 << 10)]))
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        found = [each for at in range(0, len(frame), 65_536) for each in decoder.feed(frame[at : at + 65_536])]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found[0].payload == frame[-(8 << 20) :]
    assert found[0].payload.readonly
    assert peak < 3 << 20  # The frame's own memory is not Python's, so only the rest is counted.


@pytest.mark.parametrize("size", [(1 << 20) - 100, 1 << 20, (2 << 20) - 100, 2 << 20, (3 << 20) - 100, (4 << 20) + 1])
def test_a_large_frame_of_any_size_has_its_bytes_and_no_others(size: int) -> None:
    payload = (bytes(range(251)) * (size // 251 + 1))[:size]
    stream = join(encode_frame(FrameKind.APPEND, {}, [payload])) + join(encode_frame(FrameKind.STATUS, {"id": 2}))
    decoder = FrameDecoder()
    found = [each for at in range(0, len(stream), 200_000) for each in decoder.feed(stream[at : at + 200_000])]
    assert [frame.kind for frame in found] == [FrameKind.APPEND, FrameKind.STATUS]
    assert found[0].payload == payload
    assert found[0].payload.readonly
    assert decoder.held == 0


def test_a_small_rest_of_a_chunk_does_not_keep_the_chunk() -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        decoder.feed(join(encode_frame(FrameKind.APPEND, {}, [bytes(1 << 20)])) + b"VSF")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.held == 3
    assert held < 100_000


def test_lists_and_maps_have_a_limit_of_their_own_behind_the_first_frame() -> None:
    def decoder() -> FrameDecoder:
        made = FrameDecoder(first_bytes_max=1000)
        assert len(made.feed(join(encode_frame(FrameKind.HELLO, {})))) == 1
        made.believe(structure_bytes_max=1000)
        return made

    plain = {"id": 1, "text": "x" * 70_000, "bytes": bytes(70_000), "list": [1] * 900}
    assert decoder().feed(join(encode_frame(FrameKind.QUERY, plain)))[0].body == plain
    for body in ({**plain, "more": [{}] * 200}, [{}] * 1001, {str(key): 1 for key in range(500)}, {1: ["x" * 2000]}):
        with pytest.raises(FrameError, match="lists, maps and numbers, over the limit of 1000"):
            decoder().feed(join(encode_frame(FrameKind.QUERY, body)))
