"""The delays as a table and as a picture."""

from __future__ import annotations

import io
from datetime import date
from pathlib import Path

import pytest
from rich.console import Console

from viewstamp.demo.spark_delays import Delays

ROWS = [["AA", 2013, 1, 3, 2, 30], ["AA", 2013, 2, 1, 1, -4], ["UA", 2013, 1, 1, 0, 0], ["UA", 2013, 2, 10, 8, 400]]
YEAR = [
    [carrier, 2013, month, 58_000, 57_000, 57_000 * month] for carrier in ("AA", "UA", "9E") for month in range(1, 13)
]


def test_means_are_of_sums_and_cancelled_flights_count_as_flights_alone() -> None:
    delays = Delays(ROWS)
    assert delays.months == [date(2013, 1, 1), date(2013, 2, 1)]
    assert delays.carriers == ["UA", "AA"]  # The one that is late the most comes first.
    assert delays.mean("AA", date(2013, 1, 1)) == 15
    assert delays.mean("UA", date(2013, 1, 1)) is None
    assert delays.mean("AA", None) == 26 / 3
    assert delays.mean(None, date(2013, 2, 1)) == 44
    assert (delays.flights, delays.departed, delays.count("UA")) == (15, 11, 11)


def test_the_table_of_a_year_fits_the_80_columns_that_a_pipe_has() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(Delays(YEAR).table())
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Dec" in printed
    assert "2,088,000" in printed
    assert "…" not in printed


@pytest.mark.spark
@pytest.mark.slow
def test_the_picture_is_a_png_that_is_large_enough_to_read(tmp_path: Path) -> None:
    from viewstamp.demo.spark_delays import draw

    draw(str(tmp_path / "x.png"), Delays(ROWS), {"AA": "American"})
    head = (tmp_path / "x.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(head[16:20]) >= 1200
