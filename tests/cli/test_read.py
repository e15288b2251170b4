"""The three formats in which `viewstamp read` prints a record."""

from __future__ import annotations

import json

from viewstamp.cli.read import ReadOutput, formatter
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.batch import Record


def record(value: bytes = b"v", key: bytes | None = None, headers: dict[str, bytes] | None = None) -> Record:
    return Record(Position(1), Term(2), Index(3), 4_000_000, value, key, headers)


def test_json_has_all_fields_of_a_record() -> None:
    line = formatter(ReadOutput.JSON)(record(b"v", b"k", {"trace": b"ab", "raw": b"\xff"}))
    assert json.loads(line) == {
        "position": 1,
        "term": 2,
        "index": 3,
        "timestamp": 4_000_000,
        "value": "v",
        "key": "k",
        "headers": {"trace": "ab"},
        "headers_base64": {"raw": "/w=="},
    }
    assert set(json.loads(formatter(ReadOutput.JSON)(record()))) == {"position", "term", "index", "timestamp", "value"}


def test_table_escapes_control_characters() -> None:
    line = formatter(ReadOutput.TABLE)(record(b"a\x1b[2J\x07\x00\r\nb\tc", key="k\u202e\x9b".encode()))
    assert line == b"         1  1970-01-01 00:00:04.000+00:00  k\\u202e\\x9b  a\\x1b[2J\\x07\\x00\\x0d\\x0ab\tc\n"


def test_raw_prints_the_appended_bytes() -> None:
    assert formatter(ReadOutput.RAW)(record(b"\x1b\xff")) == b"\x1b\xff\n"
