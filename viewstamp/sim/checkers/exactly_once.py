"""Exactly once: what was asked for once happened once, or not at all, and its client was told which.

Of appends, by what the topics hold in the end, and of calls of actors, by what the journals hold. Sinks have a file of
their own, ``sinks.py``; in which order things may stand, ``linearizability.py`` judges.

| invariant | sentence |
| --- | --- |
| NothingLost | what was acknowledged, and is not trimmed, stands at its position |
| NothingInvented | what stands in a topic was appended to it |
| OnceOnly | no value stands twice |
| NeverMeansNever | what a client was told did not happen stands nowhere |
| InOrder | the values of one caller stand in the order of its calls, also of those whose answers were lost |
| CalledOnce | no call was carried out twice |
| CallAnswered | a call that was answered was carried out, as the number that its caller was told |
| NeverCalled | a call that its caller was told did not happen was not carried out |
| NoCallInvented | what was carried out was called |
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from viewstamp.sim.checkers.replicas import Contents
from viewstamp.sim.history import Fate
from viewstamp.sim.violation import Violation
from viewstamp.sim.workload import Call, ClientAppend

__all__ = ["check_appends", "check_calls"]


def check_appends(appends: Sequence[ClientAppend], contents: Contents, staged: Container[bytes] = ()) -> None:
    """Judge the clients' appends by what a member holds in the end. Raises Violation.

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
            if position <= last.get((append.caller, topic), 0):
                raise Violation("InOrder", f"{append.value[:40]!r} stands at {position}, before an earlier one")
            last[append.caller, topic] = position


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
