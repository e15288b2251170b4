"""All members are the same: what they hold, what they have made of it, and the way there.

| invariant | sentence |
| --- | --- |
| ReplicasEqual | all members hold the same of every topic |
| StatesEqual | members that have applied the same log have the same state, and the same chain over the way there |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from viewstamp.ids import NodeId
from viewstamp.sim.violation import Violation

if TYPE_CHECKING:
    from viewstamp.node.state_machine import StateMachine

__all__ = ["Contents", "Kept", "check_replicas", "check_states"]


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


def check_states(machines: Mapping[NodeId, StateMachine]) -> None:
    """Compare the members' states, all of which have applied the same log. Raises Violation."""
    first = next(iter(machines))
    for member, machine in machines.items():
        if machine.digest() != machines[first].digest() or machine.chain != machines[first].chain:
            raise Violation(
                "StatesEqual", f"{first} and {member} differ: {machines[first].status()}, {machine.status()}"
            )
