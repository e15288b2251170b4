"""Exactly once: each request took effect once or not at all, and its client was answered accordingly.

Appends are judged by the final contents of the topics, and calls of actors by those of the journals. Sinks have their
own file, ``sinks.py``; the order of operations is judged in ``linearizability.py``.

| invariant | sentence |
| --- | --- |
| NothingLost | an acknowledged record that is not trimmed is at its position |
| NothingInvented | every record in a topic was appended to it |
| OnceOnly | no value occurs twice |
| NeverMeansNever | an append that was answered as not applied is nowhere |
| InOrder | the values of one caller are in the order of its calls, even if answers were lost |
| CalledOnce | no call was applied twice |
| CallAnswered | an answered call was applied, with the number in its answer |
| NeverCalled | a call that was answered as not applied was not applied |
| NoCallInvented | every applied call was made |
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from viewstamp.sim.checkers.replicas import Contents
from viewstamp.sim.history import Fate
from viewstamp.sim.violation import Violation
from viewstamp.sim.workload import Call, ClientAppend

__all__ = ["check_appends", "check_calls"]


def check_appends(appends: Sequence[ClientAppend], contents: Contents, staged: Container[bytes] = ()) -> None:
    """Judge the clients' appends by the final contents of a member. Raises Violation.

    Values in ``staged`` were not appended; ``sinks.py`` judges them.
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
    """Judge the clients' calls by the final contents of the journals. Raises Violation."""
    numbers: dict[tuple[str, str], int] = {}
    for key, entries in journals.items():
        for number, entry in enumerate(entries, 1):
            if (key, entry) in numbers:
                raise Violation("CalledOnce", f"{entry} is {numbers[key, entry]} and {number} of journal {key!r}")
            numbers[key, entry] = number
    called = {(call.key, call.entry) for call in calls}
    for written in numbers:
        if written not in called:
            raise Violation("NoCallInvented", f"{written} was written without a call")
    for call in calls:
        number = numbers.get((call.key, call.entry), 0)
        if call.fate is Fate.APPLIED and (not number or call.number not in (0, number)):
            raise Violation("CallAnswered", f"{call.entry} was answered as {call.number}, it is {number}")
        if call.fate is Fate.NEVER and number:
            raise Violation("NeverCalled", f"{call.entry} is {number}")
