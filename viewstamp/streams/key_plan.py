"""Which runs of keys are due: dumps of the log, and merges of slices. Pure. Design note 0028 has the reasons.

A dump is due when the log behind the dumped end has 16 MiB, or when the retention wants to delete records that are not
dumped, or, of any size, when the log is nearly full.

A merge is due when a range has four neighbouring slices of one *level*. The level of a slice is 0 up to 16 MiB, and one
more for each factor of four. So a record is written again about once for each level: O(log n) times, and a range has at
most three slices of each level, each of which a read asks for a key. Of several merges the one of the lowest level is
due, because it is the cheapest one for each slice that it saves.

Dumps come before merges, because the log holds what is not dumped. A merge of eight slices or more is *overdue*, and
comes before a dump that is due for its size alone. So a topic that is written faster than it is dumped is merged too;
what is not dumped meanwhile stays in the log, until it is nearly full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from viewstamp.ids import Position
from viewstamp.node.keyed_queries import DueKeys, DueKeysQuery
from viewstamp.streams.key_runs import KeyCatalogue, KeyedTopic
from viewstamp.streams.topic import Topic

__all__ = ["FAN", "LEVEL_BYTES", "due_keys", "due_slices", "level_of"]

FAN: Final = 4
"""The number of neighbouring slices of a level that are merged, and the factor between two levels."""
_OVERDUE: Final = 2 * FAN
"""The number of such slices from which on their merge comes before a dump that can wait."""
LEVEL_BYTES: Final = 16 * 1024 * 1024


def due_keys(topic: Topic, keys: KeyCatalogue, query: DueKeysQuery) -> DueKeys | None:
    """Return the run of a topic that is due; None = none is, or it is not keyed."""
    keyed = keys.topics.get(topic.id)
    if keyed is None:
        return None
    first, end = keyed.end, topic.next_position
    merge, slices = _due_merge(topic.name, keyed, keys, query.dump_bytes)
    if first < end:
        has_retention = not topic.archive.is_on and (topic.retain_bytes or topic.retain_seconds)
        is_retained = not has_retention or topic.retained_from(query.now) <= first
        size = topic.bytes_between(first, end)
        can_wait = slices >= _OVERDUE and is_retained and not query.is_pressed
        if not can_wait and (size >= query.dump_bytes or query.is_pressed or not is_retained):
            if size >= 2 * query.dump_bytes:  # A dump holds its rows in memory.
                end = Position(topic.split(first, end, query.dump_bytes)[1])
            return DueKeys(topic.name, first, end)
    return merge


def _due_merge(name: str, keyed: KeyedTopic, keys: KeyCatalogue, base: int) -> tuple[DueKeys | None, int]:
    """Return the merge that is due, None = none is; and the most slices that any merge would have now."""
    found: tuple[int, DueKeys] | None = None
    most = 0
    shares: dict[int, int] = {}
    for each in keyed.ranges:
        for run in each.runs:
            shares[run] = shares.get(run, 0) + 1
    for each in keyed.ranges:
        runs = [keys.runs[run] for run in each.runs]
        due = due_slices([run.size // shares[run.id] for run in runs], base)
        if due is not None:
            most = max(most, due[2] - due[1])
        if due is not None and (found is None or due[0] < found[0]):
            level, low, high = due
            found = level, DueKeys(name, runs[low].first, runs[high - 1].end, each.start)
    return found[1] if found is not None else None, most


def level_of(size: int, base: int = LEVEL_BYTES) -> int:
    """Return the level of a slice of ``size`` bytes; 0 = at most ``base``."""
    level = 0
    while size > base * FAN**level:
        level += 1
    return level


def due_slices(sizes: Sequence[int], base: int = LEVEL_BYTES) -> tuple[int, int, int] | None:
    """Return which slices of a range to merge: their level, and the numbers ``[low, high)``; None = no merge is due.

    ``sizes`` are in bytes, the oldest slice first. Lower levels between the slices do not count as a break, because
    they are newer than those in front and would stay between two higher ones.
    """
    levels = [level_of(size, base) for size in sizes]
    for level in sorted(set(levels)):
        high = len(levels)
        while high:
            low = high
            while low and levels[low - 1] <= level:
                low -= 1
            if sum(each == level for each in levels[low:high]) >= FAN:
                return level, low, high
            high = low if low < high else high - 1
    return None
