"""Chooses the snapshots to keep, and the one up to which the log may be deleted. Pure.

A member recovers from its newest intact snapshot and the log after it, if the log reaches back to the snapshot's end.
So the log may be deleted up to the *base*, and snapshots older than the base are useless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from viewstamp.ids import Index

__all__ = ["choose_base", "choose_dropped", "find_missing_beginnings"]


def choose_base(
    ends: Sequence[Index], keep_from: Index | None, *, log_begin: Index = Index(1), pressed: bool = False
) -> Index | None:
    """Return the end of the snapshot up to which the log may be deleted; None = nothing may be deleted.

    ``keep_from`` is the first index that must stay, None = no such. ``log_begin`` is the first one in the log. A
    snapshot that ends before it does not count, because of the gap. If there are two, the second newest is the base,
    because the newest might be damaged; ``pressed``: take the newest, because no space is left.
    """
    usable = sorted(end for end in ends if end >= log_begin and (keep_from is None or end <= keep_from))
    if not usable:
        return None
    return usable[-1] if pressed or len(usable) == 1 else usable[-2]


def choose_dropped(
    ends: Sequence[Index],
    *,
    base: Index | None,
    kept_max: int,
    held: Collection[Index] = (),
    are_near: Callable[[Index, Index], bool] = lambda _before, _after: True,
) -> list[Index]:
    """Return the ends of the snapshots that are not needed.

    The two newest, the base, and those that are ``held`` (being sent) are always kept. Snapshots older than the base
    are not, because the log does not reach back to them. From the base to the newest at most ``kept_max`` are kept,
    spaced evenly, because they are future bases after a trim. One whose neighbours are not near each other is kept in
    any case, because otherwise the whole log between the neighbours could only be deleted at once.
    """
    kept = sorted(ends)
    needed = {*kept[-2:], *held} | ({base} if base is not None else set())
    dropped = [end for end in kept if base is not None and end < base and end not in needed]
    kept = [end for end in kept if end not in dropped]
    while len(kept) > kept_max:
        gaps = [
            (after - before, end)
            for before, end, after in zip([Index(0), *kept], kept, kept[1:], strict=False)
            if end not in needed and are_near(before, after)
        ]
        if not gaps:
            break
        dropped.append(min(gaps)[1])
        kept.remove(dropped[-1])
    return sorted(dropped)


def find_missing_beginnings(ends: Sequence[Index], keep_from: Index | None, *, log_begin: Index) -> list[Index]:
    """Return better first indices for a log that begins too late, best first; empty = it lacks nothing.

    A new member starts from a snapshot that ends at or before ``keep_from``, or from index 1, and needs the log from
    there on. The next best is to hold at least the records that the state refers to, which begin at ``keep_from``.
    A lost first segment looks like one that was dropped; only these two rules distinguish them.
    """
    needed = max((end for end in ends if keep_from is None or end <= keep_from), default=Index(1))
    return [begin for begin in (needed, keep_from) if begin is not None and begin < log_begin]
