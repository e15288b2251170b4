"""Errors become exit codes and, with ``--output json``, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from viewstamp import errors
from viewstamp.cli import main, status
from viewstamp.errors import ViewstampError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnavailableError("gone"), 3),
        (errors.NotLeaderError("not me"), 3),
        (errors.WrongClusterError("strangers"), 3),
        (errors.OutcomeUnknownError("who knows", token=None), 4),
        (errors.UnknownTopicError("what topic"), 5),
        (errors.ConfigError("wrong"), 2),
        (errors.DirectoryInUseError("taken"), 2),
        (errors.StorageFullError("full"), 6),
        (errors.CorruptionError("rot"), 7),
        (KeyboardInterrupt(), 130),
        (PermissionError(13, "Permission denied", "/x"), 6),
        (ZeroDivisionError("a bug"), 1),
    ],
)
def test_error_has_its_exit_code_and_is_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(status, "find_cluster", fail)
    assert main.run(["status", "--output", "json"]) == code
    captured = capsys.readouterr()
    printed = json.loads(captured.err)
    assert sorted(printed) == ["error", "message", "remedy"]
    if isinstance(error, ViewstampError):
        assert (printed["error"], printed["message"]) == (type(error).__name__, error.message)
    assert captured.out == ""


def test_error_without_json_is_a_message_and_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["status", "--dir", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"viewstamp: there is no cluster in {tmp_path}"
    assert "viewstamp cluster start" in lines[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--output=json", "--bogus"],
        ["nonsense", "--output", "json"],
        ["read", "topic", "--from", "0", "--output", "json"],
        ["read", "topic", "--from", "5", "--to", "4", "--output", "json"],
        ["demo", "--nodes", "2", "--output", "json"],
        ["status", "--dir", "a", "--cluster", "127.0.0.1:1", "--output", "json"],
        ["status", "--cluster", "nowhere", "--output", "json"],
        ["status", "--cluster", " , ", "--output", "json"],
        ["append", "topic", "--cluster", "127.0.0.1:1", "/no/such/file", "--output", "json"],
        ["sim", "run", "--seed", "1", "--seeds", "2", "--output", "json"],
        ["wal", "verify", "/no/such/log", "--output", "json"],
        ["wal", "verify", __file__, "--output", "json"],
        ["wal", "inspect", __file__, "--output", "json"],
        ["demo", "--input", "/no/such/file", "--output", "json"],
        ["bench", "append", "--embedded", "--dir", "x", "--output", "json"],
        ["config", "show", "--config", "/no/such/file", "--output", "json"],
        ["config", "show", "--config", "/no/such/file", "--set", "x", "--output", "json"],
    ],
)
def test_wrong_usage_exits_with_2_and_a_remedy(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2
    printed = json.loads(capsys.readouterr().err)
    assert printed["message"]
    assert printed["remedy"]


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in (
        "demo",
        "demo-spark",
        "cluster",
        "node",
        "config",
        "topic",
        "append",
        "read",
        "status",
        "wal",
        "bench",
        "sim",
        "actor",
        "snapshot",
    ):
        assert f"\n  {command} " in shown
