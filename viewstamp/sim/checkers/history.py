"""What holds of the clients' history and the final logs: exactly once, in order, on every member.

| invariant | sentence |
| --- | --- |
| NothingLost | what was acknowledged, and is not trimmed, stands at its position, on every member |
| NothingInvented | what stands in a topic was appended to it |
| OnceOnly | no value stands twice |
| NeverMeansNever | what a client was told did not happen stands nowhere |
| InOrder | the values of one caller stand in the order of its calls |
| RealTime | an append stands behind everything that was acknowledged before it was called |
| ReplicasEqual | all members hold the same |
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from viewstamp.ids import NodeId
from viewstamp.sim.checkers.violation import Violation
from viewstamp.sim.fate import Fate

if TYPE_CHECKING:
    from viewstamp.sim.workload import Append

__all__ = ["Contents", "Kept", "check_history", "check_replicas"]


class Kept(NamedTuple):
    """What a member holds of a topic: the values from position ``first`` on, and the log times at which they appeared.

    What was before is trimmed.
    """

    first: int
    values: list[bytes]
    times: list[int]


Contents = Mapping[str, Kept]


def check_replicas(contents: Mapping[NodeId, Contents]) -> None:
    """Compare what the members hold, by member id. Raises Violation."""
    first = next(iter(contents))
    for member, topics in contents.items():
        if topics != contents[first]:
            raise Violation("ReplicasEqual", f"{first} and {member} differ")


def check_history(appends: Sequence[Append], contents: Contents, staged: Container[bytes] = ()) -> None:
    """Judge the clients' history by what a member holds in the end. Raises Violation.

    What is in ``staged`` was not appended; ``sinks.py`` judges it.
    """
    positions: dict[bytes, tuple[str, int]] = {}
    asked = {append.value: append for append in appends}
    for topic, kept in contents.items():
        for position, value in enumerate(kept.values, kept.first):
            if value in positions:
                raise Violation("OnceOnly", f"{value[:40]!r} stands at {positions[value]} and {(topic, position)}")
            positions[value] = (topic, position)
            if value in staged:
                continue
            if value not in asked or asked[value].topic != topic:
                raise Violation("NothingInvented", f"{topic} holds {value[:40]!r} at {position}")
    last: dict[tuple[str, str], int] = {}
    for append in appends:
        topic, position = positions.get(append.value, ("", 0))
        if append.fate is Fate.APPLIED and append.position < contents[append.topic].first:
            continue
        if append.fate is Fate.APPLIED and position != append.position:
            raise Violation(
                "NothingLost",
                f"{append.value[:40]!r} was acknowledged at {append.topic} {append.position}, it stands at {position}",
            )
        if append.fate is Fate.NEVER and position:
            raise Violation("NeverMeansNever", f"{append.value[:40]!r} stands at {topic} {position}")
        if position:
            if position <= append.after:
                raise Violation("RealTime", f"{append.value[:40]!r} stands at {position}, before {append.after}")
            if position <= last.get((append.caller, topic), 0):
                raise Violation("InOrder", f"{append.value[:40]!r} stands at {position}, before an earlier one")
            last[append.caller, topic] = position
