"""The schema of a topic in the commands ``topic``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_sink import table
from tests.cli.test_topic_archive import _cluster as _cluster
from tests.cli.test_topic_archive import run


def test_a_schema_is_set_shown_and_becomes_wider(
    cluster: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for command in ("create", "configure"):
        run(cluster, "topic", command, "payments", "--schema", "id:int64", "--output", "json")
        assert json.loads(capsys.readouterr().out)["schema"] == "id: int64"
    file = tmp_path / "payments.schema"
    file.write_text("id: int64,\nname: string?  # as on the card\n", encoding="utf-8")
    run(cluster, "topic", "configure", "payments", "--schema", f"@{file}", "--retain-age", "7d")
    shown = table(capsys.readouterr().out)
    assert shown[1][-1] == "7d"
    run(cluster, "topic", "describe", "payments")
    assert table(capsys.readouterr().out)[2:] == [
        ["field", "type", "null"],
        ["id", "int64", "no"],
        ["name", "string", "yes"],
    ]


def test_rows_are_appended_and_read_as_json(
    cluster: str, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    run(cluster, "topic", "configure", "orders", "--schema", "id: int64, at: timestamp?, data: binary?, name: string?")
    file = tmp_path / "rows"
    lines = [
        b'{"id": 7, "at": "2013-07-01T14:00:00+02:00", "data": "/w==", "name": "\xc3\xa9"}',
        b'{"id": 8}',
    ]
    file.write_bytes(b"\n".join(lines) + b"\n")
    run(cluster, "append", "orders", str(file), "--rows")
    capsysbinary.readouterr()
    run(cluster, "read", "orders", "--rows")
    assert [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()] == [
        {"id": 7, "at": "2013-07-01T12:00:00Z", "data": "/w==", "name": "é"},
        {"id": 8, "at": None, "data": None, "name": None},
    ]
    run(cluster, "append", "orders", str(file), "--raw")
    capsysbinary.readouterr()
    run(cluster, "read", "orders", "--rows", code=5)
    captured = capsysbinary.readouterr()
    assert b"position 3: a record that is no row" in captured.err
    assert [json.loads(line)["id"] for line in captured.out.splitlines()] == [7, 8], "the rows before it are printed"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[7]", "line 1: b'[7]' is no JSON object"),
        ("seven", "is no JSON object"),
        ('{"id": 7, "at": "noon"}', "field at of a row is 'noon', which is no timestamp"),
        ('{"id": 7, "at": "2013-07-01"}', "write ISO 8601 with a time zone"),
        ('{"id": 7, "data": "?"}', "which is no binary"),
        ('{"id": "7"}', "field id of a row is '7', which is no int64"),
    ],
)
def test_a_line_that_is_no_row_is_refused_with_its_number(
    cluster: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, message: str
) -> None:
    run(cluster, "topic", "configure", "orders", "--schema", "id: int64, at: timestamp?, data: binary?")
    file = tmp_path / "rows"
    file.write_text(line + "\n", encoding="utf-8")
    run(cluster, "append", "orders", str(file), "--rows", code=5)
    captured = capsys.readouterr()
    assert message in captured.err
    assert "0 records appended" in captured.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("configure", "orders", "--schema", "id: long"), 5, "there are bool, int32, int64"),
        (("configure", "unknown", "--schema", "id: int64"), 5, "no topic is named 'unknown'"),
        (("configure", "orders", "--schema", "@missing"), 2, "cannot be read from missing"),
        (("create", "parts", "--streams", "2", "--schema", "id: long"), 5, "there are bool, int32, int64"),
    ],
)
def test_a_schema_that_makes_no_sense_is_an_error(
    cluster: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    run(cluster, "topic", *arguments, code=code)
    assert message in capsys.readouterr().err
