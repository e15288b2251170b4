"""Writes small SVG drawings: boxes, lines, arrows and text, readable in light and dark and without colour."""

from __future__ import annotations

import textwrap
from xml.sax.saxutils import escape, quoteattr

__all__ = ["LINE", "Drawing", "lines_of", "width_of"]

LINE = 16
"""Pixels from one line of text to the next."""

_STYLE = """
  svg { background: #fff; }
  text { font: 12.5px system-ui, "DejaVu Sans", sans-serif; fill: #1b1b1b; }
  .bold { font-weight: 600; }
  .label { paint-order: stroke; stroke: #fff; stroke-width: 5px; }
  .mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px; }
  .box { fill: #f4f4f4; stroke: #1b1b1b; }
  .note { fill: #fff; stroke: #1b1b1b; stroke-dasharray: 4 3; }
  .line { stroke: #1b1b1b; fill: none; }
  .life { stroke: #8a8a8a; stroke-dasharray: 2 4; }
  .head { fill: #1b1b1b; }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181c; }
    text { fill: #ececec; }
    .label { stroke: #16181c; }
    .box { fill: #26292f; stroke: #ececec; }
    .note { fill: #16181c; stroke: #ececec; }
    .line { stroke: #ececec; }
    .head { fill: #ececec; }
  }
""".strip("\n")


def width_of(text: str) -> float:
    """Return about how many pixels a line of text takes."""
    return 6.7 * len(text)


def lines_of(text: str, width: float) -> list[str]:
    """Break a text into lines of at most ``width`` pixels."""
    return textwrap.wrap(text, max(8, int(width / 6.7)), break_long_words=False)


class Drawing:
    """One picture. Coordinates are pixels from the top left."""

    def __init__(self, title: str, description: str) -> None:
        self._title = title
        self._description = description
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", style: str = "") -> None:
        """Write one line of text with its baseline at ``y``."""
        extra = f' class="{style}"' if style else ""
        anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{anchored}{extra}>{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, *, style: str = "box") -> None:
        """Draw a rectangle."""
        self._parts.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, *, style: str = "line") -> None:
        """Draw a straight line."""
        self._parts.append(f'<line class="{style}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, is_lost: bool = False) -> None:
        """Draw an arrow; one that ``is_lost`` ends in a cross."""
        self.line(x1, y1, x2, y2)
        away = 1 if x2 < x1 else -1 if x2 > x1 else 0
        if is_lost:
            self.line(x2 - 5, y2 - 5, x2 + 5, y2 + 5)
            self.line(x2 - 5, y2 + 5, x2 + 5, y2 - 5)
        else:
            points = f"{x2:g},{y2:g} {x2 + away * 9:g},{y2 - 4:g} {x2 + away * 9:g},{y2 + 4:g}"
            self._parts.append(f'<polygon class="head" points="{points}"/>')

    def include(self, other: Drawing) -> None:
        """Draw everything that ``other`` holds over the parts so far."""
        self._parts += other._parts

    def render(self, width: float, height: float) -> str:
        """Return the SVG."""
        label = quoteattr(f"{self._title}. {self._description}")
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
                f' height="{height:g}" role="img" aria-label={label}>',
                f"<title>{escape(self._title)}</title>",
                f"<style>\n{_STYLE}\n</style>",
                *self._parts,
                "</svg>",
                "",
            ]
        )
