"""The ordering of streams by real nodes: the records of all streams get global positions, and keep them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutants import patched
from tests.node.caller import call
from tests.node.group import PATIENCE_SECONDS, wait_for
from tests.node.test_stream_topics import Spreading
from viewstamp.errors import FrameError, RequestError, TrimmedError, UnknownTopicError, ViewstampError
from viewstamp.ids import GroupId, NodeId, Position, Sequence, SessionId, Stream, TopicId
from viewstamp.node import Node
from viewstamp.node.order_queries import MissingRunsQuery, OrderStatusQuery, StreamReportsQuery
from viewstamp.node.ordering import Ordering
from viewstamp.node.placement_queries import SealableQuery
from viewstamp.node.state_machine import TopicQuery
from viewstamp.streams.order import Order
from viewstamp.streams.stream_map import StreamMaps
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.ordering import GlobalRun, StreamReport, encode_order, read_reports


class Ordered(Spreading):
    """Nodes with streams that tests append to."""

    async def settle(self, group: GroupId, batch: Batch) -> Any:
        """Propose a batch to the leader of a group until it is applied, and return its result."""
        while True:
            leader = await wait_for(lambda: self.leader_of(group), self.journal.tail)
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            with suppress(ViewstampError):
                leader.groups[group].propose(Batch.decode(bytearray(batch.buffer)), answered.set_result)
                result = await asyncio.wait_for(answered, PATIENCE_SECONDS)
                if not isinstance(result, Exception):
                    return result
            await asyncio.sleep(0.01)

    async def append(self, stream: Stream, *counts: int) -> None:
        """Append batches with so many records each, in a session of their own."""
        session = SessionId((await self.settle(stream.group, build_batch([b""], kind=Kind.OPEN_SESSION)))["session"])
        for sequence, count in enumerate(counts, 1):
            values = [b"x"] * count
            batch = build_batch(values, topic=TopicId(1), session=session, sequence=Sequence(sequence))
            await self.settle(stream.group, batch)

    async def stream(self, topic: str, *, nodes: tuple[str, ...] = ()) -> Stream:
        """Create a topic with one stream in a group of its own, and return the stream when it exists."""
        group = await self.established(f"s-{topic}", nodes=nodes)
        await self.client().create_spread_topic(topic, 1, groups=[group])
        return Stream(group, f"{topic}.1")

    def ordered(self, node: Node) -> dict[Stream, tuple[int, int]]:
        """Return the ordered end of each stream, and the end of what group 0 has forgotten."""
        return {each.stream: (each.end, each.mapped) for each in node.machine.query(OrderStatusQuery())}

    async def has_order(self, ends: dict[Stream, int]) -> None:
        """Wait until each node has these ordered ends, and has forgotten all runs because the streams have them."""
        wanted = {stream: (end, end) for stream, end in ends.items()}
        await wait_for(
            lambda: all(self.ordered(node) == wanted for node in self.nodes.values()),
            lambda: f"{[self.ordered(node) for node in self.nodes.values()]}\n{self.journal.tail()}",
        )

    def mapped(self, stream: Stream) -> list[int]:
        """Return the end of the map of a stream on each node."""
        return [
            next(each.mapped for each in hosted.machine.query(StreamReportsQuery(stream.group)))
            for node in self.nodes.values()
            if (hosted := node.groups.get(stream.group)) is not None
        ]


async def test_the_records_of_all_streams_are_ordered_and_their_streams_keep_the_order(tmp_path: Path) -> None:
    async with Ordered(tmp_path) as group:
        await group.run()
        one, two = await group.stream("s1"), await group.stream("s2")
        assert all(group.ordered(node) == {} for node in group.nodes.values()), "an empty stream is not ordered"
        await asyncio.gather(group.append(one, 3, 1), group.append(two, 2))
        await group.has_order({one: 5, two: 3})
        await wait_for(lambda: group.mapped(one) == [5] * 3 and group.mapped(two) == [3] * 3, group.journal.tail)
        end = (await group.leader()).group.applied_index
        await asyncio.sleep(1)
        assert (await group.leader()).group.applied_index == end, "nothing is written while nothing is committed"


async def test_the_order_goes_on_when_leaders_and_nodes_change(tmp_path: Path) -> None:
    async with Ordered(tmp_path) as group:
        await group.run()
        one, two = await group.stream("s1"), await group.stream("s2")
        await group.append(one, 2)
        await group.has_order({one: 3})
        stopped = (await group.leader()).options.node
        await group.stop(stopped)
        await group.append(two, 1)
        await wait_for(
            lambda: all(
                group.ordered(node) == {one: (3, 3), two: (2, 2)}
                for name, node in group.nodes.items()
                if name != stopped
            ),
            group.journal.tail,
        )
        await group.run(stopped)
        await group.append(one, 1)
        await group.has_order({one: 4, two: 2})


async def test_an_order_that_was_snapshot_goes_on_after_a_restart_of_all(tmp_path: Path) -> None:
    async with Ordered(tmp_path) as group:
        await group.run()
        one = await group.stream("s1")
        await group.append(one, 2)
        await group.has_order({one: 3})
        for node in group.nodes.values():
            await node.group.create_snapshot()
            await node.groups[one.group].create_snapshot()
        for name in list(group.nodes):
            await group.stop(name)
        await group.run()
        await group.append(one, 1)
        await group.has_order({one: 4})


async def test_a_context_that_is_refused_is_logged_once_and_made_again(tmp_path: Path) -> None:
    def refuse(*_: object) -> list[GlobalRun]:
        raise RequestError("a CONTEXT that does not fit")

    async with Ordered(tmp_path) as group:
        await group.run()
        one = await group.stream("s1")
        with patched(StreamMaps, check=refuse):
            await group.append(one, 2)
            await wait_for(lambda: "a CONTEXT that does not fit" in group.journal.tail(), group.journal.tail)
        await group.has_order({one: 3})


async def test_an_order_that_is_refused_at_once_is_made_again_in_the_next_round_only(tmp_path: Path) -> None:
    """For example because the log is full. A stream that is to be sealed waits for it."""
    refused: list[Batch] = []

    def refuse(_: Order, batch: Batch, __: Any) -> bool:
        refused.append(batch)
        raise RequestError("an ORDER that does not fit")

    async with Ordered(tmp_path, 1) as group:
        await group.run()
        await group.established("s1")
        client, node = group.client(), group.nodes[NodeId("n1")]
        await client.create_spread_topic("orders", 2)
        await client.append("orders", b"x", stream=1)
        with patched(Order, check=refuse):
            await client.append("orders", b"y", stream=1)
            await client.seal_stream("orders", 1)

            def is_sealable() -> bool:
                return bool(refused and node.machine.query(SealableQuery(node.ordering._reports.values())))

            await wait_for(is_sealable, group.journal.tail)
            begun, before = node.ordering._rounds, len(refused)
            await wait_for(lambda: node.ordering._rounds > begun + 1, group.journal.tail)
            assert len(refused) - before <= 8, "it is made again and again"
        while not (await client.describe_spread_topic("orders")).closed[0].end:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # A client has no event for a stream that has ended.


def reported(stream: Stream, end: int = 9) -> list[StreamReport]:
    return [StreamReport(stream, Position(end), Position(1))]


async def test_only_a_member_of_the_group_with_its_recorded_disk_reports_for_a_stream(tmp_path: Path) -> None:
    async with Ordered(tmp_path) as group:
        await group.run()
        stream = await group.stream("s1", nodes=("n1",))
        placed = stream.group
        leader = await group.leader()
        async with call(group, leader.options.node) as caller:
            caller.send(FrameKind.REPORT_STREAMS, {"group": placed, "ends": [["s1.1", 9, 1]]})
            assert await caller.is_ended(), "a client is no member"
        for stranger in ("n3", "n4"):
            async with call(group, leader.options.node, greet=False) as caller:
                assert (await caller.hello(node=stranger, incarnation="f" * 16)).kind == FrameKind.REFUSED
        await group.append(stream, 1)
        await group.has_order({stream: 2})
        leader = await group.leader()
        leader.ordering.take(NodeId("n2"), reported(stream))
        leader.ordering.take(NodeId("n9"), reported(stream))
        leader.ordering.take(NodeId("n1"), reported(Stream(placed, "another")))
        leader.ordering.take(NodeId("n1"), reported(Stream(GroupId(placed + 1), "s1.1")))
        await group.append(stream, 1)
        await group.has_order({stream: 3})


async def test_a_late_order_and_one_of_no_stream_have_no_effect(tmp_path: Path) -> None:
    async with Ordered(tmp_path) as group:
        await group.run()
        one = await group.stream("s1")
        await group.append(one, 2)
        await group.has_order({one: 3})
        answers: list[Any] = []
        leader = await group.leader()
        leader.group.propose(encode_order(reported(one, 2)), answers.append)
        leader.group.propose(encode_order(reported(Stream(GroupId(99), "s1.1"), 2)), answers.append)
        await wait_for(lambda: len(answers) == 2, group.journal.tail)
        assert answers[0] == {"version": 1}
        assert "'s1.1' is no stream of a topic with streams in group 99" in str(answers[1])
        await group.has_order({one: 3})
        missing = MissingRunsQuery(one, Position(1), 9)
        assert leader.machine.query(missing) == [], "its stream has the run"


@pytest.mark.parametrize(
    "ends",
    [
        [["s1", 9]],
        [["s1", 9, 1, 1]],
        [["s1", "9", 1]],
        [["s1", True, 1]],
        [[7, 9, 1]],
        [["", 9, 1]],
        [["s" * 300, 9, 1]],
        [["s1", 1, 2]],
        [["s1", 2, 0]],
        [["s1", 1 << 63, 1]],
        [None],
        [["s1", 9, 1, False]],
        [["s1", 9, 1, True, True]],
        [["s1", 9, 1]] * 1025,
    ],
)
def test_a_report_that_is_none_is_refused(ends: list[Any]) -> None:
    with pytest.raises(FrameError, match="a peer"):
        read_reports(GroupId(7), ends)


def first_positions(group: Ordered, stream: Stream) -> list[int]:
    """Return the first position of a stream on each node that has its group open; [] while one replays its log."""
    hosted = [node.groups.get(stream.group) for node in group.nodes.values()]
    try:
        return [each.machine.query(TopicQuery(stream.name))["first_position"] for each in hosted if each is not None]
    except UnknownTopicError:
        return []


async def test_a_topic_is_trimmed_to_a_global_position_in_each_of_its_streams(tmp_path: Path) -> None:
    async with Ordered(tmp_path) as group:
        await group.run()
        placed = [await group.established(name, nodes=nodes) for name, nodes in (("s1", ()), ("s2", ("n3",)))]
        client = group.client()
        topic = await client.create_spread_topic("orders", 2, groups=placed)
        one, two = [Stream(each, topic.topic_of(number)) for number, each in enumerate(placed, 1)]
        await group.append(one, 3)
        await group.has_order({one: 4})
        await group.append(two, 2, 3)
        await group.has_order({one: 4, two: 6})
        with pytest.raises(RequestError, match="end at global position 8, so it cannot be trimmed to 10"):
            await client.trim_spread_topic("orders", 10)
        assert (await client.trim_spread_topic("orders", 3)).first_position == 3
        await wait_for(lambda: first_positions(group, one) == [3, 3, 3], group.journal.tail)
        assert first_positions(group, two) == [1], "its records begin at 4"
        assert (await client.trim_spread_topic("orders", 2)).first_position == 3, "a lower position changes nothing"
        await group.stop("n3")
        assert (await client.trim_spread_topic("orders", 6)).first_position == 6
        await wait_for(lambda: first_positions(group, one) == [4, 4], group.journal.tail)
        await group.run("n3")
        await wait_for(lambda: first_positions(group, two) == [3], group.journal.tail)
        with pytest.raises(TrimmedError) as trimmed:
            await anext(client.read("orders", 5))
        assert trimmed.value.first == 6
        assert [record.position async for record in client.read("orders", 6)] == [6, 7, 8]
        await client.trim_spread_topic("orders", 9)
        await wait_for(lambda: first_positions(group, two) == [6], group.journal.tail)
        await group.append(one, 1)
        await group.has_order({one: 5, two: 6})
        assert first_positions(group, one) == [4, 4, 4], "the record at 9 stays"
        await group.stop("n1", "n2", "n3")
        await group.run()
        assert (await group.client(seed=2).describe_spread_topic("orders")).first_position == 9
        await group.has_order({one: 5, two: 6})


async def test_records_whose_global_position_is_not_known_in_their_group_stay(tmp_path: Path) -> None:
    """Then the stream is trimmed when a CONTEXT has brought the runs, and not to its end before."""
    async with Ordered(tmp_path, 1) as group:
        await group.run()
        stream = await group.stream("orders")
        with patched(Ordering, _propose_context=lambda self, *each: None):
            await group.append(stream, 2, 2)
            await wait_for(lambda: group.ordered(group.nodes[NodeId("n1")]) == {stream: (5, 1)}, group.journal.tail)
            await group.client().trim_spread_topic("orders", 4)
            await group.append(stream, 1)
            await wait_for(lambda: group.ordered(group.nodes[NodeId("n1")]) == {stream: (6, 1)}, group.journal.tail)
            assert first_positions(group, stream) == [1]
        await wait_for(lambda: first_positions(group, stream) == [4], group.journal.tail)
