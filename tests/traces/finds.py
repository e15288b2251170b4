"""The planted mistakes of which a run is rejected; docs/design/0023 has the steps that are not allowed."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FINDS", "Find"]


class Find(NamedTuple):
    """A mutant, the swarm and the first seed of which a run is rejected, and a number of steps that shows it."""

    mutant: str
    swarm: str
    seed: int
    steps: int


FINDS = (
    Find("strictly-advertised", "diverging tails", 0, 400),
    Find("announce-early", "diverging tails", 0, 60),
    Find("vote-before-durable", "diverging tails", 0, 60),
    Find("find-before-sync", "mixed, told", 0, 100),
    Find("tell-before-sync", "mixed, told", 0, 60),
    Find("count-before-sync", "diverging tails", 0, 300),
    Find("acknowledge-before-sync", "diverging tails", 0, 100),
    Find("compare-lengths", "fallen leaders", 0, 100),
    Find("append-unannounced", "late messages", 0, 100),
    Find("append-of-older-term", "late appends", 0, 300),
    Find("announcement-of-older-term", "late appends", 8, 300),
    Find("trust-the-point", "late messages", 1, 200),
    Find("completion-by-index-uncounted", "diverging tails", 3, 300),
    Find("completion-by-record", "mixed", 2, 200),
    Find("resume-term", "diverging tails", 0, 300),
    Find("commit-unannounced", "mixed", 0, 300),
    Find("votes-acknowledge", "diverging tails", 1, 500),
    Find("commit-by-counting", "fallen leaders", 1, 600),
    Find("count-new-voters-only", "changing voters", 0, 150),
    Find("change-unguarded", "changing voters", 1, 150),
    Find("membership-from-commit", "changing voters", 0, 250),
    Find("leave-joint-early", "changing members", 2, 200),
    Find("learner-for-a-voter", "changing members", 2, 200),
    Find("count-learners", "changing voters", 0, 600),
    Find("departed-counts-itself", "changing members", 1, 400),
    Find("forget-vote", "diverging tails", 0, 300),
    Find("cut-below-commit", "mixed", 0, 300),
    Find("take-commit-unbounded", "diverging tails", 0, 300),
    Find("pre-vote-takes-term", "mixed", 0, 60),
)
"""In the order of the protocol's rules."""
