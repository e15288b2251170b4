"""Ages and sizes, as people write them."""

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
def test_an_age_has_a_unit_and_comes_back_in_the_largest_that_fits(text: str, seconds: float, shown: str) -> None:
    assert parse_age(text) == seconds
    assert show_age(seconds) == shown


def test_a_fraction_of_a_second_is_shown_as_one() -> None:
    assert show_age(parse_age("0.5s")) == "0.5s"


@pytest.mark.parametrize("text", ["", "7y", "-1d", "d", "soon", "1e3", "7"])
def test_what_is_no_age_is_refused(text: str) -> None:
    """A bare number too: 7, meant as days and taken as seconds, would delete what was to be kept."""
    with pytest.raises(typer.BadParameter, match="is no age; write 2w, 7d"):
        parse_age(text)


def test_no_bound_needs_no_unit() -> None:
    assert parse_age("0") == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1048576", 2**20), ("16 MB", 16_000_000), ("64 MiB", 2**26), (str(2**53 + 1), 2**53 + 1)],
)
def test_a_size_is_bytes_or_has_a_unit(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "16M", "-1", "1e3", "16 megabytes"])
def test_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no size; write bytes, or 500kB"):
        parse_bytes(text)
