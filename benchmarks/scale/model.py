"""A model of group 0 for more nodes than can be simulated, fitted to simulations of few nodes.

| quantity | model | why |
| --- | --- | --- |
| seconds from one ORDER to the next | ``a + b * nodes`` | the leader of group 0 sends each ORDER to each node, \
and gets a report of each stream and an acknowledgement of each node |
| p50 of an ordered append | p50 of a durable one + ``waits`` * that | it waits for the end of an ORDER, and for \
another one |
| p50 of a durable append | the mean of the simulations | streams share nothing but group 0 |
| cores of an idle leader of group 0 | ``c + d * nodes`` | heartbeats and clock reports |
| cores of the leader of group 0 for each ORDER | ``e + f * nodes`` | as the first line |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.scale.cluster import Simulated
from viewstamp.streams.placement import GROUPS_MAX

__all__ = ["Model", "Point", "fit", "streams"]

_ROUNDS = 4.0
"""Rounds a second of a leader of group 0 without callers that wait (``node/ordering.py``)."""


def streams(nodes: int) -> int:
    """Return the number of streams: one for each node, as long as a cluster may have so many groups."""
    return min(nodes, GROUPS_MAX)


@dataclass(frozen=True, slots=True)
class Point:
    """The simulations with a number of nodes, each of which leads one stream."""

    nodes: int
    durable: Simulated
    ordered: Simulated
    idle: Simulated


@dataclass(frozen=True, slots=True)
class Line:
    """``at_0 + slope * nodes``."""

    at_0: float
    slope: float

    def at(self, nodes: float) -> float:
        """Return the value."""
        return self.at_0 + self.slope * nodes


@dataclass(frozen=True, slots=True)
class Model:
    """The fitted lines; seconds and cores."""

    callers: int
    durable_seconds: float
    waits: float
    order_seconds: Line
    idle_cores: Line
    order_cpu_seconds: Line

    def durable_per_second(self, nodes: int) -> float:
        """Return the durable appends a second, as long as group 0 takes less than the core of its leader."""
        return (
            streams(nodes) * self.callers / self.durable_seconds * min(1.0, 1.0 / max(1e-9, self.durable_cores(nodes)))
        )

    def durable_cores(self, nodes: float) -> float:
        """Return the cores of a leader of group 0 that leads no stream, while nobody waits for the order."""
        return self.idle_cores.at(nodes) + _ROUNDS * self.order_cpu_seconds.at(nodes)

    def ordered_seconds(self, nodes: float) -> float:
        """Return the p50 of an ordered append."""
        return self.durable_seconds + self.waits * self.order_seconds.at(nodes)

    def ordered_per_second(self, nodes: int) -> float:
        """Return the ordered appends a second."""
        return streams(nodes) * self.callers / self.ordered_seconds(nodes)

    @property
    def ordered_ceiling(self) -> float:
        """The ordered appends a second that no number of nodes exceeds, with so many callers for each stream."""
        return self.callers / (self.waits * self.order_seconds.slope)

    @property
    def half_of_ceiling(self) -> float:
        """The number of nodes at which half of the ceiling is reached."""
        return (self.durable_seconds + self.waits * self.order_seconds.at_0) / (self.waits * self.order_seconds.slope)

    @property
    def durable_nodes_max(self) -> float:
        """The number of nodes at which the leader of group 0 needs a whole core although nobody waits for the order."""
        slope = self.idle_cores.slope + _ROUNDS * self.order_cpu_seconds.slope
        return (1.0 - self.durable_cores(0)) / slope


def fit(points: Sequence[Point], callers: int) -> Model:
    """Fit the model to simulations with at least two numbers of nodes, by least squares."""
    durable = sum(each.nodes * callers / each.durable.per_second for each in points) / len(points)
    took = {each.nodes: each.nodes * callers / each.ordered.per_second for each in points}
    waits = sum((took[each.nodes] - durable) * each.ordered.orders_per_second for each in points) / len(points)
    return Model(
        callers=callers,
        durable_seconds=durable,
        waits=waits,
        order_seconds=_line({each.nodes: 1 / each.ordered.orders_per_second for each in points}),
        idle_cores=_line({each.nodes: each.idle.leader_0 for each in points}),
        order_cpu_seconds=_line(
            {
                each.nodes: (each.ordered.leader_0 - each.ordered.other_nodes) / each.ordered.orders_per_second
                for each in points
            }
        ),
    )


def _line(values: Mapping[int, float]) -> Line:
    count = len(values)
    middle, mean = sum(values) / count, sum(values.values()) / count
    spread = sum((x - middle) ** 2 for x in values)
    slope = sum((x - middle) * (y - mean) for x, y in values.items()) / spread
    return Line(mean - slope * middle, slope)
