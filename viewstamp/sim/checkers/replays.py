"""Compares an offline replay of a run's disks with the clients' answers and with the members' contents.

| invariant | sentence |
| --- | --- |
| ReplayKeepsAcknowledged | a replay that claims a majority shows every acknowledged record that is not trimmed |
| ReplayInventsNothing | every record that it shows was written by a client, and occurs once |
| ReplayEqualsMembers | at the end it shows the members' contents, each record at its position and time; it may lack \
archived ones |
| ReplayIsPossible | directories of a majority, within the budget of damage, can be replayed |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from viewstamp.sim.checkers.replicas import Contents, Kept
from viewstamp.sim.violation import Violation

__all__ = ["Record", "check_acknowledged", "check_whole"]

Record = tuple[str, int, bytes]
"""(topic, position, value)."""
_NOTHING = Kept(1, [], [])


def check_acknowledged(
    members: str, found: Contents, acknowledged: Iterable[Record], written: AbstractSet[bytes], *, trims: bool
) -> None:
    """Compare a replay of ``members`` during a run with the clients' answers. Raises Violation.

    Args:
      members: the replayed directories, for the message.
      found: the contents that the replay shows.
      acknowledged: the records that clients know to be committed, as (topic, position, value).
      written: every value that a client has tried to append or stage.
      trims: whether topics may be trimmed or archived in this run, so that a topic may be empty.
    """
    for topic, position, value in acknowledged:
        kept = found.get(topic, _NOTHING)
        if position < kept.first or (not kept.values and trims):
            continue  # Trimmed; whether that was right is checked at the end.
        at = position - kept.first
        shown = kept.values[at] if at < len(kept.values) else None
        if shown != value:
            raise Violation(
                "ReplayKeepsAcknowledged", f"of {members}: {topic} {position} is {value!r}, the replay shows {shown!r}"
            )
    for topic, kept in found.items():
        if len(set(kept.values)) < len(kept.values) or not written >= set(kept.values):
            raise Violation(
                "ReplayInventsNothing", f"of {members}: {topic} shows a record twice, or one that was never written"
            )


def check_whole(members: str, found: Contents, contents: Contents, archived: Mapping[str, int] | None = None) -> None:
    """Compare a replay of ``members`` at the end with the members' contents. Raises Violation.

    ``archived`` has the archived ends of topics: the replay may lack records before it, because no file has them.
    """
    held: dict[str, Kept] = {}
    for topic, kept in contents.items():
        begin = found[topic].first if topic in found else kept.first + len(kept.values)
        gone = max(0, min(begin, (archived or {}).get(topic, 0)) - kept.first)
        if kept.values[gone:]:
            held[topic] = Kept(kept.first + gone, kept.values[gone:], kept.times[gone:])
    if found != held:
        differing = [topic for topic in {**held, **found} if found.get(topic) != held.get(topic)]
        first = differing[0]
        shown, kept = (each.get(first, _NOTHING) for each in (found, held))
        raise Violation(
            "ReplayEqualsMembers",
            f"of {members}: {', '.join(differing)} differ; {first} is shown from {shown.first}, {len(shown.values)}"
            f" records, and held from {kept.first}, {len(kept.values)} records",
        )
