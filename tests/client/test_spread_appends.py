"""Appends to a topic that is spread over streams of two groups. The nodes of these tests take both for one log."""

from __future__ import annotations

import asyncio
import gc
import pickle
from functools import partial
from typing import Any

import pytest

from tests.client.cluster import Act, Cluster
from tests.mutants.mutants import patched
from viewstamp.client import Client, Outcome, Receipt
from viewstamp.client.results import SpreadTopicInfo
from viewstamp.client.routing import LeaderFinder
from viewstamp.errors import (
    ClosedError,
    OutcomeUnknownError,
    PositionMismatchError,
    RequestError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.spreading import slot_of

STREAMS = 4


async def spread(cluster: Cluster, *, creates: bool = True) -> SpreadTopicInfo:
    """Create the topic "orders", and its streams as the leaders of the groups do."""
    admin = cluster.client()
    groups = [(await admin.place_group(name)).id for name in ("s1", "s2")]
    for group in groups:
        cluster.establish(group)
    topic = await admin.create_spread_topic("orders", STREAMS, groups=groups)
    if creates:
        await create_streams(cluster, topic)
    cluster.requests.clear()
    return topic


async def create_streams(cluster: Cluster, topic: SpreadTopicInfo) -> None:
    for stream in range(1, STREAMS + 1):
        await cluster.clients[0].create_topic(topic.topic_of(stream))


def keys_of(topic: SpreadTopicInfo, stream: int, count: int) -> list[bytes]:
    keys = (b"%d" % n for n in range(10_000))
    found = [key for key in keys if topic.stream_of(slot_of(key, topic.slots)) == stream]
    return found[:count]


async def read(cluster: Cluster, topic: SpreadTopicInfo, stream: int) -> list[bytes]:
    return [record.value async for record in cluster.clients[0].read(topic.topic_of(stream))]


async def written(cluster: Cluster, topic: SpreadTopicInfo) -> list[bytes]:
    return [value for stream in range(1, STREAMS + 1) for value in await read(cluster, topic, stream)]


async def test_records_go_to_the_streams_of_their_keys_and_receipts_name_them(cluster: Cluster) -> None:
    topic, client = await spread(cluster), cluster.client()
    keys = [key for stream in range(1, STREAMS + 1) for key in keys_of(topic, stream, 3)]
    calls = [client.append("orders", b"%d of %s" % (number, key), key=key) for number in range(5) for key in keys]
    receipts: list[Receipt] = await asyncio.gather(*calls)
    for key, receipt in zip(keys * 5, receipts, strict=True):
        assert receipt.stream == topic.stream_of(slot_of(key, topic.slots))
    for stream in range(1, STREAMS + 1):
        values = await read(cluster, topic, stream)
        assert len(values) == 15
        assert values == sorted(values, key=lambda value: value.split()[0]), "the order of the calls"
        positions = [each.position for each in receipts if each.stream == stream]
        assert positions == list(range(1, 16))
    assert sorted(set(cluster.groups)) == [0, *sorted(set(topic.groups))]
    assert client._groups.group_0.sender.session.id == 0, "nothing is appended in group 0"


async def test_a_group_is_found_without_a_pause_among_many_nodes_that_do_not_host_it() -> None:
    """Each of them says so at once, so a pause after each would only delay the first calls of a client."""
    cluster, pauses = Cluster(), []
    await cluster.start(9)
    original = LeaderFinder.delay

    def delay(self: LeaderFinder) -> float:
        pauses.append(original(self))
        return pauses[-1]

    try:
        topic = await spread(cluster)
        cluster.hosts = {group: {"n1"} for group in topic.groups}
        with patched(LeaderFinder, delay=delay):
            for seed in range(1, 4):
                client = cluster.client(seed=seed)
                await client.describe_stream("orders", 1)
                assert (await client.append("orders", b"x", stream=1)).stream == 1
                assert len(cluster.groups) > 3
                assert sum(pause > 0 for pause in pauses) <= 1, "at the end of a round only"
                pauses.clear()
                cluster.groups.clear()
    finally:
        await cluster.close()


async def test_records_without_a_key_are_not_divided_and_reach_all_streams(cluster: Cluster) -> None:
    topic, client = await spread(cluster), cluster.client()
    receipts = await asyncio.gather(*(client.append("orders", b"%d" % number) for number in range(100)))
    assert len({receipt.stream for receipt in receipts}) == 1, "they fit into one batch"
    streams = [(await client.append("orders", b"x")).stream for _ in range(2 * STREAMS)]
    assert streams[:STREAMS] == streams[STREAMS:]
    assert set(streams) == {1, 2, 3, 4}
    assert len(await written(cluster, topic)) == 108


async def test_an_atomic_append_has_one_stream_or_is_refused_before_anything_is_sent(cluster: Cluster) -> None:
    topic, client = await spread(cluster), cluster.client()
    one, other = keys_of(topic, 3, 2)
    receipts = await client.append_many("orders", [b"a", b"b", b"c"], keys=[one, None, other])
    assert [(receipt.stream, receipt.position) for receipt in receipts] == [(3, 1), (3, 2), (3, 3)]
    sent = len(cluster.requests)
    with pytest.raises(RequestError, match="belong to the streams 3 and 4 of topic 'orders'; nothing was written"):
        await client.append_many("orders", [b"d", b"e"], keys=[one, *keys_of(topic, 4, 1)])
    assert len(cluster.requests) == sent
    assert await client.append_many("orders", []) == []


async def test_a_position_is_expected_of_a_stream(cluster: Cluster) -> None:
    topic, client = await spread(cluster), cluster.client()
    with pytest.raises(RequestError, match="a position belongs to a stream"):
        await client.append("orders", b"a", expected_position=1)
    receipt = await client.append("orders", b"a", stream=3, expected_position=1)
    assert (receipt.stream, receipt.position) == (3, 1)
    with pytest.raises(PositionMismatchError) as refused:
        await client.append_many("orders", [b"b"], stream=3, expected_position=1)
    assert refused.value.actual == 2
    assert await written(cluster, topic) == [b"a"]


async def test_a_stream_that_does_not_exist_or_is_not_that_of_the_key_is_refused(cluster: Cluster) -> None:
    topic, client = await spread(cluster), cluster.client()
    for stream, message in ((0, "no stream 0"), (5, "no stream 5"), (-1, "whole number"), ("3", "whole number")):
        with pytest.raises(RequestError, match=message):
            await client.append("orders", b"a", stream=stream)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="belongs to stream 2"):
        await client.append("orders", b"a", key=keys_of(topic, 2, 1)[0], stream=1)
    await client.create_topic("plain")
    for _ in range(2):  # Before and after the client knows that topic.
        with pytest.raises(RequestError, match="topic 'plain' has no streams, so it has no stream 1; nothing was"):
            await client.append("plain", b"a", stream=1)
    assert (await client.append("plain", b"a")).stream == 0
    assert await written(cluster, topic) == []


async def test_a_missing_topic_is_missed_by_a_linearizable_read_too(cluster: Cluster) -> None:
    await spread(cluster)
    client = cluster.client()
    with pytest.raises(UnknownTopicError, match="invoices"):
        await client.append("invoices", b"a")
    kinds = [kind for _, kind in cluster.requests]
    assert kinds == [FrameKind.DESCRIBE_TOPIC, FrameKind.DESCRIBE_SPREAD, FrameKind.DESCRIBE_SPREAD]


async def test_a_node_that_lags_is_not_believed_that_there_is_no_such_topic(cluster: Cluster) -> None:
    await spread(cluster)
    for node in cluster.nodes:
        node.lags = True
    assert (await cluster.client().append("orders", b"a", stream=2)).stream == 2


async def test_calls_that_need_one_order_refuse_a_spread_topic(cluster: Cluster) -> None:
    await spread(cluster)
    client = cluster.client()
    message = "topic 'orders' is spread over streams, and this request is for a topic of one log"
    with pytest.raises(RequestError, match="topic 'orders' has streams, whose nodes are stale by different ages"):
        await client.read_stale("orders")
    with pytest.raises(UnknownTopicError, match="no topic is named 'bills'"):
        await client.read_stale("bills")
    with pytest.raises(UnknownTopicError, match=message):
        await client.describe_topic("orders")


async def test_an_append_waits_for_its_stream_within_its_timeout(cluster: Cluster) -> None:
    topic, client = await spread(cluster, creates=False), cluster.client()
    with pytest.raises(UnavailableError, match=r"'orders\.3' is not created in its group yet; nothing was written"):
        await client.append("orders", b"early", stream=3, timeout=1.0)
    waiting = [asyncio.create_task(client.append("orders", b"%d" % n, stream=3)) for n in range(3)]
    await asyncio.sleep(1.0)
    await create_streams(cluster, topic)
    assert [(await each).position for each in waiting] == [1, 2, 3]
    assert await written(cluster, topic) == [b"0", b"1", b"2"]


async def test_appends_that_wait_for_the_route_keep_their_order_and_can_be_cancelled(cluster: Cluster) -> None:
    topic, client = await spread(cluster), cluster.client()
    for node in cluster.nodes:
        node.is_silent = True
    calls = [asyncio.create_task(client.append("orders", b"%d" % n, stream=1)) for n in range(6)]
    late = asyncio.create_task(client.append("orders", b"late", stream=1, timeout=0.5))
    await asyncio.sleep(0.6)
    with pytest.raises(UnavailableError, match="nothing was written"):
        await late
    assert len(client._routes._waiting["orders"]) == 6, "nothing is kept of the one that has left"
    calls[2].cancel()
    for node in cluster.nodes:
        node.is_silent = False
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers.pop(2), asyncio.CancelledError)
    assert [each.position for each in answers if isinstance(each, Receipt)] == [1, 2, 3, 4, 5]
    assert await written(cluster, topic) == [b"0", b"1", b"3", b"4", b"5"]


async def test_closing_fails_the_appends_that_wait_for_the_route(cluster: Cluster) -> None:
    await spread(cluster)
    client = cluster.client()
    for node in cluster.nodes:
        node.is_silent = True
    waiting = asyncio.create_task(client.append("orders", b"a"))
    await asyncio.sleep(0.1)
    await client.close()
    with pytest.raises(ClosedError):
        await waiting


async def test_the_outcome_of_a_token_names_the_stream(cluster: Cluster) -> None:
    topic, client = await spread(cluster), cluster.client()
    await client.append("orders", b"first", stream=3)
    cluster.script.append(Act.APPLY_AND_HOLD)
    with pytest.raises(OutcomeUnknownError) as unknown:
        await client.append_many("orders", [b"a", b"b"], stream=3, timeout=0.5)
    token = unknown.value.token
    assert token is not None
    assert (token.group, token.stream) == (topic.group_of(3), 3)
    outcome: Outcome = await cluster.client().outcome(pickle.loads(pickle.dumps(token)))
    assert [(receipt.stream, receipt.position) for receipt in outcome.receipts] == [(3, 2), (3, 3)]


async def test_a_batch_whose_answer_was_lost_is_written_once_and_whole(cluster: Cluster) -> None:
    topic, client = await spread(cluster), cluster.client()
    await client.append("orders", b"first", stream=2)
    cluster.script.extend([Act.APPLY_AND_LOSE, Act.LOSE, Act.APPLY_AND_LOSE])
    receipts = await asyncio.gather(*(client.append("orders", b"%d" % n, stream=2) for n in range(20)))
    assert [receipt.position for receipt in receipts] == list(range(2, 22))
    assert await read(cluster, topic, 2) == [b"first", *(b"%d" % n for n in range(20))]
    batches = [len(each.values) for each in cluster.arrived if each.values[0] == b"0"]
    assert set(batches) == {20}


async def test_a_known_route_needs_nobody_in_group_0(cluster: Cluster) -> None:
    await spread(cluster)
    client: Client = cluster.client()
    await client.append("orders", b"a", stream=1)
    cluster.requests.clear()
    await client.append("orders", b"b", stream=1)
    assert {kind for _, kind in cluster.requests} <= {
        FrameKind.APPEND,
        FrameKind.OPEN_SESSION,
        FrameKind.DESCRIBE_TOPIC,
    }
    assert FrameKind.DESCRIBE_SPREAD not in {kind for _, kind in cluster.requests}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"key": b"k"}, {"timeout": 60.0}, {"stream": 1}, {"headers": {"a": b"b"}}, {"values": [b"x", b"y"]}],
    ids=lambda options: "".join(options) or "plain",
)
async def test_an_append_in_flight_holds_few_objects(cluster: Cluster, options: dict[str, Any], ordered: bool) -> None:
    """The garbage collector visits each of them again and again: it took 40 % of the time of 256 callers."""
    await spread(cluster)
    client = cluster.client()
    call = client.append_many if "values" in options else partial(client.append, value=b"x")
    for _ in range(2 * STREAMS):
        await call("orders", **options)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        calls = [asyncio.ensure_future(call("orders", **options, ordered=ordered)) for _ in range(100)]
        await asyncio.sleep(0)
        held = (len(gc.get_objects()) - before) / len(calls)
    finally:
        gc.enable()
    for each in calls:
        each.cancel()
    await asyncio.wait(calls)
    assert held < 17


async def test_a_timeout_of_its_own_ends_an_append_and_none_is_kept(cluster: Cluster) -> None:
    await spread(cluster)
    client = cluster.client()
    receipts = [await client.append("orders", b"x", timeout=60.0) for _ in range(2 * STREAMS)]
    senders = [parts.sender for parts in client._groups._parts.values()]
    assert not any(sender._timed for sender in senders)
    cluster.script.append(Act.HOLD)
    held = asyncio.ensure_future(client.append("orders", b"held", timeout=0.2))
    with pytest.raises(OutcomeUnknownError, match=r"no answer within 0\.2 s") as unknown:
        await held
    assert unknown.value.token is not None
    assert unknown.value.token.stream == receipts[-STREAMS].stream
    assert not any(sender._timed for sender in senders)
    assert not client._appends._begun
