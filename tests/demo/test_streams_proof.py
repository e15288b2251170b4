"""The comparison of an order with receipts, on which the demo with streams rests, finds every kind of difference."""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import pytest

from viewstamp.cli.read import as_json
from viewstamp.client.results import SpreadRecord
from viewstamp.demo.proof import Comparison
from viewstamp.demo.source import Source
from viewstamp.demo.streams_proof import compare_order, places_of
from viewstamp.demo.streams_result import StreamsResult
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.batch import Record

PLACES = [array("Q", [1, 3]), array("Q", [2])]
"""Lines 1 and 3 are in stream 1, line 2 is in stream 2."""
RIGHT = [(1, 1, 1, b"a"), (2, 2, 1, b"b"), (3, 1, 2, b"a")]


def compared(tmp_path: Path, records: list[tuple[int, int, int, bytes]]) -> Comparison:
    (tmp_path / "input").write_bytes(b"a\nb\na\n")
    return compare_order(str(tmp_path / "input"), records, PLACES)


def test_each_line_once_at_the_place_of_its_receipt_is_equal(tmp_path: Path) -> None:
    comparison = compared(tmp_path, RIGHT)
    assert comparison.is_equal
    assert comparison.records == 3
    other = compared(tmp_path, [(1, 2, 1, b"b"), (2, 1, 1, b"a"), (3, 1, 2, b"a")])
    assert other.is_equal
    assert other.digest != comparison.digest, "another order"


@pytest.mark.parametrize(
    ("records", "lost", "duplicated", "out_of_order", "invented"),
    [
        (RIGHT[:2], 1, 0, 0, 0),
        ([RIGHT[0], (3, 2, 1, b"b"), (4, 1, 2, b"a")], 0, 0, 2, 0),
        ([(1, 1, 2, b"a"), (2, 2, 1, b"b"), (3, 1, 1, b"a")], 0, 0, 2, 0),
        ([*RIGHT, (4, 1, 2, b"a")], 0, 1, 1, 0),
        ([*RIGHT, (4, 1, 3, b"x")], 0, 0, 1, 1),
        ([*RIGHT, (4, 3, 1, b"x")], 0, 0, 1, 1),
        ([RIGHT[0], (2, 2, 1, b"a"), RIGHT[2]], 1, 0, 0, 1),
    ],
)
def test_each_difference_is_counted(
    tmp_path: Path,
    records: list[tuple[int, int, int, bytes]],
    lost: int,
    duplicated: int,
    out_of_order: int,
    invented: int,
) -> None:
    comparison = compared(tmp_path, records)
    assert not comparison.is_equal
    assert (comparison.lost, comparison.duplicated) == (lost, duplicated)
    assert (comparison.out_of_order, comparison.invented) == (out_of_order, invented)


def test_the_output_of_a_reader_is_read_back() -> None:
    for value in (b"text", b"\xff"):
        record = Record(Position(2), Term(1), Index(9), 5, value, None, None)
        line = as_json(SpreadRecord.of(record, Position(7), 3))
        assert list(places_of([line])) == [(7, 3, 2, value)]


def test_the_result_says_whether_all_readers_have_one_order_and_what_to_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input").write_bytes(b"a\nb\na\n")
    result = StreamsResult(Source(path=str(tmp_path / "input"), topic="lines", lines=3, bytes=6), nodes=2, streams=2)
    result.acknowledged = result.ordered = 3
    result.readers = {node: compared(tmp_path, RIGHT) for node in ("n1", "n2")}
    result.print("viewstamp-data", keep=False)
    printed = capsys.readouterr().out
    assert "the proof holds" in printed
    assert re.search("order of the records *│ the same on n1, n2 ", printed)
    new = ["cluster start", "group place east", "topic create orders --streams 2", "append orders", "read orders"]
    assert [line.partition("viewstamp ")[2] for line in printed.splitlines()[-5:]] == new
    result.readers["n2"] = compared(tmp_path, [(1, 2, 1, b"b"), (2, 1, 1, b"a"), (3, 1, 2, b"a")])
    result.print("viewstamp-data", keep=False)
    printed = capsys.readouterr().out
    assert "THE PROOF FAILED" in printed
    assert "DIFFERENT on n1, n2" in printed
