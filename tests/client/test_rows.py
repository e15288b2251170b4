"""Rows: a client checks them by the schema of their topic before it sends one."""

from __future__ import annotations

import pytest

from tests.client.cluster import Cluster
from tests.client.test_spread_appends import keys_of, spread
from viewstamp.client.results import SpreadTopicInfo
from viewstamp.errors import RequestError, UnknownTopicError
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.row_schema import RowSchema


async def cluster_with(schema: str) -> Cluster:
    cluster = Cluster()
    await cluster.start(3)
    client = cluster.client()
    await client.create_topic("payments")
    if schema:
        assert (await client.set_schema("payments", schema)).schema == RowSchema.parse(schema).text
    return cluster


async def test_rows_are_appended_in_order_and_read_by_the_schema() -> None:
    cluster = await cluster_with("id:int64,name:string?")
    client = cluster.client()
    receipts = await client.append_rows("payments", [{"id": 7, "name": "Ada"}, {"id": 8}], keys=[b"k", None])
    assert [receipt.position for receipt in receipts] == [1, 2]
    schema = await client.get_schema("payments")
    records = [record async for record in client.read("payments")]
    assert [schema.decode(record.value) for record in records] == [{"id": 7, "name": "Ada"}, {"id": 8, "name": None}]
    assert [record.key for record in records] == [b"k", None]
    await cluster.close()


async def test_no_row_is_sent_if_one_does_not_fit() -> None:
    cluster = await cluster_with("id: int64")
    client = cluster.client()
    with pytest.raises(RequestError, match=r"row 2 of 2: field id of a row is 'x'.*nothing was appended"):
        await client.append_rows("payments", [{"id": 7}, {"id": "x"}])
    assert (await client.describe_topic("payments")).last_position == 0
    await cluster.close()


async def test_a_client_learns_that_a_schema_has_become_wider() -> None:
    cluster = await cluster_with("id: int32")
    client, other = cluster.client(), cluster.client(seed=2)
    await client.append_rows("payments", [{"id": 7}])
    await other.set_schema("payments", "id: int64, name: string?")
    await client.append_rows("payments", [{"id": 8}])
    await client.append_rows("payments", [{"id": 1 << 40, "name": "Ada"}])
    assert (await client.describe_topic("payments")).last_position == 3
    await cluster.close()


async def test_the_schema_is_asked_for_once() -> None:
    cluster = await cluster_with("id: int64")
    client = cluster.client()
    await client.append_rows("payments", [{"id": 1}])
    asked = [kind for _, kind in cluster.requests].count(FrameKind.DESCRIBE_TOPIC)
    await client.append_rows("payments", [{"id": 2}])
    assert [kind for _, kind in cluster.requests].count(FrameKind.DESCRIBE_TOPIC) == asked
    await cluster.close()


async def test_a_topic_without_a_schema_has_no_rows() -> None:
    cluster = await cluster_with("")
    client = cluster.client()
    with pytest.raises(RequestError, match="topic 'payments' has no schema") as caught:
        await client.append_rows("payments", [{"id": 7}])
    assert "viewstamp topic configure payments --schema" in caught.value.remedy
    with pytest.raises(UnknownTopicError):
        await client.set_schema("unknown", "id: int64")
    with pytest.raises(RequestError, match="the type 'long'"):
        await client.set_schema("payments", "id: long")
    await cluster.close()


async def test_rows_of_a_topic_with_streams_are_checked_by_its_one_schema() -> None:
    cluster = Cluster()
    await cluster.start(3)
    client, other = cluster.client(), cluster.client(seed=2)
    topic = await spread(cluster)
    with pytest.raises(RequestError, match="topic 'orders' has no schema"):
        await client.append_rows("orders", [{"id": 7}])
    changed = await client.set_schema("orders", "id: int32")
    assert isinstance(changed, SpreadTopicInfo)
    assert changed.schema == (await client.get_schema("orders")).text == "id: int32"
    assert [each.schema for each in await client.list_spread_topics()] == ["id: int32"]
    keys = keys_of(topic, 3, 2)
    receipts = await client.append_rows("orders", [{"id": 7}, {"id": 8}], keys=keys)
    assert [(each.stream, each.position) for each in receipts] == [(3, 1), (3, 2)]
    await other.set_schema("orders", "id: int64, name: string?")
    for row in ({"id": 9}, {"id": 1 << 40, "name": "Ada"}):  # The first one by the older schema, which fits.
        await client.append_rows("orders", [row], stream=1)
    with pytest.raises(RequestError, match=r"row 1 of 1: field id of a row is 'x'.*nothing was appended"):
        await client.append_rows("orders", [{"id": "x"}], stream=1)
    with pytest.raises(RequestError, match="of one atomic append belong to the streams 3 and 2"):
        await client.append_rows("orders", [{"id": 1}, {"id": 2}], keys=[*keys[:1], *keys_of(topic, 2, 1)])
    schema = await client.get_schema("orders")
    found = [schema.decode(record.value) async for record in client.read("orders.1")]
    assert found == [{"id": 9, "name": None}, {"id": 1 << 40, "name": "Ada"}]
    with pytest.raises(RequestError, match="field name would be gone"):
        await client.set_schema("orders", "id: int64")
    await cluster.close()
