"""``viewstamp config`` writes files that it can show, and never overwrites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from viewstamp.cli import main


def test_new_writes_files_that_show_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(tmp_path / "cluster")
    assert main.run(["config", "new", "--nodes", "5", directory, "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [node["id"] for node in made["nodes"]] == ["n1", "n2", "n3", "n4", "n5"]
    assert main.run(["config", "show", "--config", made["nodes"][4]["file"], "--output", "json"]) == 0
    shown = {row["key"]: (row["value"], row["origin"]) for row in json.loads(capsys.readouterr().out)["settings"]}
    assert shown["cluster.id"] == (made["cluster_id"], f"file {directory}/n5.toml")
    assert shown["node.listen"][0] == made["nodes"][4]["address"]
    assert shown["wal.segment_bytes"][1] == "default"


def test_show_names_the_flag_or_variable_of_each_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main.run(["config", "new", str(tmp_path)])
    monkeypatch.setenv("VIEWSTAMP_TIMEOUTS__ELECTION_MS", "900")
    capsys.readouterr()
    file = str(tmp_path / "n1.toml")
    assert main.run(["config", "show", "--config", file, "--set", "timeouts.tick_ms=20"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["timeouts.tick_ms", "20ms", "flag", "--set"] in [row[:4] for row in rows]
    assert ["timeouts.election_ms", "900ms", "environment", "VIEWSTAMP_TIMEOUTS__ELECTION_MS"] in [
        row[:4] for row in rows
    ]


def test_new_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["config", "new", str(tmp_path)]) == 0
    before = (tmp_path / "n1.toml").read_bytes()
    assert main.run(["config", "new", str(tmp_path)]) == 2
    assert (tmp_path / "n1.toml").read_bytes() == before
    assert "already holds n1.toml, n2.toml, n3.toml" in capsys.readouterr().err
