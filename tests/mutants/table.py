"""The table of mutants in ``docs/mutants.md``, and the records that it shows: written from one and the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.mutants.aims import AIMS
from tests.mutants.mutants import MUTANTS
from tests.mutants.records import Record

__all__ = ["DOCUMENT", "document", "records_source"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "mutants.md"

_MARK = "<!-- written by `python -m tests.mutants --record` -->"


def _table(records: Iterable[Record]) -> str:
    rows = ["| mutant | the mistake | aim | seed | found by |", "| --- | --- | --- | --- | --- |"]
    rows += [
        f"| {record.mutant} | {MUTANTS[record.mutant].mistake} | {record.aim} | {record.seed} | {record.invariant} |"
        for record in records
    ]
    rows += ["", "| aim | is aimed at |", "| --- | --- |"]
    rows += [f"| {aim.name} | {aim.sentence} |" for aim in AIMS.values()]
    return "\n".join(rows)


def document(text: str, records: Iterable[Record]) -> str:
    """Return the text of the document with the tables of ``records`` between its two marks."""
    before, _, after = text.split(_MARK)
    return f"{before}{_MARK}\n\n{_table(records)}\n\n{_MARK}{after}"


def records_source(text: str, records: Iterable[Record]) -> str:
    """Return the source of ``records.py`` with other records."""
    before, start, rest = text.partition("RECORDS = (\n")
    _, end, after = rest.partition("\n)\n")
    rows = [
        f'    Record("{record.mutant}", "{record.aim}", {record.seed}, "{record.invariant}"),' for record in records
    ]
    return before + start + "\n".join(rows) + end + after
