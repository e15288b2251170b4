"""The joint cut of the logs of all groups, with which a backup makes one cluster of them. Pure.

Three moments follow each other. The *floor* of a group is the end of its log before group 0 is cut. Then group 0 is
cut, at an index E0 with version v0 of the order. Then the end of the group is read again, linearizably. The log of the
group is cut from the floor on, before its first record that a state of group 0 behind E0 has proposed
(``ends_before``):

| record of the group | otherwise, in the restored cluster |
| --- | --- |
| CONTEXT with a run of a version above v0 | the same global positions are given to other records |
| BEGIN_PART of an attempt from E0 on | group 0 gives the index to another attempt, which finds the old part |
| COMMIT of a part whose attempt is open at E0 | a part is visible of a batch that group 0 has not committed |
| FORGET_SINK of a part whose attempt is open or pending at E0 | a committed batch lacks a part |
| DROP_STREAM of a stream that was removed from E0 on | group 0 has a stream that its group lacks for ever |

If it has none, it is cut at its end. What the state at E0 needs is below the cut, because it was committed before
group 0 was asked for it. The logs that majorities of stopped members elect need no search. docs/design/0017-backup.md
has the proofs.

| needed | otherwise |
| --- | --- |
| a stream has each record that an ORDER up to E0 names | a reader finds no record at a global position |
| its map has each run that group 0 has forgotten at E0 | nobody knows the global positions of these records |
| the group has the parts of each batch that is pending at E0 | the batch never becomes visible |
"""

from __future__ import annotations

from collections.abc import Mapping

from viewstamp.errors import RequestError, UnavailableError
from viewstamp.ids import GroupId, Stream
from viewstamp.node.order_queries import HomeCut
from viewstamp.streams.sealing import decode_drop
from viewstamp.streams.state import State
from viewstamp.streams.stream_map import decode_context
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.sink_parts import attempt_of, decode_begin_part, is_part
from viewstamp.wire.staged import decode_commit, decode_fields

__all__ = ["contradictions", "ends_before"]


def ends_before(batch: Batch, home: HomeCut, floor: int) -> bool:
    """Return whether the cut of another group than 0 is before a batch.

    Args:
      batch: the next one of the log of the group.
      home: the cut of group 0.
      floor: the end of the group before group 0 was cut; every record below it belongs to the backup.

    Raises:
      OutdatedCodeError: the batch has a field that this release does not know.
      UnavailableError: it is below the floor, so the cut of group 0 is older than it has to be.
    """
    try:
        if not _is_beyond(batch, home):
            return False
    except RequestError:
        return False  # It has no effect.
    if batch.first_index >= floor:
        return True
    if batch.kind is Kind.BEGIN_PART:
        return False  # A client has sent it with the index of no attempt. A cut would leave out acknowledged records.
    raise UnavailableError(
        f"{batch!r} was committed before group 0 was cut at index {home.end - 1}, and needs a later record of it",
        remedy="run it again; the earlier backups are unchanged",
    )


def _is_beyond(batch: Batch, home: HomeCut) -> bool:
    """Return whether a batch was proposed by a state of group 0 behind its cut. Raises RequestError."""
    match batch.kind:
        case Kind.CONTEXT:
            _, runs = decode_context(batch)
            return any(run.version > home.version for run in runs)
        case Kind.BEGIN_PART:
            attempt, _ = decode_begin_part(batch)
            return attempt >= home.end
        case Kind.COMMIT:
            sink = decode_commit(batch).sink
            return is_part(sink) and _is_in(attempt_of(sink), home, home.open_attempts)
        case Kind.FORGET_SINK:
            (sink,) = decode_fields(batch, name=str)
            return is_part(sink) and _is_in(attempt_of(sink), home, home.open_attempts | home.pending_attempts)
        case Kind.DROP_STREAM:
            _, _, gone = decode_drop(batch)
            return gone >= home.end
        case _:
            return False


def _is_in(attempt: int, home: HomeCut, attempts: frozenset[int]) -> bool:
    return attempt >= home.end or attempt in attempts


def contradictions(home: State, groups: Mapping[GroupId, State]) -> list[str]:
    """Return the contradictions between the states of group 0 and of other groups at a joint cut; [] = there are none.

    A stream of a group that is not in ``groups`` is not compared.
    """
    found: list[str] = []
    for stream, ordered_end, forgotten_end, *_ in home.order.streams():
        state = groups.get(stream.group)
        if state is None or home.spread.is_gone(stream):
            continue
        topic = state.names.get(stream.name)
        end = topic.next_position if topic is not None else 1
        if end < ordered_end:
            found.append(f"{stream.name} ends at position {end - 1}, and the order has it up to {ordered_end - 1}")
        mapped_end = state.maps.mapped_end(stream.name)
        if mapped_end < forgotten_end:
            found.append(
                f"{stream.name} has global positions up to position {mapped_end - 1}, and group 0 has forgotten those"
                f" up to {forgotten_end - 1}"
            )
    for group, state in groups.items():
        for name, mapped_end, last in state.maps.ends():
            ordered_end = home.order.ordered_end(Stream(group, name))
            if mapped_end > ordered_end or last.version > home.order.version:
                found.append(
                    f"{name} has global positions up to position {mapped_end - 1}, in version {last.version} of the"
                    f" order, and the order has them up to {ordered_end - 1}, in version {home.order.version}"
                )
        found += _contradictions_of_parts(home, group, state)
    return found


def _contradictions_of_parts(home: State, group: GroupId, state: State) -> list[str]:
    """Return the contradictions between group 0 and the parts of batches of sinks in another group."""
    found: list[str] = []
    parts = {part.attempt: part for part in state.staging.parts()}
    found += [
        f"group {group} has a part of attempt {attempt}, and group 0 ends at index {home.end - 1}"
        for attempt in parts
        if attempt >= home.end
    ]
    found += [
        f"group {group} has placed a part of attempt {attempt}, which group 0 has not committed"
        for attempt, part in parts.items()
        if part.is_placed and attempt in home.staging.attempts
    ]
    found += [
        f"a batch of sink {each.sink!r} is committed, and group {group} has no part of its attempt {each.part.attempt}"
        for each in home.commits.parts_of(group)
        if each.part.attempt not in parts
    ]
    return found
