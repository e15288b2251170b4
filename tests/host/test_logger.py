"""The log has one JSON line for each event, and all lines begin with the same fields."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TextIO

import pytest

from viewstamp.host.logger import JsonLogger, SafeLogger


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_begins_with_the_common_fields_in_a_fixed_order() -> None:
    stream = io.StringIO()
    JsonLogger(stream).bind(reason="the disk", term=3).bind(node="n1").warning("! full", left=7)
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "event", "node", "term", "reason", "left"]
    assert list(line.values())[1:] == ["warning", "! full", "n1", 3, "the disk", 7]


def test_the_timestamp_is_the_present_time_marked_as_utc() -> None:
    stream = io.StringIO()
    JsonLogger(stream).info("= node started")
    said = datetime.fromisoformat(str(lines(stream)[0]["timestamp"]))
    assert said.utcoffset() == timedelta(0)
    assert abs(said.timestamp() - datetime.now().timestamp()) < 60


def test_events_below_the_level_are_not_written_even_by_a_bound_logger() -> None:
    stream = io.StringIO()
    log = JsonLogger(stream, "warning").bind(node="n1")
    log.info("= state")
    log.warning("! refused")
    log.error("! node failed")
    assert [line["event"] for line in lines(stream)] == ["! refused", "! node failed"]


def test_a_value_that_is_no_json_is_written_by_its_own_method_or_its_repr() -> None:
    class Term:
        def __structlog__(self) -> int:
            return 5

    stream = io.StringIO()
    JsonLogger(stream).info("= state", term=Term(), error=ValueError("no"), text='"\n')
    assert [lines(stream)[0][name] for name in ("term", "error", "text")] == [5, "ValueError('no')", '"\n']


def test_binding_changes_the_new_logger_only() -> None:
    stream = io.StringIO()
    log = JsonLogger(stream)
    log.bind(node="n1")
    log.info("= node started")
    assert "node" not in lines(stream)[0]


class Fickle(io.StringIO):
    """A stream that raises ``error`` while it is set."""

    error: Exception | None = None

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("I/O operation on closed file")])
def test_a_safe_log_drops_lines_that_cannot_be_written_and_reports_how_many(error: Exception) -> None:
    stream = Fickle()
    log = SafeLogger(JsonLogger(stream)).bind(node="n1")
    stream.error = error
    log.info("= state")
    log.bind(part="wal").error("! node failed")
    stream.error = None
    log.warning("! refused")
    log.info("= state")
    assert [(line["event"], line.get("lines")) for line in lines(stream)] == [
        ("! refused", None),
        ("! log lines lost", 2),
        ("= state", None),
    ]
    assert str(error) in str(lines(stream)[1]["reason"])
    assert log.lines_lost == 2


def test_a_safe_log_survives_a_value_that_cannot_be_shown() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    stream = io.StringIO()
    SafeLogger(JsonLogger(stream)).info("= state", value=Odd())
    assert stream.getvalue() == ""


def test_a_long_text_is_cut_in_the_line() -> None:
    stream = io.StringIO()
    SafeLogger(JsonLogger(stream)).warning("! refused", reason="x" * 10_000_000)
    reason = str(lines(stream)[0]["reason"])
    assert reason.endswith("xxx... (10000000 characters)")
    assert len(stream.getvalue()) < 2000


@contextmanager
def pipe() -> Iterator[tuple[int, TextIO]]:
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:
        yield reader, stream
        os.close(reader)


def test_a_full_pipe_loses_lines_and_does_not_block() -> None:
    with pipe() as (reader, stream):
        log = SafeLogger(JsonLogger(stream))
        for number in range(2000):
            log.info("= state", number=number, text="x" * 200)
        lost = log.lines_lost
        assert 0 < lost < 2000
        held = os.read(reader, 1 << 20)
        log.info("= state", number=2000)
        held += os.read(reader, 1 << 20)
    found = [json.loads(line) for line in held.splitlines()]
    assert [line.get("number") for line in found[-2:]] == [2000, None]
    assert found[-1]["lines"] == lost


def test_a_line_that_was_cut_in_the_middle_does_not_spoil_the_next() -> None:
    with pipe() as (reader, stream):
        log = JsonLogger(stream)
        with pytest.raises(BlockingIOError):
            log.info("= state", text="x" * 200_000)  # More than a pipe holds.
        torn = os.read(reader, 1 << 20)
        log.info("= state", number=1)
        rest = os.read(reader, 1 << 20)
    assert not torn.endswith(b"\n")
    assert json.loads(rest.splitlines()[-1])["number"] == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_nothing_in_a_buffer_that_would_fail_at_exit() -> None:
    with open("/dev/full", "w", encoding="utf-8") as stream:
        log = SafeLogger(JsonLogger(stream))
        log.error("! node failed")
        assert log.lines_lost == 1


def test_a_process_without_stderr_logs_nowhere() -> None:
    JsonLogger(None).bind(node="n1").error("! node failed")


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_bytes().splitlines()]


def test_a_file_of_messages_is_set_aside_when_it_is_full_and_no_line_is_lost(tmp_path: Path) -> None:
    """Without a bound, the file would in the end fill the disk of the log."""
    path = tmp_path / "log.jsonl"
    with open(path, "a", encoding="utf-8") as stream:
        log = JsonLogger(stream, path=str(path), bytes_max=4096).bind(node="n1")
        for number in range(60):
            log.info("= state", number=number)
    kept = [*numbers(tmp_path / "log.jsonl.1"), *numbers(path)]
    assert kept == list(range(60))[-len(kept) :], "the newest, in order"
    assert len(numbers(path)) < 60
    assert max(each.stat().st_size for each in tmp_path.iterdir()) <= 4096
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.jsonl", "log.jsonl.1"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_messages_go_on_where_the_file_cannot_be_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes no new file, so the old one is written on, and setting it aside is tried again later."""
    path = tmp_path / "log.jsonl"

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open(path, "a", encoding="utf-8") as stream:
        log = JsonLogger(stream, path=str(path), bytes_max=1000)
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", fail)
            for number in range(40):
                log.info("= state", number=number)
        assert numbers(path) == list(range(40))
        for number in range(40, 60):
            log.info("= state", number=number)
    assert path.stat().st_size <= 1000
    assert numbers(path)[-1] == 59


def test_a_stream_that_is_not_the_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("another process's")
    with open(tmp_path / "stderr", "a", encoding="utf-8") as stream:
        log = JsonLogger(stream, path=str(path), bytes_max=100)
        for number in range(10):
            log.info("= state", number=number)
    assert path.read_text() == "another process's"
    assert numbers(tmp_path / "stderr") == list(range(10))
