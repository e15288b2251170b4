from __future__ import annotations

import pytest

from viewstamp.errors import StorageFullError
from viewstamp.wal.budget import Budget


@pytest.fixture
def space() -> Budget:
    space = Budget(segment_bytes=1000, bytes_max=0, reserve_bytes=500, margin_bytes=100)
    space.open_room = 300
    return space


def test_zero_filled_bytes_are_counted_on_even_when_the_disk_is_full(space: Budget) -> None:
    space.may_grow = False
    assert space.left == 300
    space.prepared = 1
    assert space.left == 1300
    space.prepared = -1
    assert space.left == 300, "a spare that was taken before it was announced"


def test_free_bytes_count_without_the_reserve_and_only_while_segments_can_be_made(space: Budget) -> None:
    space.free = 1700
    assert space.left == 300 + 1200
    space.free = 200
    assert space.left == 300
    space.free = 1700
    space.may_grow = False
    assert space.left == 300


@pytest.fixture
def bounded() -> Budget:
    space = Budget(segment_bytes=1000, bytes_max=5000, reserve_bytes=0, margin_bytes=0)
    space.free = 1 << 30
    return space


def test_with_a_size_limit_all_unwritten_bytes_are_free(bounded: Budget) -> None:
    """Prepared files count whether zero-filled or not, because they can be given up so that the open one can grow."""
    bounded.used = 3500
    assert bounded.left == 1500
    bounded.prepared = 1
    assert bounded.left == 1500
    bounded.used = 6000
    assert bounded.left == 0


def test_spares_that_cannot_be_used_yet_do_not_count(bounded: Budget) -> None:
    bounded.used = 1500
    bounded.dropped = 2
    assert bounded.left == 1500
    bounded.is_making = True
    assert bounded.left == 500
    bounded.dropped = -1
    assert bounded.left == 2500, "a spare that was overwritten before it was announced"


def test_a_disk_that_is_full_bounds_a_log_with_a_size_limit_too(bounded: Budget) -> None:
    bounded.open_room, bounded.prepared, bounded.free = 300, 2, 100
    assert bounded.left == 2400
    bounded.may_grow = False
    assert bounded.left == 2300


def test_without_a_size_limit_one_spare_is_kept_and_with_it_as_many_as_fit(space: Budget, bounded: Budget) -> None:
    assert space.wants_another(0)
    space.prepared = 1
    assert not space.wants_another(0)
    space.dropped = 1
    assert space.wants_another(0), "trimmed segments are always prepared for reuse"
    bounded.used, bounded.open_room = 200, 800
    for prepared in range(4):
        bounded.prepared = prepared
        assert bounded.wants_another(0)
    bounded.prepared = 4
    assert not bounded.wants_another(0)


def test_no_spare_is_prepared_in_the_room_of_queued_batches(bounded: Budget) -> None:
    bounded.used, bounded.open_room = 3000, 500
    assert bounded.wants_another(1000)
    assert not bounded.wants_another(1001)


def test_the_margin_is_for_urgent_records(space: Budget) -> None:
    space.may_grow = False
    space.check(200, urgent=False)
    with pytest.raises(StorageFullError, match="200 bytes can still be written, 201 are asked for"):
        space.check(201, urgent=False)
    space.check(300, urgent=True)
    with pytest.raises(StorageFullError):
        space.check(301, urgent=True)


def test_a_refusal_names_the_bound(space: Budget, bounded: Budget) -> None:
    space.free = 400
    with pytest.raises(StorageFullError, match="the disk has 400 bytes left") as caught:
        space.check(10_000, urgent=False)
    assert "goes on by itself" in caught.value.remedy
    bounded.used = 4500
    with pytest.raises(StorageFullError, match=r"4500 are written, \[wal\] bytes_max is 5000") as caught:
        bounded.check(10_000, urgent=False)
    assert caught.value.remedy == "raise [wal] bytes_max and restart this node", (
        "the budget cannot know the trimmable bytes"
    )
