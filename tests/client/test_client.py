"""The asyncio client against nodes that speak the real frames, in simulated time; see ``cluster.py``."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable

import pytest

from tests.client.cluster import CLUSTER, Act, Cluster, Refuse
from tests.streams.log import fence
from viewstamp.client import Client, Receipt
from viewstamp.errors import (
    ClosedError,
    ConfigError,
    FrameError,
    NoQuorumError,
    OutcomeToken,
    OutcomeUnknownError,
    OverloadedError,
    PeerError,
    RecordTooLargeError,
    RequestError,
    StaleSessionError,
    StorageFullError,
    UnavailableError,
    UnknownTopicError,
    ViewstampError,
    WrongClusterError,
)
from viewstamp.host.interfaces import Connection, Listener, Network
from viewstamp.host.network import RealNetwork
from viewstamp.ids import SessionId, Viewstamp
from viewstamp.streams.session import RECEIPTS_MAX
from viewstamp.wire.frame import FrameKind


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until an event that is certain to come."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition is the other side's state
            await asyncio.sleep(0.001)


async def ready(cluster: Cluster, **options: object) -> Client:
    """Return a client with a session and a topic with the first record ``b"first"``."""
    client = cluster.client(**options)  # type: ignore[arg-type]
    await client.create_topic("orders")
    await client.append("orders", b"first")
    cluster.arrived.clear()
    return client


async def errors_of(*calls: Awaitable[object]) -> list[BaseException]:
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [result for result in results if isinstance(result, BaseException)]


def many(client: Client, count: int, size: int = 0) -> list[asyncio.Task[Receipt]]:
    return [asyncio.create_task(client.append("orders", b"%06d" % n + bytes(size))) for n in range(count)]


# The results of appends.


async def test_a_receipt_contains_position_viewstamp_time_and_durability(cluster: Cluster) -> None:
    client = await ready(cluster)
    index = cluster.log.next_index
    receipt = await client.append("orders", b"second")
    assert receipt.position == 2
    assert receipt.viewstamp == Viewstamp(1, index)  # type: ignore[arg-type]
    assert receipt.timestamp == 1000 + index
    assert receipt.durability == "majority, synced"


async def test_keys_and_headers_travel_with_their_record(cluster: Cluster) -> None:
    client = await ready(cluster)
    await asyncio.gather(
        client.append("orders", b"a"),
        client.append("orders", b"b", key=b"k"),
        client.append("orders", b"c", headers={"h": b"1"}),
        client.append("orders", b"d", key=b"", headers={"h": b"2", "i": b""}),
        client.append("orders", b"e"),
    )
    records = [record async for record in client.read("orders", 2)]
    assert [(r.value, r.key, r.headers) for r in records] == [
        (b"a", None, None),
        (b"b", b"k", None),
        (b"c", None, {"h": b"1"}),
        (b"d", b"", {"h": b"2", "i": b""}),
        (b"e", None, None),
    ]


async def test_append_many_is_one_unbroken_run(cluster: Cluster) -> None:
    client = await ready(cluster)
    groups = await asyncio.gather(
        *(client.append_many("orders", [b"%d.%d" % (g, n) for n in range(5)]) for g in range(4)),
    )
    assert [[r.position for r in receipts] for receipts in groups] == [
        list(range(2 + 5 * g, 7 + 5 * g)) for g in range(4)
    ]
    assert cluster.values()[1:] == [b"%d.%d" % (g, n) for g in range(4) for n in range(5)]
    assert len(cluster.arrived) == 1
    assert await client.append_many("orders", []) == []


async def test_an_atomic_group_of_one_still_gets_a_list(cluster: Cluster) -> None:
    client = await ready(cluster)
    receipts, single = await asyncio.gather(client.append_many("orders", [b"a"]), client.append("orders", b"b"))
    assert [receipt.position for receipt in receipts] == [2]
    assert single.position == 3


# Coalescing and order.


async def test_a_thousand_concurrent_appends_are_a_few_batches_in_the_order_of_the_calls(cluster: Cluster) -> None:
    client = await ready(cluster)
    receipts = await asyncio.gather(*many(client, 1000))
    assert [receipt.position for receipt in receipts] == list(range(2, 1002))
    assert cluster.values()[1:] == [b"%06d" % n for n in range(1000)]
    assert len(cluster.arrived) == 1


async def test_the_very_first_appends_stand_in_the_order_of_the_calls(cluster: Cluster) -> None:
    """The first appends wait for the topic's id and for a session.

    When these arrive, a later append must not be sent first.
    """
    await cluster.client().create_topic("orders")
    client = cluster.client()
    tasks = many(client, 50)
    while not tasks[0].done() or len(tasks) < 300:
        tasks.append(asyncio.create_task(client.append("orders", b"%06d" % len(tasks))))
        await asyncio.sleep(0.00001)
    await asyncio.gather(*tasks)
    assert cluster.values() == [b"%06d" % n for n in range(len(tasks))]


async def test_callers_that_wait_for_each_answer_share_batches(cluster: Cluster) -> None:
    client = await ready(cluster)

    async def caller(n: int) -> None:
        for _ in range(10):
            await client.append("orders", b"%d" % n)

    await asyncio.gather(*(caller(n) for n in range(64)))
    assert len(cluster.values()) == 641
    assert len(cluster.arrived) <= 20


async def test_a_batch_is_bounded_by_bytes_and_not_by_records(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=10_000)
    await asyncio.gather(*many(client, 40, size=1000))
    sizes = [sum(map(len, arrival.values)) for arrival in cluster.arrived]
    assert max(sizes) <= 10_000
    assert len(sizes) == 5
    assert cluster.values()[1:] == [b"%06d" % n + bytes(1000) for n in range(40)]


async def test_while_two_batches_are_unanswered_the_next_one_fills(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.default = Act.HOLD
    first = many(client, 1)
    await until(lambda: len(cluster.arrived) == 1)
    second = many(client, 1)
    await until(lambda: len(cluster.arrived) == 2)
    rest = many(client, 20)
    await client.describe_topic("orders")
    assert len(cluster.arrived) == 2
    cluster.default = Act.OK
    cluster.release()
    await asyncio.gather(*first, *second, *rest)
    assert [len(arrival.values) for arrival in cluster.arrived] == [1, 1, 20]


async def test_full_batches_leave_up_to_the_limit_in_flight(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=5000, batches_in_flight=4, batches_in_flight_far=4)
    cluster.default = Act.HOLD
    tasks = many(client, 60, size=1000)
    await until(lambda: len(cluster.arrived) == 4)
    await client.describe_topic("orders")
    assert len(cluster.arrived) == 4
    cluster.default = Act.OK
    cluster.release()
    await asyncio.gather(*tasks)
    assert cluster.values()[1:] == [b"%06d" % n + bytes(1000) for n in range(60)]


async def test_a_batch_for_a_far_leader_is_sent_when_it_is_full_and_no_other_has_begun(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=5000, batches_eager=1, batches_in_flight=2, batches_in_flight_far=48)
    cluster.default = Act.HOLD
    tasks = many(client, 1)
    await until(lambda: len(cluster.arrived) == 1)
    client._sender.batches.note_answer(1.0)
    tasks += many(client, 4, size=1000)
    await client.describe_topic("orders")
    assert len(cluster.arrived) == 1
    tasks += many(client, 4, size=1000)
    await until(lambda: len(cluster.arrived) == 2)
    assert len(cluster.arrived[1].values) == 8
    cluster.default = Act.OK
    cluster.release()
    await asyncio.gather(*tasks)


async def test_topics_do_not_share_batches(cluster: Cluster) -> None:
    client = await ready(cluster)
    await client.create_topic("bills")
    receipts = await asyncio.gather(
        *(client.append("orders" if n % 2 else "bills", b"%d" % n) for n in range(100)),
    )
    assert [receipt.position for receipt in receipts[::2]] == list(range(1, 51))
    assert cluster.values(2) == [b"%d" % n for n in range(0, 100, 2)]
    assert len(cluster.arrived) == 2


async def test_two_clients_do_not_disturb_each_other(cluster: Cluster) -> None:
    clients = [await ready(cluster), cluster.client()]
    await asyncio.gather(*(clients[n % 2].append("orders", b"%06d" % n) for n in range(500)))
    values = cluster.values()
    assert sorted(values[1:]) == [b"%06d" % n for n in range(500)]
    assert len({arrival.session for arrival in cluster.arrived}) == 2


# Back-pressure.


async def test_held_bytes_are_bounded_and_callers_wait_in_order(cluster: Cluster) -> None:
    client = await ready(cluster, bytes_in_flight_max=20_000, batch_bytes=4000)
    cluster.default = Act.HOLD
    tasks = many(client, 100, size=1000)
    await until(lambda: len(cluster.arrived) >= 3)
    await client.describe_topic("orders")
    assert client._sender.batches.held_bytes <= 20_000
    cluster.default = Act.OK
    cluster.release()
    most = 0
    while not all(task.done() for task in tasks):
        most = max(most, client._sender.batches.held_bytes)
        await asyncio.sleep(0.00001)
    assert most <= 20_000
    assert cluster.values()[1:] == [b"%06d" % n + bytes(1000) for n in range(100)]
    assert client._sender.batches.held_bytes == 0


async def test_an_append_over_the_bound_is_let_in_alone(cluster: Cluster) -> None:
    client = await ready(cluster, bytes_in_flight_max=1000)
    receipts = await asyncio.gather(*(client.append("orders", bytes(5000)) for _ in range(5)))
    assert [receipt.position for receipt in receipts] == [2, 3, 4, 5, 6]


async def test_a_caller_that_gives_up_its_place_lets_the_others_go_on(cluster: Cluster) -> None:
    client = await ready(cluster, bytes_in_flight_max=3000)
    cluster.default = Act.HOLD
    tasks = many(client, 6, size=1000)
    await until(lambda: len(cluster.arrived) == 1)
    tasks[3].cancel()
    timed_out = await errors_of(client.append("orders", bytes(100), timeout=0.01))
    assert isinstance(timed_out[0], UnavailableError)
    cluster.default = Act.OK
    cluster.release()
    assert len(await errors_of(*tasks)) == 1
    assert [int(value[:6]) for value in cluster.values()[1:]] == [0, 1, 2, 4, 5]


# Invalid records fail alone.


async def test_a_record_that_is_too_large_fails_alone(cluster: Cluster) -> None:
    cluster.limits = {"record_bytes_max": 1000, "batch_bytes_max": 5000}
    client = await ready(cluster)
    results = await asyncio.gather(
        client.append("orders", b"a"),
        client.append("orders", bytes(1001)),
        client.append("orders", bytes(900), key=bytes(101)),
        client.append("orders", bytes(1000)),
        client.append_many("orders", [bytes(900)] * 6),
        client.append("orders", b"b"),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [
        Receipt,
        RecordTooLargeError,
        RecordTooLargeError,
        Receipt,
        RecordTooLargeError,
        Receipt,
    ]
    assert cluster.values() == [b"first", b"a", bytes(1000), b"b"]


async def test_a_record_that_is_no_bytes_is_refused_without_a_request(cluster: Cluster) -> None:
    client = await ready(cluster)
    wrong: list[Awaitable[object]] = [
        client.append("orders", "text"),  # type: ignore[arg-type]
        client.append("orders", None),  # type: ignore[arg-type]
        client.append("orders", b"a", key="k"),  # type: ignore[arg-type]
        client.append("orders", b"a", headers={"h": 1}),  # type: ignore[dict-item]
        client.append("orders", b"a", headers=[1]),  # type: ignore[arg-type]
        client.append("orders", b"a", timeout=0),
        client.append_many("orders", [b"a"], keys=[]),
        client.append_many("orders", [b"a", 1]),  # type: ignore[list-item]
    ]
    errors = await errors_of(*wrong)
    assert [type(error) for error in errors] == [RequestError] * len(wrong)
    assert cluster.values() == [b"first"]


async def test_a_buffer_that_changes_after_the_call_does_not_change_the_record(cluster: Cluster) -> None:
    client = await ready(cluster)
    buffer = bytearray(b"before")
    task = asyncio.create_task(client.append("orders", buffer))
    await asyncio.sleep(0)
    buffer[:] = b"after!"
    await task
    assert cluster.values()[1:] == [b"before"]


async def test_an_unknown_topic_is_an_error_for_its_callers_only(cluster: Cluster) -> None:
    client = await ready(cluster)
    errors = await errors_of(client.append("ordres", b"a"), client.append("orders", b"b"))
    assert [type(error) for error in errors] == [UnknownTopicError]
    await client.create_topic("ordres")
    assert (await client.append("ordres", b"a")).position == 1


async def test_a_forbidden_topic_name_is_refused(cluster: Cluster) -> None:
    with pytest.raises(RequestError):
        await cluster.client().create_topic("a b")


async def test_an_empty_record_is_a_record(cluster: Cluster) -> None:
    client = await ready(cluster)
    await asyncio.gather(*(client.append("orders", b"") for _ in range(3)))
    assert [record.value async for record in client.read("orders", 2)] == [b""] * 3


# Finding the leader.


@pytest.mark.parametrize("seed", range(6))
async def test_the_leader_is_found_from_any_member(cluster: Cluster, seed: int) -> None:
    cluster.leader = cluster.nodes[seed % 3]
    client = cluster.client((seed + 1) % 3, seed=seed)
    await client.create_topic("orders")
    assert (await client.append("orders", b"a")).position == 1


async def test_the_leader_is_found_without_hints(cluster: Cluster) -> None:
    cluster.hints = False
    cluster.leader = cluster.nodes[2]
    client = await ready(cluster)
    assert (await client.append("orders", b"a")).position == 2


async def test_a_new_leader_gets_the_unanswered_batches_under_the_same_sequences(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=5000)
    cluster.default = Act.HOLD
    tasks = many(client, 20, size=1000)
    await until(lambda: len(cluster.arrived) == 4)
    before = {(arrival.session, arrival.sequence): arrival.values for arrival in cluster.arrived}
    cluster.default = Act.OK
    cluster.leader = cluster.nodes[1]
    cluster.held.clear()
    cluster.nodes[0].lose_connections()
    receipts = await asyncio.gather(*tasks)
    assert [receipt.position for receipt in receipts] == list(range(2, 22))
    after = {(a.session, a.sequence): a.values for a in cluster.arrived if a.node == "n2"}
    assert {key: after[key] for key in before} == before
    assert len(after) == 5


async def test_a_node_that_does_not_lead_gets_one_batch_at_most_before_it_is_left(cluster: Cluster) -> None:
    """A client that is looking for the leader must not send all unanswered batches to every follower."""
    client = await ready(cluster, batch_bytes=5000)
    cluster.default = Act.HOLD
    tasks = many(client, 20, size=1000)
    await until(lambda: len(cluster.arrived) == 4)
    cluster.requests.clear()
    cluster.default = Act.OK
    cluster.hints = False
    cluster.leader = None
    cluster.nodes[0].lose_connections()
    await until(lambda: len(cluster.requests) >= 4)
    cluster.leader = cluster.nodes[1]
    await asyncio.gather(*tasks)
    to_followers = [node for node, kind in cluster.requests if kind == FrameKind.APPEND and node != "n2"]
    assert len(to_followers) <= len(cluster.requests) - 5
    assert cluster.values()[1:] == [b"%06d" % n + bytes(1000) for n in range(20)]


async def test_a_leader_that_is_killed_is_replaced_by_the_next(cluster: Cluster) -> None:
    client = await ready(cluster)
    await cluster.nodes[0].kill()
    task = asyncio.create_task(client.append("orders", b"a"))
    await asyncio.sleep(0.02)
    cluster.leader = cluster.nodes[2]
    assert (await task).position == 2


async def test_a_leader_that_falls_silent_is_left(cluster: Cluster) -> None:
    """A dead machine resets no connection."""
    client = await ready(cluster, silence=0.05)
    cluster.nodes[0].is_silent = True
    cluster.leader = cluster.nodes[1]
    assert (await client.append("orders", b"a")).position == 2


@pytest.mark.parametrize("seed", range(4))
async def test_a_silent_node_does_not_hold_up_the_search_for_the_leader(cluster: Cluster, seed: int) -> None:
    client = await ready(cluster, silence=0.03, connect_timeout=0.03, seed=seed)
    cluster.nodes[0].lose_connections()
    cluster.nodes[0].is_silent = cluster.nodes[1].is_silent = True
    cluster.leader = cluster.nodes[2]
    await until(lambda: client._router.leader.connection is None)
    assert (await client.append("orders", b"a")).position == 2


async def test_without_a_leader_no_append_is_sent_whose_outcome_could_become_unknown(cluster: Cluster) -> None:
    """An idle client finds the leader before it sends, so that it can be certain that nothing was written."""
    client = await ready(cluster)
    cluster.requests.clear()
    cluster.leader = None
    cluster.nodes[0].lose_connections()
    await until(lambda: client._router.leader.connection is None)
    errors = await errors_of(*(client.append("orders", b"a", timeout=0.1) for _ in range(3)))
    assert [type(error) for error in errors] == [UnavailableError] * 3
    assert cluster.arrived == []
    assert {kind for _, kind in cluster.requests} == {FrameKind.OUTCOME}


async def test_an_idle_client_notices_a_forgotten_session_before_it_sends(cluster: Cluster) -> None:
    client = await ready(cluster)
    session = client._sender.session.id
    cluster.log.machine._state.sessions.by_id.clear()
    cluster.nodes[0].lose_connections()
    await until(lambda: client._router.leader.connection is None)
    assert (await client.append("orders", b"a")).position == 2
    assert cluster.arrived[0].session != session


async def test_a_slow_leader_that_still_answers_is_not_left(cluster: Cluster) -> None:
    client = await ready(cluster, silence=0.06)
    cluster.default = Act.HOLD
    task = asyncio.create_task(client.append("orders", b"a"))
    await until(lambda: len(cluster.arrived) == 1)
    for _ in range(12):
        await client.describe_topic("orders")
        await asyncio.sleep(0.01)
    cluster.release()
    await task
    assert len(cluster.arrived) == 1


# Retries: every record is written once in any case.


@pytest.mark.parametrize("act", [Act.LOSE, Act.APPLY_AND_LOSE])
async def test_a_connection_lost_in_mid_batch_loses_and_doubles_nothing(cluster: Cluster, act: str) -> None:
    client = await ready(cluster)
    cluster.script.extend([act, act, Act.OK])
    receipt = await client.append("orders", b"a")
    assert receipt.position == 2
    assert cluster.values() == [b"first", b"a"]
    assert len({(arrival.session, arrival.sequence) for arrival in cluster.arrived}) == 1


async def test_random_losses_lose_and_double_nothing(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=2000)
    entropy = random.Random(7)
    acts: list[str | Refuse] = [Act.OK, Act.OK, Act.LOSE, Act.APPLY_AND_LOSE, Refuse(OverloadedError("full"))]
    cluster.script.extend(entropy.choices(acts, k=60))
    receipts = await asyncio.gather(*many(client, 300, size=50))
    assert cluster.values()[1:] == [b"%06d" % n + bytes(50) for n in range(300)]
    assert [receipt.position for receipt in receipts] == list(range(2, 302))


@pytest.mark.parametrize("error", [OverloadedError("later"), UnavailableError("a gap"), NoQuorumError("alone")])
async def test_a_refusal_for_now_is_retried_in_the_same_order(cluster: Cluster, error: ViewstampError) -> None:
    client = await ready(cluster, batch_bytes=2000)
    cluster.script.append(Refuse(error))
    await asyncio.gather(*many(client, 30, size=200))
    assert cluster.values()[1:] == [b"%06d" % n + bytes(200) for n in range(30)]


async def test_an_unknown_error_class_does_not_mean_that_nothing_was_written(cluster: Cluster) -> None:
    class NovelError(ViewstampError):
        pass

    client = await ready(cluster)
    cluster.script.append(Refuse(NovelError("a novel error")))
    assert (await client.append("orders", b"a")).position == 2


async def test_a_batch_that_is_refused_for_good_fails_alone_and_its_sequence_is_fenced(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=2000)
    cluster.script.extend([Act.OK, Refuse(RequestError("not this one"))])
    tasks = many(client, 4, size=1500)
    errors = await errors_of(*tasks)
    assert [str(error) for error in errors] == ["not this one"]
    assert [int(value[:6]) for value in cluster.values()[1:]] == [0, 2, 3]
    refused = cluster.arrived[1]
    outcome = await client.outcome(token(refused.session, refused.sequence))
    assert not outcome.applied


async def test_a_refusal_after_a_lost_attempt_does_not_count_before_the_answer_of_the_fence(cluster: Cluster) -> None:
    """The lost attempt was applied, so a caller that got "refused" would append again."""
    client = await ready(cluster)
    cluster.script.extend([Act.APPLY_AND_LOSE, Refuse(RequestError("not this one"))])
    assert (await client.append("orders", b"a")).position == 2
    assert cluster.values() == [b"first", b"a"]


async def test_a_full_log_refuses_waiting_appends_and_the_client_continues_when_there_is_room(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=2000)
    full = StorageFullError("the log is full", remedy="trim a topic")
    cluster.script.append(Refuse(full))
    cluster.refuse_outcomes.extend([full] * 3)
    errors = await errors_of(*many(client, 10, size=900))
    assert [type(error) for error in errors] == [StorageFullError] * 10
    assert isinstance(errors[0], StorageFullError)
    assert errors[0].remedy == "trim a topic"
    await until(lambda: not cluster.refuse_outcomes)
    assert (await client.append("orders", b"later")).position == 2
    assert cluster.values() == [b"first", b"later"]


async def test_a_forgotten_session_is_replaced_and_only_unanswered_appends_are_unknown(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.script.append(Refuse(StaleSessionError("who?")))
    errors = await errors_of(client.append("orders", b"a"))
    assert [type(error) for error in errors] == [UnavailableError]
    cluster.script.extend([Act.LOSE, Refuse(StaleSessionError("who?"))])
    errors = await errors_of(client.append("orders", b"b"))
    assert [type(error) for error in errors] == [OutcomeUnknownError]
    assert (await client.append("orders", b"c")).position == 2
    assert len({arrival.session for arrival in cluster.arrived}) == 3
    assert [arrival.values for arrival in cluster.arrived].count([b"b"]) == 2


async def test_a_receipt_that_does_not_fit_its_batch_ends_the_connection(cluster: Cluster) -> None:
    """A node that confuses its answers must not cause a receipt with another record's position."""
    client = await ready(cluster)
    cluster.script.append(Act.HOLD)
    task = asyncio.create_task(client.append("orders", b"a"))
    await until(lambda: bool(cluster.held))
    leader = cluster.nodes[0].connections[-1]
    first_request = max(client._sender.session._by_request)
    for receipt in ([2, 5, 1, 9, 0], "nonsense", [1, 2]):
        leader.ok(first_request, {"receipt": receipt})
    cluster.held.clear()
    assert (await task).position == 2
    assert len(cluster.arrived) == 2


# Timeouts and outcomes.


def token(session: int, sequence: int, offset: int = 0, count: int = 1) -> OutcomeToken:
    return OutcomeToken(session=session, sequence=sequence, topic=1, offset=offset, count=count)  # type: ignore[arg-type]


async def test_an_append_that_was_never_sent_times_out_as_not_written_and_never_is(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.leader = None
    cluster.nodes[0].lose_connections()
    await until(lambda: client._router.leader.connection is None)
    errors = await errors_of(client.append("orders", b"a", timeout=0.05), client.append("orders", b"b", timeout=0.06))
    assert [type(error) for error in errors] == [UnavailableError, UnavailableError]
    cluster.leader = cluster.nodes[1]
    await client.append("orders", b"c")
    assert cluster.values() == [b"first", b"c"]


async def test_a_sent_append_times_out_as_unknown_and_its_token_leads_to_the_outcome(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.default = Act.HOLD
    first = asyncio.create_task(client.append("orders", b"a", timeout=0.05))
    group = asyncio.create_task(client.append_many("orders", [b"b", b"c"], timeout=0.05))
    errors = await errors_of(first, group)
    assert [type(error) for error in errors] == [OutcomeUnknownError] * 2
    tokens = [error.token for error in errors if isinstance(error, OutcomeUnknownError)]
    assert all(each is not None for each in tokens)
    asked = [asyncio.create_task(client.outcome(each)) for each in tokens if each is not None]
    await asyncio.sleep(0)
    cluster.release()
    outcomes = await asyncio.gather(*asked)
    assert [outcome.applied for outcome in outcomes] == [True, True]
    assert [[r.position for r in outcome.receipts] for outcome in outcomes] == [[2], [3, 4]]
    again = await client.outcome(tokens[1])  # type: ignore[arg-type]
    assert again == outcomes[1]


async def test_the_default_timeout_holds_without_a_timer_for_each_append(cluster: Cluster) -> None:
    client = await ready(cluster, timeout=0.16, silence=5.0)
    cluster.default = Act.HOLD
    started = asyncio.get_running_loop().time()
    sent = many(client, 5)
    await until(lambda: bool(cluster.arrived))
    errors = await errors_of(*sent)
    assert [type(error) for error in errors] == [OutcomeUnknownError] * 5
    assert asyncio.get_running_loop().time() - started >= 0.16
    tokens = [error.token for error in errors if isinstance(error, OutcomeUnknownError)]
    assert [each.offset for each in tokens if each is not None] == [0, 1, 2, 3, 4]


async def test_a_calls_own_timeout_may_exceed_the_default(cluster: Cluster) -> None:
    client = await ready(cluster, timeout=0.05, silence=5.0)
    cluster.default = Act.HOLD
    patient = asyncio.create_task(client.append("orders", b"a", timeout=math.inf))
    other = asyncio.create_task(client.append("orders", b"b"))
    assert [type(error) for error in await errors_of(other)] == [OutcomeUnknownError]
    assert not patient.done()
    cluster.release()
    assert (await patient).position == 2


async def test_another_client_learns_that_it_was_not_applied_and_then_it_never_is(cluster: Cluster) -> None:
    """The process that appended is gone, but its copy may still arrive later."""
    client = await ready(cluster)
    cluster.script.append(Act.HOLD)
    errors = await errors_of(client.append("orders", b"a", timeout=0.02))
    unknown = errors[0]
    assert isinstance(unknown, OutcomeUnknownError)
    assert unknown.token is not None
    outcome = await cluster.client().outcome(unknown.token)
    assert (outcome.applied, outcome.receipts) == (False, [])
    cluster.release()
    assert (await client.append("orders", b"b")).position == 2
    assert cluster.values() == [b"first", b"b"]


async def test_a_waiting_append_that_another_client_fences_reports_that_nothing_was_written(
    cluster: Cluster,
) -> None:
    client = await ready(cluster)
    cluster.script.append(Act.HOLD)
    task = asyncio.create_task(client.append("orders", b"a"))
    await until(lambda: bool(cluster.arrived))
    arrival = cluster.arrived[0]
    await cluster.client().outcome(token(arrival.session, arrival.sequence))
    cluster.release()
    with pytest.raises(UnavailableError, match="will never be applied: nothing was written"):
        await task
    assert (await client.append("orders", b"b")).position == 2


async def test_an_undetermined_outcome_stays_unknown(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.leader = None
    cluster.nodes[0].lose_connections()
    asked = token(SessionId(2), 1)
    with pytest.raises(OutcomeUnknownError) as raised:
        await client.outcome(asked, timeout=0.05)
    assert raised.value.token == asked


async def test_the_outcome_of_a_forgotten_session_is_expired(cluster: Cluster) -> None:
    client = await ready(cluster)
    outcome = await client.outcome(token(999, 1))
    assert (outcome.answer, outcome.expired, outcome.receipts) == ("expired", True, [])
    with pytest.raises(StaleSessionError, match="it is unknown whether this was applied"):
        _ = outcome.applied


async def test_the_outcome_of_a_batch_that_is_older_than_the_kept_receipts_is_expired(cluster: Cluster) -> None:
    client = await ready(cluster)
    await client.append("orders", b"a")
    first = cluster.arrived[0]
    cluster.propose(fence(first.session, first.sequence + RECEIPTS_MAX))
    assert (await client.outcome(token(first.session, first.sequence))).expired


async def test_a_pending_query_for_an_outcome_is_expired_when_the_session_ends(cluster: Cluster) -> None:
    client = await ready(cluster, timeout=0.1)
    cluster.script.append(Act.HOLD)
    with pytest.raises(OutcomeUnknownError) as raised:
        await client.append("orders", b"a")
    assert raised.value.token is not None
    asked = asyncio.create_task(client.outcome(raised.value.token, timeout=5))
    await asyncio.sleep(0)
    cluster.log.machine._state.sessions.by_id.clear()
    cluster.nodes[0].lose_connections()
    assert (await asked).expired


async def test_a_token_that_names_more_than_its_batch_holds_is_refused(cluster: Cluster) -> None:
    client = await ready(cluster)
    await client.append("orders", b"a")
    arrival = cluster.arrived[0]
    with pytest.raises(RequestError):
        await client.outcome(token(arrival.session, arrival.sequence, offset=1))


async def test_creating_a_topic_whose_answer_is_lost_is_retried(cluster: Cluster) -> None:
    client = cluster.client(silence=0.05)
    await client.create_topic("orders")
    cluster.nodes[0].is_silent = True
    task = asyncio.create_task(client.create_topic("orders", timeout=5))
    await asyncio.sleep(0.01)
    cluster.leader = cluster.nodes[1]
    assert (await task).name == "orders"


# Cancelling and closing.


async def test_a_cancelled_append_that_was_not_sent_is_never_written(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.default = Act.HOLD
    for n in (1, 2):
        sent = many(client, 1)
        await until(lambda n=n: len(cluster.arrived) == n)  # type: ignore[misc]
    tasks = many(client, 10)
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.sleep(0)
    cluster.default = Act.OK
    cluster.release()
    await asyncio.gather(*sent)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False] * 5
    assert cluster.values()[3:] == [b"%06d" % n for n in range(1, 10, 2)]
    assert client._sender.batches.held_bytes == 0


async def test_a_cancelled_append_that_was_sent_may_be_written_and_disturbs_no_other(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.default = Act.HOLD
    tasks = many(client, 4)
    await until(lambda: bool(cluster.arrived))
    tasks[1].cancel()
    await asyncio.sleep(0)
    cluster.release()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    positions = [result.position for result in results if isinstance(result, Receipt)]
    assert positions == [2, 4, 5]
    assert isinstance(results[1], asyncio.CancelledError)


async def test_closing_fails_every_caller_with_the_known_outcome(cluster: Cluster) -> None:
    client = await ready(
        cluster, batch_bytes=2000, batches_in_flight=2, batches_in_flight_far=2, bytes_in_flight_max=10_000
    )
    cluster.default = Act.HOLD
    tasks = many(client, 20, size=900)
    await until(lambda: len(cluster.arrived) == 2)
    await client.close()
    await client.close()
    errors = await errors_of(*tasks)
    assert [type(error) for error in errors] == [OutcomeUnknownError] * 4 + [ClosedError] * 16
    tokens = [error.token for error in errors if isinstance(error, OutcomeUnknownError)]
    assert [(each.sequence, each.offset) for each in tokens if each is not None] == [(2, 0), (2, 1), (3, 0), (3, 1)]
    outcome = await cluster.client().outcome(tokens[0])  # type: ignore[arg-type]
    assert not outcome.applied


async def test_a_closed_client_refuses_everything(cluster: Cluster) -> None:
    client = await ready(cluster)
    await client.close()
    calls: list[Awaitable[object]] = [
        client.append("orders", b"a"),
        client.append_many("orders", [b"a"]),
        client.create_topic("orders"),
        client.list_topics(),
        client.outcome(token(1, 1)),
        client.status(),
    ]
    assert [type(error) for error in await errors_of(*calls)] == [ClosedError] * len(calls)


async def test_closing_leaves_no_task_and_no_call_behind(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.nodes[0].is_silent = True
    calls = [
        asyncio.create_task(client.append("orders", b"a")),
        asyncio.create_task(client.describe_topic("orders")),
        asyncio.create_task(client.create_topic("bills")),
        asyncio.create_task(client.append("unheard-of", b"a")),
    ]
    await asyncio.sleep(0.01)
    await client.close()
    errors = await errors_of(*calls)
    assert [type(error) for error in errors] == [OutcomeUnknownError, ClosedError, ClosedError, ClosedError]
    assert client._tasks == set()


# The identity of nodes.


class Stranger:
    """A server at a node's address that is no node of ours."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.connection: Connection | None = None

    def accept(self, connection: Connection) -> Stranger:
        self.connection = connection
        return self

    def on_bytes(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.send([self.answer])

    def on_closed(self, error: BaseException | None) -> None:
        pass

    async def listen(self, network: Network) -> Listener:
        return await network.listen("127.0.0.1:0", self.accept)


async def test_a_server_of_another_protocol_is_named(cluster: Cluster) -> None:
    network = cluster.network("client")
    listener = await Stranger(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n").listen(network)
    async with Client(listener.address, network=network, entropy=random.Random(1)) as client:
        with pytest.raises(FrameError, match="not a viewstamp frame"):
            await client.list_topics(timeout=5)
        with pytest.raises(FrameError):
            await client.append("orders", b"a", timeout=5)
        with pytest.raises(ViewstampError):
            await client.create_topic("orders", timeout=5)
    await listener.close()


@pytest.mark.parametrize("kind", ["create_topic", "describe_topic", "list_topics", "status", "append", "outcome"])
async def test_an_invalid_answer_is_rejected_and_the_right_one_is_awaited(cluster: Cluster, kind: str) -> None:
    client = await ready(cluster)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "create_topic": lambda: client.create_topic("orders"),
        "describe_topic": lambda: client.describe_topic("orders"),
        "list_topics": client.list_topics,
        "status": client.status,
        "append": lambda: client.append("orders", b"a"),
        "outcome": lambda: client.outcome(token(client._sender.session.id, 1)),
    }
    cluster.garbage = 1
    result = await calls[kind]()
    assert cluster.garbage == 0
    assert result == await calls[kind]() or kind in ("append", "status")


async def test_an_invalid_session_does_not_stop_the_client(cluster: Cluster) -> None:
    await cluster.client().create_topic("orders")
    client = cluster.client()
    await client.describe_topic("orders")
    cluster.garbage = 1
    assert (await client.append("orders", b"a")).position == 1


async def test_a_node_of_another_cluster_is_refused_at_once(cluster: Cluster) -> None:
    client = cluster.client(cluster_id="c2")
    with pytest.raises(WrongClusterError):
        await client.list_topics()
    with pytest.raises(WrongClusterError):
        await client.append("orders", b"a")


@pytest.mark.parametrize("checks_hello", [True, False])
async def test_a_client_stays_with_the_cluster_that_answered_first(cluster: Cluster, checks_hello: bool) -> None:
    client = await ready(cluster)
    assert client._pool._roster.cluster_id == CLUSTER
    cluster.id = "c2"
    cluster.checks_hello = checks_hello
    for node in cluster.nodes:
        node.lose_connections()
    with pytest.raises(WrongClusterError):
        await client.describe_topic("orders", timeout=5)
    with pytest.raises(WrongClusterError):
        await client.append("orders", b"a", timeout=5)


async def test_a_dead_address_beside_live_ones_does_not_matter(cluster: Cluster) -> None:
    await cluster.nodes[1].kill()
    for seed in range(4):
        client = cluster.client(seed=seed)
        await client.create_topic("orders")
        assert [topic.name for topic in await client.list_topics()] == ["orders"]


async def test_without_any_node_a_call_is_unavailable_with_a_reason_and_a_remedy(cluster: Cluster) -> None:
    for node in cluster.nodes:
        await node.kill()
    client = cluster.client()
    for call in (client.append("orders", b"a", timeout=0.1), client.list_topics(timeout=0.1)):
        with pytest.raises(UnavailableError) as raised:
            await call
        assert "127.0.0.1" in str(raised.value)
        assert raised.value.remedy


@pytest.mark.parametrize("addresses", ["", " , ", "nowhere", "host:", ":1", "host:port", "a:1,b", "a:70000", "a:0", []])
async def test_addresses_of_another_shape_are_refused(addresses: str | list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        Client(addresses, network=RealNetwork(), entropy=random.Random(1))
    assert raised.value.remedy


async def test_addresses_may_be_joined_by_commas(cluster: Cluster) -> None:
    addresses = " , ".join(node.address for node in cluster.nodes) + ","
    async with Client(addresses, network=cluster.network("client"), entropy=random.Random(1)) as client:
        assert (await client.create_topic("orders")).last_position == 0


# Reading, topics, status.


async def test_reading_yields_every_position_once_over_many_chunks(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=2000)
    cluster.read_chunk = 3000
    await asyncio.gather(*many(client, 200, size=100))
    records = [record async for record in client.read("orders")]
    assert [record.position for record in records] == list(range(1, 202))
    assert [record.value for record in records] == cluster.values()
    for start, end in ((1, 2), (50, 51), (37, 120), (201, None), (150, 1000)):
        part = [record.position async for record in client.read("orders", start, end=end)]
        assert part == list(range(start, min(end or 202, 202)))
    assert [record async for record in client.read("orders", 202)] == []
    assert [record async for record in client.read("orders", 5, end=5)] == []


async def test_reading_goes_on_with_the_next_record_after_a_lost_connection(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=2000)
    cluster.read_chunk = 2000
    await asyncio.gather(*many(client, 200, size=100))
    positions = []
    async for record in client.read("orders"):
        positions.append(record.position)
        if record.position % 40 == 0:
            for node in cluster.nodes:
                node.lose_connections()
    assert positions == list(range(1, 202))


async def test_following_the_end_yields_records_as_they_come(cluster: Cluster) -> None:
    client = await ready(cluster, follow_wait=0.01)
    seen: list[int] = []

    async def follow() -> None:
        async for record in client.read("orders", follow=True):
            seen.append(record.position)

    task = asyncio.create_task(follow())
    for n in range(2, 6):
        await client.append("orders", b"a")
        await until(lambda n=n: len(seen) == n)  # type: ignore[misc]
    task.cancel()
    assert isinstance((await errors_of(task))[0], asyncio.CancelledError)
    assert seen == [1, 2, 3, 4, 5]


async def test_following_with_an_end_ends_there(cluster: Cluster) -> None:
    client = await ready(cluster, follow_wait=0.01)
    task = asyncio.create_task(collect(client))
    await client.append_many("orders", [b"a", b"b", b"c"])
    assert await task == [1, 2]


async def collect(client: Client) -> list[int]:
    return [record.position async for record in client.read("orders", follow=True, end=3)]


async def test_a_reader_that_stops_early_leaves_nothing_behind(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=2000)
    cluster.read_chunk = 2000
    await asyncio.gather(*many(client, 100, size=100))
    records = client.read("orders")
    assert (await anext(records)).position == 1
    await records.aclose()
    await until(lambda: len(client._tasks) == 1)


async def test_a_node_that_misses_a_committed_record_is_an_error_and_not_the_end(cluster: Cluster) -> None:
    client = await ready(cluster, batch_bytes=2000)
    await asyncio.gather(*many(client, 100, size=100))
    whole = list(cluster.log.applied)
    for missing in (2, 3, len(whole)):
        cluster.log.applied = whole[:missing] + whole[missing + 1 :] if missing < len(whole) else whole[:-1]
        with pytest.raises(PeerError):
            _ = [record async for record in client.read("orders")]
    cluster.log.applied = whole


async def test_one_member_is_read_by_name(cluster: Cluster) -> None:
    client = await ready(cluster)
    await client.append("orders", b"a")
    cluster.requests.clear()
    assert [record.value async for record in client.read("orders", node="n3")] == [b"first", b"a"]
    assert {node for node, kind in cluster.requests if kind == FrameKind.READ} == {"n3"}


async def test_a_member_read_by_name_answers_only_after_it_has_applied_its_earlier_answers(
    cluster: Cluster,
) -> None:
    """It may have restarted meanwhile, and be behind its own earlier state for a moment."""
    client = await ready(cluster, batch_bytes=2000)
    cluster.read_chunk = 2000
    await asyncio.gather(*many(client, 100, size=100))
    told = cluster.log.next_index - 1
    assert len([record async for record in client.read("orders", node="n3")]) == 101
    asked = [body["applied_index"] for kind, body in cluster.bodies if kind == FrameKind.READ]
    assert asked == [told] * len(asked)
    assert len(asked) > 1


async def test_a_member_that_does_not_exist_or_is_down_is_an_error(cluster: Cluster) -> None:
    client = await ready(cluster)
    with pytest.raises(RequestError, match="n1, n2, n3"):
        _ = [record async for record in client.read("orders", node="n9")]
    await cluster.nodes[2].kill()
    with pytest.raises(UnavailableError):
        _ = [record async for record in client.read("orders", node="n3")]


async def test_reading_an_unknown_topic_or_from_position_zero_is_refused(cluster: Cluster) -> None:
    client = await ready(cluster)
    with pytest.raises(UnknownTopicError):
        _ = [record async for record in client.read("ordres")]
    with pytest.raises(RequestError):
        _ = [record async for record in client.read("orders", 0)]


async def test_topics_are_created_described_and_listed(cluster: Cluster) -> None:
    client = await ready(cluster)
    created = await client.create_topic("bills")
    assert (created.name, created.first_position, created.last_position) == ("bills", 1, 0)
    again = await client.create_topic("orders")
    assert again == await client.describe_topic("orders")
    assert again.last_position == 1
    assert [topic.name for topic in await client.list_topics()] == ["orders", "bills"]
    with pytest.raises(UnknownTopicError):
        await client.describe_topic("ordres")


async def test_status_asks_every_member_and_marks_those_that_are_away(cluster: Cluster) -> None:
    await cluster.nodes[2].kill()
    client = cluster.client(0)
    nodes = await client.status()
    assert [(node["id"], node["reachable"]) for node in nodes] == [("n1", True), ("n2", True), ("n3", False)]


async def test_the_error_of_a_request_that_was_refused_until_the_leader_fell_silent_has_the_refusal(
    cluster: Cluster,
) -> None:
    cluster.refuse_changes = UnavailableError("the store is read-only")
    client = cluster.client()
    changing = asyncio.create_task(client.remove_member("n2", timeout=5))
    await asyncio.sleep(1)
    for node in cluster.nodes:
        node.is_silent = True
    with pytest.raises(ViewstampError, match="did not answer in time; before that a leader refused: the store is read"):
        await changing


async def test_the_status_of_a_member_with_a_new_disk_that_is_away_has_the_name_of_its_node(cluster: Cluster) -> None:
    members = {node.name: node.address for node in cluster.nodes}
    cluster.told_members = {"n1": members["n1"], "n2": members["n2"], "n3~58b44a47": members["n3"]}
    await cluster.nodes[2].kill()
    away = (await cluster.client(0).status())[-1]
    assert (away["id"], away["member_id"], away["reachable"]) == ("n3", "n3~58b44a47", False)


async def test_the_status_without_any_node_names_every_address(cluster: Cluster) -> None:
    for node in cluster.nodes:
        await node.kill()
    nodes = await cluster.client().status()
    assert [(node["address"], node["reachable"]) for node in nodes] == [(n.address, False) for n in cluster.nodes]


async def test_a_client_can_be_used_without_a_with_block(cluster: Cluster) -> None:
    client = cluster.client()
    await client.create_topic("orders")
    assert (await client.append("orders", b"a")).position == 1
    await client.close()
    unused = cluster.client()
    await unused.close()


@pytest.mark.parametrize("first", [0, 1])
async def test_a_node_that_asks_to_retry_and_is_not_known_to_lead_is_left_for_another_one(
    cluster: Cluster, first: int
) -> None:
    """A node that is replaying a long log asks the client to retry, for as long as that takes; another one leads."""
    client = cluster.client(0, 1, timeout=5.0, back_off_max=0.05)
    await client.create_topic("orders")
    await client.append("orders", b"1")
    cluster.leader = cluster.nodes[1 - first]
    cluster.nodes[first].refusal = UnavailableError("it is replaying its log", remedy="try again in a moment")
    for node in cluster.nodes:
        node.lose_connections()
    for value in (b"2", b"3"):
        client._router.leader.finder._round = [cluster.nodes[first].address]  # The next address of the search.
        cluster.nodes[1 - first].lose_connections()
        await client.append("orders", value)
    for name in ("invoices", "returns"):
        client._router.leader.finder._round = [cluster.nodes[first].address]
        cluster.nodes[1 - first].lose_connections()
        await client.create_topic(name)
    assert cluster.values() == [b"1", b"2", b"3"]


async def test_an_outcome_without_a_token_is_refused_with_the_next_step(cluster: Cluster) -> None:
    client = cluster.client()
    with pytest.raises(RequestError, match="None is not the token") as refused:
        await client.outcome(None)  # type: ignore[arg-type]
    assert refused.value.remedy == "repeat the call that failed"
    with pytest.raises(RequestError, match="'3-7' is not the token") as refused:
        await client.outcome("3-7")  # type: ignore[arg-type]
    assert "OutcomeUnknownError" in refused.value.remedy
