"""The bytes of every request of a client equal the recorded ones, because other releases have to read them."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import msgpack
import pytest

from tests.client.cluster import Act, Cluster, Peer
from tests.client.test_actors import Inventory
from viewstamp.client.results import Receipt
from viewstamp.client.sinks import Attempt
from viewstamp.errors import OutcomeUnknownError, UnavailableError
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.frame import Frame, FrameKind

RECORD = Path(__file__).with_name("request_bytes.txt")
"""Kind and body of each request as hexadecimal digits, with the id 7; ``RECORD=1`` writes it anew."""

PEER_KINDS = {"PROVE_DIRECTORY", "PEER", "DIGEST", "BEATS", "READ_SNAPSHOT", "READ_LOG", "JOIN", "HOSTED"} | {
    "REPORT_STREAMS",
    "LEFT_GROUP",
    "NOTE_TRANSFER",  # A client sends it only about another group than 0, which these nodes do not have.
    "BEGIN_PART",  # The same.
    "COMMIT_PARTS",
}
ANSWERS = {"WELCOME", "REFUSED", "MEMBERS", "OK", "ERROR"}


async def use_everything(cluster: Cluster) -> None:
    """Use every method of a client, with and without its options."""
    client = cluster.client()
    await client.create_topic("orders")
    await client.create_topic("bills", retain_bytes=100_000, retain_seconds=2.5)
    await client.create_topic("parcels", retain_seconds=3)
    for value in (b"a", b"b", b"c"):
        await client.append("orders", value, key=b"k")
    await client.append("orders", b"d", expected_position=4)
    await client.configure_topic("bills", retain_bytes=5)
    await client.configure_topic("bills", retain_seconds=7)
    await client.trim_topic("orders", 2)
    for options in ({}, {"stale": True}, {"max_staleness": 5}, {"max_staleness": 2.5}):
        await client.describe_topic("orders", **options)
        await client.list_topics(**options)
        await client.query("inventory", "available", "A", **options)
    assert [record.value async for record in client.read("orders", 2)] == [b"b", b"c", b"d"]
    following = client.read("orders", 3, follow=True)
    await anext(following)
    await following.aclose()
    for unanswered in (
        client.split_topic("orders", 2, 4, 1000, timeout=0.1),
        client.find_time("orders", 5, timeout=0.1),
    ):
        with suppress(UnavailableError):  # These nodes do not support it.
            await unanswered
    await client.status()
    await client.call("inventory", "put", "A", 2, key="shelf")
    for key, index in ((None, 1), ("shelf", 1)):
        watching = client.watch("inventory", key=key, index=index)
        await anext(watching)
        await watching.aclose()
    await client.list_actors()
    await client.list_actors(stale=True)
    await client.describe_actor("inventory")
    await client.create_snapshot("n1")
    await client.list_snapshots("n1")
    for sink in (
        client.sink("lake", owner="query", run="r1"),
        client.sink("pond", owner="query", run="r2", reset=True, keep_seconds=9, forget_seconds=60),
    ):
        attempt = await sink.begin(0, "part-1")
        assert isinstance(attempt, Attempt)
        await attempt.stage_records("orders", [b"x", b"y"])
        await sink.commit(0, [await attempt.seal()])
        given_up = await sink.begin(1, "part-2")
        assert isinstance(given_up, Attempt)
        await given_up.abort()
        await sink.abort(1)
    for stale in (False, True):
        await client.list_sinks(stale=stale)
        await client.describe_sink("lake", stale=stale)
    await client.forget_sink("pond")
    await client.create_token("writer", ["append:orders*"])
    await client.rotate_token("writer", keep_seconds=60)
    await client.revoke_token("writer", only_old=True)
    await client.list_audit()
    spread_over = (await client.place_group("s1", "s2")).id
    group = await client.place_group("s3", founders=["n2"])
    await client.list_groups()
    await client.cancel_group(group.id)
    await client.remove_group(group.id)
    cluster.establish(spread_over)
    await client.create_spread_topic("parts", 2, groups=[spread_over])
    for stale in (False, True):
        await client.describe_spread_topic("parts", stale=stale)
        await client.list_spread_topics(stale=stale)
    await client.spread_actor("parcels", groups=[spread_over])
    for stale in (False, True):
        await client.list_spread_actors(stale=stale)
    await client.configure_spread_topic("parts", retain_bytes=7)
    await client.configure_spread_topic("parts", retain_seconds=60.0)
    await client.configure_spread_topic("parts", archive=True, delete_after_seconds=60.0)
    await client.trim_spread_topic("parts", 1)
    await client.add_stream("parts", stream=3, group=spread_over)
    await client.seal_stream("parts", 2, into=1)
    cluster.next_position = 5
    for reading in (
        client.read("parts", 2),
        client.read("parts", 7, follow=True),
        client.read("parts"),
        client.scan("orders", b"a", b"m"),
        client.scan("orders"),
    ):
        with suppress(TimeoutError):  # These nodes do not support it.
            await asyncio.wait_for(anext(reading), 0.1)
    await client.lose_stream("parts", 2, into=1)
    await client.remove_stream("parts", 2)
    for call in (
        client.archive_topic("orders", 5),
        client.archive_topic("orders"),
        client.check_run(9),
        client.find_orphans(),
        client.find_orphans(remove=True),
        client.list_runs(),
        client.list_key_runs(),
    ):
        await call
    await client.set_schema("orders", "id: int64, name: string?")
    await client.append_rows("orders", [{"id": 7}])
    await client.set_schema("parts", "id: int64")
    await client.configure_topic("bills", archive=True, archive_after_seconds=60.0, delete_after_seconds=90.5)
    await client.configure_topic("bills", retain_bytes=0, archive=False, retain_seconds=0.0)
    await client.create_topic("crates", archive=True, archive_delay_seconds=5)
    await client.add_member("n4", "127.0.0.1:4", voter=False)
    await client.add_member("n5", "127.0.0.1:5")
    await client.remove_member("n5")
    cluster.script.append(Act.APPLY_AND_HOLD)
    with pytest.raises(OutcomeUnknownError) as caught:
        await client.append("orders", b"e", timeout=0.05)
    assert caught.value.token is not None
    await cluster.client().outcome(caught.value.token)
    await client.transfer_leadership("n2")
    await client.transfer_leadership()
    for unanswered in (
        client.configure_keyed("orders", timeout=0.1),
        client.get("orders", b"k", timeout=0.1),
        client.find_global_position("parts", Receipt(Position(3), Term(1), Index(1), 1, stream=1), timeout=0.1),
        client.describe_log("n1", timeout=0.1),
        client.describe_log("n1", stale=True, timeout=0.1),
        client.describe_log("n1", with_groups=True, timeout=0.1),
        client.copy_log("n1", 1, 9, bytes_max=1000, timeout=0.1),
        client.copy_snapshot("n1", 9, 2, offset=0, bytes_max=1000, timeout=0.1),
    ):
        with suppress(UnavailableError, OutcomeUnknownError):  # These nodes do not support it.
            await unanswered
    await client.add_group_member(spread_over, "n4")
    await client.remove_group_member(spread_over, "n4")


async def test_every_request_of_a_client_has_the_bytes_on_record() -> None:
    """The keys, their order and the omitted ones are part of the format."""
    cluster = Cluster(actors={"inventory": Inventory})
    sent: dict[str, None] = {}
    on_frame = Peer.on_frame

    def observe(peer: Peer, frame: Frame) -> None:
        body = dict(frame.body)
        if "id" in body:
            body["id"] = 7
        sent.setdefault(f"{FrameKind(frame.kind).name} {msgpack.packb(body).hex()}")
        on_frame(peer, frame)

    Peer.on_frame = observe  # type: ignore[method-assign]
    try:
        await cluster.start(2)
        await asyncio.wait_for(use_everything(cluster), 20)
    finally:
        Peer.on_frame = on_frame  # type: ignore[method-assign]
        await cluster.close()
    lines = sorted(sent)
    if "RECORD" in os.environ:
        RECORD.write_text("\n".join(lines) + "\n")
    assert lines == RECORD.read_text().split("\n")[:-1]
    kinds = {line.split()[0] for line in lines}
    assert {kind.name for kind in FrameKind} - kinds - ANSWERS == PEER_KINDS
