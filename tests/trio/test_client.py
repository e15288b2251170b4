"""The client in a trio program, against nodes that speak the real frames and follow the test's script."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from tests.client.cluster import Act, Cluster, Refuse
from tests.in_thread import InThread
from tests.trio.late import late_error, until
from viewstamp.client import Attempt, ClientOptions, Receipt, SinkCommit
from viewstamp.client.append import TopicAppend
from viewstamp.client.group import GroupParts
from viewstamp.errors import (
    ClosedError,
    ConfigError,
    OutcomeToken,
    OutcomeUnknownError,
    OverloadedError,
    PeerError,
    PositionMismatchError,
    RecordTooLargeError,
    RequestError,
    StagingError,
    UnavailableError,
    UnknownTopicError,
    ViewstampError,
    WrongClusterError,
)
from viewstamp.ids import GROUP_0, GroupId, NodeId, Sequence, SessionId, TopicId
from viewstamp.trio import Client, connect
from viewstamp.wire.batch import Kind

Peers = InThread[Cluster]


def addresses(peers: Peers) -> list[str]:
    return [node.address for node in peers.held.nodes]


def run(
    peers: Peers,
    test: Callable[[Client], Awaitable[Any]],
    *,
    topic: str = "orders",
    clock: trio.abc.Clock | None = None,
    **options: Any,
) -> Any:
    """Run a test with a client that has a session, and a topic with the first record ``b"first"``."""

    async def main() -> Any:
        with trio.fail_after(60):
            async with connect(addresses(peers), options=ClientOptions(**options)) as client:
                await client.create_topic(topic)
                await client.append(topic, b"first")
                peers.call(peers.held.arrived.clear)
                return await test(client)

    return trio.run(main, clock=clock)


async def gather(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Call all at once, each after the one before waits; return the results, or errors of ours, in order."""
    results: list[Any] = [None] * len(calls)

    async def call(at: int) -> None:
        try:
            results[at] = await calls[at]()
        except ViewstampError as error:
            results[at] = error

    async with trio.open_nursery() as nursery:
        for at in range(len(calls)):
            nursery.start_soon(call, at)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
    return results


def hold(peers: Peers, act: str = Act.HOLD) -> None:
    def begin() -> None:
        peers.held.default = act

    peers.call(begin)


def release(peers: Peers) -> None:
    def end() -> None:
        peers.held.default = Act.OK
        peers.held.release()

    peers.call(end)


def test_appends_of_many_tasks_share_batches_and_stand_in_the_order_of_the_calls(peers: Peers) -> None:
    async def test(client: Client) -> None:
        results = await gather(*(partial(client.append, "orders", str(n).encode()) for n in range(500)))
        assert all(isinstance(result, Receipt) for result in results)
        assert [result.position for result in results] == list(range(2, 502))

    run(peers, test)
    assert peers.held.values() == [b"first", *(str(n).encode() for n in range(500))]
    assert len(peers.held.arrived) < 500


def test_waiting_appends_are_admitted_in_the_order_of_the_calls(peers: Peers) -> None:
    """Trio wakes tasks of one turn in either order, so the order of appends must not depend on it."""

    async def main(topic: str) -> None:
        async with connect(addresses(peers)) as client:
            await client.create_topic(topic)
            await gather(*(partial(client.append, topic, str(n).encode()) for n in range(20)))

    for n in range(6):
        trio.run(main, f"topic{n}")
        assert peers.held.values(n + 1) == [str(n).encode() for n in range(20)]


def test_atomic_groups_keys_and_headers(peers: Peers) -> None:
    async def test(client: Client) -> None:
        receipts = await client.append_many("orders", [b"a", b"b"], keys=[b"k", None], headers=[None, {"h": b"1"}])
        assert [receipt.position for receipt in receipts] == [2, 3]
        records = [record async for record in client.read("orders", 2)]
        assert [(each.value, each.key, each.headers) for each in records] == [
            (b"a", b"k", None),
            (b"b", None, {"h": b"1"}),
        ]

    run(peers, test)


def test_topics_and_status(peers: Peers) -> None:
    async def test(client: Client) -> None:
        assert (await client.describe_topic("orders")).last_position == 1
        assert [topic.name for topic in await client.list_topics()] == ["orders"]
        assert sorted(node["id"] for node in await client.status()) == ["n1", "n2", "n3"]
        with pytest.raises(UnknownTopicError):
            await client.append("nowhere", b"x")
        with pytest.raises(RequestError):
            await client.append("orders", "text")  # type: ignore[arg-type]
        with pytest.raises(RecordTooLargeError):
            await client.append("orders", b"x" * 2**21)

    run(peers, test)


def test_every_public_call_is_a_checkpoint(peers: Peers) -> None:
    async def test(client: Client) -> None:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.append("orders", b"x"),
            lambda: client.append("orders", b"x", timeout=5),
            lambda: client.append_many("orders", [b"x", b"y"]),
            lambda: client.append_many("orders", []),
            lambda: client.create_topic("others"),
            lambda: client.describe_topic("orders"),
            lambda: client.list_topics(),
            lambda: client.status(),
        ]
        for call in calls:
            with trio.testing.assert_checkpoints():
                await call()
            with trio.CancelScope() as scope:
                scope.cancel()
                await call()
            assert scope.cancelled_caught
        batches = client.read_batches("orders")
        with trio.testing.assert_checkpoints():
            await batches.__anext__()
        async with client.read("orders") as records:
            with trio.CancelScope() as scope:
                async for _ in records:
                    scope.cancel()
            assert scope.cancelled_caught
            with trio.testing.assert_checkpoints():
                assert [record async for record in records]
            with trio.testing.assert_checkpoints(), pytest.raises(StopAsyncIteration):
                await records.__anext__()

    run(peers, test)


def test_an_append_that_is_cancelled_anywhere_is_written_once_or_never(peers: Peers) -> None:
    """The append is cancelled after 0, 1, 2 ... steps of the scheduler, until one completes."""

    async def main() -> list[bytes]:
        acknowledged = []
        for steps in range(400):
            value = str(steps).encode()
            async with connect(addresses(peers)) as client:
                if steps % 2:
                    await client.append("orders", b"session")
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:

                        async def cancel(steps: int = steps, scope: trio.CancelScope = scope) -> None:
                            for _ in range(steps // 2):
                                await trio.lowlevel.checkpoint()
                            scope.cancel()

                        nursery.start_soon(cancel)
                        await client.append("orders", value)
                        acknowledged.append(value)
                        nursery.cancel_scope.cancel()
                await client.append("orders", b"after")
            if len(acknowledged) > 10:
                break
        return acknowledged

    async def create() -> None:
        async with connect(addresses(peers)) as client:
            await client.create_topic("orders")

    trio.run(create)
    acknowledged = trio.run(main)
    written = [value for value in peers.held.values() if value not in (b"session", b"after")]
    assert len(acknowledged) > 10
    assert set(acknowledged) <= set(written)
    assert len(written) == len(set(written))
    assert b"0" not in written


def test_an_append_cancelled_before_it_was_sent_is_never_written(peers: Peers) -> None:
    async def test(client: Client) -> None:
        hold(peers)
        async with trio.open_nursery() as nursery:
            for value in (b"1", b"2"):
                nursery.start_soon(client.append, "orders", value)
                await until(lambda value=value: value in [v for each in peers.held.arrived for v in each.values])  # type: ignore[misc]
            with trio.move_on_after(0.05) as scope:
                await client.append("orders", b"never")
            assert scope.cancelled_caught
            release(peers)
        await client.append("orders", b"last")

    run(peers, test, batches_in_flight=2, batches_in_flight_far=2)
    assert peers.held.values() == [b"first", b"1", b"2", b"last"]


def test_a_caller_that_is_already_cancelled_writes_nothing(peers: Peers) -> None:
    """This must hold for any order of the tasks in the turn in which the record would have been sent."""

    async def test(client: Client) -> None:
        for _ in range(20):
            with trio.CancelScope() as scope:
                scope.cancel()
                await client.append("orders", b"never")
            assert scope.cancelled_caught
            await trio.testing.wait_all_tasks_blocked()

    run(peers, test)
    assert peers.held.values() == [b"first"]


def test_a_cancelled_append_that_was_sent_may_be_committed_and_disturbs_no_other(peers: Peers) -> None:
    async def test(client: Client) -> None:
        hold(peers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.append, "orders", b"sent")
            await until(lambda: len(peers.held.arrived) == 1)
            nursery.cancel_scope.cancel()
        release(peers)
        assert (await client.append("orders", b"last")).position == 3

    run(peers, test)
    assert peers.held.values() == [b"first", b"sent", b"last"]


def test_the_timeout_of_a_sent_append_has_a_token(peers: Peers) -> None:
    clock = trio.testing.MockClock(rate=1.0)

    async def test(client: Client) -> None:
        hold(peers, Act.APPLY_AND_HOLD)
        append = partial(client.append, "orders", b"slow", timeout=5.0)
        unknown = await late_error(clock, 5.0, lambda: len(peers.held.arrived) == 1, append)
        assert isinstance(unknown, OutcomeUnknownError)
        token = unknown.token
        assert token is not None
        with pytest.raises(OutcomeUnknownError):
            await client.outcome(token, timeout=0.05)
        with trio.move_on_after(0.05) as scope:
            await client.outcome(token)
        assert scope.cancelled_caught
        release(peers)
        outcome = await client.outcome(token)
        assert outcome.applied
        assert [receipt.position for receipt in outcome.receipts] == [2]
        # The batch is decided by now, so the leader is asked; and the outcome of a foreign token can be asked for, too.
        assert (await client.outcome(token)).applied

    run(peers, test, clock=clock, silence=30.0)


def test_an_append_stands_where_it_was_expected_or_nowhere(peers: Peers) -> None:
    async def test(client: Client) -> None:
        assert (await client.append("orders", b"second", expected_position=2)).position == 2
        with pytest.raises(PositionMismatchError) as refused:
            await client.append_many("orders", [b"a", b"b"], expected_position=2)
        assert refused.value.actual == 3

    run(peers, test)
    assert peers.held.values() == [b"first", b"second"]


def test_the_outcome_of_a_session_that_has_ended_is_expired(peers: Peers) -> None:
    async def test(client: Client) -> None:
        token = OutcomeToken(session=SessionId(999), sequence=Sequence(1), topic=TopicId(1), offset=0, count=1)
        assert (await client.outcome(token)).answer == "expired"

    run(peers, test)


def test_the_parts_for_another_group_end_when_they_are_not_used(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewstamp.client.groups.IDLE_SECONDS", 0.2)

    async def appended(client: Client, parts: GroupParts, value: bytes) -> Receipt:
        append = TopicAppend(parts.sender, client._runtime.create_future(), "orders", [value])
        parts.appends.begin(append, "orders")
        receipt: Receipt = await parts.appends.end(append)
        return receipt

    async def test(client: Client) -> None:
        with client._groups.call(GroupId(7)) as parts:
            assert (await appended(client, parts, b"second")).position == 2
        await until(lambda: list(client._groups._parts) == [GROUP_0])
        assert parts.pool.preferred is None
        peers.call(peers.held.groups.clear)
        with client._groups.call(GroupId(7)) as parts:
            assert (await appended(client, parts, b"third")).position == 3
        assert (await client.append("orders", b"fourth")).position == 4

    run(peers, test)
    assert set(peers.held.groups) == {7}


def test_stale_records_come_with_their_age(peers: Peers) -> None:
    async def test(client: Client) -> None:
        stale = await client.read_stale("orders", max_staleness=2)
        assert stale.age_seconds == 1.5
        assert [record.value async for record in stale.value] == [b"first"]
        assert (await client.describe_topic("orders", max_staleness=1)).age_seconds == 0

    run(peers, test)


def test_the_timeout_of_an_unsent_append_reports_that_nothing_was_written(peers: Peers) -> None:
    async def test(client: Client) -> None:
        hold(peers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.append, "orders", b"1")
            await until(lambda: len(peers.held.arrived) == 1)
            with pytest.raises(UnavailableError):
                await client.append("orders", b"never", timeout=0.05)
            release(peers)

    run(peers, test, batches_in_flight=1, batches_in_flight_far=1, batches_eager=1)
    assert peers.held.values() == [b"first", b"1"]


@pytest.mark.parametrize("act", [Act.LOSE, Act.APPLY_AND_LOSE, Refuse(OverloadedError("full"))], ids=str)
def test_a_lost_or_temporarily_refused_append_is_sent_again_and_applied_once(peers: Peers, act: str | Refuse) -> None:
    async def test(client: Client) -> None:
        peers.call(lambda: peers.held.script.extend([act, act]))
        assert (await client.append("orders", b"once")).position == 2
        assert client.batches_retried >= 2
        (first, *others) = [each for each in peers.held.arrived if each.values == [b"once"]]
        assert {(each.session, each.sequence) for each in others} == {(first.session, first.sequence)}

    run(peers, test)
    assert peers.held.values() == [b"first", b"once"]


def test_the_client_follows_the_leader(peers: Peers) -> None:
    async def test(client: Client) -> None:
        def move() -> None:
            peers.held.leader = peers.held.nodes[2]

        peers.call(move)
        await client.append("orders", b"second")
        assert peers.held.arrived[-1].node == NodeId("n3")

    run(peers, test)


def test_bytes_that_are_held_are_bounded_and_callers_wait_in_order(peers: Peers) -> None:
    async def test(client: Client) -> None:
        hold(peers)

        async def let_go() -> None:
            await until(lambda: bool(peers.held.held))
            assert sum(len(value) for each in peers.held.arrived for value in each.values) <= 10_000
            release(peers)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_go)
            await gather(*(partial(client.append, "orders", b"%03d" % n + bytes(1000)) for n in range(50)))

    run(peers, test, bytes_in_flight_max=10_000)
    assert [int(value[:3]) for value in peers.held.values()[1:]] == list(range(50))


def test_leaving_the_context_fails_all_waiting_calls(peers: Peers) -> None:
    hold(peers)

    async def main() -> list[Any]:
        results: list[Any] = []

        async def append(client: Client, topic: str, value: bytes) -> None:
            try:
                await client.append(topic, value)
            except ViewstampError as error:
                results.append(type(error))

        options = ClientOptions(batches_in_flight=1, batches_in_flight_far=1, batches_eager=1)
        async with trio.open_nursery() as nursery, connect(addresses(peers), options=options) as client:
            await client.create_topic("orders")
            nursery.start_soon(append, client, "orders", b"sent")
            await until(lambda: len(peers.held.arrived) == 1)
            nursery.start_soon(append, client, "orders", b"unsent")
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ClosedError):
            await client.append("orders", b"late")
        with pytest.raises(ClosedError):
            await client.list_topics()
        return results

    assert set(trio.run(main)) == {OutcomeUnknownError, ClosedError}
    release(peers)
    assert b"unsent" not in peers.held.values()


def test_an_exception_of_the_body_leaves_unchanged(peers: Peers) -> None:
    async def main() -> None:
        error = KeyError("mine")
        with pytest.raises(KeyError) as raised:  # noqa: PT012 - the whole context is tested
            async with connect(addresses(peers)) as client:
                await client.create_topic("orders")
                raise error
        assert raised.value is error
        with trio.CancelScope() as scope:
            async with connect(addresses(peers)) as client:
                await client.append("orders", b"x")
                scope.cancel()
                await client.append("orders", b"never")
        assert scope.cancelled_caught

    trio.run(main)
    assert peers.held.values() == [b"x"]


def test_connections_end_with_the_client(peers: Peers) -> None:
    async def test(client: Client) -> None:
        await client.status()
        assert sum(len(node.connections) for node in peers.held.nodes) >= 3

    run(peers, test)
    trio.run(until, lambda: not any(node.connections for node in peers.held.nodes))


def test_a_reader_follows_and_may_be_cancelled_and_read_on(peers: Peers) -> None:
    async def test(client: Client) -> None:
        seen: list[bytes] = []
        async with client.read("orders", follow=True) as records:

            async def follow() -> None:
                async for record in records:
                    seen.append(record.value)
                    if record.value == b"last":
                        return

            with trio.move_on_after(0.05) as scope:
                await follow()
            assert scope.cancelled_caught
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                for n in range(20):
                    await client.append("orders", str(n).encode())
                await client.append("orders", b"last")
        assert seen == [b"first", *(str(n).encode() for n in range(20)), b"last"]
        assert [record async for record in records] == []

    run(peers, test, follow_wait=0.01)


def test_a_reader_that_is_dropped_half_way_leaves_nothing_behind(peers: Peers) -> None:
    """A generator would end with a ResourceWarning of trio, which is an error here."""

    async def test(client: Client) -> None:
        await client.append_many("orders", [b"2", b"3"])
        async for record in client.read("orders"):
            if record.position == 2:
                break
        gc.collect()
        await trio.lowlevel.checkpoint()
        peers.held.read_chunk = 1
        assert [record.position async for record in client.read("orders", 2, end=3)] == [2]
        with pytest.raises(RequestError):
            client.read("orders", 0)
        with pytest.raises(UnknownTopicError):
            await client.read("nowhere").__anext__()

    run(peers, test)


def test_a_deadline_holds_while_no_node_answers(peers: Peers) -> None:
    def silence() -> None:
        for node in peers.held.nodes:
            node.is_silent = True

    async def test(client: Client) -> None:
        peers.call(silence)
        with pytest.raises(UnavailableError):
            await client.describe_topic("orders", timeout=0.1)
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
            await client.describe_topic("orders")

    run(peers, test, silence=0.05, connect_timeout=0.05)


def test_wrong_addresses_and_foreign_servers_are_distinguished(peers: Peers) -> None:
    clock = trio.testing.MockClock(rate=1.0)

    async def main() -> None:
        with pytest.raises(ConfigError):
            async with connect("nowhere"):
                pass
        async with connect(addresses(peers), cluster_id="other") as client:
            with pytest.raises(WrongClusterError):
                await client.append("orders", b"x")
        async with connect("127.0.0.1:1") as client:
            append = partial(client.append, "orders", b"x", timeout=5.0)
            error = await late_error(clock, 5.0, lambda: client._pool.finder.last_error is not None, append)
            assert isinstance(error, UnavailableError)
            assert "refused" in str(error)
        async with connect("no.such.host.invalid:1") as client:
            with pytest.raises(UnavailableError):
                await client.list_topics(timeout=0.1)

    trio.run(main, clock=clock)


def test_a_node_that_breaks_the_protocol_is_left(peers: Peers) -> None:
    async def test(client: Client) -> None:
        def spoil() -> None:
            peers.held.garbage = 1

        peers.call(spoil)
        assert (await client.describe_topic("orders")).last_position == 1
        assert not isinstance(client._pool.finder.last_error, PeerError)

    run(peers, test)


def test_a_batch_is_staged_sealed_and_committed_without_its_cancelled_records(peers: Peers) -> None:
    async def test(client: Client) -> None:
        sink = client.sink("lake", owner="query")
        kept = await sink.begin(0)
        lost = await sink.begin(0)
        assert isinstance(kept, Attempt)
        assert isinstance(lost, Attempt)
        calls = [partial(kept.stage_records, "orders", [str(n).encode()]) for n in range(20)]
        assert await gather(*calls) == [None] * 20
        hold(peers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lost.stage_records, "orders", [bytes(400_000)] * 10)
            await until(lambda: bool(peers.held.held))
            nursery.cancel_scope.cancel()
        with pytest.raises(StagingError, match="has ended"):
            await lost.seal()
        release(peers)
        commit = await sink.commit(0, [await kept.seal()])
        assert commit.ranges == [("orders", 2, 20)]
        again = await client.sink("lake", owner="query").begin(0)
        assert isinstance(again, SinkCommit)
        assert again.index == commit.index
        assert client._sender.batches.held_bytes == 0

    run(peers, test, bytes_in_flight_max=10_000_000, stage_bytes_in_flight=1_000_000)
    staged = [batch for batch in peers.held.log.applied if batch.kind is Kind.STAGED]
    assert [value for batch in staged for value in batch.values()][:20] == [str(n).encode() for n in range(20)]
    assert 20 <= len(staged) < 30, "unsent records were dropped"


def test_leaving_the_context_fails_pending_stagings(peers: Peers) -> None:
    told = []

    async def stage(attempt: Attempt) -> None:
        try:
            for _ in range(9):
                await attempt.stage_records("orders", [bytes(1000)])
        except UnavailableError as error:
            told.append(str(error))

    async def main() -> None:
        options = ClientOptions(stage_bytes_in_flight=3000)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery, connect(addresses(peers), options=options) as client:
                await client.create_topic("orders")
                attempt = await client.sink("lake").begin(0)
                assert isinstance(attempt, Attempt)
                hold(peers)
                nursery.start_soon(stage, attempt)
                await until(lambda: len(peers.held.arrived) == 2)

    trio.run(main)
    assert len(told) == 1
    assert "closed" in told[0]
