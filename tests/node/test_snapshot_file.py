"""The bytes of a snapshot: reading returns the written pieces, and every wrong bit is detected."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.node.snapshots import make_meta, make_pieces
from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.host.interfaces import File
from viewstamp.node.snapshots.file import (
    SnapshotMeta,
    SnapshotWriter,
    encode_header,
    intact_bytes,
    read_header,
    read_pieces,
    read_trailer,
)
from viewstamp.sim.disk import DiskOptions, SimulatedDisk
from viewstamp.sim.loop import SimulatedLoop

PATH = "/d/file"


def make_disk(data: bytes | None = None) -> SimulatedDisk:
    disk = SimulatedDisk(options=DiskOptions(delay_min=0, delay_mean=0))
    disk.make_directory("/d")
    if data is not None:
        disk.open(PATH, create=True).write(0, [data])
    return disk


def encode(meta: SnapshotMeta, pieces: Sequence[bytes]) -> bytes:
    """Return the bytes of a whole snapshot, as its writer produces them."""

    async def work() -> int:
        file = await disk.open_async(PATH, create=True)
        writer = SnapshotWriter(file, meta)
        for piece in pieces:
            await writer.add(piece)
        await writer.finish()
        await file.close()
        return writer.size

    disk = make_disk()
    loop = SimulatedLoop()
    size = loop.run_until_complete(work())
    loop.close()
    data = disk.open_read(PATH).read(0, 1 << 30)
    assert len(data) == size
    return data


def read(data: bytes) -> tuple[SnapshotMeta, list[bytes]]:
    file = make_disk(data).open_read(PATH)
    header = read_header(file)
    read_trailer(file, header)
    return header.meta, list(read_pieces(file, header))


@pytest.fixture(scope="module", name="data")
def _data() -> bytes:
    return encode(make_meta(7, 2), [b"one", b"piece two", b"3" * 40])


@settings(max_examples=50)
@given(
    st.lists(st.binary(min_size=1, max_size=50), max_size=8),
    st.text("aé-1"),
    st.none() | st.integers(0, 2**32 - 2),
    st.binary(),
)
def test_a_written_snapshot_is_read_back(
    pieces: list[bytes], cluster: str, group: int | None, membership: bytes
) -> None:
    meta = SnapshotMeta(
        cluster=cluster,
        group=group,
        end=7,  # type: ignore[arg-type]
        term=3,  # type: ignore[arg-type]
        history=((0, 1), (2, 5), (3, 6)),
        membership=membership,
        membership_index=1,
        membership_term=2,
        log_time=1_000_000,
        created_us=1_700_000_000_000_000,
    )
    assert read(encode(meta, pieces)) == (meta, pieces)


def test_releases_that_did_not_read_the_group_read_the_same_body_at_the_same_place() -> None:
    with_group, without = encode_header(make_meta(7, group=9)), encode_header(make_meta(7, group=None))
    assert with_group[:4] + with_group[8:12] + with_group[16:] == without[:4] + without[8:12] + without[16:]
    assert (with_group[12:16], without[12:16]) == (bytes([10, 0, 0, 0]), bytes(4))


def test_small_pieces_are_gathered_large_ones_divided_and_all_is_synced_on_the_way() -> None:
    sizes: list[int] = []
    unsynced = [0]
    disk = make_disk()

    async def work() -> None:
        file = await disk.open_async(PATH, create=True)
        write, sync = file.write, file.sync

        async def watched_write(offset: int, data: bytes) -> None:
            sizes.append(len(data))
            unsynced.append(unsynced[-1] + len(data))
            await write(offset, data)

        async def watched_sync() -> None:
            unsynced.append(0)
            await sync()

        file.write, file.sync = watched_write, watched_sync  # type: ignore[method-assign,assignment]
        writer = SnapshotWriter(file, make_meta(7))
        for piece in pieces:
            await writer.add(piece)
        await writer.finish()

    pieces = [b"x" * 1000] * 1000 + [b"y" * 10_000_000]
    asyncio.run(work())
    assert max(sizes) <= 256 * 1024
    assert len(sizes) < 100
    assert max(unsynced) <= 5 * 1024 * 1024
    assert unsynced[-1] == 0
    file = disk.open_read(PATH)
    assert list(read_pieces(file, read_header(file))) == pieces


def test_every_wrong_bit_is_found_and_nothing_wrong_is_handed_out_before(data: bytes) -> None:

    def read_into(got: list[object], file: File) -> None:
        header = read_header(file)
        got.append(header.meta)
        got.extend(read_pieces(file, header))

    disk = make_disk(data)
    meta, pieces = read(data)
    for offset in range(len(data)):
        for bit in range(8):
            disk.flip(PATH, offset, bit)
            file = disk.open_read(PATH)
            got: list[object] = []
            with pytest.raises(CorruptionError) as caught:
                read_into(got, file)
            assert got == [meta, *pieces][: len(got)]
            assert caught.value.location <= offset
            assert caught.value.path == PATH
            disk.flip(PATH, offset, bit)


@given(st.data(), st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=6))
def test_no_change_of_one_byte_passes(choice: st.DataObject, pieces: list[bytes]) -> None:
    whole = bytearray(encode(make_meta(7), pieces))
    at = choice.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= choice.draw(st.integers(1, 255))
    with pytest.raises(CorruptionError):
        read(bytes(whole))


def test_no_shorter_file_and_no_longer_one_is_a_snapshot(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            read(data[:size])
    for rest in (b"\0", data[-40:], b"x" * 100):
        with pytest.raises(CorruptionError):
            read(data + rest)
        file = make_disk(data + rest).open_read(PATH)
        with pytest.raises(CorruptionError):
            list(read_pieces(file, read_header(file)))


def test_pieces_that_are_left_out_swapped_or_of_another_file_do_not_pass(data: bytes) -> None:
    header = len(encode_header(make_meta(7, 2)))
    frames = [data[header : header + 11], data[header + 11 : header + 28], data[header + 28 : -40]]
    head, trailer = data[:header], data[-40:]
    assert head + b"".join(frames) + trailer == data
    other = encode(make_meta(7, 2, created_us=1), [b"one", b"piece two", b"3" * 40])
    for wrong in (
        head + frames[0] + frames[1] + trailer,
        head + frames[1] + frames[0] + frames[2] + trailer,
        head + frames[0] + frames[0] + frames[1] + frames[2] + trailer,
        other[: len(head)] + data[len(head) :],
        data[:-40] + other[-40:],
    ):
        with pytest.raises(CorruptionError):
            read(wrong)
    file = make_disk(data[:-40] + other[-40:]).open_read(PATH)
    with pytest.raises(CorruptionError):
        read_trailer(file, read_header(file))


def test_a_newer_format_is_distinguished_from_damage(data: bytes) -> None:
    header = len(encode_header(make_meta(7, 2)))
    newer = bytearray(data)
    newer[3] = 2
    newer[4:8] = struct.pack("<I", crc32c(newer[8:header], crc32c(newer[:4])))
    with pytest.raises(ConfigError, match="has format 2, this version of viewstamp reads 1") as caught:
        read(bytes(newer))
    assert caught.value.remedy


def test_an_intact_header_that_describes_nothing_is_damage() -> None:
    body = b"\x81\xa1x\x01"
    magic = b"VSN\x01"
    rest = struct.pack("<I4x", len(body)) + body
    data = magic + struct.pack("<I", crc32c(rest, crc32c(magic))) + rest
    with pytest.raises(CorruptionError, match="description"):
        read(data)


def test_a_wrong_length_does_not_make_the_reader_ask_for_more_than_there_is() -> None:
    """A length of a gigabyte must not allocate a gigabyte of memory."""
    asked: list[int] = []
    data = bytearray(encode(make_meta(7), make_pieces(7)))
    header = len(encode_header(make_meta(7)))
    for at in (8, header):
        damaged = bytearray(data)
        damaged[at + 3] = 0x7F
        file = make_disk(bytes(damaged)).open_read(PATH)
        real = file.read
        file.read = lambda offset, size, real=real: (asked.append(size), real(offset, size))[1]  # type: ignore
        with pytest.raises(CorruptionError):
            list(read_pieces(file, read_header(file)))
    assert max(asked) < len(data)


def test_the_intact_part_ends_at_the_last_whole_piece(data: bytes) -> None:
    header = len(encode_header(make_meta(7, 2)))
    ends = [0, header, header + 11, header + 28, len(data) - 40]
    for size in range(len(data) + 1):
        file = make_disk(data[:size]).open_read(PATH)
        assert intact_bytes(file) == max(end for end in ends if end <= size)
