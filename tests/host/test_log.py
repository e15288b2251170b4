"""A line for each event, as JSON, with what every line has in front."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta

from viewstamp.host.log import JsonLog


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_begins_with_what_every_line_has_whatever_the_order_in_which_it_was_said() -> None:
    stream = io.StringIO()
    JsonLog(stream).bind(reason="the disk", term=3).bind(node="n1").warning("! full", left=7)
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "event", "node", "term", "reason", "left"]
    assert list(line.values())[1:] == ["warning", "! full", "n1", 3, "the disk", 7]


def test_the_timestamp_is_of_the_moment_and_says_that_it_is_utc() -> None:
    stream = io.StringIO()
    JsonLog(stream).info("= node started")
    said = datetime.fromisoformat(str(lines(stream)[0]["timestamp"]))
    assert said.utcoffset() == timedelta(0)
    assert abs(said.timestamp() - datetime.now().timestamp()) < 60


def test_what_is_less_than_the_level_is_not_written_also_by_a_logger_that_was_bound() -> None:
    stream = io.StringIO()
    log = JsonLog(stream, "warning").bind(node="n1")
    log.info("= state")
    log.warning("! refused")
    log.error("! node failed")
    assert [line["event"] for line in lines(stream)] == ["! refused", "! node failed"]


def test_a_value_that_is_no_json_is_asked_what_it_shows_or_written_as_python_shows_it() -> None:
    class Term:
        def __structlog__(self) -> int:
            return 5

    stream = io.StringIO()
    JsonLog(stream).info("= state", term=Term(), error=ValueError("no"), text='"\n')
    assert [lines(stream)[0][name] for name in ("term", "error", "text")] == [5, "ValueError('no')", '"\n']


def test_binding_changes_the_new_logger_only() -> None:
    stream = io.StringIO()
    log = JsonLog(stream)
    log.bind(node="n1")
    log.info("= node started")
    assert "node" not in lines(stream)[0]
