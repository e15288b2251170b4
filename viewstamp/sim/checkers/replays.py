"""What an offline replay of a run's disks shows, against what clients were told and what the members hold.

| invariant | sentence |
| --- | --- |
| ReplayKeepsAcknowledged | a replay that claims a majority shows every acknowledged record that is not trimmed |
| ReplayInventsNothing | what it shows was written by a client, and stands there once |
| ReplayEqualsMembers | in the end it shows what the members hold, each record at its position and time |
| ReplayIsPossible | directories that are a majority, within the budget of damage, can be replayed |
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """Compare a replay of ``members`` in the middle of a run with what clients have been told. Raises Violation.

    Args:
      members: the directories that were replayed, for the message.
      found: what the replay shows.
      acknowledged: the records that clients know to be committed, (topic, position, value).
      written: every value that a client has tried to append or staged.
      trims: whether topics may be trimmed in this run, so that nothing of one may be left.
    """
    for topic, position, value in acknowledged:
        kept = found.get(topic, _NOTHING)
        if position < kept.first or (not kept.values and trims):
            continue  # Trimmed. Whether that was right is compared in the end.
        at = position - kept.first
        shown = kept.values[at] if at < len(kept.values) else None
        if shown != value:
            raise Violation(
                "ReplayKeepsAcknowledged", f"of {members}: {topic} {position} is {value!r}, the replay shows {shown!r}"
            )
    for topic, kept in found.items():
        if len(set(kept.values)) < len(kept.values) or not written >= set(kept.values):
            raise Violation("ReplayInventsNothing", f"of {members}: {topic} shows a record twice, or one of nobody")


def check_whole(members: str, found: Contents, contents: Contents) -> None:
    """Compare a replay of ``members`` in the end with what the members hold. Raises Violation."""
    held = {topic: kept for topic, kept in contents.items() if kept.values}
    if found != held:
        differing = [topic for topic in {**held, **found} if found.get(topic) != held.get(topic)]
        first = differing[0]
        shown, kept = (each.get(first, _NOTHING) for each in (found, held))
        raise Violation(
            "ReplayEqualsMembers",
            f"of {members}: {', '.join(differing)} differ; {first} is shown from {shown.first}, {len(shown.values)}"
            f" records, and held from {kept.first}, {len(kept.values)} records",
        )
