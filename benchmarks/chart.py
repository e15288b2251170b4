"""Draws the stored results over time into docs/performance.svg: a panel for each row, with the ratio of each goal.

Every ratio is drawn as a share of its goal, so that the line at 1 is the goal of all. Above the line a goal is reached,
also if the goal is an upper limit. The SVG is written by hand, because that of a plotting library is ten times as
large.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.results import RESULTS, read
from benchmarks.rows import NAMES

__all__ = ["draw", "series"]

PICTURE = Path(__file__).parents[1] / "docs" / "performance.svg"
RUNS_MAX = 40
"""Runs of each row that are drawn, the newest ones, because the picture must stay small."""

COLUMNS = 3
WIDTH, HEIGHT = 300, 170
"""Size of a panel with its margins, in pixels."""
LEFT, TOP, RIGHT, BOTTOM = 34, 26, 12, 22
COLOURS = ("#1f6fb4", "#d9730d", "#2c8c3c", "#b3312f", "#7d55b0", "#7a5a4a")

Record = dict[str, Any]


def series(records: Sequence[Record]) -> tuple[list[str], dict[str, list[float | None]]]:
    """Return the commit of each run, and for each goal the share of it that each run reached; None = not measured.

    A share of 1 is the goal. A share of 2 is twice as good, also if the goal is an upper limit.
    """
    commits = [str(record.get("commit", "")).partition(" ")[0] for record in records]
    lines: dict[str, list[float | None]] = {}
    for number, record in enumerate(records):
        for ratio in record.get("ratios", ()):
            line = lines.setdefault(str(ratio.get("name", "")), [None] * len(records))
            line[number] = _share(ratio)
    return commits, {name: line for name, line in lines.items() if any(each is not None for each in line)}


def draw(records: Mapping[str, Sequence[Record]]) -> str:
    """Return the picture of all rows that have records: an SVG, the same for the same records."""
    rows = -(-len(records) // COLUMNS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} {rows * HEIGHT}"'
        ' font-family="sans-serif" font-size="9">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (name, found) in enumerate(records.items()):
        row, column = divmod(number, COLUMNS)
        lines.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT})">')
        lines += _panel(f"{name}: {found[-1].get('title', '')}", *series(found))
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _panel(title: str, commits: Sequence[str], goals: Mapping[str, Sequence[float | None]]) -> Iterator[str]:
    top = max([1.25, *(1.1 * value for line in goals.values() for value in line if value is not None)])
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(run: int) -> float:
        return LEFT + (width * run / (len(commits) - 1) if len(commits) > 1 else width / 2)

    def y(share: float) -> float:
        return TOP + height * (1 - share / top)

    yield _text(LEFT, TOP - 8, title if len(title) <= 52 else f"{title[:50]}…", 'font-weight="bold"')
    yield f'<rect x="{LEFT}" y="{TOP}" width="{width}" height="{height}" fill="none" stroke="#999"/>'
    yield f'<path d="M{LEFT} {y(1):.1f}h{width}" stroke="black" stroke-dasharray="4 3"/>'
    yield _text(LEFT - 4, y(1) + 3, "goal", 'text-anchor="end"')
    yield _text(LEFT - 4, HEIGHT - BOTTOM, "0", 'text-anchor="end"')
    if top > 1.5:
        yield _text(LEFT - 4, TOP + 6, f"{top:.1f} x", 'text-anchor="end"')
    yield _text(LEFT, HEIGHT - BOTTOM + 12, commits[0])
    if len(commits) > 1:
        yield _text(WIDTH - RIGHT, HEIGHT - BOTTOM + 12, commits[-1], 'text-anchor="end"')
    for number, (name, line) in enumerate(goals.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [(x(run), y(value)) for run, value in enumerate(line) if value is not None]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        yield f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="2.5" fill="{colour}"/>'
        yield _text(LEFT + 5, HEIGHT - BOTTOM - 5 - 10 * (len(goals) - 1 - number), _short(name), f'fill="{colour}"')


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _share(ratio: Record) -> float | None:
    found, at_least, at_most = ratio.get("found"), ratio.get("at_least"), ratio.get("at_most")
    if found is None:
        return None
    if at_least:
        return float(found / at_least)
    if at_most and found:
        return float(at_most / found)
    return None  # A goal of at most 0 has no shares, because they would be divided by 0.


def _short(name: str) -> str:
    return name.removeprefix("viewstamp, ").removeprefix("viewstamp / ")


def main() -> None:
    """Draw the stored results."""
    parser = argparse.ArgumentParser(description="Draw the stored results over time.")
    parser.add_argument("--file", type=Path, default=PICTURE, help="the SVG to write; default: docs/performance.svg")
    options = parser.parse_args()
    records = {name: found[-RUNS_MAX:] for name in NAMES if (found := read(name, RESULTS))}
    if not records:
        parser.error("there are no results: run `python -m benchmarks --keep`")
    options.file.write_text(draw(records), encoding="utf-8")
    print(f"{options.file}: {options.file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
