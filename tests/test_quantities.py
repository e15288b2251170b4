"""Sizes and durations in the notation of settings and options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.quantities import parse_duration, parse_size, show_duration, show_size

DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds", "shown"),
    [
        ("7d", 7 * DAY, "7d"),
        ("36h", 36 * 3_600_000, "36h"),
        ("90m", 90 * 60_000, "90m"),
        ("45s", 45_000, "45s"),
        ("3600s", 3_600_000, "1h"),
        ("2w", 14 * DAY, "14d"),
        ("250ms", 250, "250ms"),
        ("1.5 s", 1500, "1500ms"),
        ("0.25m", 15_000, "15s"),
        (" 0 ", 0, "0"),
    ],
)
def test_duration_is_shown_in_the_largest_unit_that_gives_a_whole_number(
    text: str, milliseconds: int, shown: str
) -> None:
    assert parse_duration(text) == milliseconds
    assert show_duration(milliseconds) == shown


def test_number_without_a_unit_has_the_unit_of_its_setting() -> None:
    assert parse_duration("5", bare="s") == 5000
    assert parse_duration("5", bare="ms") == 5
    assert parse_duration("0.5", bare="s") == 500


@pytest.mark.parametrize("text", ["", "7y", "-1d", "d", "soon", "1e3", "7", "7.0", "0.1ms", "1D", "\u0667d", "1 000s"])
def test_text_that_is_not_a_duration_is_rejected(text: str) -> None:
    """A number without a unit too, because 7 meant as days would keep only 7 seconds of records."""
    with pytest.raises(ValueError, match="is not a duration; write a number and a unit: ms, s, m, h, d, w"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("0", 0, "0"),
        ("1048576", 2**20, "1MiB"),
        ("16 MB", 16_000_000, "16MB"),
        ("64 MiB", 2**26, "64MiB"),
        ("64000", 64_000, "64kB"),
        ("1.5kib", 1536, "1536B"),
        ("100MB", 100_000_000, "100MB"),
        (str(2**53 + 1), 2**53 + 1, f"{2**53 + 1}B"),
        ("1EiB", 2**60, "1EiB"),
    ],
)
def test_size_without_a_unit_is_in_bytes(text: str, size: int, shown: str) -> None:
    assert parse_size(text) == size
    assert show_size(size) == shown


@pytest.mark.parametrize("text", ["", "MB", "16M", "-1", "1e3", "16 megabytes", "0.5B", "1.5"])
def test_text_that_is_not_a_size_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write a whole number of bytes, or a number and a unit: B, kB"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**62))
def test_shown_quantities_are_read_back_exactly(count: int) -> None:
    assert parse_size(show_size(count)) == count
    assert parse_duration(show_duration(count)) == count
