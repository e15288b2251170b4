"""Merges tables of several streams by position. Pure. Needs pyarrow.

Each lane has tables whose positions rise, within a table and from one to the next. Rows are given out once no lane can
have a row before them: up to the lowest of the last positions that the lanes have at hand.
"""

from __future__ import annotations

from typing import Any

import pyarrow as arrow
import pyarrow.compute as compute

__all__ = ["OrderedMerge"]


class OrderedMerge:
    """The tables at hand, at most one of each lane.

    Invariants:
      * a table at hand has a row
    """

    def __init__(self, lanes: int) -> None:
        """Begin with lanes 0 to ``lanes - 1``, which all have to give a table first."""
        self._tables: dict[int, Any] = {}
        self.wanted = set(range(lanes))
        """The lanes that have to give their next table, or their end, before the next rows can be taken."""

    def add(self, lane: int, table: Any) -> None:
        """Add the next table of a wanted lane; None = the lane has ended."""
        if table is None or table.num_rows:
            self.wanted.discard(lane)
        if table is not None and table.num_rows:
            self._tables[lane] = table

    def take(self) -> Any:
        """Return the next rows, by position; None = all lanes have ended. No lane is wanted."""
        assert not self.wanted, f"lanes {self.wanted} may have rows before the others"
        if not self._tables:
            return None
        bound = min(table["position"][-1].as_py() for table in self._tables.values())
        ready = []
        for lane, table in list(self._tables.items()):
            count = compute.sum(compute.less_equal(table["position"], bound)).as_py()
            ready.append(table.slice(0, count))
            if count == table.num_rows:
                del self._tables[lane]
                self.wanted.add(lane)
            else:
                self._tables[lane] = table.slice(count)
        if len(ready) == 1:
            return ready[0]
        joined = arrow.concat_tables(ready)
        return joined.take(compute.sort_indices(joined, sort_keys=[("position", "ascending")]))
