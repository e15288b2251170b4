"""Checks that all members are equal: their records, their states, and the chains over their histories.

| invariant | sentence |
| --- | --- |
| ReplicasEqual | all members hold the same records of every topic |
| StatesEqual | members that have applied the same log have the same state and the same chain |
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
    """A member's contents of a topic: the values from position ``first`` on, with the log times at which they appeared.

    Earlier positions are trimmed.
    """

    first: int
    values: list[bytes]
    times: list[int]


Contents = Mapping[str, Kept]


def check_replicas(contents: Mapping[NodeId, Contents]) -> None:
    """Compare the members' contents, by member id. Raises Violation."""
    first = next(iter(contents))
    for member, topics in contents.items():
        if topics != contents[first]:
            raise Violation("ReplicasEqual", f"{first} and {member} differ")


def check_states(machines: Mapping[NodeId, StateMachine]) -> None:
    """Compare the states of members that have applied the same log. Raises Violation."""
    first = next(iter(machines))
    for member, machine in machines.items():
        if machine.digest() != machines[first].digest() or machine.chain != machines[first].chain:
            raise Violation(
                "StatesEqual", f"{first} and {member} differ: {machines[first].status()}, {machine.status()}"
            )
