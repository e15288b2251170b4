"""Which snapshots are kept, and up to which of them the log may be dropped. Pure.

A member recovers from its newest snapshot that is intact, if the log reaches back to that one's end, and from the log
behind it. So the log goes at most as far as the *base*, and what is older than the base is of no use any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from viewstamp.ids import Index

__all__ = ["choose_base", "choose_dropped", "find_missing_beginnings"]


def choose_base(
    ends: Sequence[Index], keep_from: Index | None, *, log_begin: Index = Index(1), pressed: bool = False
) -> Index | None:
    """Return the end of the snapshot up to which the log may be dropped; None = nothing may be dropped.

    ``keep_from`` is the first index that must stay, None = no such. ``log_begin`` is the first one that is there: a
    snapshot from before it leaves a gap, and is none. The newest snapshot might turn out damaged, so the second newest
    is the base, where there are two; ``pressed``: there is no room left, take the newest.
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

    Kept, whatever ``kept_max`` says, are the two newest, the base, and those that are ``held`` (being sent). What is
    older than the base goes: the log does not reach back to it. Between the base and the newest at most ``kept_max``
    in all are kept, spaced evenly: they are the bases to come, when what holds the log is trimmed. However many they
    are, one stays where those beside it are not near each other: what lies between them would be held as one.
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
    """Return where a log should begin that begins too late, best first; empty = it lacks nothing.

    A new member starts from a snapshot that ends at or before ``keep_from``, or from index 1, and needs the log from
    there on. The next best is to hold at least the records that the state refers to, which begin at ``keep_from``.
    A lost first segment looks like one that was dropped; only these two rules tell them apart.
    """
    needed = max((end for end in ends if keep_from is None or end <= keep_from), default=Index(1))
    return [begin for begin in (needed, keep_from) if begin is not None and begin < log_begin]
