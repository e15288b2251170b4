"""The possible loss of a cluster that is forked from fewer members than a majority, by the rules of counting. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership
from viewstamp.fork.judge import ForkSource
from viewstamp.ids import NodeId, name_of
from viewstamp.wire.batch import HEADER_SIZE, Kind

__all__ = ["PossibleLoss", "TopicLoss", "possible_loss"]

_KIND_AT = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoss:
    """The doubt about one topic; positions are inclusive, 0 = none.

    Records up to ``known`` were committed. Those from there up to ``kept`` are in the new cluster, although the old one
    may have acknowledged others in their place, or none. Records above ``kept`` are not in the new cluster.
    """

    name: str
    known: int
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleLoss:
    """The doubt about a log that was chosen from the files that are left.

    Attributes:
      survivors: the voters with files that count: identity and end of the log are known, and they lost nothing.
      uncounted: the nodes with files that are given and do not count, with the reason.
      lost: the voters without files that count. All three have names for people, without the suffix of a member id.
      acknowledged: whether acknowledged records may be lost: the lost voters include a majority, so they may have
        acknowledged records that no survivor has.
      known_end, kept_end: the index behind the last record that is known to be committed, and behind the last one kept.
      last_time: the log time of the last record that is kept, in microseconds since 1970.
      calls: calls of actors that are kept and not known to be committed.
      topics: in order of creation.
    """

    survivors: list[str]
    uncounted: dict[str, str]
    lost: list[str]
    acknowledged: bool
    known_end: int
    kept_end: int
    last_time: int
    calls: int
    topics: list[TopicLoss]


def possible_loss(source: ForkSource) -> PossibleLoss:
    """Return the doubt about a source.

    A record is acknowledged when a majority of the voters has it. If no majority can be made of lost voters alone, each
    acknowledged record is on a survivor, and the survivors' best log holds all of them, as in an election.
    """
    counted: set[NodeId] = set()
    uncounted: dict[str, str] = {}
    claims = [replica.claim for replica in source.replicas if replica.claim is not None]
    for replica in source.replicas:
        claim = replica.claim
        if claim is None:
            uncounted[replica.name] = "its identity or the end of its log is lost"
        elif name_of(claim.member) in source.left:
            uncounted[replica.name] = "it has left the group; its records are used all the same"
        elif claim.recovering is not None:
            uncounted[replica.name] = "it lost a part of its log"
        elif any(other.member != claim.member and other.refuses(claim) for other in claims):
            uncounted[replica.name] = "it has another disk than the members have met under its name"
        else:
            counted.add(claim.member)
    memberships = _memberships_in_force(source)
    voters = {voter for membership in memberships for voter in membership.electors}
    for member in sorted(counted - voters):
        uncounted[name_of(member)] = _no_voter(member)
    missing = sorted(voters - counted)
    return PossibleLoss(
        survivors=[_shown(voter, voters) for voter in sorted(counted & voters)],
        uncounted=uncounted,
        lost=[_shown(voter, voters) for voter in missing],
        acknowledged=not memberships or any(standing.is_majority(each, missing) for each in memberships),
        known_end=source.commit_end,
        kept_end=source.end,
        last_time=source.last_log_time,
        calls=_calls_in_doubt(source),
        topics=_topics(source),
    )


def _shown(member: NodeId, voters: Collection[NodeId]) -> str:
    """Return the name of a voter for messages: without the suffix that the id of a node with a new disk has."""
    name = name_of(member)
    if sum(name_of(voter) == name for voter in voters) == 1:
        return name
    return f"{name} with its {'new' if member != name else 'first'} disk"


def _no_voter(member: NodeId) -> str:
    if member != name_of(member):
        return "it had lost its disk, and its new one had not become a voter yet; its records are used all the same"
    return "it is no voter; its records are used all the same"


def _memberships_in_force(source: ForkSource) -> list[Membership]:
    """Return the memberships that may be in force: the newest committed one, and all after it."""
    known = {(entry.term, entry.index): entry for replica in source.replicas for entry in replica.memberships}
    entries = [known[at] for at in sorted(known)]
    committed = [at for at, entry in enumerate(entries) if entry.index < source.commit_end]
    return [entry.membership for entry in entries[committed[-1] if committed else 0 :]]


def _calls_in_doubt(source: ForkSource) -> int:
    chain, calls = source.chain, 0
    for place in range(source.end_place - 1, source.first_place - 1, -1):
        link = chain.link(place)
        if link.end <= source.commit_end:
            break
        number, row = chain.copy(place)
        if chain.replicas[number].rows.headers[row * HEADER_SIZE + _KIND_AT] == Kind.COMMANDS:
            calls += link.end - link.first_index
    return calls


def _topics(source: ForkSource) -> list[TopicLoss]:
    plan = source.plan
    if plan is None:
        return []
    known, kept = dict.fromkeys(plan.topics, 0), dict.fromkeys(plan.topics, 0)
    for at, item in enumerate(plan):
        last = item.first_position + item.count - 1
        kept[item.topic] = last
        if at < plan.known_committed:
            known[item.topic] = last
    return [TopicLoss(name=name, known=known[id_], kept=kept[id_]) for id_, name in sorted(plan.topics.items())]
