"""What holds of calls of replicated actors, and of the members' states.

| invariant | sentence |
| --- | --- |
| StatesEqual | members that have applied the same log have the same state, and the same chain over the way there |
| CalledOnce | no call was carried out twice |
| CallAnswered | a call that was answered was carried out, as the number that its caller was told |
| NeverCalled | a call that its caller was told did not happen was not carried out |
| CallsInOrder | a call comes behind all that were answered before it was made |
| NoCallInvented | what was carried out was called |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from viewstamp.ids import NodeId
from viewstamp.sim.checkers.violation import Violation
from viewstamp.sim.fate import Fate

if TYPE_CHECKING:
    from viewstamp.node.state_machine import StateMachine
    from viewstamp.sim.workload import Call

__all__ = ["check_calls", "check_states"]


def check_states(machines: Mapping[NodeId, StateMachine]) -> None:
    """Compare the members' states, all of which have applied the same log. Raises Violation."""
    first = next(iter(machines))
    for member, machine in machines.items():
        if machine.digest() != machines[first].digest() or machine.chain != machines[first].chain:
            raise Violation(
                "StatesEqual", f"{first} and {member} differ: {machines[first].status()}, {machine.status()}"
            )


def check_calls(calls: Sequence[Call], journals: Mapping[str, Sequence[str]]) -> None:
    """Judge the clients' calls by what the journals hold in the end. Raises Violation."""
    numbers: dict[tuple[str, str], int] = {}
    for key, entries in journals.items():
        for number, entry in enumerate(entries, 1):
            if (key, entry) in numbers:
                raise Violation("CalledOnce", f"{entry} is {numbers[key, entry]} and {number} of journal {key!r}")
            numbers[key, entry] = number
    called = {(call.key, call.entry) for call in calls}
    for written in numbers:
        if written not in called:
            raise Violation("NoCallInvented", f"{written} was written, and nobody called")
    for call in calls:
        number = numbers.get((call.key, call.entry), 0)
        if call.fate is Fate.APPLIED and (not number or call.number not in (0, number)):
            raise Violation("CallAnswered", f"{call.entry} was told to be {call.number}, it is {number}")
        if call.fate is Fate.NEVER and number:
            raise Violation("NeverCalled", f"{call.entry} is {number}")
        if number and number <= call.before:
            raise Violation("CallsInOrder", f"{call.entry} is {number}, {call.before} had been answered before")
