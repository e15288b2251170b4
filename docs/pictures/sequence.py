"""Draws sequence diagrams: participants, messages between them from the top down, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from docs.pictures.svg import LINE, Drawing, lines_of, width_of

__all__ = ["Diagram", "Message", "Note"]

_MARGIN, _HEAD, _STEP = 14.0, 30.0, 12.0


@dataclass(frozen=True, slots=True)
class Message:
    """An arrow from one participant to another. One that ``is_lost`` ends in a cross before it arrives."""

    source: str
    target: str
    text: str
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A step that one participant does by itself, or a remark over several."""

    over: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """One sequence diagram. ``spacing`` is the distance between two participants in pixels."""

    title: str
    description: str
    participants: tuple[str, ...]
    steps: Sequence[Message | Note]
    spacing: float = 190.0

    def draw(self) -> str:
        """Return the picture."""
        drawing = Drawing(self.title, self.description)
        first = max(self.spacing / 2, width_of(self.participants[0]) / 2 + 12) + _MARGIN - 10
        at = {name: first + number * self.spacing for number, name in enumerate(self.participants)}
        width = first * 2 + (len(self.participants) - 1) * self.spacing
        lives, y = Drawing("", ""), _MARGIN + _HEAD + 14
        for step in self.steps:
            y = self._message(lives, at, step, y) if isinstance(step, Message) else self._note(lives, at, step, y)
        for name, x in at.items():
            half = min(self.spacing - 14, width_of(name) + 24) / 2
            drawing.line(x, _MARGIN + _HEAD, x, y, style="life")
            drawing.box(x - half, _MARGIN, 2 * half, _HEAD)
            drawing.text(x, _MARGIN + 20, name, anchor="middle", style="bold")
        drawing.include(lives)
        return drawing.render(width, y + _MARGIN)

    def _message(self, drawing: Drawing, at: dict[str, float], step: Message, y: float) -> float:
        source, target = at[step.source], at[step.target]
        rows = lines_of(step.text, abs(target - source) - 18)
        for row in rows:
            y += LINE
            drawing.text((source + target) / 2, y - 4, row, anchor="middle", style="label")
        y += 4
        drawing.arrow(source, y, source + 0.75 * (target - source) if step.is_lost else target, y, is_lost=step.is_lost)
        return y + _STEP

    def _note(self, drawing: Drawing, at: dict[str, float], step: Note, y: float) -> float:
        left, right = at[step.over[0]], at[step.over[-1]]
        width = right - left + self.spacing - 22
        rows = lines_of(step.text, width - 14)
        height = LINE * len(rows) + 10
        middle = (left + right) / 2
        drawing.box(middle - width / 2, y, width, height, style="note")
        for row in rows:
            y += LINE
            drawing.text(middle, y, row, anchor="middle")
        return y + 10 + _STEP
