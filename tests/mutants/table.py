"""Writes the tables of mutants in the docs and the records, both from the same data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.explore.finds import FINDS
from tests.mutants.aims import AIMS
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.killers import Killer
from tests.mutants.records import Record

__all__ = ["AIMS_DOCUMENT", "DOCUMENT", "aims_document", "document", "records_source"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "proof.md"
AIMS_DOCUMENT = DOCUMENT.with_name("mutants.md")

_MARK = "<!-- written by `python -m tests.mutants --record` -->"


def document(text: str, records: Iterable[Record]) -> str:
    """Return the text of the document with the table of ``records`` between its two marks."""
    rows = [
        "| mutant | the mistake | breaks | found by | explorer | simulator |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [_row(record) for record in records]
    return _between_marks(text, rows)


def _row(record: Record) -> str:
    mutant = CATALOGUE[record.mutant]
    scopes = [f"{find.scope}, {find.states:,} worlds" for find in FINDS if find.mutant == record.mutant and find.states]
    seed = f"{record.seed.aim}, {record.seed.seed}: {record.violated}" if record.seed is not None else ""
    return f"| {mutant.name} | {mutant.mistake} | {mutant.rule} | {_where(record)} | {'; '.join(scopes)} | {seed} |"


def _where(record: Record) -> str:
    found = "" if record.found.startswith("test") or not record.found else f": {record.found}"
    return f"{record.killer}{found}"


def aims_document(text: str) -> str:
    """Return the text of the document with the table of aims between its two marks."""
    rows = ["| aim | is aimed at |", "| --- | --- |", *(f"| {aim.name} | {aim.sentence} |" for aim in AIMS.values())]
    return _between_marks(text, rows)


def _between_marks(text: str, rows: Iterable[str]) -> str:
    before, _, after = text.split(_MARK)
    return "\n".join([f"{before}{_MARK}", "", *rows, "", f"{_MARK}{after}"])


def records_source(text: str, records: Iterable[Record]) -> str:
    """Return the source of ``records.py`` with other records."""
    before, start, rest = text.partition("RECORDS: tuple[Record, ...] = (\n")
    _, end, after = rest.partition("\n)\n")
    rows = []
    for record in records:
        arguments = [f'"{record.mutant}"', _source(record.killer)]
        if record.found or record.seed is not None:
            arguments.append(f'"{record.found}"')
        if record.seed is not None:
            arguments += [_source(record.seed), f'"{record.violated}"']
        rows.append(f"    Record({', '.join(arguments)}),")
    return before + start + "\n".join(rows) + end + after


def _source(killer: Killer) -> str:
    return f"{type(killer).__name__}({', '.join(_quoted(each) for each in killer)})"


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
