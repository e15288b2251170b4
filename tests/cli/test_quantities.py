"""Ages and sizes in the notation of the command line."""

from __future__ import annotations

import pytest
import typer

from viewstamp.cli.quantities import parse_age, parse_bytes, show_age


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("7d", 604_800, "7d"),
        ("36h", 129_600, "36h"),
        ("90m", 5400, "90m"),
        ("45s", 45, "45s"),
        ("3600s", 3600, "1h"),
        ("2w", 1_209_600, "14d"),
    ],
)
def test_age_is_shown_in_the_largest_unit_that_gives_a_whole_number(text: str, seconds: float, shown: str) -> None:
    assert parse_age(text) == seconds
    assert show_age(seconds) == shown


def test_fraction_of_a_second_is_shown_as_a_fraction() -> None:
    assert show_age(parse_age("0.5s")) == "0.5s"


@pytest.mark.parametrize("text", ["", "7y", "-1d", "d", "soon", "1e3", "7"])
def test_text_that_is_not_an_age_is_rejected(text: str) -> None:
    """A number without a unit too, because 7 meant as days would keep only 7 seconds of records."""
    with pytest.raises(typer.BadParameter, match="is not an age; write 2w, 7d"):
        parse_age(text)


def test_zero_needs_no_unit() -> None:
    assert parse_age("0") == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1048576", 2**20), ("16 MB", 16_000_000), ("64 MiB", 2**26), (str(2**53 + 1), 2**53 + 1)],
)
def test_size_without_a_unit_is_in_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "16M", "-1", "1e3", "16 megabytes"])
def test_text_that_is_not_a_size_is_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a size; write a number of bytes, or 500kB"):
        parse_bytes(text)
