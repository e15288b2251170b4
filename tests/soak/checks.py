"""Checks of the members' final contents and of the whole history. Each complaint names the property.

A *cell* is a replicated actor that counts the calls of each caller.

| property | sentence |
| --- | --- |
| ReplicasEqual | all members hold the same records, at the same positions, with the same log times |
| FilesEqual | a member's files, read without it, hold the records that it served, and no damage |
| StatesEqual | the actors of all members are in the same state |
| NothingLost, NothingInvented, OnceOnly, NeverMeansNever, InOrder | `viewstamp/sim/checkers/exactly_once.py` |
| AtItsPosition | a conditional append is at its expected position, or nowhere |
| CallsFollow | the calls of one caller reached a cell in order, each at most once, and the last one reached it |
| StaleIsTrue | a stale read from one member returned records that are in the topic |
| Linearizable | `viewstamp/sim/checkers/linearizability.py`, by topic and by cell |
| Answers | every answer other than success is explained by a fault |
| EndedByItself | no process ends without a command, except for lack of space on a full disk |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.soak.members import CELL
from tests.soak.workload import CLAIMS, TOPICS, Workload
from viewstamp.errors import ViewstampError
from viewstamp.host.disk import RealDisk
from viewstamp.local.offline import offline_records
from viewstamp.sim.checkers.exactly_once import check_appends
from viewstamp.sim.checkers.linearizability import Answer, Judgement, Log, Register, judge
from viewstamp.sim.checkers.replicas import Kept
from viewstamp.sim.history import Operation
from viewstamp.sim.violation import Violation
from viewstamp.wal.offline import verify

__all__ = [
    "Held",
    "account_complaints",
    "ended_complaints",
    "file_complaints",
    "held_complaints",
    "judgements",
    "state_complaints",
    "worst",
]

Held = Mapping[str, Mapping[str, Kept]]
"""The contents of each topic on each member, by the member's name."""

STEPS_MAX = 3_000_000
"""The checker gives up on a topic or a cell after this number of steps, which is about ten seconds."""


def held_complaints(held: Held, workload: Workload) -> Iterator[str]:
    """Compare the members' contents with each other and with the callers' answers."""
    first = next(iter(held))
    for name, topics in held.items():
        for topic, kept in topics.items():
            if kept != held[first][topic]:
                yield f"ReplicasEqual: {_difference(topic, first, held[first][topic], name, kept)}"
    contents = held[first]
    try:
        check_appends(workload.appended, contents)
    except Violation as violation:
        yield str(violation)
    for done in workload.done:
        if done.expected:
            value = done.operation.request.values[0] if hasattr(done.operation.request, "values") else b""
            claims = contents[CLAIMS].values
            if value in claims and claims.index(value) + 1 != done.expected:
                yield f"AtItsPosition: {value[:40]!r} expected {done.expected}, stands at {claims.index(value) + 1}"
    for topic, start, values in workload.seen_stale:
        if tuple(contents[topic].values[start - 1 : start - 1 + len(values)]) != values:
            yield f"StaleIsTrue: a member said {len(values)} other records of {topic} from {start} on"
    yield from (f"Answers: {complaint}" for complaint in workload.complaints)


def _difference(topic: str, one: str, kept: Kept, other: str, found: Kept) -> str:
    if len(kept.values) != len(found.values):
        return f"{one} holds {len(kept.values)} records of {topic}, {other} {len(found.values)}"
    records = zip(zip(kept.values, kept.times, strict=True), zip(found.values, found.times, strict=True), strict=True)
    position = next((number for number, (a, b) in enumerate(records, 1) if a != b), 0)
    return f"{one} and {other} hold something else at {topic} {position}"


def file_complaints(name: str, directory: str, contents: Mapping[str, Kept]) -> Iterator[str]:
    """Compare the files of a stopped member with the records that it served. Blocks."""
    found = verify(RealDisk(), directory)
    if found.verdict == "corruption":
        yield f"FilesEqual: {name} was whole, and there is damage in {directory}: {found.damage}"
    for topic, kept in contents.items():
        try:
            values = [bytes(record.value) for record in offline_records(directory, topic)]
        except ViewstampError as error:
            yield f"FilesEqual: {topic} cannot be read from the files of {name}: {type(error).__name__}: {error}"
            continue
        if values != kept.values:
            yield f"FilesEqual: the files of {name} hold {len(values)} records of {topic}, it said {len(kept.values)}"


def account_complaints(
    workload: Workload, accounts: Mapping[str, tuple[dict[str, int], list[list[object]]]]
) -> Iterator[str]:
    """Compare the calls that each cell has counted for each caller with the calls that were acknowledged."""
    for key, (last, wrong) in accounts.items():
        for caller, before, number in wrong:
            yield f"CallsFollow: cell {key!r} received call {number} of {caller} after {before}"
        for (of, caller), number in workload.last_number.items():
            if of == key and last.get(caller, 0) < number:
                yield f"CallsFollow: call {number} of {caller} was applied, cell {key!r} has {last.get(caller, 0)}"


def state_complaints(statuses: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Compare the states of the members' actors by their reported digests."""
    found = {name: status["state"]["actors"][CELL]["digest"] for name, status in statuses.items()}
    if len(set(found.values())) > 1:
        yield f"StatesEqual: the cells of the members have these digests: {found}"


def ended_complaints(ended: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Judge the errors of processes that ended without a command."""
    for name, error, words in dict.fromkeys(ended):
        if error != "StorageFullError":
            yield f"EndedByItself: {name}: {error}: {words}"


def judgements(operations: Sequence[Operation]) -> dict[str, Judgement]:
    """Judge the history, by partition. Blocks for seconds."""
    partitions: dict[str, list[Operation]] = {}
    for operation in operations:
        partitions.setdefault(operation.partition, []).append(operation)
    found: dict[str, Judgement] = {}
    for partition, of_it in sorted(partitions.items()):
        model: Any = Log() if partition in (*TOPICS, CLAIMS) else Register()
        found[partition] = judge(of_it, model, steps_max=STEPS_MAX)
    return found


def worst(found: Mapping[str, Judgement]) -> Answer:
    """Return the worst answer among them."""
    answers = {judgement.answer for judgement in found.values()}
    return next((each for each in (Answer.VIOLATED, Answer.UNKNOWN) if each in answers), Answer.LINEARIZABLE)
