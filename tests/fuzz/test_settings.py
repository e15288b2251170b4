"""Settings from any bytes are a node's settings, or an error that names the problem; a file is never used in part."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.material import only, spoilt, tries
from viewstamp.config.load import load_settings
from viewstamp.errors import ConfigError

SETTINGS = b"""\
[node]
id = "n1"
listen = "127.0.0.1:7001"
data_dir = "data"

[cluster]
id = "c1"
members = { n1 = "127.0.0.1:7001", n2 = "127.0.0.1:7002", n3 = "127.0.0.1:7003" }

[wal]
segment_bytes = 8388608
bytes_max = 1073741824

[limits]
record_bytes_max = 1048576

[timeouts]
election_timeout_ms = 1000
"""
VALUES = [
    "1",
    "-1",
    "0",
    "1e400",
    "nan",
    "-inf",
    "true",
    '""',
    '"x"',
    "[]",
    "{}",
    "[1]",
    "{a = 1}",
    "1979-05-27",
    "0x7f",
]
VALUES += ["9" * 30, '"' + "y" * 300 + '"', '"a=b=c"', "[[[[]]]]"]


def load(path: Path, data: bytes, environment: dict[str, str] | None = None) -> None:
    path.write_bytes(data)
    only(ConfigError, lambda: load_settings(path, environment=environment or {}))


@tries(80)
@given(data=spoilt(SETTINGS))
def test_a_spoilt_file_is_settings_or_refused(tmp_path: Path, data: bytes) -> None:
    load(tmp_path / "node.toml", data)


@tries(80)
@given(data=st.data())
def test_a_key_with_any_value_is_a_setting_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    lines = SETTINGS.decode().splitlines()
    keys = [number for number, line in enumerate(lines) if "=" in line]
    at = data.draw(st.sampled_from(keys))
    lines[at] = lines[at].split("=")[0] + "= " + data.draw(st.sampled_from(VALUES))
    load(tmp_path / "node.toml", "\n".join(lines).encode())


@tries(100)
@given(
    key=st.sampled_from(["NODE__ID", "NODE__LISTEN", "CLUSTER__MEMBERS", "WAL__SEGMENT_BYTES", "LIMITS__X", "X__Y"]),
    text=st.sampled_from(VALUES)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30),
)
def test_a_variable_with_any_text_is_a_setting_or_refused(tmp_path: Path, key: str, text: str) -> None:
    load(tmp_path / "node.toml", SETTINGS, environment={f"VIEWSTAMP_{key}": text})


@pytest.mark.parametrize("nested", ["[" * 50_000, "{a=" * 50_000, "a." * 1000], ids=["lists", "tables", "dots"])
def test_a_file_nested_thousands_deep_is_refused(tmp_path: Path, nested: str) -> None:
    load(tmp_path / "node.toml", b"[node]\nid = " + nested.encode())
    load(tmp_path / "node.toml", nested.encode() + b"b = 1")
