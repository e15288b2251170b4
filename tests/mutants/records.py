"""Which seed found each mutant: ``python -m tests.mutants --record`` writes this file and the table in the docs."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RECORDS", "Record"]


class Record(NamedTuple):
    """One mutant, the aim under which it is hunted, the first seed that finds it, and the invariant that it breaks."""

    mutant: str
    aim: str
    seed: int
    invariant: str


RECORDS = (
    Record("history-first", "diverging tails", 3, "a node fails only when its disk does"),
    Record("strictly-advertised", "fallen leaders", 2, "LeaderComplete"),
    Record("announce-early", "drawn", 1, "AnnouncedDurable"),
    Record("vote-before-durable", "drawn", 1, "VoteDurable"),
    Record("count-before-sync", "drawn", 1, "CommitOnQuorum"),
    Record("acknowledge-before-sync", "drawn", 1, "AckDurable"),
    Record("compare-lengths", "fallen leaders", 2, "LeaderComplete"),
    Record("append-unannounced", "drawn", 4, "HistoryTrue"),
    Record("append-of-older-term", "late appends", 1, "HistoryTrue"),
    Record("announcement-of-older-term", "late messages", 4, "FollowsLeader"),
    Record("trust-the-point", "late messages", 1, "a node fails only when its disk does"),
    Record("completion-by-index", "diverging tails", 5, "DurableIsDurable"),
    Record("install-by-header", "short logs", 1, "CommittedStays"),
    Record("keep-history-at-install", "short logs", 1, "CommittedStays"),
    Record("drop-before-durable", "short logs", 1, "a node fails only when its disk does"),
    Record("drop-what-topics-keep", "late answers", 1, "PositionsHaveNoGap"),
    Record("forget-results", "late answers", 1, "no StaleSessionError"),
    Record("forget-last-batch", "late commits", 1, "BatchWhole"),
    Record("abort-a-commit", "late commits", 1, "BatchOnce"),
    Record("reset-without-recount", "late commits", 2, "BatchVisible"),
    Record("keep-leftovers", "late commits", 1, "NothingLeftStaged"),
    Record("forget-staging", "staged on short logs", 1, "a node fails only when its disk does"),
    Record("forget-idle-commits", "staged on short logs", 2, "TopicsAreWhole"),
    Record("drop-what-is-staged", "staged on short logs", 1, "TopicsAreReadable"),
    Record("drop-what-was-staged", "staged on short logs", 1, "TopicsAreReadable"),
    Record("append-beside-a-commit", "late commits", 1, "a node fails only when its disk does"),
    Record("append-where-it-was", "late commits", 1, "a node fails only when its disk does"),
    Record("read-idle-commits", "late commits", 1, "no PeerError"),
    Record("read-by-index", "late commits", 1, "PositionsStay"),
    Record("read-at-the-staged-time", "late commits", 1, "PositionsStay"),
)
"""One for each mutant, in the order of ``MUTANTS``."""
