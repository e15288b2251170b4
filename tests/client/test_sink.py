"""Sinks through the asyncio client, against nodes that speak the real frames over the real network; see ``cluster.py``.

Committed batches are read in ``test_sink_on_real_nodes.py``.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import AsyncIterator

import pytest

from tests.client.cluster import Act, Cluster, Refuse
from tests.client.test_client import until
from viewstamp.client import Attempt, Client, Sink, SinkCommit
from viewstamp.errors import (
    FencedError,
    OutcomeUnknownError,
    OverloadedError,
    RecordTooLargeError,
    RequestError,
    StagingError,
    StaleSessionError,
    StorageFullError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.wire.batch import Batch, Column, Columns, Kind, build_batch
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.staged import StagedBatch, entries_of

ROOM = 10_000


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster(staged_bytes_max=ROOM)
    await cluster.start(3)
    yield cluster
    await cluster.close()


async def ready(cluster: Cluster, **options: object) -> tuple[Client, Sink]:
    """Return a client with a session and the topics orders and bills, and an unused sink."""
    client = cluster.client(**options)  # type: ignore[arg-type]
    await client.create_topic("orders")
    await client.create_topic("bills")
    await client.append("orders", b"first")
    cluster.arrived.clear()
    return client, client.sink("lake", owner="query", run="run1")


async def begin(sink: Sink, batch: int = 0, name: str = "") -> Attempt:
    attempt = await sink.begin(batch, name)
    assert isinstance(attempt, Attempt)
    return attempt


def block(*values: bytes) -> Columns:
    return build_batch(values or [b"x"]).columns()


def staged(cluster: Cluster) -> list[Batch]:
    return [batch for batch in cluster.log.applied if batch.kind is Kind.STAGED]


def staged_values(cluster: Cluster) -> list[bytes]:
    return [value for batch in staged(cluster) for value in batch.values()]


# Stage, seal, commit.


async def test_a_block_is_one_batch_as_it_stands_and_nothing_joins_it(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    attempt = await begin(sink)
    append = asyncio.create_task(client.append("orders", b"plain"))
    await attempt.stage("orders", block(b"a", b"b"))
    await attempt.stage("orders", block(b"c"))
    await attempt.stage("bills", block(b"d"))
    await append
    await attempt.seal()
    assert [(batch.topic, batch.attempt, batch.values()) for batch in staged(cluster)] == [
        (1, attempt.id, [b"a", b"b"]),
        (1, attempt.id, [b"c"]),
        (2, attempt.id, [b"d"]),
    ]
    assert cluster.values() == [b"first", b"plain"]


async def test_a_sealed_part_names_every_batch_and_can_be_sent_elsewhere(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    await attempt.stage("orders", block(b"a", b"b"))
    await attempt.stage("bills", block(b"c"))
    sealed = await attempt.seal()
    assert pickle.loads(pickle.dumps(sealed)) == sealed
    assert list(entries_of(sealed.entries)) == [
        StagedBatch(b.first_index, b.topic, b.count, b.size) for b in staged(cluster)
    ]
    assert (sealed.attempt, sealed.records) == (attempt.id, 3)
    assert sealed.bytes == sum(batch.size for batch in staged(cluster))


async def test_a_commit_returns_the_positions_of_all_parts(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    first, second = await begin(sink, 7), await begin(sink, 7)
    await first.stage("orders", block(b"a", b"b"))
    await second.stage("bills", block(b"c"))
    await second.stage("orders", block(b"d"))
    parts = [await second.seal(), await first.seal()]
    index = cluster.log.next_index
    commit = await sink.commit(7, parts)
    assert commit == SinkCommit(
        sink="lake",
        batch=7,
        duplicate=False,
        ranges=[("bills", 1, 1), ("orders", 2, 3)],  # type: ignore[list-item]  # a CommitRange is a tuple
        index=index,
        timestamp=1000 + index,
    )
    assert (await client.describe_topic("orders")).last_position == 4
    again = await sink.commit(7, [])
    assert (again.duplicate, again.ranges, again.index) == (True, commit.ranges, commit.index)


async def test_a_batch_that_is_committed_needs_no_attempt(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    attempt = await begin(sink)
    await attempt.stage_records("orders", [b"a"])
    await sink.commit(0, [await attempt.seal()])
    after = client.sink("lake", owner="query", run="run2")
    commit = await after.begin(0)
    assert isinstance(commit, SinkCommit)
    assert (commit.duplicate, commit.ranges) == (True, [("orders", 2, 1)])


async def test_a_batch_without_records_is_committed_too(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    attempt = await begin(sink)
    await attempt.stage_records("orders", [])
    sealed = await attempt.seal()
    assert (sealed.entries, sealed.records, sealed.bytes) == (b"", 0, 0)
    assert (await sink.commit(0, [sealed])).ranges == []
    assert (await client.describe_sink("lake")).batch == 0


async def test_records_are_divided_into_blocks_with_their_keys_and_headers(cluster: Cluster) -> None:
    _, sink = await ready(cluster, batch_bytes=1000)
    attempt = await begin(sink)
    values = [b"%03d" % n + bytes(n) for n in range(60)]
    keys = [None if n % 3 else b"k%d" % n for n in range(60)]
    headers = [{"n": b"%d" % n} if n % 2 else None for n in range(60)]
    await attempt.stage_records("orders", values, keys=keys, headers=headers)
    await attempt.seal()
    records = [record for batch in staged(cluster) for record in batch.records()]
    assert [(r.value, r.key, r.headers) for r in records] == list(zip(values, keys, headers, strict=True))
    assert len(staged(cluster)) > 3
    assert max(batch.size for batch in staged(cluster)) < 1100


async def test_blocks_of_several_tasks_stand_in_the_order_of_the_calls(cluster: Cluster) -> None:
    _, sink = await ready(cluster, stage_bytes_in_flight=500)
    attempt = await begin(sink)
    await asyncio.gather(*(attempt.stage("orders", block(b"%02d" % n)) for n in range(20)))
    await attempt.seal()
    assert staged_values(cluster) == [b"%02d" % n for n in range(20)]


async def test_an_attempt_of_the_same_name_is_the_same_and_one_without_is_another(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    ids = [(await begin(sink, 0, name)).id for name in ("p0", "p1", "p0", "", "")]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 4


async def test_sinks_are_listed_described_and_forgotten(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    attempt = await begin(sink)
    await attempt.stage("orders", block(b"a"))
    sealed = await attempt.seal()
    await begin(sink)
    (info,) = await client.list_sinks()
    assert info == await client.describe_sink("lake")
    assert (info.name, info.owner, info.run, info.batch, info.ranges) == ("lake", "query", "run1", -1, None)
    assert (info.attempts, info.sealed, info.bytes, info.keep_seconds) == (2, 1, sealed.bytes, 3600)
    await client.forget_sink("lake")
    assert await client.list_sinks() == []
    for gone in (client.describe_sink("lake"), client.forget_sink("lake")):
        with pytest.raises(RequestError, match="no sink is named 'lake'"):
            await gone


# The window, and room.


async def test_at_most_a_window_is_unacknowledged_and_the_next_block_waits(cluster: Cluster) -> None:
    _, sink = await ready(cluster, stage_bytes_in_flight=3 * block(b"0").size)
    attempt = await begin(sink)
    cluster.default = Act.HOLD
    for n in range(3):
        await attempt.stage("orders", block(b"%d" % n))
    waiting = asyncio.create_task(attempt.stage("orders", block(b"3")))
    await until(lambda: len(cluster.arrived) == 3)
    assert not waiting.done()
    cluster.held.popleft()()
    await waiting
    await until(lambda: len(cluster.arrived) == 4)
    cluster.default = Act.OK
    cluster.release()
    assert (await attempt.seal()).records == 4


async def test_a_block_over_the_window_is_let_in_alone(cluster: Cluster) -> None:
    _, sink = await ready(cluster, stage_bytes_in_flight=10)
    attempt = await begin(sink)
    for n in range(3):
        await attempt.stage("orders", block(b"%d" % n))
    assert (await attempt.seal()).records == 3


async def test_blocks_count_in_what_a_client_holds(cluster: Cluster) -> None:
    client, sink = await ready(cluster, bytes_in_flight_max=1000)
    attempt = await begin(sink)
    cluster.default = Act.HOLD
    await attempt.stage("orders", block(bytes(900)))
    append = asyncio.create_task(client.append("orders", b"later"))
    await until(lambda: len(cluster.arrived) == 1)
    await client.describe_topic("orders")
    assert len(cluster.arrived) == 1
    cluster.default = Act.OK
    cluster.release()
    await append
    assert client._sender.batches.held_bytes == 0


async def test_without_room_blocks_wait_until_there_is_some(cluster: Cluster) -> None:
    client, sink = await ready(cluster, back_off_max=0.02)
    hog = client.sink("hog")
    filling = await begin(hog)
    await filling.stage("orders", block(bytes(ROOM - 500)))
    await filling.seal()
    attempt = await begin(sink)
    for n in range(4):
        await attempt.stage("orders", block(b"%d" % n + bytes(300)))
    sealing = asyncio.create_task(attempt.seal())
    await until(lambda: len(cluster.arrived) > 12)
    assert not sealing.done()
    # Only the first block retries again and again; the others were refused once each.
    assert [sum(arrival.values[0][:1] == b"%d" % n for arrival in cluster.arrived) < 4 for n in (1, 2, 3)] == [True] * 3
    await hog.abort(0)
    assert (await sealing).records == 4
    assert [value[:1] for value in staged_values(cluster)[1:]] == [b"0", b"1", b"2", b"3"]


async def test_without_room_in_time_a_block_fails_with_the_reason_and_delays_no_other(cluster: Cluster) -> None:
    client, sink = await ready(cluster, back_off_max=0.02)
    filling = await begin(client.sink("hog"))
    await filling.stage("orders", block(bytes(ROOM - 200)))
    await filling.seal()
    attempt = await begin(sink)
    await attempt.stage("orders", block(b"a"), timeout=0.1)
    await attempt.stage("orders", block(b"b"), timeout=0.1)
    with pytest.raises(UnavailableError, match=r"(?s)staged.*nothing was written"):
        await attempt.seal()
    await client.append("orders", b"goes on", timeout=5)
    assert cluster.values() == [b"first", b"goes on"]
    assert len(staged(cluster)) == 1
    with pytest.raises(StagingError, match="has ended"):
        await attempt.stage("orders", block(b"c"))


async def test_a_block_larger_than_all_the_room_is_refused_at_once(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    await attempt.stage("orders", block(bytes(ROOM + 1)))
    with pytest.raises(RequestError, match="staged"):
        await attempt.seal()


# Failures.


@pytest.mark.parametrize("act", [Act.LOSE, Act.APPLY_AND_LOSE, Refuse(OverloadedError("later"))], ids=str)
async def test_a_block_whose_answer_is_lost_is_staged_once(cluster: Cluster, act: str | Refuse) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    cluster.script.extend([Act.OK, act, Act.OK, act])
    for n in range(8):
        await attempt.stage("orders", block(b"%d" % n))
    sealed = await attempt.seal()
    assert staged_values(cluster) == [b"%d" % n for n in range(8)]
    assert (await sink.commit(0, [sealed])).ranges == [("orders", 2, 8)]


@pytest.mark.parametrize(
    "kind", [FrameKind.BEGIN_ATTEMPT, FrameKind.SEAL_ATTEMPT, FrameKind.COMMIT, FrameKind.ABORT_ATTEMPTS]
)
async def test_a_request_whose_answer_is_lost_happens_once(cluster: Cluster, kind: FrameKind) -> None:
    client, sink = await ready(cluster)
    cluster.losses.append(kind)
    attempt = await begin(sink)
    await attempt.stage("orders", block(b"a", b"b"))
    commit = await sink.commit(0, [await attempt.seal()])
    assert commit.ranges == [("orders", 2, 2)]
    await sink.abort(0)
    assert cluster.requests.count(("n1", kind)) == 2
    assert (await client.describe_topic("orders")).last_position == 3
    assert (await client.describe_sink("lake")).attempts == 0


async def test_a_new_leader_in_the_middle_gets_the_unanswered_blocks(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    attempt = await begin(sink)
    cluster.script.extend([Act.OK, Act.APPLY_AND_HOLD, Act.HOLD, Act.HOLD])
    for n in range(4):
        await attempt.stage("orders", block(b"%d" % n))
    await until(lambda: len(cluster.arrived) == 4)
    cluster.leader = cluster.nodes[1]
    await cluster.nodes[0].kill()
    for n in range(4, 8):
        await attempt.stage("orders", block(b"%d" % n))
    commit = await sink.commit(0, [await attempt.seal()])
    assert commit.ranges == [("orders", 2, 8)]
    assert staged_values(cluster) == [b"%d" % n for n in range(8)]
    assert client.batches_retried >= 3


async def test_a_forgotten_session_costs_the_attempt_and_nothing_else(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    cluster.script.extend([Act.LOSE, Refuse(StaleSessionError("who?"))])
    await attempt.stage("orders", block(b"a"))
    with pytest.raises(UnavailableError, match="lost a staged block"):
        await attempt.seal()
    attempt = await begin(sink)
    await attempt.stage("orders", block(b"a"))
    assert (await sink.commit(0, [await attempt.seal()])).ranges == [("orders", 2, 1)]


@pytest.mark.slow
async def test_an_answer_that_never_comes_is_unknown_and_again_is_harmless(cluster: Cluster) -> None:
    _, sink = await ready(cluster, silence=0.05, connect_timeout=0.05)
    attempt = await begin(sink)
    await attempt.stage("orders", block(b"a"))
    sealed = await attempt.seal()
    for node in cluster.nodes:
        node.is_silent = True
    with pytest.raises(
        OutcomeUnknownError, match=r"(no majority: .*|no leader has answered: .*); it may have been written"
    ):
        await sink.commit(0, [sealed], timeout=0.3)
    for node in cluster.nodes:
        node.is_silent = False
    assert (await sink.commit(0, [sealed])).ranges == [("orders", 2, 1)]


# Refusals.


async def test_an_error_of_a_block_is_raised_by_the_next_call_and_ends_the_attempt(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    cluster.script.append(Refuse(StorageFullError("no space")))
    await attempt.stage("orders", block(b"a"))
    await until(lambda: ("n1", FrameKind.OUTCOME) in cluster.requests)
    with pytest.raises(StorageFullError, match="no space"):
        await attempt.stage("orders", block(b"b"))
    with pytest.raises(StagingError, match="has ended: no space"):
        await attempt.stage("orders", block(b"c"))
    with pytest.raises(StagingError, match="has ended: no space"):
        await attempt.seal()
    assert staged(cluster) == []


async def test_an_unretrieved_error_of_a_block_is_not_logged(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    cluster.script.append(Refuse(StorageFullError("no space")))
    await attempt.stage("orders", block(b"a"))
    await until(lambda: ("n1", FrameKind.OUTCOME) in cluster.requests)
    await asyncio.sleep(0)
    del attempt
    gc.collect()
    assert caplog.records == []


async def test_an_attempt_that_was_aborted_refuses_what_comes(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    mine, other = await begin(sink), await begin(sink)
    await mine.stage("orders", block(b"a"))
    await mine.abort()
    with pytest.raises(StagingError, match="was aborted"):
        await mine.stage("orders", block(b"b"))
    assert (await client.describe_sink("lake")).attempts == 1
    await sink.abort(0)
    await other.stage("orders", block(b"c"))
    with pytest.raises(StagingError, match="does not exist"):
        await other.seal()


async def test_a_sealed_attempt_accepts_no_more_records_and_may_be_sealed_again(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    await attempt.stage("orders", block(b"a"))
    sealed = await attempt.seal()
    with pytest.raises(StagingError, match="is sealed"):
        await attempt.stage("orders", block(b"b"))
    with pytest.raises(StagingError, match="is sealed"):
        await attempt.stage_records("orders", [b"b"])
    assert await attempt.seal() == sealed


async def test_of_two_runs_the_later_one_counts(cluster: Cluster) -> None:
    client, old = await ready(cluster)
    attempt = await begin(old)
    await attempt.stage("orders", block(b"old"))
    sealed = await attempt.seal()
    unsealed = await begin(old)
    new = client.sink("lake", owner="query", run="run2")
    replaced = await begin(new)
    await unsealed.stage("orders", block(b"late"))
    with pytest.raises(StagingError):
        await unsealed.seal()
    with pytest.raises(FencedError, match="superseded by 'run2'"):
        await old.commit(0, [sealed])
    with pytest.raises(FencedError, match="superseded by 'run2'"):
        await old.begin(0)
    await old.abort(0)
    await replaced.stage("orders", block(b"new"))
    assert (await new.commit(0, [await replaced.seal()])).ranges == [("orders", 2, 1)]


async def test_another_owner_is_refused_unless_it_takes_the_sink_over(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    await begin(sink)
    with pytest.raises(FencedError, match="belongs to 'query'"):
        await client.sink("lake", owner="other").begin(0)
    await begin(client.sink("lake", owner="other", reset=True))
    with pytest.raises(FencedError):
        await sink.begin(0)


async def test_blocks_that_no_reader_could_read_are_refused_before_they_are_sent(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    good = block(b"ab", b"c")
    wrong = {
        "offsets": good._replace(values=Column(good.values.offsets[:-4], good.values.data)),
        "from 04000000 to": good._replace(values=Column(bytes([4, *good.values.offsets[1:]]), good.values.data)),
        "4 of data": good._replace(values=Column(good.values.offsets, b"abcd")),
        "validity": good._replace(keys=good.values),
        "the validity bitmap of 2 keys has 0 bytes": good._replace(keys=good.values, validity=b""),
    }
    for message, columns in wrong.items():
        attempt = await begin(sink)
        with pytest.raises(RequestError, match=message):
            await attempt.stage("orders", columns)
        with pytest.raises(StagingError, match="has ended"):
            await attempt.seal()
    assert cluster.arrived == []


async def test_records_and_blocks_over_the_limits_are_refused_before_they_are_sent(cluster: Cluster) -> None:
    cluster.limits = {"record_bytes_max": 1000, "batch_bytes_max": 4000}
    _, sink = await ready(cluster)
    with pytest.raises(RecordTooLargeError, match="record 1 of a block has 1001 bytes, over the limit of 1000"):
        await (await begin(sink)).stage("orders", block(b"ab", bytes(1001), b"c"))
    with pytest.raises(RecordTooLargeError, match="record 0 of a block has 1001 bytes"):
        await (await begin(sink)).stage_records("orders", [bytes(1000)], keys=[b"k"])
    with pytest.raises(RecordTooLargeError, match="over the limit of 4000"):
        await (await begin(sink)).stage("orders", block(*[bytes(1000)] * 4))
    attempt = await begin(sink)
    await attempt.stage("orders", block(*[bytes(1000)] * 3))
    await attempt.stage_records("orders", [bytes(1000)] * 4)
    assert (await attempt.seal()).records == 7


async def test_an_unknown_topic_is_raised_by_the_next_call(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    await attempt.stage("nowhere", block(b"a"))
    await attempt.stage("orders", block(b"b"))
    with pytest.raises(UnknownTopicError, match="nowhere"):
        await attempt.seal()
    with pytest.raises(UnknownTopicError):
        await (await begin(sink)).stage("a\0b", block(b"a"))


async def test_wrong_arguments_are_refused_without_a_request(cluster: Cluster) -> None:
    client, sink = await ready(cluster)
    attempt = await begin(sink)
    asked = len(cluster.requests)
    with pytest.raises(RequestError, match="keep_seconds=0"):
        client.sink("lake", keep_seconds=0)
    with pytest.raises(RequestError, match="must be text"):
        client.sink(7)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="number of a batch"):
        await sink.begin(-1)
    with pytest.raises(RequestError, match="number of a batch"):
        await sink.commit(True, [])
    with pytest.raises(RequestError, match="timeout"):
        await attempt.stage("orders", block(b"a"), timeout=0)
    with pytest.raises(RequestError, match="2 keys for 1 values"):
        await Attempt.stage_records(await begin(sink), "orders", [b"a"], keys=[None, None])
    assert len(cluster.requests) == asked + 1


# Giving up.


async def test_a_block_that_was_not_sent_is_dropped_when_its_attempt_is_given_up(cluster: Cluster) -> None:
    client, sink = await ready(
        cluster, batches_in_flight=2, batches_in_flight_far=2, stage_bytes_in_flight=4 * block(b"0").size
    )
    attempt = await begin(sink)
    cluster.default = Act.HOLD
    for n in range(4):
        await attempt.stage("orders", block(b"%d" % n))
    await until(lambda: len(cluster.arrived) == 2)
    waiting = asyncio.create_task(attempt.stage("orders", block(b"4")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(StagingError, match="has ended: CancelledError"):
        await attempt.seal()
    assert client._sender.batches.held_bytes == 2 * block(b"0").size
    cluster.default = Act.OK
    cluster.release()
    await client.append("orders", b"next")
    assert staged_values(cluster) == [b"0", b"1"]
    assert client._sender.batches.held_bytes == 0


async def test_a_seal_that_is_cancelled_before_all_is_acknowledged_ends_the_attempt(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    cluster.default = Act.HOLD
    await attempt.stage("orders", block(b"a"))
    sealing = asyncio.create_task(attempt.seal())
    await until(lambda: len(cluster.arrived) == 1)
    sealing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sealing
    with pytest.raises(StagingError, match="has ended"):
        await attempt.seal()


async def test_a_seal_that_takes_too_long_ends_the_attempt(cluster: Cluster) -> None:
    _, sink = await ready(cluster)
    attempt = await begin(sink)
    cluster.default = Act.HOLD
    await attempt.stage("orders", block(b"a"))
    with pytest.raises(UnavailableError, match=r"misses the receipts of 1 blocks after 0\.05 s"):
        await attempt.seal(timeout=0.05)
    with pytest.raises(StagingError, match="has ended"):
        await attempt.seal()


async def test_closing_fails_pending_stagings(cluster: Cluster) -> None:
    client, sink = await ready(cluster, stage_bytes_in_flight=100)
    attempt = await begin(sink)
    cluster.default = Act.HOLD
    await attempt.stage("orders", block(b"a"))
    waiting = asyncio.create_task(attempt.stage("orders", block(b"b")))
    await until(lambda: len(cluster.arrived) == 1)
    await client.close()
    with pytest.raises(UnavailableError, match="closed"):
        await waiting
