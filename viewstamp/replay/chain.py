"""The log of the cluster: its end is chosen as an election would, then it is walked backwards from batch to batch.

Taking the highest term at each index would be wrong, because it keeps records that consensus discarded, both behind the
end of the chosen log and between its records. Instead each batch names the term of the record before it, and in one
term only one leader writes each index. So from a correct end, (previous term, first index) leads to exactly one batch
before, in any replica that holds it.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership
from viewstamp.errors import ConfigError, CorruptionError, NoQuorumError
from viewstamp.replay.headers import BatchLink
from viewstamp.replay.replica import ReplicaFiles, describe_loss

__all__ = ["Chain", "Copy", "Gap", "build_chain", "choose_tail"]


class Copy(NamedTuple):
    """One replica's copy of a batch: the number of the replica, and the row in its table."""

    replica: int
    row: int


class Gap(NamedTuple):
    """Indices, half-open, for which no replica has a copy that fits."""

    first: int
    end: int


@dataclass(slots=True)
class Chain:
    """The batches of the log in order, each with the copy to read.

    ``begin`` and ``end`` are indices; ``end`` is exclusive. ``gaps`` are in order, the highest first. ``commit_end``:
    all records below it were committed, as at least one replica knew. ``dropped``: batches of some replica that are not
    in the log. ``unlinked``: batches below ``begin`` that cannot be proven to belong to the log. ``repaired``: batches
    that one replica lacks or holds damaged, and another one provides. ``corrupt``: a description of each place where
    replicas hold different intact bytes.
    """

    replicas: Sequence[ReplicaFiles]
    begin: int
    end: int
    commit_end: int
    copies: array[int] = field(default_factory=lambda: array("B"))
    rows: array[int] = field(default_factory=lambda: array("I"))
    gaps: list[Gap] = field(default_factory=list)
    dropped: int = 0
    unlinked: int = 0
    repaired: int = 0
    corrupt: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lacks_what_may_not_be_committed(self) -> bool:
        """Whether records are lost that no replica knew to be committed."""
        if self.gaps and self.gaps[0].end > self.commit_end:
            return True
        places = takewhile(lambda at: self.link(at).end > self.commit_end, range(len(self) - 1, -1, -1))
        return any(self.rows[at] in self.replicas[self.copies[at]].rows.unreadable for at in places)

    def copy(self, at: int) -> Copy:
        """Return the copy to read of the batch at place ``at``."""
        return Copy(self.copies[at], self.rows[at])

    def link(self, at: int) -> BatchLink:
        """Return the place of a batch in the log: its term and indices."""
        return self.replicas[self.copies[at]].rows.link(self.rows[at])


def choose_tail(
    replicas: Sequence[ReplicaFiles], *, unsafe: bool = False, without: Container[str] = ()
) -> tuple[ReplicaFiles, bool]:
    """Return the replica whose log an election among ``replicas`` keeps, and whether there can be an election.

    The votes are counted by :mod:`viewstamp.consensus.standing`, as in a running cluster. A replica whose control file
    or end of the log is lost does not vote.

    Args:
      replicas: all replicas that were given.
      unsafe: without a majority, take the largest pair: committed records may be missing then, and records that were
        never committed may be present.
      without: directories of replicas that are not counted.

    Raises:
      NoQuorumError: they cannot elect a leader, and ``unsafe`` is not set.
      ConfigError: the replicas do not belong together.
    """
    _check_together(replicas)
    claims = [claim for each in replicas if each.directory not in without and (claim := each.claim) is not None]
    winner = standing.elect(claims)
    if winner is not None:
        return next(replica for replica in replicas if replica.claim == winner), True
    if not unsafe:
        raise _no_majority(replicas, claims)
    return max(replicas, key=lambda each: each.pair), False


def _check_together(replicas: Sequence[ReplicaFiles]) -> None:
    known = [(replica, replica.state) for replica in replicas if replica.state is not None]
    for at, (replica, state) in enumerate(known):
        for other, other_state in known[:at]:
            if state.cluster_id != other_state.cluster_id:
                raise ConfigError(
                    f"{replica.directory} belongs to cluster {state.cluster_id}, {other.directory} to"
                    f" {other_state.cluster_id}",
                    remedy="name the replicas of one cluster",
                )
            if state.group != other_state.group:
                raise ConfigError(
                    f"{replica.directory} belongs to group {state.group}, {other.directory} to group"
                    f" {other_state.group}",
                    remedy="name the replicas of one group",
                )
            if replica.member != other.member:
                continue
            if state.incarnation != other_state.incarnation:
                raise ConfigError(
                    f"{other.directory} and {replica.directory} both belong to member {replica.member}, but are"
                    f" different disks (incarnations {other_state.incarnation} and {state.incarnation})",
                    remedy="leave out the later one, on which the node was started with an empty directory",
                )
            raise ConfigError(
                f"{other.directory} and {replica.directory} both belong to member {replica.member}",
                remedy="name each member once, because a copy would count as a second vote; take the newer directory",
            )


def _no_majority(replicas: Sequence[ReplicaFiles], claims: Sequence[standing.Claim]) -> NoQuorumError:
    best = max((claim for claim in claims if claim.memberships), key=lambda claim: claim.pair, default=None)
    if best is None:
        known = [replica.memberships for replica in replicas if replica.memberships]
        membership = known[-1][-1].membership if known else None
    else:
        membership = best.memberships[-1].membership
    voting = [claim for claim in claims if claim.recovering is None]
    votes = [claim.member for claim in voting if best is not None and claim.votes_for(best)]
    reasons = [reason for replica in replicas if (reason := _why_no_vote(replica, membership, best))]
    count = f"{len(replicas) - len(reasons)} of {len(replicas)} given replicas can vote"
    if reasons:
        count += f" (the others cannot: {'; '.join(reasons)})"
    if membership is None:
        needed = "none of them stores the members"
    else:
        halves = [
            (voters, [each for each in voters if each not in votes]) for voters in standing.lacking(membership, votes)
        ]
        needed = " and ".join(
            f"a majority of {', '.join(voters)} is needed (missing: {', '.join(missing)})" for voters, missing in halves
        )
    return NoQuorumError(
        f"no majority: {count}; {needed}; nothing was written",
        remedy='name the directories of more members; or accept a guess (--unsafe; on Spark .option("unsafe",'
        ' "true")), in which committed records may be missing and records that were never committed may be present',
    )


def _why_no_vote(replica: ReplicaFiles, membership: Membership | None, best: standing.Claim | None) -> str:
    """Return why a replica cannot vote; "" = it can."""
    claim = replica.claim
    if claim is None:
        return f"the control file or the end of the log of {replica.name} is lost"
    if (pair := claim.recovering) is not None:
        return describe_loss(replica.member, pair)
    if best is not None and claim.member != best.member and (best.refuses(claim) or claim.refuses(best)):
        return f"{claim.member} has another disk than the one that {best.member} knows"
    if membership is not None and not standing.is_voter(membership, replica.member):
        return f"{replica.member} is not a voter"
    return ""


def build_chain(replicas: Sequence[ReplicaFiles], winner: ReplicaFiles, *, unsafe: bool = False) -> Chain:
    """Walk back from the end of ``winner``'s log, through the copies of all ``replicas``.

    The walk continues below gaps and corruption. Below a gap it resumes at the highest batch that has the term which a
    stored history names; if no history reaches there, at a batch that its replica knew to be committed.

    Raises:
      CorruptionError: the log ends below the highest index known to be committed, and ``unsafe`` is not set.
    """
    return _Walk(replicas, winner).run(unsafe=unsafe)


class _Walk:
    """One walk. ``_at`` has for each replica its highest row that ends at or below the present place."""

    def __init__(self, replicas: Sequence[ReplicaFiles], winner: ReplicaFiles) -> None:
        self._replicas = replicas
        self._winner = winner
        self._at = [len(replica.rows) - 1 for replica in replicas]
        self._divergent: dict[tuple[int, int], bytes] = {}
        self._last = 0
        commit_end = max(replica.commit_hint for replica in replicas)
        self._chain = Chain(replicas, winner.end, winner.end, commit_end)

    def run(self, *, unsafe: bool) -> Chain:
        chain = self._chain
        if chain.commit_end > chain.end and not unsafe:
            raise CorruptionError(
                f"the chosen log ends at index {chain.end - 1}, but index {chain.commit_end - 1} was committed:"
                f" indices {chain.end} to {chain.commit_end - 1} are missing",
                path=self._winner.directory,
                expected=f"a log up to index {chain.commit_end - 1}",
                found=f"one up to {chain.end - 1}",
                remedy="name the directories of more members, because at least one of them has these records",
            )
        end = chain.end
        term = self._term_before(end)
        while end > 1:
            link = None if term is None else self._take(term, end)
            if link is not None:
                term, end = link.previous_term, link.first_index
                continue
            lower = self._resume(term, end)
            if lower is None:
                break
            chain.gaps.append(Gap(lower.end, end))
            term, end = lower.term, lower.end
        for number in range(len(self._replicas)):
            chain.unlinked += self._drop_row_above(number, end) + 1
        chain.begin = end
        chain.copies.reverse()
        chain.rows.reverse()
        chain.dropped = len(self._divergent)
        return chain

    def _term_before(self, end: int) -> int | None:
        """Return the term of the record before ``end``, from a stored history, else from the winner's last row."""
        if (term := self._winner.term_at(end - 1)) is not None:
            return term
        for snapshot in self._winner.snapshots:
            if snapshot.meta.end == end:
                return snapshot.meta.term
        rows = self._winner.rows
        if len(rows) and (link := rows.link(len(rows) - 1)).end == end:
            return link.term
        return None

    def _take(self, term: int, end: int) -> BatchLink | None:
        """Take the batch of ``term`` that ends at ``end``; None = no replica has it, or the copies contradict."""
        found: list[Copy] = []
        for number, replica in enumerate(self._replicas):
            row = self._drop_row_above(number, end)
            if row >= 0 and (link := replica.rows.link(row)).end == end and link.term == term:
                found.append(Copy(number, row))
        if not found:
            return None
        for number, _ in found:
            self._at[number] -= 1
        rows = [self._replicas[copy.replica].rows for copy in found]
        first = rows[0].header(found[0].row)
        for copy, table in zip(found, rows, strict=True):
            if table.header(copy.row) != first:
                self._note_corrupt(term, end, found)
                return None
        intact = [copy for copy, table in zip(found, rows, strict=True) if copy.row not in table.unreadable]
        link = rows[0].link(found[0].row)
        chosen = next((copy for copy in intact if copy.replica == self._last), (intact or found)[0])
        self._last = chosen.replica
        self._chain.copies.append(chosen.replica)
        self._chain.rows.append(chosen.row)
        if len(intact) < len(self._replicas) and intact:
            self._chain.repaired += self._is_repair(link, {copy.replica for copy in intact})
        return link

    def _is_repair(self, link: BatchLink, having: set[int]) -> bool:
        """Return whether a replica should have this batch too, but does not."""
        return any(
            number not in having
            and replica.first_index <= link.first_index
            and link.end <= replica.end
            and replica.term_at(link.end - 1) in (None, link.term)
            for number, replica in enumerate(self._replicas)
        )

    def _resume(self, term: int | None, end: int) -> BatchLink | None:
        """Return the highest batch at or below ``end``, the end of a gap, that is known to belong to the log.

        ``term`` is the term of the record before ``end``; None = unknown.
        """
        best: BatchLink | None = None
        for number, replica in enumerate(self._replicas):
            for row in range(self._drop_row_above(number, end), -1, -1):
                link = replica.rows.link(row)
                if best is not None and link.end <= best.end:
                    break
                if _can_stand_below(link, term, end) and self._belongs(link, replica):
                    best = link
                    break
        return best

    def _belongs(self, link: BatchLink, replica: ReplicaFiles) -> bool:
        """Return whether a batch of ``replica`` belongs to the log.

        If a stored term history covers the batch, the terms have to be equal. Otherwise ``replica`` must have recorded
        that the batch was committed. The second rule is needed because members that trimmed their logs also trimmed
        their histories, which may not reach back to the log of a member that was stopped earlier.
        """
        known = self._known_term(link.end - 1)
        return link.end <= replica.log_hint if known is None else link.term == known

    def _known_term(self, index: int) -> int | None:
        """Return the term of the chosen log at ``index``, from the winner's history or from a snapshot."""
        if (term := self._winner.term_at(index)) is not None:
            return term
        for replica in self._replicas:
            for snapshot in replica.snapshots:
                starts = snapshot.meta.history
                if starts and starts[0][1] <= index < snapshot.meta.end:
                    return max((begin, term) for term, begin in starts if begin <= index)[1]
        return None

    def _drop_row_above(self, number: int, end: int) -> int:
        """Skip a replica's rows that reach above ``end``, because the log does not have them; return its next row."""
        rows = self._replicas[number].rows
        row = self._at[number]
        while row >= 0 and (link := rows.link(row)).end > end:
            self._drop(number, row, link)
            row -= 1
        self._at[number] = row
        return row

    def _drop(self, number: int, row: int, link: BatchLink) -> None:
        replica = self._replicas[number]
        header = replica.rows.header(row)
        known = self._divergent.setdefault((link.term, link.first_index), header)
        place = f"term {link.term}, indices {link.first_index} to {link.end - 1}"
        if known != header:
            self._chain.corrupt.append(f"{place}: {replica.name} and another replica hold different bytes")
        if link.end <= replica.log_hint:
            self._chain.corrupt.append(f"{place}: committed according to {replica.name}, but not in the chosen log")

    def _note_corrupt(self, term: int, end: int, copies: Sequence[Copy]) -> None:
        places = []
        for number, row in copies:
            replica = self._replicas[number]
            path = replica.paths[replica.rows.files[row]]
            places.append(f"{path} at byte {replica.rows.locations[row]}")
        link = self._replicas[copies[0].replica].rows.link(copies[0].row)
        place = f"term {term}, indices {link.first_index} to {end - 1}"
        self._chain.corrupt.append(f"{place}: copies are intact but different: {'; '.join(places)}")


def _can_stand_below(link: BatchLink, term: int | None, end: int) -> bool:
    """Return whether a log can hold ``link`` if the record before ``end`` has ``term``, as terms never decrease."""
    return term is None or (link.term == term if link.end == end else link.term <= term)
