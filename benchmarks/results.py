"""Stores the results of the rows, and writes the newest ones into two pages of the documentation.

``benchmarks/results/ROW.jsonl`` has one line for each run, appended by ``python -m benchmarks --keep``: the date, the
commit, the conditions, all figures with their turns, the ratios. ``python -m benchmarks.results`` writes the newest
line of each row as Markdown: the table of the goals between the two marks in docs/performance.md, and the figures of
all systems between those in docs/measurements.md; or with ``--print`` both to standard output.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.rows import NAMES
from benchmarks.table import details_markdown, goals_markdown

__all__ = ["BEGINS", "ENDS", "PAGES", "RESULTS", "between_marks", "keep", "newest", "read"]

RESULTS = Path(__file__).parent / "results"
_DOCS = Path(__file__).parents[1] / "docs"
PAGES = {_DOCS / "performance.md": goals_markdown, _DOCS / "measurements.md": details_markdown}
"""Each page that has results, with the function that writes them."""
BEGINS = "<!-- the table begins -->"
ENDS = "<!-- the table ends -->"

Record = dict[str, Any]


def keep(record: Record, directory: Path = RESULTS) -> Path:
    """Append a record to its row's file; return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{record['row']}.jsonl"
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path


def read(name: str, directory: Path = RESULTS) -> list[Record]:
    """Return all stored records of a row, oldest first. An incomplete line is left out."""
    path = directory / f"{name}.jsonl"
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append({"row": name, **record})
    return sorted(records, key=lambda record: str(record.get("date", "")))


def newest(directory: Path = RESULTS) -> list[Record]:
    """Return the newest record of each row that has one, in the order of the table.

    It has the record of the run before as ``before``, if there is one.
    """
    found = (read(name, directory) for name in NAMES)
    return [{**records[-1], "before": records[-2] if len(records) > 1 else None} for records in found if records]


def between_marks(page: str, text: str) -> str:
    """Return ``page`` with ``text`` between its two marks.

    Raises:
      ValueError: the page does not have both marks in their order.
    """
    before, begins, rest = page.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not begins or not ends:
        raise ValueError(f"the page has no {BEGINS!r} followed by {ENDS!r}")
    return f"{before}{BEGINS}\n\n{text.strip()}\n\n{ENDS}{after}"


def main() -> None:
    """Write the newest records as Markdown."""
    parser = argparse.ArgumentParser(description="Write the newest results of each row into the documentation.")
    parser.add_argument("--print", action="store_true", help="write to standard output instead")
    options = parser.parse_args()
    records = newest()
    if not records:
        parser.error("there are no results: run `python -m benchmarks --keep`")
    for page, write in PAGES.items():
        text = write(records)
        if options.print:
            print(text)
        else:
            page.write_text(between_marks(page.read_text(encoding="utf-8"), text), encoding="utf-8")
            print(f"{len(records)} rows written into {page}")


if __name__ == "__main__":
    main()
