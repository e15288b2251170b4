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


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("configure", "orders", "--schema", "id: long"), 5, "there are bool, int32, int64"),
        (("configure", "unknown", "--schema", "id: int64"), 5, "no topic is named 'unknown'"),
        (("configure", "orders", "--schema", "@missing"), 2, "cannot be read from missing"),
        (("create", "parts", "--streams", "2", "--schema", "id: int64"), 2, "cannot have a schema yet"),
    ],
)
def test_a_schema_that_makes_no_sense_is_an_error(
    cluster: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    run(cluster, "topic", *arguments, code=code)
    assert message in capsys.readouterr().err
