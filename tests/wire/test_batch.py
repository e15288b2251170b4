"""Batches are decoded as they were encoded, and every damage is detected."""

from __future__ import annotations

import struct

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from viewstamp.errors import FrameError
from viewstamp.ids import Index, Position, Sequence, SessionId, Term, TopicId
from viewstamp.wire.batch import FORMAT_VERSION, HEADER_SIZE, Batch, Kind, build_batch, build_columns, pad

HEADERS = st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3)
RECORDS = st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=10), HEADERS), min_size=1)


def stamped(batch: Batch) -> Batch:
    batch.stamp(
        term=Term(7),
        first_index=Index(100),
        previous_term=Term(6),
        log_time=1_700_000_000_000_000,
        first_position=Position(40),
    )
    return batch


def sample() -> Batch:
    return stamped(
        build_batch(
            [b"one", b"", b"three"],
            topic=TopicId(3),
            session=SessionId(2**63 + 5),
            sequence=Sequence(9),
            keys=[b"k", None, b""],
            headers=[None, {"trace": b"\x00\xff"}, {}],
        )
    )


def reseal(buffer: bytearray) -> bytearray:
    """Correct both checksums for the present bytes, as a broken or hostile client might."""
    struct.pack_into("<I", buffer, 48, crc32c(bytes(buffer[52:])))
    struct.pack_into("<I", buffer, 4, crc32c(bytes(buffer[8:HEADER_SIZE])))
    return buffer


@given(RECORDS)
def test_records_come_out_as_they_went_in(records: list[tuple[bytes, bytes | None, dict[str, bytes] | None]]) -> None:
    values, keys, headers = (list(column) for column in zip(*records, strict=True))
    batch = stamped(build_batch(values, topic=TopicId(3), keys=keys, headers=headers))
    decoded = Batch.decode(bytes(batch.buffer))
    assert decoded.values() == values
    found = decoded.records()
    assert [record.value for record in found] == values
    assert [record.key for record in found] == keys
    assert [record.headers for record in found] == [header or None for header in headers]
    assert [record.position for record in found] == list(range(40, 40 + len(values)))
    assert [record.index for record in found] == list(range(100, 100 + len(values)))
    assert {(record.term, record.timestamp) for record in found} == {(7, 1_700_000_000_000_000)}


@given(
    st.sampled_from(Kind),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(1, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
)
def test_every_header_field_keeps_its_whole_range(
    kind: Kind, topic: int, session: int, sequence: int, term: int, index: int, log_time: int
) -> None:
    batch = build_batch(
        [b"x", b"y"], kind=kind, topic=TopicId(topic), session=SessionId(session), sequence=Sequence(sequence)
    )
    batch.stamp(
        term=Term(term),
        first_index=Index(index),
        previous_term=Term(term),
        log_time=log_time,
        first_position=Position(index),
    )
    decoded = Batch.decode(bytes(batch.buffer))
    for each in (batch, decoded):
        assert (each.kind, each.topic, each.session, each.sequence) == (kind, topic, session, sequence)
        assert (each.term, each.first_index, each.previous_term, each.log_time) == (term, index, term, log_time)
        assert (each.first_position, each.count, each.end, each.last_index) == (index, 2, index + 2, index + 1)


def test_the_layout_is_the_one_that_the_docstring_draws() -> None:
    """Bytes on disks outlive the code, so a change here is a new format version."""
    buffer = bytes(sample().buffer)
    assert buffer[:4] == b"VSB" + bytes([FORMAT_VERSION])
    assert struct.unpack_from("<QQQqQ", buffer, 8) == (7, 100, 6, 1_700_000_000_000_000, 40)
    assert buffer[52:56] == bytes([Kind.RECORDS, 3, 0, 0])
    assert struct.unpack_from("<IIQQI", buffer, 56) == (3, 3, 2**63 + 5, 9, len(buffer) - 96)
    assert buffer[84:96] == bytes(12)
    assert struct.unpack_from("<I", buffer, 4) == (crc32c(buffer[8:96]),)
    assert struct.unpack_from("<I", buffer, 48) == (crc32c(buffer[52:]),)
    values, validity, keys = buffer[96:120], buffer[120:128], buffer[128:152]
    assert struct.unpack("<4i", values[:16]) == (0, 3, 3, 8)
    assert values[16:] == b"onethree"
    assert validity == bytes([0b101, 0, 0, 0, 0, 0, 0, 0])
    assert struct.unpack("<4i", keys[:16]) == (0, 1, 1, 1)
    assert keys[16:] == b"k" + bytes(7)
    assert struct.unpack_from("<4i", buffer, 152) == (0, 0, 11, 11)
    assert msgpack.unpackb(buffer[168:179]) == {"trace": b"\x00\xff"}
    assert len(buffer) == 168 + 16


def test_every_single_bit_flip_of_a_batch_is_refused() -> None:
    good = bytes(sample().buffer)
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(FrameError):
            Batch.decode(damaged)


def test_every_single_bit_flip_inside_a_run_of_batches_is_refused() -> None:
    """A flip in a length field is refused too, although it moves the expected start of the next batch."""
    good = bytes(stamped(build_batch([b"a"])).buffer) + bytes(stamped(build_batch([b"b"])).buffer)
    assert [batch.values() for batch in Batch.decode_all(good)] == [[b"a"], [b"b"]]
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(FrameError):
            Batch.decode_all(damaged)


def test_every_truncation_and_every_byte_too_many_is_refused() -> None:
    good = bytes(sample().buffer)
    for size in range(len(good)):
        with pytest.raises(FrameError):
            Batch.decode(good[:size])
        if size:
            with pytest.raises(FrameError):
                Batch.decode_all(good + good[:size])
    with pytest.raises(FrameError, match=f"gives {len(good)} bytes, but there are {len(good) + 1}"):
        Batch.decode(good + b"\x00")


@given(st.binary(max_size=200))
def test_garbage_is_a_frame_error_and_nothing_else(garbage: bytes) -> None:
    with pytest.raises(FrameError):
        Batch.decode(garbage)
    with pytest.raises(FrameError):
        Batch.decode(garbage, verify=False)
    with pytest.raises(FrameError):
        Batch.measure(garbage)
    if garbage:
        with pytest.raises(FrameError):
            Batch.decode_all(garbage)


@settings(max_examples=300)
@given(st.data())
def test_a_batch_whose_checksums_fit_lies_at_worst_with_a_frame_error(data: st.DataObject) -> None:
    """A checksum proves that the bytes arrived unchanged, not that the sender was correct.

    A server stores such a batch unopened, so its readers must get a FrameError and must not crash.
    """
    buffer = bytearray(sample().buffer)
    changes = st.lists(st.tuples(st.integers(52, len(buffer) - 1), st.integers(0, 255)), max_size=6)
    for at, value in data.draw(changes):
        buffer[at] = value
    reseal(buffer)
    try:
        batch = Batch.decode(buffer)
        batch.values()
        records = batch.records()
    except FrameError:
        return
    assert len(records) == batch.count


@pytest.mark.parametrize("offsets", [(1, 3, 3, 8), (0, 4, 3, 8), (0, 3, 3, 2**31 - 1), (0, -1, 3, 8), (0, 3, 3, -8)])
def test_offsets_that_do_not_rise_inside_the_body_are_refused(offsets: tuple[int, ...]) -> None:
    buffer = bytearray(sample().buffer)
    struct.pack_into("<4i", buffer, 96, *offsets)
    batch = Batch.decode(reseal(buffer))
    with pytest.raises(FrameError, match="not a rising run"):
        batch.values()


def test_a_record_count_that_the_body_cannot_hold_is_refused_before_memory_is_taken() -> None:
    buffer = bytearray(sample().buffer)
    struct.pack_into("<I", buffer, 60, 2**32 - 1)
    with pytest.raises(FrameError):
        Batch.decode(reseal(buffer)).records()


@pytest.mark.parametrize("packed", [b"\xc1", b"\x05", b"\x81\xa1x\x01", b"\x81\x01\xc4\x00", b"\x80\x80", b"\x91\xc0"])
def test_headers_that_are_no_map_of_strings_to_bytes_are_refused(packed: bytes) -> None:
    """The reader's interface promises ``Mapping[str, bytes]``."""
    good = build_batch([b"v"], headers=[{"": b"123"}])
    column = 96 + 16  # behind the column of the values: 2 offsets, padded value
    buffer = bytearray(good.buffer)
    struct.pack_into("<2i", buffer, column, 0, len(packed))
    buffer[column + 8 : column + 8 + len(packed)] = packed
    with pytest.raises(FrameError, match="headers"):
        Batch.decode(reseal(buffer)).records()


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [(52, 0, "unknown batch kind 0"), (52, 99, "unknown batch kind 99"), (54, 1, "compression codec 1")],
)
def test_fields_of_a_newer_version_are_named(at: int, value: int, message: str) -> None:
    buffer = bytearray(sample().buffer)
    buffer[at] = value
    with pytest.raises(FrameError, match=message):
        Batch.decode(reseal(buffer))


def test_a_batch_of_another_format_version_is_refused_by_its_magic() -> None:
    buffer = bytearray(sample().buffer)
    buffer[3] += 1
    with pytest.raises(FrameError, match="it starts with b'VSB"):
        Batch.decode(buffer)
    with pytest.raises(FrameError, match="it starts with b'VSB"):
        Batch.measure(buffer)


def test_a_batch_without_records_is_refused() -> None:
    buffer = bytearray(sample().buffer)
    struct.pack_into("<I", buffer, 60, 0)
    with pytest.raises(FrameError, match="at least one record"):
        Batch.decode(reseal(buffer))
    with pytest.raises(AssertionError, match="at least one record"):
        build_batch([])


def test_stamping_touches_the_leaders_fields_and_the_header_checksum_only() -> None:
    """The body checksum is the client's, and no leader renews it."""
    batch = build_batch([b"one", b"two"], topic=TopicId(3), session=SessionId(2), sequence=Sequence(9))
    before = bytes(batch.buffer)
    stamped(batch)
    after = bytes(batch.buffer)
    assert after[:4] == before[:4]
    assert after[48:] == before[48:]
    assert after[4:48] != before[4:48]


def test_a_batch_is_stamped_once_and_in_its_own_buffer() -> None:
    received = bytearray(build_batch([b"one"]).buffer)
    batch = Batch.decode(received)
    stamped(batch)
    assert batch.buffer is received
    assert Batch.decode(received).first_index == 100
    with pytest.raises(AssertionError, match="has an index already"):
        stamped(batch)
    with pytest.raises(AssertionError, match="must be writable"):
        stamped(Batch.decode(bytes(build_batch([b"one"]).buffer)))


def test_a_run_of_batches_is_read_as_views_of_one_buffer() -> None:
    whole = b"".join(bytes(stamped(build_batch([bytes([i])] * i)).buffer) for i in range(1, 5))
    batches = Batch.decode_all(whole)
    assert [batch.count for batch in batches] == [1, 2, 3, 4]
    assert all(isinstance(batch.buffer, memoryview) and batch.buffer.obj is whole for batch in batches)
    assert sum(batch.size for batch in batches) == len(whole)
    assert Batch.decode_all(b"") == []
    offset = batches[0].size
    assert Batch.measure(whole, offset) == batches[1].size


def test_verify_false_trusts_the_checksums_and_nothing_else() -> None:
    buffer = bytearray(sample().buffer)
    buffer[-20] ^= 1
    assert Batch.decode(buffer, verify=False).count == 3
    with pytest.raises(FrameError, match="body checksum"):
        Batch.decode(buffer)
    with pytest.raises(FrameError):
        Batch.decode(buffer[:-1], verify=False)


def test_values_may_be_any_buffer_and_the_batch_keeps_none_of_them() -> None:
    value = bytearray(b"abc")
    batch = build_batch([value, memoryview(b"def"), b"ghi"])
    value[0] = 0
    assert batch.values() == [b"abc", b"def", b"ghi"]


def test_columns_without_a_key_or_header_take_no_space() -> None:
    plain = build_batch([b"a", b"b"])
    assert build_batch([b"a", b"b"], keys=[None, None], headers=[None, {}]).buffer == plain.buffer
    assert plain.flags == 0


@given(st.integers(0, 10_000))
def test_pad_rounds_up_to_whole_words(size: int) -> None:
    assert pad(size) % 8 == 0
    assert size <= pad(size) < size + 8


def test_a_batch_prints_its_main_fields() -> None:
    assert repr(sample()) == f"<Batch RECORDS 7.100..102 topic=3 session={2**63 + 5}#9 {sample().size} bytes>"


# Columns: the same bytes, without decoding any record.


@given(RECORDS)
def test_columns_rebuild_the_batch_they_were_taken_of(
    records: list[tuple[bytes, bytes | None, dict[str, bytes] | None]],
) -> None:
    values, keys, headers = (list(column) for column in zip(*records, strict=True))
    batch = build_batch(values, topic=TopicId(3), sequence=Sequence(9), keys=keys, headers=headers)
    columns = batch.columns()
    again = build_columns(columns, topic=TopicId(3), sequence=Sequence(9))
    assert again.buffer == batch.buffer
    assert columns.size == batch.size
    assert memoryview(batch.buffer).obj is memoryview(columns.values.data).obj, "nothing is copied"


@pytest.mark.parametrize(("at", "value"), [(96, 1), (96 + 12, 5000), (96 + 12, -1)], ids=["first", "last", "negative"])
def test_columns_that_reach_beyond_the_body_are_refused(at: int, value: int) -> None:
    buffer = bytearray(sample().buffer)
    struct.pack_into("<i", buffer, at, value)
    batch = Batch.decode(reseal(buffer))
    with pytest.raises(FrameError, match="rising run inside it"):
        batch.columns()


def test_columns_of_a_body_that_is_too_short_are_refused() -> None:
    buffer = bytearray(sample().buffer)
    struct.pack_into("<I", buffer, 60, 1000)
    batch = Batch.decode(reseal(buffer))
    with pytest.raises(FrameError, match="ends inside its offsets"):
        batch.columns()


# Staged batches.


def test_a_placed_batch_has_another_position_and_time_and_the_same_body() -> None:
    staged = stamped(build_batch([b"one", b"two"], kind=Kind.STAGED, topic=TopicId(3), attempt=77))
    before = bytes(staged.buffer)
    header, body = staged.placed(Position(500), 123)
    placed = Batch.decode(b"".join((header, body)))
    assert (placed.first_position, placed.log_time, placed.attempt) == (500, 123, 77)
    assert (placed.term, placed.first_index, placed.kind) == (staged.term, staged.first_index, Kind.STAGED)
    assert [(record.position, record.value) for record in placed.records()] == [(500, b"one"), (501, b"two")]
    assert staged.buffer == before


def test_a_header_alone_contains_all_but_the_records() -> None:
    batch = sample()
    header = Batch.decode_header(bytes(batch.buffer[:HEADER_SIZE]))
    assert (header.size, header.count, header.first_position) == (batch.size, 3, 40)
    with pytest.raises(FrameError, match="header checksum"):
        Batch.decode_header(b"".join((batch.buffer[:60], b"\x09", batch.buffer[61:])))
