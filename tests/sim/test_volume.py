"""The effects of a power cut, one test for each rule of the table in ``viewstamp.sim.volume``."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewstamp.sim.volume import PAGE_SIZE, SECTOR_SIZE, Inode, Volume


def _after_cuts(inode: Inode, count: int = 300) -> set[bytes]:
    return {inode.after_cut(random.Random(seed)) for seed in range(count)}


def _names_after_cuts(volume: Volume, count: int = 200) -> set[tuple[str, ...]]:
    return {tuple(volume.after_cut(random.Random(seed)).files) for seed in range(count)}


def _volume(*paths: str) -> Volume:
    volume = Volume()
    volume.make_directory("/d")
    for path in paths:
        volume.adopt(path, path.encode())
    return volume


def test_synced_bytes_always_survive() -> None:
    inode = Inode(1)
    inode.write(0, [b"a" * 10_000])
    inode.sync()
    assert inode.is_synced
    assert _after_cuts(inode) == {b"a" * 10_000}


def test_any_subset_of_unsynced_pages_survives() -> None:
    inode = Inode(1, bytes(3 * PAGE_SIZE))
    inode.write(0, [b"a" * PAGE_SIZE, b"b" * PAGE_SIZE, b"c" * PAGE_SIZE])
    whole = {
        tuple(content[page * PAGE_SIZE] for page in range(3))
        for content in _after_cuts(inode)
        if all(len(set(content[page * PAGE_SIZE : (page + 1) * PAGE_SIZE])) == 1 for page in range(3))
    }
    assert whole == {(a, b, c) for a in (0, 97) for b in (0, 98) for c in (0, 99)}


def test_a_page_tears_at_sectors_and_never_inside_one() -> None:
    inode = Inode(1, b"o" * PAGE_SIZE)
    inode.write(0, [b"n" * PAGE_SIZE])
    torn = 0
    for content in _after_cuts(inode):
        sectors = [content[at : at + SECTOR_SIZE] for at in range(0, PAGE_SIZE, SECTOR_SIZE)]
        assert all(len(set(sector)) == 1 for sector in sectors)
        torn += len(set(sectors)) > 1
    assert torn > 10


def test_a_page_written_twice_may_hold_the_version_between() -> None:
    inode = Inode(1, b"0" * 100)
    inode.write(10, [b"11"])
    inode.write(10, [b"22"])
    assert {content[10:12] for content in _after_cuts(inode)} == {b"00", b"11", b"22"}


def test_the_length_of_a_file_that_was_never_synced_may_be_any_it_had() -> None:
    inode = Inode(1)
    inode.write(0, [b"a" * 100])
    inode.write(100, [b"b" * 100])
    outcomes = _after_cuts(inode)
    assert {len(content) for content in outcomes} == {0, 100, 200}
    assert bytes(200) in outcomes, "the length may come without the bytes"


def test_sync_data_does_not_make_a_grown_length_durable() -> None:
    inode = Inode(1, b"a" * 100)
    inode.write(90, [b"b" * 20])
    inode.sync_data()
    outcomes = _after_cuts(inode)
    assert {len(content) for content in outcomes} == {100, 110}
    assert all(content.startswith(b"a" * 90 + b"b" * 10) for content in outcomes), (
        "below the durable length, the bytes are durable"
    )
    inode.sync()
    assert _after_cuts(inode) == {b"a" * 90 + b"b" * 20}


def test_sync_data_is_enough_inside_the_durable_length() -> None:
    inode = Inode(1, bytes(5 * PAGE_SIZE))
    inode.write(PAGE_SIZE - 5, [b"x" * 10])
    inode.sync_data()
    assert inode.is_synced
    assert _after_cuts(inode) == {bytes(inode.data)}


def test_a_truncation_is_durable_only_after_sync() -> None:
    inode = Inode(1, b"a" * 10_000)
    inode.truncate(5_000)
    inode.sync_data()
    assert _after_cuts(inode) >= {b"a" * 5_000, b"a" * 10_000}
    assert {len(content) for content in _after_cuts(inode)} == {5_000, 10_000}
    inode.sync()
    assert _after_cuts(inode) == {b"a" * 5_000}


def test_bytes_cut_off_by_a_surviving_truncation_never_come_back() -> None:
    inode = Inode(1, b"old" * 5_000)
    inode.truncate(6_000)
    inode.write(6_000, [b"new" * 2_000])
    for content in _after_cuts(inode):
        if len(content) == 15_000:
            # The page of the cut may have its new bytes; the bytes behind it have their durable version.
            assert content[8192:] == (b"old" * 5_000)[8192:]
        else:
            assert len(content) == 6_000 or b"old" not in content[6_002:]


def test_a_failed_sync_is_not_mended_by_a_later_one() -> None:
    inode = Inode(1, bytes(100))
    inode.write(0, [b"x"])
    inode.fail_sync()
    inode.sync()
    assert b"\0" in {content[:1] for content in _after_cuts(inode)}


def test_a_sync_covers_the_writes_before_its_begin() -> None:
    inode = Inode(1, bytes(100))
    inode.write(0, [b"x"])
    began = inode.cursor
    inode.write(1, [b"y"])
    inode.sync_data(began)
    assert {content[:2] for content in _after_cuts(inode)} == {b"x\0", b"xy"}
    inode.write(200, [b"z"])
    inode.sync(began + 1)
    assert {content[:2] for content in _after_cuts(inode)} == {b"xy"}
    assert {len(content) for content in _after_cuts(inode)} == {100, 201}


def test_a_cut_changes_nothing_for_the_living() -> None:
    inode = Inode(1, b"a" * 100)
    inode.write(50, [b"b" * 100])
    inode.after_cut(random.Random(1))
    assert inode.data == b"a" * 50 + b"b" * 100


def test_a_new_name_may_vanish_although_its_file_was_synced() -> None:
    volume = _volume()
    inode = volume.create("/d/new")
    inode.write(0, [b"x"])
    inode.sync()
    assert _names_after_cuts(volume) == {(), ("/d/new",)}
    volume.sync_directory("/d")
    assert _names_after_cuts(volume) == {("/d/new",)}


def test_a_rename_happens_whole_or_not_at_all() -> None:
    volume = _volume("/d/a", "/d/b")
    volume.rename("/d/a", "/d/b")
    outcomes = [volume.after_cut(random.Random(seed)).files for seed in range(100)]
    assert {tuple(sorted(files.items())) for files in outcomes} == {
        (("/d/a", b"/d/a"), ("/d/b", b"/d/b")),
        (("/d/b", b"/d/a"),),
    }
    volume.sync_directory("/d")
    assert volume.after_cut(random.Random(1)).files == {"/d/b": b"/d/a"}


def test_a_removed_name_may_come_back() -> None:
    volume = _volume("/d/a")
    volume.remove("/d/a")
    assert not volume.exists("/d/a")
    assert _names_after_cuts(volume) == {(), ("/d/a",)}
    volume.sync_directory("/d")
    assert _names_after_cuts(volume) == {()}


def test_changes_of_different_names_survive_in_any_subset() -> None:
    volume = _volume("/d/a")
    volume.create("/d/b")
    volume.remove("/d/a")
    assert _names_after_cuts(volume) == {("/d/a",), ("/d/a", "/d/b"), ("/d/b",), ()}


def test_a_file_never_has_two_names() -> None:
    volume = _volume("/d/a")
    volume.rename("/d/a", "/d/b")
    volume.rename("/d/b", "/d/c")
    assert _names_after_cuts(volume) == {("/d/a",), ("/d/b",), ("/d/c",)}


def test_syncing_one_directory_does_nothing_for_another() -> None:
    volume = _volume()
    volume.make_directory("/d/e")
    volume.create("/d/new")
    volume.sync_directory("/d/e")
    assert _names_after_cuts(volume) == {(), ("/d/new",)}
    assert volume.list_directory("/d") == ["e", "new"]


def test_a_directory_sync_covers_the_changes_before_its_begin() -> None:
    volume = _volume()
    volume.create("/d/a")
    began = volume.cursor
    volume.create("/d/b")
    volume.sync_directory("/d", began)
    assert _names_after_cuts(volume) == {("/d/a",), ("/d/a", "/d/b")}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 9000), st.integers(1, 6000)),
            st.tuples(st.just("truncate"), st.integers(0, 12000), st.just(0)),
            st.tuples(st.sampled_from(["sync", "sync_data"]), st.integers(0, 3), st.just(0)),
        ),
        max_size=12,
    ),
    st.integers(),
)
def test_every_byte_after_a_cut_is_one_that_the_place_held_since_the_last_sync(
    operations: list[tuple[str, int, int]], seed: int
) -> None:
    """Compare the model with a simpler one that keeps every possible value of each byte."""
    inode = Inode(1)
    durable = b""
    values: list[set[int]] = [{0} for _ in range(16_000)]
    lengths = {0}
    for step, (operation, first, size) in enumerate(operations, start=1):
        if operation == "write":
            inode.write(first, [bytes([step]) * size])
            for at in range(first, first + size):
                values[at].add(step)
        elif operation == "truncate":
            inode.truncate(first)
            for at in range(first, len(values)):
                values[at].add(0)
        elif operation == "sync":
            inode.sync()
            durable = bytes(inode.data)
            values = [{durable[at]} if at < len(durable) else {0} for at in range(16_000)]
            lengths = set()
        else:
            inode.sync_data()
        lengths.add(len(inode.data))
    content = inode.after_cut(random.Random(seed))
    assert len(content) in lengths | {len(durable)}
    assert all(byte in values[at] for at, byte in enumerate(content))


def test_errors_are_those_of_a_file_system() -> None:
    volume = _volume("/d/a")
    with pytest.raises(FileExistsError):
        volume.create("/d/a")
    with pytest.raises(FileNotFoundError):
        volume.create("/nowhere/a")
    with pytest.raises(FileNotFoundError):
        volume.remove("/d/b")
    with pytest.raises(FileExistsError):
        volume.make_directory("/d/a")
