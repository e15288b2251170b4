"""The scope that finds each planted mistake, with the number of worlds visited until then and the broken invariant."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FINDS", "NOT_POSSIBLE", "Find"]


class Find(NamedTuple):
    """A mutant, its scope, the number of worlds visited until it is found, the steps of the trace, the invariant."""

    mutant: str
    scope: str
    states: int
    steps: int
    invariant: str


FINDS = (
    Find("history-first", "t2-crash", 10_368, 11, "HistoryTrue"),
    Find("strictly-advertised", "diverged", 2_033, 35, "ContradictionError"),
    Find("announce-early", "t2", 12, 3, "AnnouncedDurable"),
    Find("vote-before-durable", "t2", 1, 1, "VoteDurable"),
    Find("count-before-sync", "t2", 451, 8, "CommitOnQuorum"),
    Find("acknowledge-before-sync", "t2", 273, 7, "AckDurable"),
    Find("compare-lengths", "outgrown", 5_305, 28, "ContradictionError"),
    Find("append-unannounced", "t2", 68, 5, "HistoryTrue"),
    Find("append-of-older-term", "t2-old", 31_995, 14, "HistoryTrue"),
    Find("announcement-of-older-term", "t2-old", 1_424, 9, "FollowsLeader"),
    Find("trust-the-point", "t2-crash", 4_955, 9, "AckKept"),
    Find("completion-by-index-uncounted", "diverged-slow", 1_397, 37, "AnnouncedDurable"),
    Find("completion-by-record", "diverged-slow", 1_397, 37, "AnnouncedDurable"),
    Find("resume-term", "t1-crash", 308, 7, "OneLeader"),
    Find("extend-stored-history", "outgrown", 594, 19, "PeerError"),
    Find("commit-unannounced", "diverged-t3", 534, 33, "ContradictionError"),
    Find("votes-acknowledge", "t2", 2_677, 15, "CommitOnQuorum"),
    Find("commit-by-counting", "halfway", 242, 18, "CommitOnQuorum"),
    Find("forget-recovery", "t2-wipe", 135, 4, "VoteDurable"),
    Find("recovering-until-committed", "t2-wipe", 4_688, 9, "VoteDurable"),
    Find("forget-recovery", "t2-damage", 2_916, 8, "AckKept"),
    Find("recovering-until-committed", "t2-damage", 5_048, 9, "AckKept"),
    Find("keep-history-at-reset", "snapped", 199, 35, "HistoryTrue"),
    Find("common-prefix", "snapped", 1_188, 37, "ContradictionError"),
    Find("change-unguarded", "changing", 678, 47, "LeaderComplete"),
    Find("count-new-voters-only", "replacing", 2_017, 38, "LeaderComplete"),
    Find("leave-joint-early", "replacing", 8_993, 39, "LeaderComplete"),
    Find("count-learners", "learning", 6_064, 18, "CommitOnQuorum"),
    Find("find-before-sync", "t1-notices-slow", 1_080, 14, "FindsOnQuorum"),
    Find("find-below-the-term", "halfway-notices", 569, 20, "FindsOnQuorum"),
    Find("tell-before-sync", "t2-notices", 273, 7, "AckDurable"),
    Find("believe-the-leader-before", "t2-notices", 6_276, 19, "FindsOnQuorum"),
    Find("commit-before-the-name", "unnamed-power", 226_693, 30, "LeaderComplete"),
)
"""In the order of the protocol's rules. The numbers of worlds are measured; each trace is a shortest one."""

NOT_POSSIBLE = (
    ("completion-by-index", "diverged-slow"),
    ("completion-uncounted", "diverged-slow"),
    ("install-history-first", "snapped"),
    ("find-while-recovering", "damage-notices"),
)
"""Mistakes that another rule makes harmless in these scopes.

Each of two rules alone keeps out a late completion. A start reconciles a log that does not hold its snapshot with any
history. And a recovering member that lacks a record of the present term has acknowledged it before the loss, if the end
that it lost is known.
"""
