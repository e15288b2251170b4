"""The term history: the term of every index of a log, and the common point of two logs.

A history is an ordered run of (term, begin) pairs; ``begin`` is the first index of the term. It replaces a comparison
of every record's term, because two logs agree exactly as far as their histories do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from viewstamp.errors import PeerError
from viewstamp.ids import Index, Term

__all__ = ["TermHistory", "TermStart", "common_point"]


class TermStart(NamedTuple):
    """A term and its first index. An empty term has the same begin as the next one."""

    term: Term
    begin: Index


class TermHistory:
    """An immutable run of :class:`TermStart`.

    Invariants:
      * never empty; an untrimmed history starts with (0, 1), so that two of them always have a common term
      * terms rise strictly, begins never fall; of equal begins the later term describes the record
    """

    __slots__ = ("_begins", "starts")

    def __init__(self, starts: Iterable[tuple[int, int]] = ((0, 1),)) -> None:
        self.starts = tuple(TermStart(Term(term), Index(begin)) for term, begin in starts)
        self._begins = [start.begin for start in self.starts]
        if not self.starts:
            raise PeerError("a term history holds at least one term")
        for before, after in zip(self.starts, self.starts[1:], strict=False):
            if after.term <= before.term or after.begin < before.begin:
                raise PeerError(f"no term history: {before} is followed by {after}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TermHistory) and self.starts == other.starts

    def __hash__(self) -> int:
        return hash(self.starts)

    def __repr__(self) -> str:
        return "[" + ", ".join(f"({term},{begin})" for term, begin in self.starts) + "]"

    @property
    def last_term(self) -> Term:
        """The latest term; of an advertised history, the first half of the advertised pair."""
        return self.starts[-1].term

    def advertised(self, end: Index) -> TermHistory:
        """Return the terms that a log durable up to ``end`` has reached: those with ``begin <= end``.

        The comparison is inclusive, because only then is the commit rule "a quorum reached the term's start" safe. With
        a strict one the same rule loses committed records (protocol rule 1, figure 8 of the Raft paper).
        """
        count = bisect_right(self._begins, end)
        if count == len(self.starts):
            return self
        return TermHistory(self.starts[:count])

    def extended(self, term: Term, begin: Index) -> TermHistory:
        """Return this history with one more term, which starts at ``begin``."""
        return TermHistory((*self.starts, TermStart(term, begin)))

    def preceded_by(self, own: TermHistory) -> TermHistory:
        """Return this history of a leader, preceded by the terms of the member's ``own`` before its first one.

        The leader's history describes only the records that the leader's log still has. The member's log may begin
        earlier, and its history has to describe these records, too. Both logs agree on them, because the common point
        of the two logs is in or after the first term of the leader's history.
        """
        older = [start for start in own.starts if start.term < self.starts[0].term]
        return TermHistory((*older, *self.starts)) if older else self

    def trimmed(self, first_index: Index) -> TermHistory:
        """Return the part of this history that describes a log which begins at ``first_index``.

        The last entry below it stays, with its true begin (protocol rule 19), because it gives the term of the record
        before. Without it there would be no common point with a member that holds records of that term.
        """
        at = bisect_right(self._begins, first_index - 1) - 1
        return self if at <= 0 else TermHistory(self.starts[at:])

    def term_at(self, index: Index) -> Term:
        """Return the term of the record at ``index``; 0 before the first."""
        if index < 1:
            return Term(0)
        at = bisect_right(self._begins, index) - 1
        assert at >= 0, f"index {index} is before {self}"
        return self.starts[at].term

    def end_of(self, term: Term, log_end: Index) -> Index:
        """Return the end of ``term`` in a log that ends at ``log_end``: the next term's begin, or the log's end."""
        for start, following in zip(self.starts, self.starts[1:], strict=False):
            if start.term == term:
                return min(following.begin, log_end)
        return log_end

    def begin_of(self, term: Term) -> Index | None:
        """Return the begin of ``term``; None if this history does not contain it."""
        for start in reversed(self.starts):
            if start.term == term:
                return start.begin
            if start.term < term:
                break
        return None


def common_point(leader: TermHistory, leader_end: Index, member: TermHistory, member_end: Index) -> Index | None:
    """Return the end of the common prefix of a leader's log and a member's log (protocol rule 4).

    Both histories are those that the members sent in messages; the last term of ``leader`` is the term it leads in. The
    logs agree up to the end of the *highest term that is in both histories*. The longest common prefix of the two
    histories says nothing, because their beginnings may be trimmed at different places.

    None: the two have no common term and ``leader`` does not begin at index 1, so the member needs a snapshot.

    Raises:
      PeerError: one term begins at two places, or the member holds more of the leader's own term than
        the leader does. A member broke the protocol, or a disk returned wrong data.
    """
    for term, begin in reversed(member.starts):
        leader_begin = leader.begin_of(term)
        if leader_begin is None:
            continue
        if leader_begin != begin:
            raise PeerError(f"term {term} begins at {begin} in {member} but at {leader_begin} in {leader}")
        if term == leader.last_term:
            if member_end > leader_end:
                raise PeerError(f"a member holds term {term} up to {member_end}, its leader only up to {leader_end}")
            return member_end
        return min(leader.end_of(term, leader_end), member.end_of(term, member_end))
    return Index(1) if leader.starts[0].begin == 1 else None
