"""A place in the order of the log."""

from __future__ import annotations

from viewstamp.wal.writer import Item

__all__ = ["Reservation"]


class Reservation:
    """A place in the order of the log; to be filled or cancelled.

    Invariants:
      * ``item`` is set once, by ``fill`` or, as None with ``ready``, by ``cancel``
    """

    __slots__ = ("cost", "item", "ready")

    def __init__(self, cost: int, item: Item | None = None) -> None:
        self.cost = cost
        self.item = item
        self.ready = item is not None
