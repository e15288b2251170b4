"""Any bytes on a connection are a frame, a batch or a command, or are refused by name."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.material import ALMOST_NOTHING, DEEP, altered, at_most, numbers, only, packables, spoilt, tries
from viewstamp.errors import CommandError, FrameError, RequestError
from viewstamp.ids import Index, Position, Sequence, SessionId, Term, TopicId
from viewstamp.wire.batch import HEADER_SIZE, Batch, Kind, build_batch
from viewstamp.wire.commands import (
    Interface,
    decode_arguments,
    decode_command,
    decode_commands,
    decode_result,
    encode_command,
)
from viewstamp.wire.frame import FRAME_HEADER_SIZE, FrameDecoder, encode_frame
from viewstamp.wire.staged import decode_commit, decode_fields, entries_of, pack_entry
from viewstamp.wire.values import UNPACK_ERRORS, pack, unpack, unpack_all

FRAME = b"".join(encode_frame(10, {"id": 1, "name": "orders", "list": [1, 2.5, None, True]}, [b"payload" * 9]))
LIMIT = 1 << 16


def sealed_frame(body: bytes, payload: bytes = b"", *, sizes: tuple[int, int] | None = None) -> bytes:
    """Return a frame with a correct checksum over any body."""
    body_size, payload_size = sizes or (len(body), len(payload))
    checked = struct.pack("<B3xII", 10, body_size % 2**32, payload_size % 2**32)
    return b"VSF\x01" + struct.pack("<I", crc32c(body, crc32c(checked))) + checked + body + payload


def sealed_batch(data: bytes) -> bytes:
    """Return the bytes of a batch with both checksums and the length corrected."""
    batch = bytearray(data.ljust(HEADER_SIZE, b"\0"))
    batch[:4] = b"VSB\x01"
    struct.pack_into("<I", batch, 80, len(batch) - HEADER_SIZE)
    struct.pack_into("<I", batch, 48, crc32c(bytes(batch[52:])))
    struct.pack_into("<I", batch, 4, crc32c(bytes(batch[8:HEADER_SIZE])))
    return bytes(batch)


def a_batch() -> bytes:
    batch = build_batch(
        [b"one", b"", b"three" * 20],
        topic=TopicId(1),
        session=SessionId(3),
        sequence=Sequence(9),
        keys=[b"k", None, b""],
        headers=[{"h": b"v"}, None, {"": b"", "x": b"y" * 9}],
    )
    batch.stamp(term=Term(2), first_index=Index(7), previous_term=Term(1), log_time=5, first_position=Position(3))
    return bytes(batch.buffer)


BATCH = a_batch()
OTHER = bytes(build_batch([b"x" * 40] * 7, kind=Kind.STAGED, attempt=4).buffer)


# -- Frames -----------------------------------------------------------------------------------------------------


@tries(100)
@given(spoilt(FRAME * 2, (FRAME, BATCH)), st.lists(st.integers(0, 400), max_size=4))
def test_spoilt_frames_are_refused_or_whole_however_they_are_cut_into_chunks(data: bytes, cuts: list[int]) -> None:
    decoder = FrameDecoder(LIMIT)
    at = 0
    for end in [*sorted(cuts), len(data)]:
        frames = only(FrameError, lambda start=at, end=end: decoder.feed(data[start:end]))  # type: ignore[misc]
        if frames is None:
            return
        for frame in frames:
            assert frame.kind == 10
            assert frame.body == {"id": 1, "name": "orders", "list": [1, 2.5, None, True]}
        assert decoder.held <= LIMIT + len(data)
        at = end


@tries(100)
@given(packables().map(msgpack.packb).flatmap(lambda packed: spoilt(packed) | st.just(packed)))
def test_a_body_that_is_any_bytes_under_a_right_checksum_is_msgpack_or_refused(body: bytes) -> None:
    frames = only(FrameError, lambda: FrameDecoder(LIMIT).feed(sealed_frame(body)))
    assert frames is None or len(frames) == 1


@pytest.mark.parametrize("sizes", [(2**31, 0), (0, 2**31), (2**32 - 1, 2**32 - 1), (1, LIMIT)], ids=str)
def test_a_length_of_gigabytes_is_refused_by_the_header_alone(sizes: tuple[int, int]) -> None:
    with at_most(ALMOST_NOTHING), pytest.raises(FrameError, match="over the limit"):
        FrameDecoder(LIMIT).feed(sealed_frame(b"", sizes=sizes)[:FRAME_HEADER_SIZE])


@pytest.mark.parametrize("code", [0xC6, 0xDB, 0xDD, 0xDF, 0xC9], ids=["bytes", "text", "list", "map", "extension"])
@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**32 - 1])
def test_a_count_of_gigabytes_inside_a_body_asks_for_no_memory(code: int, count: int) -> None:
    body = bytes([code]) + count.to_bytes(4, "big")
    with at_most(ALMOST_NOTHING), pytest.raises(FrameError):
        FrameDecoder().feed(sealed_frame(body))


def test_lists_that_all_promise_more_than_there_is_ask_for_a_bounded_memory() -> None:
    """A thousand nested lists, none of which could be stored: the cost does not depend on their claimed size."""
    body = (b"\xdd" + (1_000_000).to_bytes(4, "big")) * 1000 + bytes(1_000_000)
    with at_most(128 * 1024 * 1024), pytest.raises(FrameError):
        FrameDecoder().feed(sealed_frame(body))


# -- Batches ----------------------------------------------------------------------------------------------------


def look_into(batch: Batch) -> None:
    """Read everything in a batch with right checksums."""
    only(FrameError, batch.records)
    only(FrameError, batch.values)
    only(FrameError, batch.column)
    columns = only(FrameError, batch.columns)
    if columns is not None:
        for column in (columns.values, columns.keys, columns.headers):
            assert column is None or len(column.data) <= batch.size


@tries(100)
@given(spoilt(BATCH, (BATCH, OTHER)))
def test_a_spoilt_batch_is_refused_unless_it_is_whole(data: bytes) -> None:
    found = only(FrameError, lambda: Batch.decode(data))
    assert found is None or data in (BATCH, OTHER)
    only(FrameError, lambda: Batch.decode_header(data))
    only(FrameError, lambda: Batch.measure(data))
    only(FrameError, lambda: Batch.decode_all(data))


@tries(200)
@given(spoilt(BATCH, (OTHER,)) | spoilt(OTHER, (BATCH,)))
def test_a_batch_with_right_checksums_and_a_wrong_layout_is_refused_by_its_readers(data: bytes) -> None:
    """The mistake is the sender's, not the network's. A server only compares checksums, so the reader has to check."""
    batch = only(FrameError, lambda: Batch.decode(sealed_batch(data)))
    if batch is not None:
        look_into(batch)


@tries(100)
@given(st.sampled_from([60, 52, 53, 96, 100, 104, 112, 116]), numbers())
def test_a_count_a_flag_or_an_offset_of_any_size_is_refused_without_memory_for_it(at: int, value: int) -> None:
    data = bytearray(BATCH)
    struct.pack_into("<I", data, at, value % 2**32)
    batch = only(FrameError, lambda: Batch.decode(sealed_batch(bytes(data))))
    if batch is not None:
        look_into(batch)


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**32 - 1])
def test_a_batch_of_four_billion_records_in_a_kilobyte_asks_for_no_memory(count: int) -> None:
    data = bytearray(BATCH)
    struct.pack_into("<I", data, 60, count)
    batch = Batch.decode(sealed_batch(bytes(data)))
    for read in (batch.records, batch.values, batch.columns, batch.column):
        with at_most(ALMOST_NOTHING), pytest.raises(FrameError):
            read()


@tries(100)
@given(packables().map(msgpack.packb).flatmap(lambda packed: spoilt(packed) | st.just(packed)))
def test_headers_that_are_none_are_refused(packed: bytes) -> None:
    data = bytearray(build_batch([b"v"], headers=[{"a": bytes(max(1, len(packed)))}]).buffer)
    at = bytes(data).rindex(msgpack.packb({"a": bytes(max(1, len(packed)))}))
    size = len(msgpack.packb({"a": bytes(max(1, len(packed)))}))
    data[at : at + size] = packed.ljust(size, b"\xc0")[:size]
    batch = Batch.decode(sealed_batch(bytes(data)))
    records = only(FrameError, batch.records)
    assert records is None or all(type(value) is bytes for value in (records[0].headers or {}).values())


# -- Bodies of sinks and topics -----------------------------------------------------------------------------------

COMMIT = {"sink": "s", "owner": "o", "run": "r", "batch": 3, "parts": [[1, pack_entry(5, 1, 2, 300) * 2]]}


def command(kind: Kind, packed: bytes) -> Batch:
    return Batch.decode(sealed_batch(bytes(build_batch([packed], kind=kind).buffer)))


@tries(100)
@given(altered(COMMIT))
def test_a_commit_that_is_none_is_refused_with_the_same_error_on_every_member(body: Any) -> None:
    batch = command(Kind.COMMIT, msgpack.packb(body))
    request = only(RequestError, lambda: decode_commit(batch))
    if request is not None:
        assert all(entry.size >= 0 for _, entries in request.parts for entry in entries_of(entries))


@tries(100)
@given(spoilt(msgpack.packb(COMMIT)))
def test_a_command_that_is_no_msgpack_is_refused(packed: bytes) -> None:
    batch = command(Kind.SEAL_ATTEMPT, packed)
    only(RequestError, lambda: decode_fields(batch, sink=str, batch=int, parts=list))


@pytest.mark.parametrize(
    "packed",
    [
        DEEP,
        msgpack.packb({"sink": None})[:-1] + DEEP,
        msgpack.packb({**COMMIT, "parts": None})[:-1] + b"\x91" + DEEP[:990] + b"\xc0",
    ],
    ids=["all of it", "a name", "a part"],
)
def test_a_command_that_is_nested_a_thousand_deep_is_refused_like_any_other(packed: bytes) -> None:
    """Every member applies it, so any other error than RequestError would stop them all, for ever."""
    only_refused = only(RequestError, lambda: decode_commit(command(Kind.COMMIT, packed)))
    assert only_refused is None


# -- Calls ------------------------------------------------------------------------------------------------------

CALL = ["Counter", "k", 1, "add", [1, b"x", (2, {3, 4})], {"by": 2}]
PACKED = encode_command("Counter", "k", 1, "add", [1, b"x", (2, {3, 4}), 2**70], {"by": 2})


@tries(100)
@given(spoilt(PACKED, (pack({1: 2}), pack([{3}, (4, 5)]))) | spoilt(pack([(1, (2, {b"3"})), -(2**99)])))
def test_spoilt_values_are_values_or_refused(data: bytes) -> None:
    only(RequestError, lambda: unpack(data))
    only(RequestError, lambda: decode_command(data))
    only(RequestError, lambda: decode_commands((0, len(data)), data))
    only(RequestError, lambda: decode_arguments(data))
    only((RequestError, CommandError), lambda: decode_result(data))
    with contextlib.suppress(UNPACK_ERRORS):
        assert len(list(unpack_all(data))) <= len(data)


@tries(100)
@given(altered([*CALL[:4], [1, b"x"], {"by": 2}]))
def test_a_command_of_other_types_is_refused(body: Any) -> None:
    packed = msgpack.packb(body)
    found = only(RequestError, lambda: decode_command(packed))
    if found is not None:
        assert list(map(type, found)) == [str, str, int, str, list, dict]


@tries(100)
@given(st.data())
def test_a_description_of_an_actor_that_is_none_is_refused(data: st.DataObject) -> None:
    method = {"parameters": [["x", 1, False, "int"]], "returns": "int", "summary": "s"}
    described = {"name": "Counter", "version": 1, "commands": {"add": method}, "queries": {"value": method}}
    body = data.draw(altered(described))
    found = only(RequestError, lambda: Interface.from_wire(body))
    if found is not None:
        for described_method in (*found.commands.values(), *found.queries.values()):
            only(RequestError, lambda each=described_method: str(each))  # type: ignore[misc]


@pytest.mark.parametrize("decode", [decode_command, decode_arguments, decode_result, unpack], ids=lambda f: f.__name__)
def test_a_value_nested_a_thousand_deep_is_a_value_or_refused(decode: Any) -> None:
    """The error describes the value, and must not fail because of its depth or length."""
    for packed in (DEEP, pack([1, 2, 3]), b"\x93\xa1a" + DEEP[:900] + b"\xc0\xc0", pack([2**40_000, 1])):
        only(RequestError, lambda packed=packed: decode(packed))  # type: ignore[misc]


def test_values_in_values_that_all_promise_more_than_there_is_ask_for_a_bounded_memory() -> None:
    """Each of 31 levels of tuples begins with a thousand lists that the rest of the data could not fill."""
    data = b"\xc0"
    for _ in range(31):
        promised = max(10_000, len(data))
        level = ((b"\xdd" + promised.to_bytes(4, "big")) * 1000 + data).ljust(promised + 10, b"\xc0")
        data = b"\xc9" + len(level).to_bytes(4, "big") + b"\x01" + level
    with at_most(256 * 1024 * 1024), pytest.raises(RequestError):
        unpack(data)
