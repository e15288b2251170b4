"""The answers to queries: from the topics, sinks, sessions, tokens, groups and runs of a state, and from actors."""

from __future__ import annotations

from typing import Any

from viewstamp.actors.replicated import ActorHost
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.ids import Sequence
from viewstamp.node.actor_owners import ActorSpreadingQuery, OwnedQuery, SpreadActorsQuery
from viewstamp.node.state_machine import (
    ActorChangesQuery,
    ActorQuery,
    ActorsQuery,
    Answered,
    AuditQuery,
    CommandResults,
    CommitEffectQuery,
    FirstPositionQuery,
    InterfaceQuery,
    LastPositionQuery,
    LocationQuery,
    OutcomeQuery,
    Query,
    Result,
    SinkQuery,
    SinksQuery,
    SplitQuery,
    TimeQuery,
    TokensQuery,
    TopicQuery,
    TopicsQuery,
)
from viewstamp.streams.admission import mismatch
from viewstamp.streams.session import SessionState
from viewstamp.streams.state import State

__all__ = ["answer_to", "answered"]


def answer_to(query: Query[Any], state: State, actors: ActorHost) -> object:
    """Return the answer to a query, by the applied state and its actors.

    Raises:
      UnknownTopicError, UnknownActorError, StaleSessionError: there is no such topic, actor or session here.
      TrimmedError: the position or the changes are deleted; ``first`` is the first one that is kept.
      UnavailableError: the sequence is not decided yet.
    """
    match query:
        case ActorQuery(name, key, method, arguments):  # First, because it is the most frequent one.
            return actors.query(name, key, method, arguments)
        case CommitEffectQuery(index):
            return index not in state.staging.idle_commits
        case LocationQuery(topic_id, position):
            topic = state.topic(topic_id)
            # A position that does not exist yet will be after everything that has been applied.
            return topic.locate(position) if position < topic.next_position else (state.end, topic.next_position)
        case LastPositionQuery(topic_id):
            return state.topic(topic_id).next_position - 1
        case FirstPositionQuery(topic_id):
            return state.topic(topic_id).first_position
        case TopicsQuery():
            return [state.describe(topic) for topic in state.topics.values()]
        case TopicQuery(name):
            return state.describe(state.named(name))
        case SplitQuery(name, start, end, size):
            return _split(state, name, start, end, size)
        case TimeQuery(name, timestamp):
            return state.named(name).find_time(timestamp)
        case SinksQuery():
            return [state.describe_sink(sink) for sink in state.staging.sinks.values()]
        case SinkQuery(name):
            return state.describe_sink(state.staging.sink(name))
        case TokensQuery():
            return [token.describe(is_on=state.access.is_on) for token in state.access.tokens.values()]
        case AuditQuery(since):
            return state.access.entries(since)
        case OutcomeQuery():
            return _outcome(state, query)
        case ActorsQuery():
            spread = state.spread_actors.actors
            return [
                {**each, "groups": list(spread[each["name"]].groups)} if each["name"] in spread else each
                for each in actors.list()
            ]
        case InterfaceQuery(name):
            owners = state.spread_actors.actors.get(name)
            return {**actors.describe(name), **({"spread": owners.describe()} if owners is not None else {})}
        case OwnedQuery(calls, group):
            state.spread_actors.check(calls, group)
            return None
        case SpreadActorsQuery():
            return list(state.spread_actors.actors.values())
        case ActorSpreadingQuery(record):
            return state.spread_actors.find_settled(record, state.placements, actors.count_instances)
        case ActorChangesQuery(name, instance, index):
            return actors.changes(name, instance, index)
        case _:
            return state.answer(query)


def _split(state: State, name: str, start: int, end: int, size: int) -> list[int]:
    topic = state.named(name)
    if not (1 <= start <= end <= topic.next_position and size >= 1):
        raise RequestError(
            f"topic {name!r} cannot be divided from {start} to {end} by {size} bytes",
            remedy=f"stay within positions 1 to {topic.next_position}, and take at least one byte",
        )
    return topic.split(start, end, size)


def _outcome(state: State, query: OutcomeQuery) -> Result:
    session, sequence = state.sessions.find(query.session), query.sequence
    if sequence > session.last:
        raise UnavailableError(
            f"sequence {sequence} of session {session.id} has no outcome yet", remedy="fence it, then ask again"
        )
    if query.expected and (actual := session.mismatch(sequence)):
        raise mismatch(state.name_of(query.topic), query.expected, actual)
    return answered(session, sequence).result


def answered(session: SessionState, sequence: Sequence, *, is_alive: bool = True) -> Answered:
    """Return the recorded answer; without results of commands if the caller's token has ended.

    Raises:
      RequestError: the sequence is below 1.
    """
    if sequence < 1:
        raise RequestError(
            f"a batch of session {session.id} has sequence {sequence}, but sequences begin at 1",
            remedy="number the batches of a session from 1",
        )
    result = session.result(sequence)
    if not is_alive and isinstance(result, CommandResults):
        result = CommandResults(result.receipt, None)
    return Answered(result)
