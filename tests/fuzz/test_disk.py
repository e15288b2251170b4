"""Data read from a spoilt disk is a prefix of the written data, or is refused by name; it is never anything else.

Files are spoilt as disks, people and bad copies spoil them: flipped bits, removed, inserted or overwritten bytes,
pieces of other files. Some files get correct checksums again, which no accident would produce. The code behind the
checksums may rely on them only as a proof that the bytes are as written, not that the writer was correct.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.material import DEEP, altered, at_most, numbers, only, spoilt, tries
from tests.node.snapshots import make_meta
from tests.node.test_snapshot_file import encode, make_disk
from tests.wal.logs import DIRECTORY, IDENTITY, contents, make_batch, make_batches, new_disk, open_wal, write_log
from viewstamp.errors import ConfigError, CorruptionError, FrameError, StorageFullError, TrimmedError
from viewstamp.node.snapshots.file import intact_bytes, read_header, read_pieces, read_trailer
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.control_file import CONTROL_NAMES, ControlFile, ControlState, read_control_state
from viewstamp.wal.format import GROUP_HEADER_SIZE, SEGMENT_HEADER_SIZE, GroupHeader, SegmentHeader, segment_name
from viewstamp.wal.offline import inspect, read_batches, verify
from viewstamp.wal.truncation import MARK_NAME, Mark
from viewstamp.wire.batch import Batch

REFUSED = (CorruptionError, ConfigError)


# -- Whole logs -------------------------------------------------------------------------------------------------


@cache
def a_log(term: int = 1) -> tuple[list[bytes], dict[str, bytes]]:
    """Return the batches of a log of three segments, the last with several groups, and its files without their zeros.

    ``term`` makes logs that differ in every record.
    """
    disk = new_disk()
    large = make_batches(1, 7, count=2, size=2500, term=term)
    small = make_batches(15, 9, size=60, term=term)
    write_log(disk, [*([batch] for batch in large), small[:3], small[3:4], small[4:9]])
    names = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".segment")]
    files = {name: bytes(disk.volume.find(f"{DIRECTORY}/{name}").data).rstrip(b"\0") for name in names}
    assert len(files) == 3
    return contents([*large, *small]), files


def with_files(files: dict[str, bytes]) -> SimulatedDisk:
    disk = new_disk()
    disk.make_directory(DIRECTORY)
    for name, data in files.items():
        disk.volume.adopt(f"{DIRECTORY}/{name}", data)
    return disk


def open_any(disk: SimulatedDisk) -> list[bytes] | None:
    """Open an arbitrary log; None = refused, in which case nothing has changed, and ``verify`` agrees."""
    before = {name: bytes(disk.volume.find(f"{DIRECTORY}/{name}").data) for name in disk.list_directory(DIRECTORY)}
    only(REFUSED, lambda: sum(1 for _ in inspect(disk, DIRECTORY)))
    only(REFUSED, lambda: sum(1 for _ in read_batches(disk, DIRECTORY)))
    verification = only(REFUSED, lambda: verify(disk, DIRECTORY))
    opened = only((*REFUSED, StorageFullError, TrimmedError), lambda: open_wal(disk))
    if opened is None:
        after = {name: bytes(disk.volume.find(f"{DIRECTORY}/{name}").data) for name in disk.list_directory(DIRECTORY)}
        assert after == before
        return None
    assert verification is not None or not before, "an empty directory becomes a log, but is none before"
    again = open_wal(disk)
    assert again[1] == opened[1], "a log that was accepted once is accepted again"
    return opened[1]


@tries(120)
@given(st.data())
def test_a_log_with_a_spoilt_file_is_read_from_its_begin_or_refused(data: st.DataObject) -> None:
    batches, files = a_log()
    name = data.draw(st.sampled_from(sorted(files)))
    spoilt_file = data.draw(spoilt(files[name], tuple(files.values())))
    zeros = data.draw(st.sampled_from([0, 100, 4096]))
    found = open_any(with_files({**files, name: spoilt_file + bytes(zeros)}))
    if found is not None:
        assert found == batches[: len(found)], "no batch is invented, and none is left out in between"


@tries(60)
@given(st.data())
def test_a_log_whose_files_are_mixed_up_with_anothers_is_a_log_or_refused(data: st.DataObject) -> None:
    """Files are swapped, missing, doubled or another node's.

    But each group contains its place, and each segment its predecessor's end.
    """
    (batches, files), (other_batches, other) = a_log(), a_log(2)
    names = sorted(files)
    sources = [*files.values(), *other.values(), b"", bytes(1000)]
    mixed = {name: data.draw(st.sampled_from(sources)) for name in names if data.draw(st.integers(0, 9))}
    if data.draw(st.booleans()):
        mixed[segment_name(data.draw(st.integers(0, 9)))] = data.draw(st.sampled_from(sources))
    found = open_any(with_files(mixed))
    if found is not None:
        assert found in [[*batches[:at], *other_batches[at : len(found)]] for at in range(len(batches) + 1)]


def resealed(data: bytes) -> bytes:
    """Return a segment with corrected checksums in all its headers and batches."""
    sealed = bytearray(data)
    if len(sealed) >= SEGMENT_HEADER_SIZE:
        struct.pack_into("<I", sealed, 4, crc32c(bytes(sealed[8:64]), crc32c(bytes(sealed[:4]))))
    at = sealed.find(b"VSB\x01")
    while 0 <= at <= len(sealed) - 96:
        size = min(96 + struct.unpack_from("<I", sealed, at + 80)[0], len(sealed) - at)
        struct.pack_into("<I", sealed, at + 48, crc32c(bytes(sealed[at + 52 : at + size])))
        struct.pack_into("<I", sealed, at + 4, crc32c(bytes(sealed[at + 8 : at + 96])))
        at = sealed.find(b"VSB\x01", at + 4)
    at = sealed.find(b"VSG\x01")
    while 0 <= at <= len(sealed) - GROUP_HEADER_SIZE:
        try:
            size = GroupHeader.measure(sealed[at:])
        except FrameError:
            size = GROUP_HEADER_SIZE
        header = bytes(sealed[at : at + size])
        struct.pack_into("<I", sealed, at + 4, crc32c(header[8:], crc32c(header[:4])))
        at = sealed.find(b"VSG\x01", at + 4)
    return bytes(sealed)


@tries(120)
@given(st.data())
def test_a_log_with_right_checksums_over_wrong_headers_is_a_log_or_refused(data: st.DataObject) -> None:
    _, files = a_log()
    name = data.draw(st.sampled_from(sorted(files)))
    found = open_any(with_files({**files, name: resealed(data.draw(spoilt(files[name], tuple(files.values()))))}))
    if found is not None:
        decoded = [Batch.decode(each) for each in found]
        assert all(before.end == after.first_index for before, after in pairwise(decoded))
        assert all(before.term <= after.term for before, after in pairwise(decoded))


@pytest.mark.parametrize("field", [("body", 80, "<I"), ("batches", 60, "<I")], ids=lambda field: field[0])
def test_a_length_of_gigabytes_in_a_segment_asks_for_no_memory(field: tuple[str, int, str]) -> None:
    _, files = a_log()
    name = max(files)
    spoilt_file = bytearray(files[name])
    at = spoilt_file.index(b"VSB\x01" if field[0] == "body" else b"VSG\x01")
    struct.pack_into(field[2], spoilt_file, at + field[1], 2**31)
    disk = with_files({**files, name: resealed(bytes(spoilt_file))})
    with at_most(8 * 1024 * 1024):
        open_any(disk)


def test_records_that_look_like_group_headers_are_no_log() -> None:
    """The search for a later group must neither accept a user's bytes, nor take too long over them."""
    disk = new_disk()
    looks = b"VSG\x01" * 3000
    write_log(disk, [[make_batch(1, 1)], [make_batch(2, 1, fill=looks)], [make_batch(3, 1)]])
    path = f"{DIRECTORY}/{segment_name(1)}"
    data = bytes(disk.volume.find(path).data)
    disk.volume.adopt(path, data[: data.rindex(b"VSG\x01" * 3) - 5] + bytes(20_000))  # torn inside that record
    wal, found = open_wal(disk)
    assert (len(found), wal.recovery.verdict) == (1, "torn-tail")


@tries(80)
@given(st.data())
def test_headers_of_segments_and_groups_are_whole_or_refused(data: st.DataObject) -> None:
    _, files = a_log()
    segment = files[min(files)]
    at = segment.index(b"VSG\x01")
    header = segment[at : at + GroupHeader.measure(segment[at:])]
    spoilt_segment = data.draw(spoilt(segment[:SEGMENT_HEADER_SIZE], (header,)))
    spoilt_group = data.draw(spoilt(header, (segment,)))
    for each in (spoilt_segment, resealed(spoilt_segment)):
        only((FrameError, ConfigError), lambda each=each: SegmentHeader.decode(each, "path"))  # type: ignore[misc]
    for each in (spoilt_group, resealed(spoilt_group)):
        only(FrameError, lambda each=each: GroupHeader.decode(each))  # type: ignore[misc]


# -- Marks ------------------------------------------------------------------------------------------------------

MARK = Mark(end=17, segment=3, length=400, group=9, generation=4)


def sealed_mark(data: bytes) -> bytes:
    mark = bytearray(data.ljust(64, b"\0")[:64])
    struct.pack_into("<I", mark, 4, crc32c(bytes(mark[8:]), crc32c(bytes(mark[:4]))))
    return bytes(mark)


@tries(100)
@given(st.data())
def test_a_log_with_any_truncation_mark_is_a_log_or_refused(data: st.DataObject) -> None:
    """A mark with a correct checksum must fit the files; otherwise nothing is done."""
    batches, files = a_log()
    kept = data.draw(st.sampled_from([MARK, Mark(end=20, segment=4, length=0, group=9, generation=4, resets=True)]))
    mark = data.draw(spoilt(kept.encode()))
    if data.draw(st.booleans()):
        mark = sealed_mark(mark)
    only(FrameError, lambda: Mark.decode(mark))
    found = open_any(with_files({**files, MARK_NAME: mark}))
    if found is not None:
        assert found == batches[: len(found)]


# -- The control file -------------------------------------------------------------------------------------------

STATE = ControlState(**IDENTITY, term=7, vote="n2", history=((0, 1), (7, 5)), membership=b"{}", peers=(("n2", "i2"),))


@cache
def a_control_file() -> tuple[bytes, bytes]:
    disk = new_disk()
    control = ControlFile.open(disk, "/data")
    control.write(STATE)
    first = bytes(disk.volume.find(f"/data/{CONTROL_NAMES[0]}").data)
    control.write(ControlState(**IDENTITY, term=8))
    return first, bytes(disk.volume.find(f"/data/{CONTROL_NAMES[0]}").data)


def sealed_copy(body: bytes, version: int = 1) -> bytes:
    packed = bytearray(-(-(24 + len(body)) // 4096) * 4096)
    struct.pack_into("<4sIQI", packed, 0, b"VSC\x01", 0, version, len(body))
    packed[24 : 24 + len(body)] = body
    struct.pack_into("<I", packed, 4, crc32c(bytes(packed[8:]), crc32c(bytes(packed[:4]))))
    return bytes(packed)


def with_copies(*copies: bytes) -> SimulatedDisk:
    disk = new_disk()
    for name, data in zip(CONTROL_NAMES, copies, strict=True):
        disk.volume.adopt(f"/data/{name}", data)
    return disk


@tries(100)
@given(st.data())
def test_of_two_spoilt_copies_of_the_control_file_one_is_whole_or_both_are_refused(data: st.DataObject) -> None:
    whole = a_control_file()
    copies = [data.draw(spoilt(whole[0], whole) | st.sampled_from(whole)) for _ in CONTROL_NAMES]
    disk = with_copies(*copies)
    found = only(REFUSED, lambda: read_control_state(disk, "/data"))
    if found is not None:
        assert found in (STATE, ControlState(**IDENTITY, term=8)), (
            "a forgotten vote could be given to another candidate"
        )
        assert ControlFile.open(disk, "/data").state == found


@tries(80)
@given(altered(msgpack.unpackb(STATE.encode())))
def test_a_copy_with_a_right_checksum_and_wrong_contents_is_refused(body: Any) -> None:
    """A later release or a faulty one may write such a copy; a vote in it must not be guessed."""
    copy = sealed_copy(msgpack.packb(body))
    found = only(REFUSED, lambda: read_control_state(with_copies(copy, copy), "/data"))
    if found is not None:
        for text in (found.cluster_id, found.node_id, found.incarnation, found.vote):
            assert type(text) is str
        for number in (found.term, found.commit_hint):
            assert type(number) is int
        assert type(found.membership) is bytes


@pytest.mark.parametrize(
    "body", [DEEP, b"", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x80"], ids=["deep", "empty", "none", "huge", "{}"]
)
def test_a_copy_that_is_no_map_is_refused(body: bytes) -> None:
    copy = sealed_copy(body)
    assert only(REFUSED, lambda: read_control_state(with_copies(copy, copy), "/data")) is None


# -- Snapshots --------------------------------------------------------------------------------------------------


@cache
def two_snapshots() -> tuple[bytes, bytes]:
    return (
        encode(make_meta(7, 2), [b"one", b"piece two" * 30, b"3" * 400]),
        encode(make_meta(9, 2), [b"another", b"x" * 99]),
    )


def read_snapshot(data: bytes) -> list[bytes]:
    file = make_disk(data).open_read("/d/file")
    header = read_header(file)
    read_trailer(file, header)
    return list(read_pieces(file, header))


@tries(200)
@given(st.data())
def test_a_spoilt_snapshot_is_refused_unless_it_is_whole(data: st.DataObject) -> None:
    whole = two_snapshots()
    file = data.draw(spoilt(whole[0], whole))
    pieces = only(REFUSED, lambda: read_snapshot(file))
    assert pieces is None or file in whole
    assert 0 <= intact_bytes(make_disk(file).open_read("/d/file")) <= len(file)


@tries(80)
@given(altered(msgpack.unpackb(make_meta(7, 2).encode())))
def test_a_snapshots_description_with_a_right_checksum_that_is_none_is_refused(body: Any) -> None:
    packed = msgpack.packb(body)
    unchecked = struct.pack("<4sII4x", b"VSN\x01", 0, len(packed)) + packed
    checksum = crc32c(unchecked[8:], crc32c(unchecked[:4]))
    file = make_disk(unchecked[:4] + struct.pack("<I", checksum) + unchecked[8:]).open_read("/d/file")
    header = only(REFUSED, lambda: read_header(file))
    if header is not None:
        meta = header.meta
        assert type(meta.cluster) is str
        assert type(meta.membership) is bytes
        assert all(type(number) is int for number in (meta.end, meta.term, meta.log_time, meta.membership_index))


@tries(60)
@given(numbers())
def test_a_length_of_any_size_in_a_snapshot_asks_for_no_memory(length: int) -> None:
    file = bytearray(two_snapshots()[0])
    header = read_header(make_disk(bytes(file)).open_read("/d/file"))
    for at in (8, header.size):
        changed = bytearray(file)
        struct.pack_into("<I", changed, at, length % 2**32)
        if bytes(changed) == bytes(file):
            continue
        with at_most(1_000_000):
            assert only(REFUSED, lambda data=bytes(changed): read_snapshot(data)) is None  # type: ignore[misc]
