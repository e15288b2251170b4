"""Spread topics on running nodes: their requests, and the leaders of the groups that create their streams."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node.caller import call
from tests.node.group import wait_for
from tests.node.test_hosting import Placing
from viewstamp.client import SpreadTopicInfo, lost_streams
from viewstamp.client.aio import Client
from viewstamp.errors import (
    NoQuorumError,
    OutcomeUnknownError,
    RequestError,
    StreamSealedError,
    TopicExistsError,
    TrimmedError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.ids import GROUP_0, GroupId, NodeId
from viewstamp.node import placer, server
from viewstamp.node.changes import check_hosts_none, parse_change
from viewstamp.node.node import Node
from viewstamp.node.placement_queries import PlacedGroup, SpreadTopicQuery
from viewstamp.node.state_machine import TopicsQuery
from viewstamp.wire.answers import error_from
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import GROUPS_VERSION, FrameKind


class Spreading(Placing):
    """Nodes on which tests place groups and create spread topics."""

    async def established(self, *streams: str, nodes: tuple[str, ...] = ()) -> GroupId:
        """Place a group, and wait until its founders have opened it."""
        group = await self.place(*streams, nodes=nodes)
        await wait_for(lambda: self.leader_of(group) is not None, self.journal.tail)
        return group

    def streams(self, group: GroupId, node: str) -> list[str]:
        """Return the names of the topics of a group on a node."""
        hosted = self.nodes[NodeId(node)].groups.get(group)
        return [each["name"] for each in hosted.machine.query(TopicsQuery())] if hosted is not None else []

    async def have_streams(self, group: GroupId, *names: str, nodes: tuple[str, ...] = ("n1", "n2", "n3")) -> None:
        """Wait until these nodes have exactly these topics in a group."""
        await wait_for(
            lambda: all(self.streams(group, node) == list(names) for node in nodes if NodeId(node) in self.nodes),
            lambda: f"{[self.streams(group, node) for node in nodes]}\n{self.journal.tail()}",
        )

    async def has_sealed(self, topic: str, stream: int) -> None:
        """Wait until a stream is sealed in the state of group 0 of each node."""

        def is_sealed(node: Node) -> bool:
            closed = node.groups[GROUP_0].machine.query(SpreadTopicQuery(topic)).closed_stream(stream)
            return closed is not None and closed.end > 0

        await wait_for(lambda: all(map(is_sealed, self.nodes.values())), self.journal.tail)


async def test_the_leaders_of_the_groups_create_the_streams_of_a_topic(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        client = group.client()
        with pytest.raises(RequestError, match="no group is established"):
            await client.create_spread_topic("orders", 2)
        first, second = await group.established("s1"), await group.established("s2")
        topic = await client.create_spread_topic("orders", 3, retain_bytes=1 << 20, retain_seconds=60)
        assert (topic.groups, topic.streams, topic.slots) == ((first, second, first), 3, 4093)
        assert (topic.retain_bytes, topic.retain_seconds) == (1 << 20, 60.0)
        assert [topic.stream_of(slot) for slot in (0, 1363, 1364, 2727, 2728, 4092)] == [1, 1, 2, 2, 3, 3]
        assert (topic.group_of(2), topic.topic_of(2)) == (second, "orders.2")
        with pytest.raises(RequestError, match="topic 'orders' has no stream 4"):
            topic.group_of(4)
        await group.have_streams(first, "orders.1", "orders.3")
        await group.have_streams(second, "orders.2")
        settings = group.nodes[NodeId("n1")].groups[second].machine.query(TopicsQuery())[0]
        assert (settings["retain_bytes"], settings["retain_seconds"]) == (1 << 20, 60.0)
        assert await group.client(seed=2).create_spread_topic("orders", 3) == topic
        described = await client.describe_spread_topic("orders")
        assert described == replace(topic, next_position=1, ordered_ends=(1, 1, 1)), "an answer to a creation has none"
        assert [each.name for each in await client.list_spread_topics()] == ["orders"]
        assert (await client.describe_spread_topic("orders", stale=True)).groups == topic.groups
        named = await client.create_spread_topic("bills", 3, groups=[second, first])
        assert named.groups == (second, first, second)
        with pytest.raises(TopicExistsError, match="exists with the groups"):
            await client.create_spread_topic("bills", 3, groups=[first])


async def test_a_topic_of_an_earlier_release_keeps_its_number_of_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated creation finds the topic, and its keys stay in their streams, although new topics have other slots."""
    async with Spreading(tmp_path) as group:
        await group.run()
        client = group.client()
        await group.established("s1")
        await group.established("s2")
        with monkeypatch.context() as earlier:
            earlier.setattr(placer, "SLOTS", 4096)
            topic = await client.create_spread_topic("orders", 2)
        assert topic.slots == 4096
        assert await client.create_spread_topic("orders", 2) == topic
        assert (await client.create_spread_topic("bills", 2)).slots == 4093


def retentions(group: Spreading, placed: GroupId) -> list[list[int]]:
    """Return the retention of the streams of a group, on each node that has the group open."""
    hosted = [node.groups.get(placed) for node in group.nodes.values()]
    return [[each["retain_bytes"] for each in one.machine.query(TopicsQuery())] for one in hosted if one is not None]


async def test_the_leaders_of_the_groups_configure_the_streams_of_a_topic(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        client = group.client()
        first, second = await group.established("s1"), await group.established("s2", nodes=("n3",))
        topic = await client.create_spread_topic("orders", 3, retain_bytes=1 << 20)
        await group.have_streams(first, "orders.1", "orders.3")
        await group.have_streams(second, "orders.2", nodes=("n3",))
        found = await client.configure_spread_topic("orders", retain_bytes=1 << 21)
        assert (found.name, found.groups, found.retain_bytes) == ("orders", topic.groups, 1 << 21)
        assert found.configured > topic.id
        assert await client.configure_spread_topic("orders", retain_bytes=1 << 21) == found
        await wait_for(
            lambda: retentions(group, first) == [[1 << 21] * 2] * 3 and retentions(group, second) == [[1 << 21]],
            group.journal.tail,
        )
        await group.stop("n3")
        found = await client.configure_spread_topic("orders", retain_bytes=0, retain_seconds=60)
        assert (found.retain_bytes, found.retain_seconds) == (0, 60.0)
        await wait_for(lambda: retentions(group, first) == [[0] * 2] * 2, group.journal.tail)
        await group.run("n3")
        await wait_for(lambda: retentions(group, second) == [[0]], group.journal.tail)
        with pytest.raises(UnknownTopicError, match="no topic with streams is named 'none'"):
            await client.configure_spread_topic("none", retain_bytes=1)


def schemas(group: Spreading, placed: GroupId) -> list[list[str]]:
    """Return the schemas of the streams of a group, on each node that has the group open."""
    hosted = [node.groups.get(placed) for node in group.nodes.values()]
    return [[each.get("schema", "") for each in one.machine.query(TopicsQuery())] for one in hosted if one is not None]


async def test_the_leaders_of_the_groups_give_the_streams_of_a_topic_its_schema(tmp_path: Path) -> None:
    """Also a leader that starts later, and never an earlier schema."""
    async with Spreading(tmp_path) as group:
        await group.run()
        client = group.client()
        everywhere, alone = await group.established("s1"), await group.established("s2", nodes=("n3",))
        await client.create_spread_topic("orders", 3)
        await group.have_streams(everywhere, "orders.1", "orders.3")
        await client.set_schema("orders", "id: int32")
        await wait_for(
            lambda: schemas(group, everywhere) == [["id: int32"] * 2] * 3 and schemas(group, alone) == [["id: int32"]],
            group.journal.tail,
        )
        await group.stop("n3")
        wide = "id: int64, name: string?"
        await client.set_schema("orders", wide)
        await client.configure_spread_topic("orders", retain_bytes=1 << 20)
        await wait_for(lambda: schemas(group, everywhere) == [[wide] * 2] * 2, group.journal.tail)
        await wait_for(lambda: retentions(group, everywhere) == [[1 << 20] * 2] * 2, group.journal.tail)
        await group.run("n3")
        await wait_for(lambda: schemas(group, alone) == [[wide]], group.journal.tail)
        leader = group.leader_of(everywhere)
        assert leader is not None
        topic = leader.machine.query(SpreadTopicQuery("orders"))
        old = replace(topic, schema="id: int32")  # As if the leader lagged behind group 0.
        leader.machine._state.spread.topics["orders"] = old  # type: ignore[attr-defined]
        leader.stream_topics.look()
        assert not leader.stream_topics._proposed, "the streams have a wider one"
        leader.machine._state.spread.topics["orders"] = topic  # type: ignore[attr-defined]


async def test_a_leader_that_lags_behind_group_0_does_not_bring_an_earlier_retention_back(tmp_path: Path) -> None:
    """n3 leads the group without group 0, whose newest record it lacks."""
    async with Spreading(tmp_path) as group:
        await group.run()
        client = group.client("n1", "n2")
        placed = await group.established("s1")
        await client.create_spread_topic("orders", 1)
        await client.configure_spread_topic("orders", retain_bytes=1 << 20)
        await wait_for(lambda: retentions(group, placed) == [[1 << 20]] * 3, group.journal.tail)
        node = group.nodes[NodeId("n3")]
        reading = node.group.reading
        asked: list[object] = []

        async def unconfirmed(query: object, *, stale: bool) -> tuple[object, float]:
            asked.append(query)
            assert not stale, "its own state may be old"
            raise NoQuorumError("no leader has confirmed the index", remedy="try again")

        with patched(type(reading), query=lambda self, query, **more: unconfirmed(query, **more)):
            leader = group.leader_of(placed)
            assert leader is not None
            if leader is not node:
                await leader.groups[placed].transfer_leadership("n3")
            await wait_for(lambda: group.leader_of(placed) is node, group.journal.tail)
            topic = node.machine.query(SpreadTopicQuery("orders"))
            node.machine._state.spread.topics["orders"] = replace(topic, retain_bytes=1)  # type: ignore[attr-defined]
            node.stream_topics.look()
            await wait_for(lambda: asked, group.journal.tail)
            node.machine._state.spread.topics["orders"] = topic  # type: ignore[attr-defined]
        assert retentions(group, placed) == [[1 << 20]] * 3


async def test_a_client_of_an_earlier_release_sees_no_spread_topic(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        client = group.client()
        placed = await group.established("s1")
        await client.create_topic("zero")
        await client.create_spread_topic("orders", 1)
        assert [topic.name for topic in await client.list_topics()] == ["zero"]
        with pytest.raises(UnknownTopicError, match="topic 'orders' is spread over streams"):
            await client.describe_topic("orders")
        with pytest.raises(TopicExistsError, match="is spread over 1 streams"):
            await client.create_topic("orders")
        with pytest.raises(TopicExistsError, match="topic 'zero' exists, and has no streams"):
            await client.create_spread_topic("zero", 1)
        with pytest.raises(UnknownTopicError, match="no topic with streams is named 'zero'"):
            await client.describe_spread_topic("zero")
        for groups in ([99], [placed, 99]):
            with pytest.raises(RequestError, match=r"group 99 was never placed|1 streams cannot be in the groups"):
                await client.create_spread_topic("bills", 1, groups=groups)
        assert [topic.name for topic in await client.list_spread_topics()] == ["orders"]


async def test_a_client_creates_no_topic_in_another_group_than_0(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        placed = await group.established("s1")
        async with call(group, greet=False) as caller:
            await caller.hello(group=placed, version=GROUPS_VERSION)
            answer = await caller.ask(FrameKind.CREATE_TOPIC, name="orders.1", retain_bytes=0, retain_seconds=0.0)
            assert "topic 'orders.1' cannot be created in another group than 0" in answer.body["message"]
            for kind, fields in (
                (FrameKind.SPREAD_TOPIC, {"name": "orders", "streams": 1, "groups": []}),
                (FrameKind.DESCRIBE_SPREAD, {"name": "orders", "stale": False}),
                (FrameKind.LIST_SPREADS, {"stale": False}),
                (FrameKind.CONFIGURE_SCHEMA, {"name": "orders.1", "schema": "id: int64"}),
                (FrameKind.CONFIGURE_SPREAD_SCHEMA, {"name": "orders", "schema": "id: int64"}),
                (FrameKind.ADD_STREAM, {"name": "orders", "stream": 2, "group": 0}),
                (FrameKind.GONE_STREAM, {"name": "orders", "stream": 2, "behind": 1}),
                (FrameKind.SPREAD_ACTOR, {"name": "account", "groups": []}),
                (FrameKind.LIST_SPREAD_ACTORS, {"stale": False}),
            ):
                assert "belongs to another one" in (await caller.ask(kind, **fields)).body["message"]
        assert group.streams(placed, "n1") == []
        await group.client().create_spread_topic("orders", 1)
        await group.have_streams(placed, "orders.1", nodes=("n1",))


async def test_a_leader_that_starts_later_creates_the_streams(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        placed = await group.established("s1", nodes=("n3",))
        await group.stop("n3")
        client = group.client()
        with pytest.raises((UnavailableError, OutcomeUnknownError)) as caught:
            await client.create_spread_topic("orders", 1, timeout=5)
        if not isinstance(caught.value, OutcomeUnknownError):  # The timeout expires between a request and its answer.
            assert "does not answer, so its release is unknown; no topic was created" in str(caught.value)
        assert await client.list_spread_topics() == []
        await group.run("n3")
        await client.create_spread_topic("orders", 1)
        await group.have_streams(placed, "orders.1", nodes=("n3",))
        await group.stop("n3")
        await client.create_spread_topic("bills", 2)  # Without a probe, because it is not the first one.
        await group.run("n3")
        await group.have_streams(placed, "orders.1", "bills.1", "bills.2", nodes=("n3",))


async def test_the_leader_of_the_group_drops_a_removed_stream_once_its_records_are_trimmed(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        placed = await group.established("s1")
        client = group.client()
        await client.create_spread_topic("orders", 2)
        receipts = [await client.append("orders", b"x", stream=stream, ordered=True) for stream in (1, 2, 1, 2)]
        assert [each.global_position for each in receipts] == [1, 2, 3, 4]
        with pytest.raises(RequestError, match="stream 1 of topic 'orders' is open; it was not removed"):
            await client.remove_stream("orders", 1)
        await client.seal_stream("orders", 1)
        await group.has_sealed("orders", 1)
        with pytest.raises(RequestError, match="keeps 2 records, up to position 3 of the topic") as caught:
            await client.remove_stream("orders", 1)
        assert "viewstamp topic trim orders --before 4" in caught.value.remedy
        await client.trim_spread_topic("orders", 4)
        topic = await eventually_removed(client, "orders", 1)
        assert (topic.removed_streams, topic.kept_streams, topic.gone_at(1)) == ({1}, [2], 4)
        assert topic.phase_of(1) == "removed"
        await group.have_streams(placed, "orders.2")
        again = await client.remove_stream("orders", 1)
        assert again == await group.client(seed=2).remove_stream("orders", 1), "a second call finds it"
        for call_ in (
            client.describe_stream("orders", 1),
            client.find_global_position("orders", receipts[0]),
            anext(client.read("orders", stream=1)),
            client.append("orders", b"late", stream=1),
        ):
            with pytest.raises(StreamSealedError, match=r"orders.* was removed"):
                await call_
        assert [each.position async for each in client.read("orders")] == [4]
        with pytest.raises(TrimmedError) as trimmed:
            assert [each async for each in client.read("orders", 1)]
        assert trimmed.value.first == 4


async def test_a_sealed_stream_whose_group_is_lost_later_is_given_up_and_removed_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_streams, "_LOOK_SECONDS", 0.5)
    async with Spreading(tmp_path) as group:
        await group.run()
        groups = [await group.established("s1", nodes=("n3",)), await group.established("s2", nodes=("n1",))]
        client = group.client()
        await client.create_spread_topic("orders", 2, groups=groups)
        for stream in (1, 2, 1, 2):
            await client.append("orders", b"x", stream=stream, ordered=True)
        await client.seal_stream("orders", 1)
        await group.has_sealed("orders", 1)
        assert (await client.lose_stream("orders", 1)).phase_of(1) == "sealed", "its group lives, so nothing is changed"
        await group.stop("n3")
        with pytest.raises(UnavailableError, match="stream 1 of topic 'orders' was not removed, because") as caught:
            await client.remove_stream("orders", 1, timeout=0.5)
        assert "viewstamp stream seal orders 1 --lost" in caught.value.remedy
        with (
            patched(server, Kind=[Kind.CONFIGURE_SPREAD_ARCHIVE]),
            pytest.raises(RequestError, match=r"n2: runs a release that cannot read records of kind 74"),
        ):
            await client.lose_stream("orders", 1)
        topic = await client.lose_stream("orders", 1)
        assert (topic.phase_of(1), topic.lost_at(1), topic.closed_at(1)) == ("lost", 5, 3)
        assert await group.client(seed=2).lose_stream("orders", 1) == topic, "a second call finds it"
        assert (await client.append("orders", b"x", stream=2, ordered=True)).global_position == 5
        assert [each.position async for each in client.read("orders", 5)] == [5], "its readers need no lost node"
        with pytest.raises(RequestError, match="is lost, and has records from global position 1 on") as refused:
            await client.remove_stream("orders", 1)
        assert "viewstamp topic trim orders --before 5" in refused.value.remedy
        await client.trim_spread_topic("orders", 5)
        assert (await client.remove_stream("orders", 1)).removed_streams == {1}
        assert [each.position async for each in client.read("orders", 5)] == [5]
        await group.run("n3")
        await group.have_streams(groups[0], nodes=("n3",))


async def eventually_removed(client: Client, topic: str, stream: int) -> SpreadTopicInfo:
    """Remove a stream whose topic was trimmed just now: its group follows within a second or two."""
    async with asyncio.timeout(60):
        while True:
            with suppress(RequestError):
                return await client.remove_stream(topic, stream)
            await asyncio.sleep(0.1)


async def test_a_member_of_an_older_release_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with patched(server, Kind=[Kind.FORGET_RUN]):  # The highest kind in its WELCOME.
        async with Spreading(tmp_path) as group:
            await group.run()
            await group.established("s1")
            client = group.client()
            with pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 28"):
                await client.create_spread_topic("orders", 1)
            assert await client.list_spread_topics() == []
            with patched(server, Kind=[Kind.CLOSE_STREAM]):  # It reads some of the records that end a stream.
                await client.create_spread_topic("orders", 2)
                with pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 38"):
                    await client.seal_stream("orders", 1)
            assert (await client.describe_spread_topic("orders")).closed == ()
            with (
                patched(server, Kind=[Kind.LOSE_STREAM]),  # It reads schemas of topics without streams.
                pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 69"),
            ):
                await client.set_schema("orders", "id: int64")
            assert (await client.describe_spread_topic("orders")).schema == ""
            with (
                patched(server, Kind=[Kind.CONFIGURE_SPREAD_SCHEMA]),
                pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 70"),
            ):
                await client.add_stream("orders")
            assert (await client.describe_spread_topic("orders")).streams == 2
            with patched(server, Kind=[Kind.DROP_STREAM]):
                await client.add_stream("orders")
                await client.seal_stream("orders", 1)
                await group.has_sealed("orders", 1)
            with (
                patched(server, Kind=[Kind.GONE_STREAM]),
                pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 72"),
            ):
                await client.remove_stream("orders", 1)
            assert (await client.describe_spread_topic("orders")).removed_streams == set()


async def test_a_node_that_hosts_a_group_stays_a_member_of_group_0(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        placed = await group.established("s1", nodes=("n3",))
        client = group.client()
        with pytest.raises(RequestError, match=f"n3 hosts the groups {placed}, so it has to stay"):
            await client.remove_member("n3")
        with pytest.raises(RequestError, match=f"n3 hosts the groups {placed}, so it has to stay"):
            await client.add_member("n4", "127.0.0.1:9", replaces="n3")
        assert "n3" in (await client.list_members()).voters
        assert "n2" not in (await client.remove_member("n2")).voters


@pytest.mark.parametrize(
    ("change", "members", "is_refused"),
    [
        (("remove", "n1", "", ""), ("n1", "n2"), True),
        (("remove", "n1~8c21f0aa", "", ""), ("n1~8c21f0aa", "n2"), True),
        (("remove", "n1", "", ""), ("n1", "n1~8c21f0aa"), False),
        (("replace", "n1~8c21f0aa", "a:2", "n1"), ("n1", "n2"), False),
        (("replace", "n3", "a:2", "n1"), ("n1", "n2"), True),
        (("replace", "n3", "a:2", "n2"), ("n1", "n2"), False),
        (("remove", "n2", "", ""), ("n1", "n2"), False),
        (("add", "n1", "a:2", ""), ("n1", "n2"), False),
        (("learn", "n1", "a:2", ""), ("n1", "n2"), False),
    ],
)
def test_only_a_change_after_which_no_id_of_a_host_is_left_is_refused(
    change: tuple[str, str, str, str], members: tuple[str, ...], is_refused: bool
) -> None:
    placed = [PlacedGroup(GroupId(7), {NodeId("n1"): "a:1"}, ("s1",), {})]
    with pytest.raises(RequestError, match=r"n1.* hosts the groups 7") if is_refused else nullcontext():
        check_hosts_none(parse_change(*change), [NodeId(each) for each in members], placed)


async def test_a_token_without_a_right_on_a_spread_topic_does_not_see_it(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        await group.established("s1")
        client = group.client()
        await client.create_spread_topic("orders", 1)
        _, text = await client.create_token("ops", ["administer"])
        admin = group.client(seed=2, token=text)
        _, text = await admin.create_token("reader", ["read:bills"])
        reader = group.client(seed=3, token=text)
        assert await reader.list_spread_topics() == []
        assert [each.name for each in await admin.list_spread_topics()] == ["orders"]
        async with call(group, greet=False) as caller:
            await caller.hello(token=text)
            refused = await caller.ask(FrameKind.DESCRIBE_SPREAD, name="orders", stale=True)
            assert "lacks the right" in error_from(refused.body).message


async def test_a_node_that_does_not_host_a_group_is_not_named_among_those_that_do_not_answer(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        client = group.client(connect_timeout=0.3)
        placed = await group.established("s1", nodes=("n3",))
        await client.create_spread_topic("orders", 1)
        await group.have_streams(placed, "orders.1", nodes=("n3",))
        await group.stop("n3")
        said: list[str] = []
        while "no majority: n3 does not answer; nothing was written" not in said:
            assert len(said) < 10, said  # The first one may come before the client has asked each node.
            with pytest.raises(UnavailableError) as caught:
                await client.append("orders", b"one", timeout=1)
            said.append(caught.value.message)
        assert isinstance(caught.value, NoQuorumError)
