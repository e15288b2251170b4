"""The rows of the table that ``make bench`` prints, one kind of work a file; ``row.py`` defines a row.

A row starts servers in a directory that it is given, measures them **in turns** (ours, a peer, ours, a peer, …), so
that 15 slow seconds of the machine affect both, and stops them, also if it fails. It returns one :class:`Subject` for
each measured thing. Ratios, and whether a goal is reached, follow from :attr:`Row.goals` in one place,
:meth:`Row.compare`.

The file of a row has its question and the expected result in the docstring, and ``ROW``. The row ``loop-lag`` is in
``loop_lag.py``; ``appends.py``, ``pipeline.py``, ``restart.py`` and ``tls.py`` have two rows each. A file is imported
when its row is measured, so that no row needs the dependencies of another one.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.rows.row import Goal, Options, Ratio, Row, RowResult, Subject

__all__ = ["NAMES", "Goal", "Options", "Ratio", "Row", "RowResult", "Subject", "load"]

NAMES = (
    "append-64",
    "append-256",
    "ordered",
    "pipelined",
    "distance",
    "large",
    "single",
    "commands",
    "reads",
    "scan",
    "embedded",
    "failover",
    "restart",
    "restart-large",
    "wal",
    "loop-lag",
    "idle",
    "memory",
    "tls-256",
    "tls-large",
)
"""In the order of the table."""
_SHARED_FILES = {
    "append-64": ("appends", "APPEND_64"),
    "append-256": ("appends", "APPEND_256"),
    "pipelined": ("pipeline", "PIPELINED"),
    "large": ("pipeline", "LARGE"),
    "restart-large": ("restart", "LARGE"),
    "tls-256": ("tls", "TLS_256"),
    "tls-large": ("tls", "TLS_LARGE"),
}


def load(name: str) -> Row:
    """Return the row of this name.

    Raises:
      ModuleNotFoundError: there is no such row, or a package that it needs is not installed.
    """
    file, row_name = _SHARED_FILES.get(name, (name.replace("-", "_"), "ROW"))
    row: Row = getattr(import_module(f"benchmarks.rows.{file}"), row_name)
    assert row.name == name, f"{row.name} in the file of {name}"
    return row
