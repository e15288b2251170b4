"""Counting: how many members suffice, and up to where they do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from viewstamp.ids import Index, NodeId

__all__ = ["has_quorum", "majority", "quorum_end"]


def majority(count: int) -> int:
    """Return how many of ``count`` voters are more than half."""
    return count // 2 + 1


def has_quorum(voters: Iterable[NodeId], agreeing: Iterable[NodeId]) -> bool:
    """Say whether those in ``agreeing`` who are voters are more than half of ``voters``."""
    counted = set(voters)
    return len(counted.intersection(agreeing)) >= majority(len(counted))


def quorum_end(voters: Iterable[NodeId], ends: Mapping[NodeId, Index]) -> Index:
    """Return the quorum-th largest end: the largest one that a majority of ``voters`` holds; a missing end is 0."""
    held = sorted((ends.get(voter, Index(0)) for voter in voters), reverse=True)
    return held[majority(len(held)) - 1] if held else Index(0)
