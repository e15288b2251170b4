"""The comparison on which the demo's proof rests finds every kind of difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewstamp.cli.read import as_json
from viewstamp.demo.proof import Comparison, compare, records_of
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.batch import Record

LINES = [b"a", b"b", b"a", b"", b"c\xff"]


def compared(tmp_path: Path, values: list[bytes], acknowledged: int = 5) -> Comparison:
    (tmp_path / "input").write_bytes(b"\n".join(LINES) + b"\n")
    return compare(str(tmp_path / "input"), list(enumerate(values, 1)), acknowledged)


def test_same_lines_at_their_positions_are_equal(tmp_path: Path) -> None:
    comparison = compared(tmp_path, LINES)
    assert comparison.is_equal
    assert (comparison.records, comparison.lost, comparison.duplicated, comparison.out_of_order) == (5, 0, 0, 0)


@pytest.mark.parametrize(
    ("values", "lost", "duplicated", "out_of_order", "invented", "difference"),
    [
        ([b"a", b"b", b"a", b""], 1, 0, 0, 0, "line 5 is missing, and all after it"),
        ([], 5, 0, 0, 0, "line 1 is missing, and all after it"),
        ([b"a", b"a", b"", b"c\xff"], 1, 0, 0, 0, "record 2 is b'a', but line 2 is b'b'"),
        ([b"a", b"b", b"b", b"a", b"", b"c\xff"], 0, 1, 0, 0, "record 3 is b'b', but line 3 is b'a'"),
        ([*LINES, b"a"], 0, 1, 0, 0, "record 6 is more than the input has: position 6"),
        ([b"b", b"a", b"a", b"", b"c\xff"], 0, 0, 1, 0, "record 1 is b'b', but line 1 is b'a'"),
        ([b"a", b"b", b"a", b"x", b"", b"c\xff"], 0, 0, 0, 1, "record 4 is b'x', but line 4 is b''"),
    ],
)
def test_differences_are_counted_by_line_and_not_by_value(
    tmp_path: Path,
    values: list[bytes],
    lost: int,
    duplicated: int,
    out_of_order: int,
    invented: int,
    difference: str,
) -> None:
    comparison = compared(tmp_path, values)
    assert not comparison.is_equal
    assert (comparison.lost, comparison.duplicated) == (lost, duplicated)
    assert (comparison.out_of_order, comparison.invented) == (out_of_order, invented)
    assert comparison.difference == difference


def test_missing_line_that_was_never_acknowledged_is_not_lost(tmp_path: Path) -> None:
    comparison = compared(tmp_path, LINES[:3], acknowledged=3)
    assert not comparison.is_equal
    assert comparison.lost == 0


def test_gap_in_the_positions_is_a_difference_and_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"a\nb\n")
    equal = compare(str(tmp_path / "input"), [(1, b"a"), (2, b"b")], 2)
    shifted = compare(str(tmp_path / "input"), [(1, b"a"), (3, b"b")], 2)
    assert shifted.difference == "record 2 has position 3"
    assert shifted.digest != equal.digest


@pytest.mark.parametrize("value", [b"", b"plain", 'quote " and \\ and ü \u2028'.encode(), b"\xff\x00", b"\x00\x1f"])
@pytest.mark.parametrize("key", [None, b"k", b"\xfe"])
def test_proof_reads_the_output_of_read(value: bytes, key: bytes | None) -> None:
    record = Record(Position(7), Term(2), Index(9), 1_700_000_000_000_000, value, key, None)
    line = as_json(record)
    assert line.count(b"\n") == 1
    assert list(records_of([line])) == [(7, value)]
