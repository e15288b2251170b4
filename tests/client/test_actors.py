"""Calls of replicated actors by the asyncio client, against nodes that speak the real frames; see ``cluster.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.client.cluster import Act, Cluster, Refuse
from viewstamp.actors.replicated import ReplicatedActor, command, query
from viewstamp.client import Change, Client
from viewstamp.errors import (
    ClosedError,
    CommandError,
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    RecordTooLargeError,
    RequestError,
    StaleSessionError,
    TrimmedError,
    UnavailableError,
    UnknownActorError,
    UnknownTopicError,
)
from viewstamp.wire.commands import Interface, Stale
from viewstamp.wire.frame import FrameKind


class OutOfStockError(CommandError):
    """There are fewer items than requested."""


class Inventory(ReplicatedActor):
    """The items in stock."""

    def __init__(self) -> None:
        self.stock: dict[str, int] = {}

    @command
    def put(self, sku: str, n: int = 1) -> int:
        self.stock[sku] = self.stock.get(sku, 0) + n
        return self.stock[sku]

    @command
    def reserve(self, sku: str, n: int) -> bool:
        if self.stock.get(sku, 0) < n:
            raise OutOfStockError(f"{self.stock.get(sku, 0)} of {sku}")
        self.stock[sku] -= n
        return True

    @command
    def fail(self) -> None:
        raise ValueError("no")

    @query
    def available(self, sku: str) -> int:
        return self.stock.get(sku, 0)

    @query
    def must_have(self, sku: str) -> None:
        if sku not in self.stock:
            raise OutOfStockError(sku)


class NewerInventory(ReplicatedActor):
    """The same actor in a program that was upgraded before the nodes."""

    version = 2

    @command
    def put(self, sku: str, n: int = 1) -> int: ...  # type: ignore[empty-body]


class OtherInventory(ReplicatedActor):
    """The same version, but with a command that the nodes do not have."""

    @command
    def recount(self) -> None: ...


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster(actors={"inventory": Inventory, "depot": Inventory})
    await cluster.start(3)
    yield cluster
    await cluster.close()


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until an event that is certain to come."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition is the other side's state
            await asyncio.sleep(0.001)


async def errors_of(*calls: object) -> list[BaseException]:
    results = await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[call-overload]
    return [result for result in results if isinstance(result, BaseException)]


async def ready(cluster: Cluster, **options: object) -> Client:
    """Return a client with a session that has called ``put("first")``, and so has the actor's description."""
    client = cluster.client(**options)  # type: ignore[arg-type]
    await client.actor("inventory", Inventory).put("first")
    cluster.arrived.clear()
    return client


def kinds(cluster: Cluster) -> list[int]:
    return [kind for _, kind in cluster.requests]


# The results of calls.


async def test_a_command_returns_what_the_method_returned(cluster: Cluster) -> None:
    inventory = cluster.client().actor("inventory", Inventory)
    assert await inventory.put("A-17", 5) == 5
    assert await inventory.put("A-17") == 6
    assert await inventory.reserve("A-17", n=2) is True
    assert await inventory.available("A-17") == 4


async def test_each_key_is_an_instance_of_its_own(cluster: Cluster) -> None:
    client = cluster.client()
    north, south = (client.actor("inventory", Inventory, key=key) for key in ("north", "south"))
    assert await asyncio.gather(north.put("A", 1), south.put("A", 2)) == [1, 2]
    assert await asyncio.gather(north.available("A"), south.available("A")) == [1, 2]
    assert await client.query("inventory", "available", "A") == 0


async def test_an_error_that_a_command_raises_comes_back_as_the_class_of_the_callers_own_code(
    cluster: Cluster,
) -> None:
    inventory = cluster.client().actor("inventory", Inventory)
    with pytest.raises(OutOfStockError, match="0 of A") as caught:
        await inventory.reserve("A", 1)
    assert caught.value.kind == "OutOfStockError"
    with pytest.raises(OutOfStockError):
        await inventory.must_have("A")


async def test_a_caller_without_the_class_gets_a_command_error_that_names_the_class(cluster: Cluster) -> None:
    client = cluster.client()
    with pytest.raises(CommandError, match="0 of A") as caught:
        await client.call("inventory", "reserve", "A", 1)
    assert type(caught.value) is CommandError
    assert caught.value.kind == "OutOfStockError"
    with pytest.raises(CommandError, match="no") as caught:
        await client.actor("inventory", Inventory).fail()
    assert caught.value.kind == "ValueError"


async def test_in_a_batch_of_commands_each_caller_gets_its_own_result(cluster: Cluster) -> None:
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    await client.call("depot", "put", "A")
    cluster.arrived.clear()
    results = await asyncio.gather(
        inventory.put("A"),
        inventory.reserve("A", 5),
        client.call("depot", "put", "B", 7),
        inventory.fail(),
        inventory.put("A"),
        return_exceptions=True,
    )
    assert [results[0], results[2], results[4]] == [1, 7, 2]
    assert isinstance(results[1], OutOfStockError)
    assert isinstance(results[3], CommandError)
    assert len(cluster.arrived) == 1


async def test_commands_and_records_of_one_client_share_its_session(cluster: Cluster) -> None:
    client = await ready(cluster)
    await client.create_topic("orders")
    await client.append("orders", b"first")
    cluster.arrived.clear()
    put = client.actor("inventory", Inventory).put
    await asyncio.gather(*(client.append("orders", b"x") for _ in range(5)), *(put("A") for _ in range(5)))
    assert [(len(arrival.values), arrival.sequence) for arrival in cluster.arrived] == [(5, 3), (5, 4)]
    assert len({arrival.session for arrival in cluster.arrived}) == 1


async def test_a_thousand_concurrent_calls_are_a_few_batches_in_the_order_of_the_calls(cluster: Cluster) -> None:
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    assert await asyncio.gather(*(inventory.put("A") for _ in range(1000))) == list(range(1, 1001))
    assert len(cluster.arrived) == 1


async def test_the_very_first_calls_keep_their_order_too(cluster: Cluster) -> None:
    """The first calls wait for the actor's description. When it arrives, a later call must not be sent before them."""
    client = cluster.client()
    inventory = client.actor("inventory")
    calls: list[asyncio.Task[int]] = []
    while not calls or not calls[0].done():
        calls.append(asyncio.ensure_future(inventory.put("A")))
        await asyncio.sleep(0.00001)
    assert await asyncio.gather(*calls) == list(range(1, len(calls) + 1))
    assert kinds(cluster).count(FrameKind.DESCRIBE_ACTOR) == 1


async def test_a_result_may_be_any_plain_value_and_none_is_one(cluster: Cluster) -> None:
    client = await ready(cluster)
    assert await client.actor("inventory", Inventory).must_have("first") is None


# Checks before sending.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.actor("inventory", Inventory, key=42).put("A"), "key .* inventory must be text, not 42"),
        (lambda client: client.query("inventory", "available", "A", key=b"k"), "key .* must be text, not b'k'"),
        (lambda client: client.call(7, "put", "A"), "name of an actor must be text, not 7"),
        (lambda client: client.trim_topic("orders", -1), "the position to trim to must be a whole number, not -1"),
        (lambda client: client.trim_topic("orders", "3"), "must be a whole number, not '3'"),
        (lambda client: client.configure_topic("orders", retain_bytes=1 << 80), "retain_bytes must be a whole number"),
        (lambda client: client.create_topic("orders", retain_bytes=True), "retain_bytes must be .* not True"),
    ],
)
async def test_an_invalid_call_is_refused_by_name(
    cluster: Cluster, call: Callable[[Client], Any], message: str
) -> None:
    client = await ready(cluster)
    with pytest.raises(RequestError, match=message):
        await call(client)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.call("nothing", "put", "A"), "nothing"),
        (lambda client: client.call("inventory", "steal", "A"), "its commands: fail, put, reserve"),
        (lambda client: client.call("inventory", "put"), r"put\(sku: 'str', n: 'int' = ...\)|put\("),
        (lambda client: client.call("inventory", "available", "A"), "is a query"),
        (lambda client: client.query("inventory", "put", "A"), "is a command"),
        (lambda client: client.actor("inventory").steal("A"), "steal"),
        (lambda client: client.actor("inventory", Inventory).put("A", 1, 2), "does not take"),
        (lambda client: client.actor("inventory", Inventory).put("A", m=2), "does not take"),
        (lambda client: client.actor("inventory", Inventory).steal(), "steal"),
        (lambda client: client.actor("inventory", Inventory).put.stale("A"), "is a command"),
        (lambda client: client.actor("stock", Inventory).put("A"), "stock"),
        (lambda client: client.actor("inventory", NewerInventory).put("A"), "version 2.*version 1"),
        (lambda client: client.actor("inventory", OtherInventory).recount(), "recount"),
    ],
)
async def test_a_wrong_call_gets_the_possible_ones_and_is_never_sent(
    cluster: Cluster, call: Callable[[Client], object], message: str
) -> None:
    client = await ready(cluster)
    results = await asyncio.gather(
        client.actor("inventory", Inventory).put("A"),
        call(client),  # type: ignore[arg-type]
        client.actor("inventory").put("A"),
        return_exceptions=True,
    )
    assert isinstance(results[1], UnknownActorError)
    with pytest.raises(UnknownActorError, match=message):
        raise results[1]
    assert [results[0], results[2]] == [1, 2]
    assert [method for method, _ in cluster.commands()] == ["put", "put", "put"]


async def test_an_argument_that_cannot_be_packed_fails_its_own_call_only(cluster: Cluster) -> None:
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    results = await asyncio.gather(inventory.put("A"), inventory.put(object()), return_exceptions=True)  # type: ignore[arg-type]
    assert results[0] == 1
    assert isinstance(results[1], RequestError)
    assert "object" in str(results[1])


async def test_a_command_over_the_limit_is_refused_alone(cluster: Cluster) -> None:
    cluster.limits = {"record_bytes_max": 1000, "batch_bytes_max": 1 << 20}
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    results = await asyncio.gather(inventory.put("A"), inventory.put("x" * 1000), return_exceptions=True)
    assert results[0] == 1
    assert isinstance(results[1], RecordTooLargeError)


async def test_a_class_that_is_no_actor_is_refused_at_once(cluster: Cluster) -> None:
    with pytest.raises(RequestError, match="dict") as caught:
        cluster.client().actor("inventory", dict)
    assert "ReplicatedActor" in caught.value.remedy


async def test_a_proxy_shows_what_it_is_and_claims_no_private_names(cluster: Cluster) -> None:
    proxy = cluster.client().actor("account", key="42")
    assert repr(proxy) == "<actor 'account' key='42'>"
    assert repr(proxy.withdraw) == "<account['42'].withdraw>"
    assert not hasattr(proxy, "_repr_html_")
    assert proxy.withdraw is proxy.withdraw


async def test_actors_cannot_be_reached_through_the_name_of_a_topic(cluster: Cluster) -> None:
    client = await ready(cluster)
    with pytest.raises(UnknownTopicError):
        await client.append("\0inventory", b"x")


async def test_a_command_that_the_leaders_older_code_does_not_know_takes_no_others_with_it(cluster: Cluster) -> None:
    """While nodes are upgraded, the node that described the actor may have newer code than the leader."""
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    await inventory.reserve("first", 1)
    cluster.unknown = {"reserve"}
    slow = client.actor("inventory", Inventory, timeout=20)
    results = await asyncio.gather(
        inventory.put("A"),
        inventory.reserve("A", 1),
        slow.put("A"),
        client.call("inventory", "reserve", "A", 1),
        inventory.put("A"),
        return_exceptions=True,
    )
    assert [results[0], results[2], results[4]] == [1, 2, 3]
    assert [type(results[1]), type(results[3])] == [UnknownActorError, UnknownActorError]
    assert client._sender.batches.held_bytes == 0


async def test_a_call_that_timed_out_before_its_batch_was_divided_has_the_outcome_of_its_token(
    cluster: Cluster,
) -> None:
    """Its token names a batch that will never be in the log, so the command must not be sent again in another one."""
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    await inventory.reserve("first", 1)
    cluster.default = Act.HOLD
    impatient = client.actor("inventory", Inventory, timeout=0.05)
    results = asyncio.gather(impatient.put("A"), inventory.put("A"), inventory.reserve("A", 1), return_exceptions=True)
    await until(lambda: len(cluster.held) == 1)
    await asyncio.sleep(0.1)
    cluster.default = Act.OK
    cluster.held.clear()
    cluster.unknown = {"reserve"}
    cluster.nodes[0].lose_connections()
    timed_out, applied, unknown = await results
    assert applied == 1
    assert isinstance(unknown, UnknownActorError)
    assert isinstance(timed_out, OutcomeUnknownError)
    assert timed_out.token is not None
    assert not (await client.outcome(timed_out.token)).applied
    assert await inventory.available("A") == 1


async def test_nodes_that_learn_a_command_later_are_asked_again(cluster: Cluster) -> None:
    client = await ready(cluster)
    with pytest.raises(UnknownActorError):
        await client.call("inventory", "restock", "A")
    before = kinds(cluster).count(FrameKind.DESCRIBE_ACTOR)
    assert await client.call("inventory", "put", "A") == 1
    assert kinds(cluster).count(FrameKind.DESCRIBE_ACTOR) == before
    with pytest.raises(UnknownActorError):
        await client.call("inventory", "restock", "A")
    assert kinds(cluster).count(FrameKind.DESCRIBE_ACTOR) == before + 1


# Failures.


@pytest.mark.parametrize("act", [Act.LOSE, Act.APPLY_AND_LOSE])
async def test_commands_that_are_sent_again_are_applied_once(cluster: Cluster, act: str) -> None:
    client = await ready(cluster)
    cluster.script.extend([act, act, act])
    inventory = client.actor("inventory", Inventory)
    assert await asyncio.gather(*(inventory.put("A") for _ in range(50))) == list(range(1, 51))
    assert len(cluster.commands()) == 51
    assert client.batches_retried >= 3


async def test_commands_follow_the_leader(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.default = Act.HOLD
    inventory = client.actor("inventory", Inventory)
    calls = [asyncio.ensure_future(inventory.put("A")) for _ in range(10)]
    await until(lambda: len(cluster.arrived) == 1)
    cluster.default = Act.OK
    cluster.held.clear()
    cluster.leader = cluster.nodes[1]
    cluster.nodes[0].lose_connections()
    assert await asyncio.gather(*calls) == list(range(1, 11))
    assert cluster.arrived[-1].node == "n2"


async def test_a_batch_that_is_refused_for_the_moment_is_applied_later(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.script.extend([Refuse(OverloadedError("full")), Refuse(NotLeaderError("deposed"))])
    assert await client.actor("inventory", Inventory).put("A") == 1


async def test_a_call_that_times_out_unsent_was_certainly_not_applied(cluster: Cluster) -> None:
    cluster.leader = None
    client = cluster.client()
    with pytest.raises(UnavailableError, match="nothing was written"):
        await client.actor("inventory", Inventory, timeout=0.05).put("A")
    cluster.leader = cluster.nodes[0]
    assert await client.query("inventory", "available", "A") == 0


async def test_the_outcome_of_a_call_that_timed_out_can_be_queried(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.script.append(Act.APPLY_AND_HOLD)
    inventory = client.actor("inventory", Inventory, timeout=0.05)
    first, second = await errors_of(inventory.put("A", 3), inventory.reserve("A", 9))
    assert isinstance(first, OutcomeUnknownError)
    assert isinstance(second, OutcomeUnknownError)
    cluster.release()
    assert first.token is not None
    assert second.token is not None
    outcome = await client.outcome(first.token)
    assert outcome.applied
    assert outcome.results == [3]
    assert [receipt.position for receipt in outcome.receipts] == [0]
    (error,) = (await client.outcome(second.token)).results or []
    assert isinstance(error, CommandError)
    assert error.kind == "OutOfStockError"
    # Another process may ask, too, because the answer comes from replicated state.
    other = await cluster.client().outcome(first.token)
    assert other == outcome


async def test_a_query_for_the_outcome_of_a_call_that_never_arrived_fences_it(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.script.append(Act.HOLD)
    (error,) = await errors_of(client.actor("inventory", Inventory, timeout=0.05).put("A"))
    assert isinstance(error, OutcomeUnknownError)
    assert error.token is not None
    outcome = await cluster.client().outcome(error.token)
    assert not outcome.applied
    assert outcome.results is None
    cluster.release()
    assert await client.query("inventory", "available", "A") == 0


async def test_a_result_that_is_not_kept_any_more_is_neither_unknown_nor_unwritten(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.forgets_results = True
    (error,) = await errors_of(client.actor("inventory", Inventory).put("A"))
    assert type(error) is StaleSessionError
    assert "was applied" in str(error)
    assert len(cluster.commands()) == 2


async def test_results_that_do_not_fit_the_batch_are_rejected(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.garbles_results = 2
    assert await client.actor("inventory", Inventory).put("A") == 1
    assert cluster.garbles_results == 0
    assert [method for method, _ in cluster.commands()] == ["put", "put"]


async def test_a_call_that_is_cancelled_before_it_is_sent_is_never_applied(cluster: Cluster) -> None:
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    cluster.default = Act.HOLD
    calls = []
    for sent in (1, 2):
        calls.append(asyncio.ensure_future(inventory.put("A")))
        await until(lambda sent=sent: len(cluster.arrived) == sent)  # type: ignore[misc]
    calls += [asyncio.ensure_future(inventory.put("A")) for _ in range(3)]
    await asyncio.sleep(0)
    calls.pop(3).cancel()
    cluster.default = Act.OK
    cluster.release()
    assert await asyncio.gather(*calls) == [1, 2, 3, 4]
    assert client._sender.batches.held_bytes == 0


async def test_a_closed_client_raises_closed(cluster: Cluster) -> None:
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    await inventory.put("A")
    await client.close()
    for call in (inventory.put("A"), inventory.available("A"), client.call("inventory", "put", "A")):
        with pytest.raises(ClosedError):
            await call


# Queries.


async def test_a_query_contains_the_clients_last_index_so_that_no_node_answers_from_an_earlier_state(
    cluster: Cluster,
) -> None:
    client = await ready(cluster)
    await client.query("inventory", "available", "A")
    (asked,) = (body for kind, body in cluster.bodies if kind == FrameKind.QUERY)
    assert asked["applied_index"] == cluster.log.next_index - 1
    assert asked["stale"] is False


async def test_a_stale_query_contains_its_bound_and_does_not_wait(cluster: Cluster) -> None:
    client = await ready(cluster)
    answer = await client.actor("inventory", Inventory).available.stale("first")
    assert answer == Stale(1, cluster.log.next_index - 1, 1.5)
    assert await client.query("inventory", "available", "first", stale=True) == answer
    asked = [body for kind, body in cluster.bodies if kind == FrameKind.QUERY]
    assert [(body["stale"], body["applied_index"]) for body in asked] == [(True, 0), (True, 0)]


async def test_a_stale_query_can_be_asked_of_a_chosen_member(cluster: Cluster) -> None:
    client = await ready(cluster)
    await client.query("inventory", "available", "A", stale=True, node="n3")
    await client.actor("inventory", Inventory, node="n2").available.stale("A")
    assert [node for node, kind in cluster.requests if kind == FrameKind.QUERY] == ["n3", "n2"]


async def test_a_query_goes_to_another_node_when_one_is_gone(cluster: Cluster) -> None:
    client = await ready(cluster)
    await cluster.nodes[0].kill()
    assert await client.query("inventory", "available", "first") == 1


# Watching.


async def collect(client: Client, count: int, into: list[Change], **arguments: object) -> None:
    changes = client.watch("inventory", **arguments)  # type: ignore[arg-type]
    async for change in changes:
        into.append(change)
        if len(into) == count:
            break
    await changes.aclose()


async def test_a_watcher_sees_each_command_with_its_arguments_and_its_result(cluster: Cluster) -> None:
    client = await ready(cluster)
    inventory = client.actor("inventory", Inventory)
    await inventory.put("A", n=2)
    await client.call("depot", "put", "B")
    await errors_of(inventory.reserve("A", 9))
    seen: list[Change] = []
    await collect(client, 3, seen, cls=Inventory, index=1)
    assert [(change.command, change.arguments, change.named, change.result) for change in seen] == [
        ("put", ["first"], {}, 1),
        ("put", ["A"], {"n": 2}, 2),
        ("reserve", ["A", 9], {}, None),
    ]
    assert [type(change.error) for change in seen] == [type(None), type(None), OutOfStockError]
    assert {change.actor for change in seen} == {"inventory"}
    assert seen[1].timestamp == 1000 + seen[1].index


async def test_watching_from_now_on_leaves_out_earlier_changes(cluster: Cluster) -> None:
    client = await ready(cluster)
    seen: list[Change] = []
    watching = asyncio.ensure_future(collect(client, 2, seen))
    await until(lambda: bool(cluster.asked))
    inventory = client.actor("inventory", Inventory)
    await inventory.put("A")
    await inventory.put("B")
    await watching
    assert [change.arguments for change in seen] == [["A"], ["B"]]


async def test_a_watcher_of_one_key_sees_only_that(cluster: Cluster) -> None:
    client = await ready(cluster)
    for key in ("north", "south", "north"):
        await client.call("inventory", "put", "A", key=key)
    seen: list[Change] = []
    await collect(client, 2, seen, key="north", index=1)
    assert [change.key for change in seen] == ["north", "north"]


async def test_a_watcher_goes_on_at_another_node_after_the_last_change(cluster: Cluster) -> None:
    client = await ready(cluster)
    seen: list[Change] = []
    watching = asyncio.ensure_future(collect(client, 4, seen, index=1))
    await until(lambda: len(seen) == 1 and bool(cluster.asked))
    inventory = client.actor("inventory", Inventory)
    await inventory.put("A")
    await until(lambda: len(seen) == 2)
    cluster.leader = cluster.nodes[1]
    await cluster.nodes[0].kill()
    cluster.asked.clear()
    await inventory.put("B")
    await inventory.put("C")
    await watching
    assert [change.arguments for change in seen] == [["first"], ["A"], ["B"], ["C"]]


async def test_a_watcher_looks_for_a_node_that_still_keeps_the_changes(cluster: Cluster) -> None:
    """A restarted node keeps few changes, which must not end the watcher while another node has all of them."""
    client = await ready(cluster)
    cluster.nodes[0].trims_changes = cluster.nodes[1].trims_changes = True
    seen: list[Change] = []
    await collect(client, 1, seen, index=1)
    assert seen[0].arguments == ["first"]
    assert [node for node, kind in cluster.requests if kind == FrameKind.WATCH][-1] == "n3"


async def test_a_watcher_that_fell_behind_everywhere_gets_a_remedy(cluster: Cluster) -> None:
    client = await ready(cluster)
    for node in cluster.nodes:
        node.trims_changes = True
    with pytest.raises(TrimmedError, match="from index 1 on") as caught:
        await collect(client, 1, [], index=1)
    assert caught.value.first == 1000
    assert "query" in caught.value.remedy


async def test_watching_an_index_below_zero_is_refused(cluster: Cluster) -> None:
    with pytest.raises(RequestError, match="-1"):
        cluster.client().watch("inventory", index=-1)


# Lists and descriptions.


async def test_actors_are_listed_and_described(cluster: Cluster) -> None:
    client = await ready(cluster)
    actors = {actor.name: actor for actor in await client.list_actors()}
    assert actors.keys() == {"depot", "inventory"}
    assert (actors["inventory"].class_name, actors["inventory"].version) == ("Inventory", 1)
    assert (actors["inventory"].instances, actors["depot"].instances) == (1, 0)
    interface = await client.describe_actor("inventory")
    assert isinstance(interface, Interface)
    assert sorted(interface.commands) == ["fail", "put", "reserve"]
    assert sorted(interface.queries) == ["available", "must_have"]
    with pytest.raises(UnknownActorError):
        await client.describe_actor("nothing")


async def test_a_snapshot_is_taken_by_the_leader_or_by_a_chosen_member(cluster: Cluster) -> None:
    client = await ready(cluster)
    taken = await client.create_snapshot()
    assert (taken.index, taken.bytes, taken.seconds) == (cluster.log.next_index, 10, 0.5)
    await client.create_snapshot("n3")
    assert [len(node.snapshots) for node in cluster.nodes] == [1, 0, 1]
    (listed,) = await client.list_snapshots()
    assert (listed.index, listed.created) == (taken.index, 7.0)
    assert await client.list_snapshots("n2") == []


async def test_the_retention_of_a_topic_is_set_at_its_creation_and_changed_later(cluster: Cluster) -> None:
    client = cluster.client()
    topic = await client.create_topic("orders", retain_bytes=1 << 20, retain_seconds=3600.0)
    assert (topic.retain_bytes, topic.retain_seconds) == (1 << 20, 3600.0)
    topic = await client.configure_topic("orders", retain_bytes=0)
    assert (topic.retain_bytes, topic.retain_seconds) == (0, 3600.0)
    for n in range(3):
        await client.append("orders", b"%d" % n)
    topic = await client.trim_topic("orders", 3)
    assert (topic.first_position, topic.last_position) == (3, 3)
    with pytest.raises(UnknownTopicError):
        await client.trim_topic("bills", 1)


async def test_a_receipt_names_the_durability_of_the_node_that_acknowledged(cluster: Cluster) -> None:
    cluster.durability = "interval_may_lose_acknowledged_writes"
    client = cluster.client()
    await client.create_topic("orders")
    receipt = await client.append("orders", b"x")
    receipts = await client.append_many("orders", [b"y"])
    assert {each.durability for each in [receipt, *receipts]} == {"interval_may_lose_acknowledged_writes"}
