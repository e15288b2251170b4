"""Rules for keeping snapshots and for the base of the log; they hold for all numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from viewstamp.ids import Index
from viewstamp.node.snapshots.choice import choose_base, choose_dropped, find_missing_beginnings

ENDS = st.lists(st.integers(1, 10_000).map(Index), unique=True, max_size=15)
LIMITS = st.none() | st.integers(0, 11_000).map(Index)


def test_the_second_newest_is_the_base_so_that_the_newest_may_be_damaged() -> None:
    ends = [Index(10), Index(30), Index(20)]
    assert choose_base(ends, None) == 20
    assert choose_base(ends, None, pressed=True) == 30
    assert choose_base(ends, Index(29)) == 10
    assert choose_base(ends, Index(30)) == 20
    assert choose_base(ends, Index(20), pressed=True) == 20
    assert choose_base(ends, Index(10)) == 10
    assert choose_base(ends, Index(9)) is None
    assert choose_base([], None) is None


def test_the_base_never_goes_back_behind_the_beginning_of_the_log() -> None:
    """If a full log was trimmed below the second-newest snapshot, using that one as the base would leave a gap."""
    ends = [Index(10), Index(20), Index(30)]
    assert choose_base(ends, None, log_begin=Index(20)) == 20
    assert choose_base(ends, None, log_begin=Index(21)) == 30
    assert choose_base(ends, Index(25), log_begin=Index(21)) is None
    assert choose_base([*ends, Index(40)], None, log_begin=Index(21)) == 30


@given(ENDS, LIMITS, st.booleans())
def test_the_base_is_never_beyond_the_needed_records_and_a_second_snapshot_follows_it(
    ends: list[Index], keep_from: Index | None, pressed: bool
) -> None:
    base = choose_base(ends, keep_from, pressed=pressed)
    usable = [end for end in ends if keep_from is None or end <= keep_from]
    assert (base is None) == (not usable)
    if base is not None:
        assert base in usable
        if not pressed and len(usable) > 1:
            assert len([end for end in usable if end > base]) == 1


@given(ENDS, LIMITS, st.integers(0, 12), st.booleans(), st.data())
def test_needed_snapshots_are_kept_and_no_more_than_allowed(
    ends: list[Index], keep_from: Index | None, kept_max: int, pressed: bool, choice: st.DataObject
) -> None:
    base = choose_base(ends, keep_from, pressed=pressed)
    held = choice.draw(st.lists(st.sampled_from(ends), max_size=2) if ends else st.just([]))
    dropped = choose_dropped(ends, base=base, kept_max=kept_max, held=held)
    kept = sorted(set(ends) - set(dropped))
    needed = {*sorted(ends)[-2:], *held} | ({base} if base else set())
    assert set(dropped) <= set(ends)
    assert len(set(dropped)) == len(dropped)
    assert needed <= set(kept)
    assert len(kept) <= max(kept_max, len(needed))
    if base is not None:
        assert all(end >= base or end in needed for end in kept)
        assert choose_base(kept, keep_from, log_begin=base) == base
    assert choose_dropped(kept, base=base, kept_max=kept_max, held=held) == []


def test_of_a_bounded_log_no_more_is_held_than_lies_between_two_that_are_near() -> None:
    """Even with a small ``kept_max``, enough snapshots stay that the base follows the oldest kept record closely."""
    kept: list[Index] = []
    for end in range(100, 10_100, 100):
        kept.append(Index(end))
        dropped = choose_dropped(
            kept, base=Index(100), kept_max=3, are_near=lambda before, after: after - before <= 2500
        )
        kept = [each for each in kept if each not in dropped]
    gaps = [after - before for before, after in pairwise(kept)]
    assert max(gaps) <= 2500
    assert len(kept) <= 12


def test_kept_snapshots_are_evenly_spaced() -> None:
    """The snapshots arrive one by one while old records hold the log."""
    kept: list[Index] = []
    for end in range(100, 10_100, 100):
        kept.append(Index(end))
        dropped = choose_dropped(kept, base=Index(100), kept_max=6)
        kept = [each for each in kept if each not in dropped]
    assert kept[0] == 100
    assert kept[-2:] == [9_900, 10_000]
    assert len(kept) == 6
    gaps = [after - before for before, after in pairwise(kept[:-1])]
    assert max(gaps) <= 6_000
    assert min(gaps) >= 300


def test_the_one_that_leaves_the_smallest_gap_goes() -> None:
    ends = [Index(end) for end in (10, 50, 60, 90, 95, 100)]
    assert choose_dropped(ends, base=Index(10), kept_max=5) == [90]
    assert choose_dropped(ends, base=Index(10), kept_max=4) == [60, 90]
    assert choose_dropped(ends, base=Index(10), kept_max=0) == [50, 60, 90]
    assert choose_dropped(ends, base=Index(60), kept_max=6) == [10, 50]
    assert choose_dropped(ends, base=Index(60), kept_max=6, held=[Index(10)]) == [50]
    assert choose_dropped(ends, base=None, kept_max=5) == [90]


def test_a_log_lacks_the_records_that_its_state_and_its_base_need() -> None:
    ends = [Index(37), Index(165), Index(177)]
    assert find_missing_beginnings(ends, Index(50), log_begin=Index(66)) == [37, 50]
    assert find_missing_beginnings(ends, Index(100), log_begin=Index(66)) == [37]
    assert find_missing_beginnings(ends, Index(30), log_begin=Index(30)) == [1]
    assert find_missing_beginnings(ends, Index(100), log_begin=Index(30)) == []
    assert find_missing_beginnings(ends, Index(170), log_begin=Index(66)) == []
    assert find_missing_beginnings(ends, None, log_begin=Index(66)) == []
    assert find_missing_beginnings(ends, Index(1), log_begin=Index(1)) == []
