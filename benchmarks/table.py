"""Writes records of rows as tables for a terminal and as Markdown. A record is a dict that ``results.py`` stores.

Fields that an old record lacks are shown as empty cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.rows.row import CLIENT_LIMIT_CORES

__all__ = ["details_markdown", "goal_lines", "goals_markdown", "print_details", "print_goals", "subject_lines"]

Record = dict[str, Any]

GOAL_COLUMNS = ("work", "ours", "peer", "ratio", "goal", "reached", "CPU ratio", "client at its limit")
BEFORE = "run before"
SUBJECT_COLUMNS = (
    "",
    "figure",
    "ours / it",
    "CPU us",
    "p50 ms",
    "p99 ms",
    "client, cores",
    "client used",
    "durability in force",
)
WIDTH = 120
_OURS = "viewstamp"
_NUMBERS = ("ratio", BEFORE, "goal", "CPU ratio", "figure", "ours / it", "CPU us", "p50 ms", "p99 ms", "client, cores")


def goal_lines(records: Iterable[Record], *, shows_before: bool = False) -> list[tuple[str, ...]]:
    """Return the lines of :data:`GOAL_COLUMNS`: one for each goal, after a line with the work if there are several.

    If ``shows_before``, a further column after the ratio has the ratio of an earlier run, from the field ``before``.
    """
    lines: list[tuple[str, ...]] = []
    for record in records:
        title = str(record.get("title") or record.get("row", ""))
        goals = [(_kind(ratio.get("subject", "")), ratio) for ratio in record.get("ratios", ())]
        if len(goals) > 1 and goals[0][0]:
            lines.append((title, *[""] * (len(GOAL_COLUMNS) - 1 + shows_before)))
            title = ""
        for kind, ratio in goals:
            cells = _goal_cells(record, ratio)
            before = [_before(record, ratio)] * shows_before
            lines.append((title or (f"  {kind}" if kind else ""), *cells[:3], *before, *cells[3:]))
            title = ""
    return lines


def _goal_cells(record: Record, ratio: Record) -> tuple[str, ...]:
    ours, peer = _subject(record, ratio.get("subject", "")), _subject(record, ratio.get("peer", ""))
    unit = "x" if ratio.get("peer") else _unit(record, ours)
    at_least = ratio.get("at_least")
    bound = at_least if at_least is not None else ratio.get("at_most")
    limited = [name for name, each in (("ours", ours), ("peer", peer)) if _is_limited(each)]
    against = f"{ratio['peer']}: {_with_unit(peer.get('value'), _unit(record, peer))}" if ratio.get("peer") else ""
    return (
        _with_unit(ours.get("value"), _unit(record, ours)),
        against,
        _with_unit(ratio.get("found"), unit) if ratio.get("peer") else "",
        f"{'>=' if at_least is not None else '<='} {_with_unit(bound, unit)}",
        "-" if ratio.get("reached") is None else "yes" if ratio["reached"] else "NO",
        _cpu_ratio(ours, peer),
        "both" if len(limited) == 2 else "".join(limited),
    )


def _before(record: Record, ratio: Record) -> str:
    """Return what the row's record in ``before`` had found for the same goal; "" = there is none."""
    name, peer = ratio.get("subject", ""), ratio.get("peer", "")
    unit = "x" if peer else _unit(record, _subject(record, name))
    for each in (record.get("before") or {}).get("ratios", ()):
        if (each.get("subject", ""), each.get("peer", "")) == (name, peer):
            return _with_unit(each.get("found"), unit)
    return ""


def _cpu_ratio(ours: Record, peer: Record) -> str:
    """Return our processor time for a record as a multiple of the peer's; "" if one of them was not measured."""
    mine, its = ours.get("cpu_us"), peer.get("cpu_us")
    return f"{_number(mine / its)} x" if mine and its else ""


def subject_lines(record: Record) -> list[tuple[str, ...]]:
    """Return a line of :data:`SUBJECT_COLUMNS` for each subject of a row."""
    lines: list[tuple[str, ...]] = []
    for each in record.get("subjects", ()):
        cores = each.get("client_cores")
        lines.append(
            (
                each["name"],
                _with_unit(each.get("value"), _unit(record, each)),
                _times(record, each),
                _number(each.get("cpu_us")),
                _number(each.get("p50_ms")),
                _number(each.get("p99_ms")),
                "" if cores is None else f"{cores:.2f}" + (", the limit" if _is_limited(each) else ""),
                "; ".join(filter(None, [each.get("client", ""), each.get("note", "")])),
                each.get("durability", ""),
            )
        )
    return lines


def conditions_line(record: Record) -> str:
    """Return the date, the machine and the settings of a row's measurement."""
    parts = [record.get("date"), record.get("machine"), record.get("filesystem")]
    if record.get("python"):
        loop = f", a fixed loop in {record['loop_ns']} ns" if record.get("loop_ns") else ""
        parts.append(f"Python {record['python']}{loop}")
    if record.get("sync_ms") is not None:
        parts.append(f"a sync of 4 KiB took {record['sync_ms']:.2f} ms")
    if record.get("load") is not None:
        parts.append(f"load average {record['load']}")
    if record.get("rounds"):
        parts.append(f"{record['rounds']} turns of {record.get('seconds', 0):g} s")
    if record.get("commit"):
        parts.append(f"commit {record['commit']}")
    return "; ".join(str(part) for part in parts if part)


def print_goals(records: Sequence[Record], console: Console) -> None:
    """Print the table of all goals."""
    _print("", GOAL_COLUMNS, goal_lines(records), console)


def print_details(record: Record, console: Console) -> None:
    """Print all subjects of a row. Long descriptions are below the table, because its columns are narrow."""
    title = f"{record.get('row', '')}: {record.get('title', '')}"
    _print(title, SUBJECT_COLUMNS[:-2], [line[:-2] for line in subject_lines(record)], console)
    said: dict[str, list[str]] = {}
    for each in record.get("subjects", ()):
        parts = [f"{what}: {each[what]}" for what in ("durability", "client", "note") if each.get(what)]
        said.setdefault("; ".join(parts), []).append(each["name"])
    remarks = [f"{' | '.join(names)}: {what}" for what, names in said.items() if what]
    compares = [f"compared: {record['compares']}"] if record.get("compares") else []
    for line in [*compares, *remarks, *_remarks(record), conditions_line(record)]:
        console.print(f"  {line}", markup=False, highlight=False)
    console.print()


def goals_markdown(records: Sequence[Record]) -> str:
    """Return the table of all goals as Markdown."""
    columns = (*GOAL_COLUMNS[:4], BEFORE, *GOAL_COLUMNS[4:])
    return _markdown(columns, goal_lines(records, shows_before=True))


def details_markdown(records: Iterable[Record]) -> str:
    """Return the subjects of each row as Markdown, a section for each row."""
    return "\n\n".join(map(_row_markdown, records))


def _row_markdown(record: Record) -> str:
    compares = f"{record.get('title', '')}. Compared: {record['compares']}." if record.get("compares") else ""
    lines = [f"## {record.get('row', '')}", "", compares or str(record.get("title", "")), "", *_remarks(record)]
    if lines[-1]:
        lines.append("")
    return "\n".join([*lines, _markdown(SUBJECT_COLUMNS, subject_lines(record)), "", conditions_line(record)])


def _remarks(record: Record) -> list[str]:
    left_out = [f"left out: {line}" for line in record.get("left_out", ())]
    failed = [f"failed: {line}" for line in record.get("failed", ())]
    return [*record.get("notes", ()), *left_out, *failed]


def _subject(record: Record, name: str) -> Record:
    return next((each for each in record.get("subjects", ()) if each.get("name") == name), {})


def _times(record: Record, subject: Record) -> str:
    """Return our figure as a multiple of a peer's: that of our subject of the same kind, or else of our first."""
    kind = subject["name"].partition(", ")[2]
    ours = _subject(record, f"{_OURS}, {kind}") or record["subjects"][0]
    if subject["name"].partition(",")[0] == _OURS or _unit(record, ours) != _unit(record, subject):
        return ""
    return f"{_number(ours['value'] / subject['value'])} x" if subject.get("value") else ""


def _unit(record: Record, subject: Record) -> str:
    return str(subject.get("unit") or record.get("unit", ""))


def _is_limited(subject: Record) -> bool:
    return (subject.get("client_cores") or 0.0) >= CLIENT_LIMIT_CORES


def _kind(name: str) -> str:
    """Return the kind of a subject from its name, for example "8 sessions"; "" if the name has no kind."""
    return "" if name == _OURS else name.removeprefix(f"{_OURS}, ")


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{_number(value)}{'' if unit.startswith('/') else ' '}{unit}".strip()


def _number(value: float | None) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _print(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]], console: Console) -> None:
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for number, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if column in _NUMBERS else "left"
        # Figures are not wrapped; if the table is too wide, the names of the work and of the peers are.
        table.add_column(
            column.replace(" at its ", "\nat its "),
            justify=justify,
            overflow="fold",
            no_wrap=number > 0 and column != "peer",
            min_width=0 if number else 20,
        )
    for line in lines:
        table.add_row(*map(escape, line))
    console.print(table)


def _markdown(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    def row(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    ruler = ["--:" if column in _NUMBERS else "---" for column in columns]
    return "\n".join([row(columns), row(ruler), *map(row, lines)])
