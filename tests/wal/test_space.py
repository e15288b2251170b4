from __future__ import annotations

import pytest

from viewstamp.errors import StorageFullError
from viewstamp.wal.space import Space


@pytest.fixture
def space() -> Space:
    space = Space(segment_bytes=1000, bytes_max=0, reserve_bytes=500, margin_bytes=100)
    space.open_room = 300
    return space


def test_zero_filled_bytes_are_counted_on_even_when_the_disk_is_full(space: Space) -> None:
    space.may_grow = False
    assert space.left == 300
    space.is_prepared = True
    assert space.left == 1300


def test_free_bytes_count_without_the_reserve_and_only_while_segments_can_be_made(space: Space) -> None:
    space.free = 1700
    assert space.left == 300 + 1200
    space.free = 200
    assert space.left == 300
    space.free = 1700
    space.may_grow = False
    assert space.left == 300


def test_the_size_limit_bounds_growth(space: Space) -> None:
    space = Space(segment_bytes=1000, bytes_max=5000, reserve_bytes=0, margin_bytes=0)
    space.free = 1 << 30
    space.used = 3500
    assert space.left == 1500
    assert not space.is_at_limit
    space.used = 4500
    assert space.left == 500
    assert space.is_at_limit


def test_the_margin_is_for_what_is_urgent(space: Space) -> None:
    space.may_grow = False
    space.check(200, urgent=False)
    with pytest.raises(StorageFullError, match="200 bytes can still be written, 201 are asked for"):
        space.check(201, urgent=False)
    space.check(300, urgent=True)
    with pytest.raises(StorageFullError):
        space.check(301, urgent=True)


def test_a_refusal_says_which_bound_it_was(space: Space) -> None:
    space.free = 400
    with pytest.raises(StorageFullError, match="the disk has 400 bytes left") as caught:
        space.check(10_000, urgent=False)
    assert "goes on by itself" in caught.value.remedy
    space = Space(segment_bytes=1000, bytes_max=5000, reserve_bytes=0, margin_bytes=0)
    space.used = 4500
    with pytest.raises(StorageFullError, match=r"\[wal\] bytes_max is 5000") as caught:
        space.check(10_000, urgent=False)
    assert "trim" in caught.value.remedy
