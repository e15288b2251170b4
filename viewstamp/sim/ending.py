"""The final contents of the members' disks and states, added to the clients' history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from viewstamp.ids import Index, Position
from viewstamp.node.state_machine import ActorQuery, CommitEffectQuery, LocationQuery, TopicsQuery
from viewstamp.sim.archives import Archives, archived_batches
from viewstamp.sim.checkers.replicas import Contents, Kept
from viewstamp.sim.cluster import Member
from viewstamp.sim.history import Append, Fate, Operation, ReadFrom
from viewstamp.sim.sinks import Commit, SinkBatch, SinkWorkload
from viewstamp.sim.violation import Violation
from viewstamp.sim.workload import Workload, journal_of
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.commands import decode_result, encode_arguments
from viewstamp.wire.staged import decode_commit, entries_of

if TYPE_CHECKING:
    from viewstamp.node.state_machine import StateMachine
    from viewstamp.wal.log import Wal

__all__ = ["contents_of", "history_of", "journals_of"]

_ENTRIES_AT_ONCE = 50
"""Entries of a journal per read, because some members limit a result to a few kilobytes."""


def contents_of(member: Member, archives: Archives | None = None) -> dict[str, Kept]:
    """Read every topic from the member's own log on disk; only the first position of each comes from its state.

    Records that the log has deleted are read from the objects of their runs, if there is an archive.
    """
    node = member.node
    assert node is not None
    assert node.group.wal is not None
    topics = node.machine.query(TopicsQuery())
    begin = node.group.wal.first_index
    runs = [
        archived_batches(archives, member, topic["name"], begin) if archives is not None else [] for topic in topics
    ]
    firsts = [end_of(found, topic["first_position"]) for topic, found in zip(topics, runs, strict=True)]
    located = [node.machine.query(LocationQuery(topic["id"], at)) for topic, at in zip(topics, firsts, strict=True)]
    # Not from the log's beginning: below the records that topics keep it may be damaged, and need not be repaired.
    batches = _batches(node.group.wal, min((index for index, _ in located), default=node.group.wal.durable_end))
    contents = {}
    for topic, archived, first, (index, at) in zip(topics, runs, firsts, located, strict=True):
        kept = contents[topic["name"]] = Kept(topic["first_position"], [], [])
        for batch in archived:
            gone = min(batch.count, max(0, kept.first - batch.first_position))
            kept.values.extend(batch.values()[gone:])
            kept.times.extend([batch.log_time] * (batch.count - gone))
        for batch in batches:
            if batch.first_index < index or first > topic["last_position"]:
                continue  # All records are archived in the second case.
            for found in _made_visible(batch, topic["id"], node.group.wal, node.machine):
                if isinstance(found, int):
                    at = Position(at + found)
                    if at > first:
                        raise Violation("TopicsAreWhole", f"{member.id} lacks {found} records before {at} of {topic}")
                    continue
                if batch.kind is Kind.RECORDS and found.first_position != at:
                    raise Violation(
                        "PositionsHaveNoGap", f"{member.id}: {found!r} at {found.first_position} after {at - 1}"
                    )
                gone = max(0, first - at)
                kept.values.extend(found.values()[gone:])
                kept.times.extend([batch.log_time] * max(0, found.count - gone))
                at = Position(at + found.count)
        if kept.first + len(kept.values) != topic["last_position"] + 1:
            raise Violation(
                "TopicsAreWhole", f"{member.id} holds {len(kept.values)} records from {kept.first} of {topic}"
            )
    return contents


def end_of(archived: list[Batch], first: Position) -> Position:
    """Return the position behind archived batches; without one, ``first``."""
    return Position(archived[-1].first_position + archived[-1].count) if archived else first


def _batches(wal: Wal, begin: int) -> list[Batch]:
    batches: list[Batch] = []
    index = Index(max(begin, wal.first_index))
    while index < wal.durable_end:
        batches += wal.read(index, 1024 * 1024)
        index = batches[-1].end
    return batches


def _made_visible(batch: Batch, topic: int, wal: Wal, machine: StateMachine) -> list[Batch | int]:
    """Return the batches of a topic that become visible with ``batch``: itself, or the batches that it commits.

    Of a committed batch that the log has deleted, because it is archived, the number of its records.
    """
    if batch.kind is Kind.RECORDS:
        return [batch] if batch.topic == topic else []
    if batch.kind is not Kind.COMMIT or not machine.query(CommitEffectQuery(index=batch.first_index)):
        return []
    entries = [entry for _, entries in decode_commit(batch).parts for entry in entries_of(entries)]
    entries = [entry for entry in entries if entry.topic == topic]
    found: list[Batch | int] = [
        wal.read(Index(entry.index), 1)[0] if entry.index >= wal.first_index else entry.count for entry in entries
    ]
    for entry, each in zip(entries, found, strict=True):
        if isinstance(each, int):
            continue
        if (each.kind, each.first_index, each.topic, each.count) != (Kind.STAGED, entry.index, topic, entry.count):
            raise Violation("CommitsAreTrue", f"{batch!r} names {entry}, in the log is {each!r}")
    return found


def journals_of(member: Member, workload: Workload) -> dict[str, list[str]]:
    """Return the entries of every journal, by its key, as a member holds them."""
    journals = {}
    for key in workload.keys:
        entries: list[str] = []
        while True:
            arguments = encode_arguments([len(entries), _ENTRIES_AT_ONCE], {})
            packed = member.machine.query(ActorQuery(actor="journal", key=key, method="read", arguments=arguments))
            assert isinstance(packed, bytes)
            piece = decode_result(packed)
            entries += piece
            if len(piece) < _ENTRIES_AT_ONCE:
                break
        journals[key] = entries
    return journals


def history_of(
    workload: Workload, committed: Mapping[SinkBatch, Commit], contents: Contents, journals: Mapping[str, list[str]]
) -> list[Operation]:
    """Return all operations of clients, the commits of sinks, and final reads of everything."""
    history = workload.history.operations
    history += _commits(workload.sinks, committed)
    for topic, kept in contents.items():
        history.append(_read_now(workload, topic, kept.first, tuple(kept.values)))
    for key, entries in journals.items():
        history.append(_read_now(workload, journal_of(key), 1, tuple(entries)))
    return history


def _read_now(workload: Workload, partition: str, first: int, values: tuple[object, ...]) -> Operation:
    now = workload.history.now
    return Operation(partition, ReadFrom(first, is_whole=True), now(), values, now())


def _commits(sinks: SinkWorkload, committed: Mapping[SinkBatch, Commit]) -> list[Operation]:
    """Return each batch of a sink, in each topic, as one append; all its COMMITs count as one that succeeded.

    A batch that no client knows to be committed was not committed, or was trimmed before any reader saw it.
    """
    batches: dict[SinkBatch, list[Commit]] = {}
    for commit in sinks.commits:
        if commit.fate is not Fate.NEVER:
            batches.setdefault(commit.batch, []).append(commit)
    operations = []
    for batch, commits in batches.items():
        made = committed.get(batch, commits[0])
        called = min(commit.called for commit in commits)
        returned = min(commit.returned for commit in commits)
        ranges = next((each.answer.ranges for each in commits if each.answer and each.answer.ranges is not None), [])
        starts = {each.topic: each.first_position for each in ranges}
        for topic in dict.fromkeys(topic for attempt in made.attempts for topic, _ in attempt.records):
            operation = Operation(topic, Append(tuple(made.records_of(topic))), called)
            if topic in starts:
                operation.answer, operation.returned = starts[topic], returned
            operations.append(operation)
    return operations
