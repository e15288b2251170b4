from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wal.logs import make_batch
from viewstamp.errors import ConfigError, FrameError
from viewstamp.wal import format as wal_format
from viewstamp.wal.format import (
    GROUP_BATCHES_MAX,
    GROUP_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    SegmentHeader,
    batch_checksum,
    parse_segment_name,
    segment_name,
)
from viewstamp.wal.truncation import Mark

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)

segment_headers = st.builds(
    SegmentHeader, number=U64, generation=U64, first_index=U64, previous_term=U64, first_group=U64
)
group_headers = st.builds(
    GroupHeader,
    generation=U64,
    number=U64,
    location=U64,
    durable=U64,
    commit_hint=U64,
    first_index=U64,
    body_size=U32,
    seals=st.booleans(),
    checksums=st.lists(U32, max_size=20).map(tuple),
)
marks = st.builds(Mark, end=U64, segment=U64, length=U64, group=U64, generation=U64)


def flipped(packed: bytes, bit: int) -> bytes:
    changed = bytearray(packed)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


@given(segment_headers)
def test_a_segment_header_comes_back_as_it_was(header: SegmentHeader) -> None:
    packed = header.encode()
    assert len(packed) == SEGMENT_HEADER_SIZE
    assert SegmentHeader.decode(packed, "a") == header


@given(group_headers)
def test_a_group_header_comes_back_as_it_was(header: GroupHeader) -> None:
    packed = header.encode()
    assert len(packed) == header.size == GroupHeader.measure(packed)
    assert len(packed) % 8 == 0
    assert GroupHeader.decode(packed) == header


@given(segment_headers)
def test_a_segment_header_with_any_bit_flipped_is_refused(header: SegmentHeader) -> None:
    packed = header.encode()
    for bit in range(8 * len(packed)):
        with pytest.raises(FrameError):
            SegmentHeader.decode(flipped(packed, bit), "a")


@given(group_headers)
def test_a_group_header_with_any_bit_flipped_is_refused(header: GroupHeader) -> None:
    packed = header.encode()
    for bit in range(8 * len(packed)):
        with pytest.raises(FrameError):
            GroupHeader.decode(flipped(packed, bit))


@given(marks)
def test_a_truncation_mark_comes_back_and_no_flip_of_it_does(mark: Mark) -> None:
    packed = mark.encode()
    assert Mark.decode(packed) == mark
    for bit in range(8 * len(packed)):
        with pytest.raises(FrameError):
            Mark.decode(flipped(packed, bit))


@given(group_headers, st.integers(0, 100))
def test_a_cut_off_group_header_is_refused(header: GroupHeader, missing: int) -> None:
    packed = header.encode()
    with pytest.raises(FrameError):
        GroupHeader.decode(packed[: max(0, len(packed) - 1 - missing)])


def test_a_segment_of_a_newer_format_is_distinguished_from_a_damaged_one() -> None:
    """The 64 bytes keep their layout and checksum in every version, so the version byte can be trusted."""
    header = SegmentHeader(number=1, generation=1, first_index=1, previous_term=0, first_group=1)
    packed = bytearray(header.encode())
    packed[3] = 2
    with pytest.raises(FrameError, match="checksum"):
        SegmentHeader.decode(packed, "a")
    packed[4:8] = wal_format._checksum(packed).to_bytes(4, "little")
    with pytest.raises(ConfigError, match="a has WAL format 2, this version of viewstamp reads 1"):
        SegmentHeader.decode(packed, "a")


def test_a_group_claims_no_more_batches_than_one_write_can_take() -> None:
    header = GroupHeader(
        generation=1,
        number=1,
        location=64,
        durable=0,
        commit_hint=0,
        first_index=1,
        body_size=0,
        seals=False,
        checksums=(),
    )
    packed = bytearray(header.encode())
    packed[60:64] = (GROUP_BATCHES_MAX + 1).to_bytes(4, "little")
    with pytest.raises(FrameError, match="1000 batches, at most 999"):
        GroupHeader.measure(packed)
    assert header.size == GROUP_HEADER_SIZE
    assert header.is_empty


def test_the_checksum_that_ties_a_batch_to_its_group_covers_all_of_it() -> None:
    one = make_batch(1, fill=b"a")
    assert batch_checksum(one) != batch_checksum(make_batch(1, fill=b"b"))
    assert batch_checksum(one) != batch_checksum(make_batch(2, fill=b"a"))
    assert batch_checksum(one) != batch_checksum(make_batch(1, term=2, fill=b"a"))


def test_segment_names_sort_as_their_numbers_do_and_other_names_are_none() -> None:
    assert segment_name(12) == "00000000000000000012.segment"
    assert parse_segment_name(segment_name(2**63)) == 2**63
    assert sorted(map(segment_name, [100, 9, 20])) == [segment_name(9), segment_name(20), segment_name(100)]
    for other in ("next.prepared", "12.segment", segment_name(3) + ".bak", "x" + segment_name(3), ""):
        assert parse_segment_name(other) is None
