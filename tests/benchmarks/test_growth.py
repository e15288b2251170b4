"""The benchmark of growth: the choice of topics and sessions, and a short complete run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.growth import GROWING, main, spread


def test_a_few_are_spread_evenly_over_all() -> None:
    assert spread(1) == [0]
    assert spread(3) == [0, 1, 2]
    assert spread(10, 4) == [0, 2, 5, 7]
    assert len(set(spread(9000))) == 64


@pytest.mark.slow
@pytest.mark.parametrize("name", GROWING)
def test_the_first_point_of_each_is_measured(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = GROWING[name][1][0]
    options = ["--only", name, "--most", str(first), "--seconds", "0.2", "--rounds", "1", "--output", "json"]
    assert main(options) == 0
    found = json.loads(capsys.readouterr().out)["growth"]
    (point,) = found[name]
    assert point[name] == first
    assert point["cpu_us"] > 0
    assert point["per_second"] > 0
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_grow_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "cores"])
    assert "topics" in capsys.readouterr().err
