"""Checks histories of the order of streams against ``LogStreams.tla``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.streams.order_history import OrderHistory
from tests.traces.interpreter import Module, State

__all__ = ["follow_order"]

_SPECIFICATIONS = Path(__file__).parents[2] / "docs" / "design" / "log-streams"
_MODULES = ("LogStreams.tla", "LogStreamsTrace.tla")
_INVARIANTS = ("GlobalTiles", "OrderOnlyCommitted", "OrderStable", "OrderKeepsStreamOrder", "MapIsComplete")
_MANY = 1_000_000


def follow_order(history: OrderHistory) -> tuple[int, str]:
    """Return how many steps of a history are steps of the specification, and the invariant that is broken then."""
    steps = tuple(map(_plain, history.steps))
    constants: dict[str, Any] = {
        "Streams": len(history.streams),
        **dict.fromkeys(("MaxRec", "MaxLen", "MaxOrders", "MaxElect", "MaxCut"), _MANY),
        "Acks": False,
        "Reads": 0,
        "Seals": False,
        "Moves": 0,
        "Mut": frozenset[str](),
        "Steps": steps,
    }
    module = Module([_SPECIFICATIONS / name for name in _MODULES], constants)
    states = list(module.states("TraceInit"))
    for reached in range(len(steps) + 1):
        for name in _INVARIANTS:
            if not all(module.is_true(name, state) for state in states):
                return reached, name
        if reached == len(steps):
            break
        following: list[State] = []
        for state in states:
            following += [new for new in module.states("TraceNext", state) if new not in following]
        if not following:
            return reached, ""
        states = following
    return len(steps), ""


def _plain(step: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(step)
