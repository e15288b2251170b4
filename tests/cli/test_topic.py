"""Ages, as people write them."""

from __future__ import annotations

import pytest
import typer

from viewstamp.cli.topic import parse_age, show_age


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [("7d", 604_800, "7d"), ("36h", 129_600, "36h"), ("90m", 5400, "90m"), ("45s", 45, "45s"), ("3600s", 3600, "1h")],
)
def test_an_age_has_a_unit_and_comes_back_in_the_largest_that_fits(text: str, seconds: float, shown: str) -> None:
    assert parse_age(text) == seconds
    assert show_age(seconds) == shown


def test_a_fraction_of_a_second_is_shown_as_one() -> None:
    assert show_age(parse_age("0.5s")) == "0.5s"


@pytest.mark.parametrize("text", ["", "7w", "-1d", "d", "soon", "1e3", "7"])
def test_what_is_no_age_is_refused(text: str) -> None:
    """A bare number too: 7, meant as days and taken as seconds, would delete what was to be kept."""
    with pytest.raises(typer.BadParameter, match="is no age; write 7d"):
        parse_age(text)


def test_no_bound_needs_no_unit() -> None:
    assert parse_age("0") == 0
