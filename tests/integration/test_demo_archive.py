"""The demo of the archive as a user runs it, with real processes and a real kill, on a few lines."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from viewstamp.cli import main
from viewstamp.demo.source import made_lines

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")]


def test_every_line_is_read_from_the_archive_after_the_leader_was_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines").write_bytes(b"".join(line + b"\n" for line in made_lines(15_000)))
    target = tmp_path / "it"
    arguments = ["demo-archive", "--input", str(tmp_path / "lines"), "--dir", str(target), "--output", "json"]
    assert main.run(arguments) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["records"], told["archived"], told["replicas_equal"]) == (15_000, 15_000, True)
    assert (told["lost"], told["duplicated"], told["out_of_order"]) == (0, 0, 0)
    assert (told["damaged_runs"], told["orphans"], len(told["failovers_ms"])) == (0, 0, 1)
    assert min(told["first_indices"].values()) > 7_500
    assert told["log_bytes"] < told["log_bytes_peak"]
    assert not [each.name for each in target.glob("*") if each.suffix != ".png"]
