"""The rows of the table that ``make bench`` prints, one kind of work a file; ``row.py`` says what a row is.

A row starts what it measures in a directory that it is given, measures it **in turns** (ours, a peer, ours, a peer, …),
so that a slower quarter of a minute of this machine hits both, ends what it started, whatever happens, and returns one
:class:`Subject` for each thing that it measured. It judges nothing: ratios and whether a goal is reached follow from
:attr:`Row.goals`, in one place, :meth:`Row.compare`.

What a row file holds: its question and what to expect in the docstring, and ``ROW``. A row named ``append-64`` stands
in ``append_64.py``. Files are imported when their row is asked for, so that a row needs no more than it says.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.rows.row import Goal, Options, Ratio, Row, RowResult, Subject

__all__ = ["NAMES", "Goal", "Options", "Ratio", "Row", "RowResult", "Subject", "load"]

NAMES = (
    "append-64",
    "append-256",
    "pipelined",
    "large",
    "single",
    "commands",
    "reads",
    "scan",
    "embedded",
    "failover",
    "restart",
    "wal",
    "loop-lag",
    "idle",
    "memory",
)
"""In the order of the table."""


def load(name: str) -> Row:
    """Return the row of this name.

    Raises:
      ModuleNotFoundError: there is none, or what it needs is not installed.
    """
    row: Row = import_module(f"benchmarks.rows.{name.replace('-', '_')}").ROW
    assert row.name == name, f"{row.name} in the file of {name}"
    return row
