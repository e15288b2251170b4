"""The joint cut of the logs of all groups, with which a backup makes one cluster of them. Pure.

Let the log of group 0 be cut at an index E0, with version v0 of the order. The log of another group is cut before its
first CONTEXT that has a run of a version above v0 (``is_above``), or at its end, which is read linearizably after E0.
The logs that majorities of stopped members elect need no search. docs/design/0017-backup.md has the proofs.

| needed | otherwise |
| --- | --- |
| a stream has each record that an ORDER up to E0 names | a reader finds no record at a global position |
| its map has each run that group 0 has forgotten at E0 | nobody knows the global positions of these records |
| its map has no run that the order at E0 lacks | the same global positions would be given to other records |
"""

from __future__ import annotations

from collections.abc import Mapping

from viewstamp.errors import RequestError
from viewstamp.ids import GroupId, Stream
from viewstamp.streams.state import State
from viewstamp.streams.stream_map import decode_context
from viewstamp.wire.batch import Batch, Kind

__all__ = ["contradictions", "is_above"]


def is_above(batch: Batch, version: int) -> bool:
    """Return whether a batch of another group than 0 is a CONTEXT with a run above a version of the order.

    Raises:
      OutdatedCodeError: it has a field that this release does not know.
    """
    if batch.kind is not Kind.CONTEXT:
        return False
    try:
        _, runs = decode_context(batch)
    except RequestError:
        return False  # It has no effect.
    return any(run.version > version for run in runs)


def contradictions(home: State, groups: Mapping[GroupId, State]) -> list[str]:
    """Return the contradictions between the states of group 0 and of other groups at a joint cut; [] = there are none.

    A stream of a group that is not in ``groups`` is not compared.
    """
    found: list[str] = []
    for stream, ordered_end, forgotten_end, *_ in home.order.streams():
        state = groups.get(stream.group)
        if state is None:
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
    return found
