"""The handlers of requests that a member answers from its applied state, without a batch in the log."""

from __future__ import annotations

from typing import Any

from viewstamp.errors import RecordTooLargeError
from viewstamp.ids import Index, Position, TopicId
from viewstamp.node.group_0 import check_group_0
from viewstamp.node.service import Caller, at_once, in_a_task
from viewstamp.node.state_machine import (
    ActorQuery,
    ActorsQuery,
    AuditQuery,
    InterfaceQuery,
    Query,
    SinkQuery,
    SinksQuery,
    SplitQuery,
    TimeQuery,
    TokensQuery,
    TopicQuery,
    TopicsQuery,
)
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import (
    DescribeActor,
    DescribeTopic,
    FindTime,
    ListActors,
    ListTopics,
    QueryActor,
    ReadTopic,
    SplitTopic,
    WatchActor,
)
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.sink_requests import DescribeSink, ListSinks
from viewstamp.wire.token_requests import ListAudit, ListTokens

__all__ = ["answer_query"]


@in_a_task(ReadTopic)
async def _read(caller: Caller, request: int, asked: ReadTopic) -> None:
    topic, position, reading = TopicId(asked.topic), Position(asked.position), caller.group.reading
    await reading.wait_readable(topic, position, applied_index=Index(asked.applied_index), wait=asked.wait)
    async with caller.read_lock:
        bytes_max = min(asked.bytes_max, caller.limits.batch_bytes_max)
        batches, last_position = await reading.read(topic, position, bytes_max=bytes_max)
        fields: dict[str, object] = {"last_position": last_position, "applied_index": caller.group.applied_index}
        caller.check(asked)
        caller.ok(request, fields, batches)
        await caller.drain()


@in_a_task(ListTopics)
async def _list_topics(caller: Caller, request: int, asked: ListTopics) -> None:
    query = TopicsQuery()
    await answer_query(
        *(caller, request, asked, "topics", query), stale=asked.stale, max_staleness=asked.max_staleness, name="name"
    )


@in_a_task(DescribeTopic)
async def _describe_topic(caller: Caller, request: int, asked: DescribeTopic) -> None:
    query = TopicQuery(asked.name)
    await answer_query(caller, request, asked, "topic", query, stale=asked.stale, max_staleness=asked.max_staleness)


@in_a_task(SplitTopic)
async def _split_topic(caller: Caller, request: int, asked: SplitTopic) -> None:
    await answer_query(caller, request, asked, "positions", SplitQuery(asked.name, asked.start, asked.end, asked.bytes))


@in_a_task(FindTime)
async def _find_time(caller: Caller, request: int, asked: FindTime) -> None:
    await answer_query(caller, request, asked, "position", TimeQuery(asked.name, asked.timestamp))


@in_a_task(ListSinks)
async def _list_sinks(caller: Caller, request: int, asked: ListSinks) -> None:
    await answer_query(caller, request, asked, "sinks", SinksQuery(), stale=asked.stale, name="name")


@in_a_task(DescribeSink)
async def _describe_sink(caller: Caller, request: int, asked: DescribeSink) -> None:
    await answer_query(caller, request, asked, "sink", SinkQuery(asked.name), stale=asked.stale)


@in_a_task(ListActors)
async def _list_actors(caller: Caller, request: int, asked: ListActors) -> None:
    await answer_query(caller, request, asked, "actors", ActorsQuery(), stale=asked.stale, name="name")


@in_a_task(DescribeActor)
async def _describe_actor(caller: Caller, request: int, asked: DescribeActor) -> None:
    await answer_query(caller, request, asked, "actor", InterfaceQuery(asked.name), stale=True)


@at_once(QueryActor)
def _query_actor(caller: Caller, request: int, asked: QueryActor, frame: Frame) -> None:
    size, limit = len(asked.arguments), caller.limits.record_bytes_max
    if size > limit:  # As for a command. Decoded, they can take 80 times as much memory.
        raise RecordTooLargeError(
            f"the arguments of a query have {size} bytes, over the limit of {limit} for a record",
            remedy="pass less, or raise [limits] record_bytes_max on every node",
        )
    query = ActorQuery(asked.actor, asked.key, asked.method, asked.arguments)
    if not asked.stale:
        caller.read(request, asked, "result", query)  # Without a task, because a task costs more than the query itself.
        return
    age, index = asked.max_staleness, asked.applied_index
    caller.start(
        request,
        lambda: answer_query(
            caller, request, asked, "result", query, stale=True, max_staleness=age, applied_index=index
        ),
    )


async def answer_query(
    caller: Caller,
    request: int,
    asked: RequestBody,
    key: str,
    query: Query[Any],
    *,
    stale: bool = False,
    max_staleness: float | None = None,
    applied_index: int = 0,
    name: str = "",
) -> None:
    """Answer with the result of a query; of a list only the items that the caller may see, by their field ``name``."""
    result, age = await caller.group.reading.query(
        query, stale=stale, max_staleness=max_staleness, applied_index=applied_index
    )
    caller.check(asked)
    if name:
        gate = caller.gate
        result = [each for each in result if gate.sees(caller.credentials, type(asked), each[name])]
    caller.ok(request, {key: result, "age": age, "applied_index": caller.group.applied_index})


@in_a_task(WatchActor)
async def _watch(caller: Caller, request: int, asked: WatchActor) -> None:
    changes, index = await caller.group.reading.watch(asked.actor, asked.key, asked.index, wait=asked.wait)
    caller.check(asked)
    caller.ok(request, {"changes": changes, "index": index})


@in_a_task(ListTokens)
async def _list_tokens(caller: Caller, request: int, asked: ListTokens) -> None:
    check_group_0(caller, "tokens are kept")
    tokens, _ = await caller.group.reading.query(TokensQuery(), stale=False)
    caller.check(asked)
    caller.ok(request, {"tokens": tokens, "is_on": caller.gate.access.is_on})


@in_a_task(ListAudit)
async def _list_audit(caller: Caller, request: int, asked: ListAudit) -> None:
    check_group_0(caller, "the audit log is kept")
    entries, _ = await caller.group.reading.query(AuditQuery(asked.since), stale=False)
    caller.check(asked)
    caller.ok(request, {"entries": entries})
