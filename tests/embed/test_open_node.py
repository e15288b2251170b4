"""A node inside a program runs on its own loop, and leaves nothing behind when the context ends."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.processes import eventually
from viewstamp.config import create_cluster, load_settings, node_file
from viewstamp.embed.connect import connect
from viewstamp.embed.open_node import EmbeddedNode, open_node
from viewstamp.errors import (
    ClosedError,
    ConfigError,
    DirectoryInUseError,
    NoQuorumError,
    OutcomeUnknownError,
    UnavailableError,
)
from viewstamp.host.disk import RealDisk


def cluster(directory: Path, nodes: int) -> list[str]:
    """Make the settings files of a cluster; return them. Segments are small, because each start makes some."""
    ids = create_cluster(str(directory), nodes)
    files = [node_file(str(directory), str(node)) for node in ids]
    for file in files:
        with open(file, "a", encoding="utf-8") as stream:
            stream.write("\n[wal]\nsegment_bytes = 1048576\n")
    return files


async def opened(stack: AsyncExitStack, files: list[str], *, thread: bool = True) -> list[EmbeddedNode]:
    """Open nodes at the same time, because they need each other to be RUNNING."""

    async def enter(file: str) -> tuple[EmbeddedNode, AsyncExitStack]:
        own = AsyncExitStack()
        return await own.enter_async_context(open_node(file, thread=thread, timeout=20)), own

    entered = await asyncio.gather(*(enter(file) for file in files))
    for _, own in entered:
        stack.push_async_callback(own.aclose)
    return [node for node, _ in entered]


@pytest.mark.parametrize("thread", [True, False], ids=["in a thread", "in the caller's loop"])
async def test_a_group_of_one_takes_appends_and_keeps_them(tmp_path: Path, thread: bool) -> None:
    (file,) = cluster(tmp_path, 1)
    async with open_node(file, thread=thread) as node:
        assert node.node_status["lifecycle"] == "running"
        assert node.id == "n1"
        await node.create_topic("orders")
        receipts = await asyncio.gather(*(node.append("orders", str(number).encode()) for number in range(100)))
        assert [receipt.position for receipt in receipts] == list(range(1, 101))
        assert [record.value async for record in node.read("orders", 99)] == [b"98", b"99"]
        assert node.failure is None
    async with open_node(Path(file), thread=not thread) as node:
        assert (await node.describe_topic("orders")).last_position == 100


@pytest.mark.parametrize("thread", [True, False], ids=["in threads", "in the caller's loop"])
async def test_an_append_on_any_member_reaches_the_leader(tmp_path: Path, thread: bool) -> None:
    """The calls are those of a client, and work on every member: a follower forwards them to the leader."""
    async with AsyncExitStack() as stack:
        nodes = await opened(stack, cluster(tmp_path, 3), thread=thread)
        await nodes[2].create_topic("orders")
        for number in range(12):
            receipt = await nodes[number % 3].append("orders", str(number).encode())
            assert receipt.position == number + 1
        expected = [str(number).encode() for number in range(12)]
        for node in nodes:
            assert [record.value async for record in node.read("orders")] == expected

        async def has_roles() -> bool:
            return sorted(str(node.node_status["role"]) for node in nodes) == ["follower", "follower", "leader"]

        await eventually(has_roles)


async def test_a_program_that_blocks_its_loop_does_not_cost_the_group_its_leader(tmp_path: Path) -> None:
    """A second of blocking is several election timeouts, but it stops only the caller's own work.

    A busy machine can cost the group its leader, too, so one of five seconds has to pass without an election.
    """
    async with AsyncExitStack() as stack:
        nodes = await opened(stack, cluster(tmp_path, 3))
        await nodes[0].create_topic("orders")
        terms: list[set[object]] = []
        while not terms or len(terms[-1]) > 1:
            assert len(terms) < 5, terms
            before = [node.node_status["term"] for node in nodes]
            time.sleep(1.0)  # noqa: ASYNC251  # the very mistake that must do no harm
            await nodes[0].append("orders", b"x")
            terms.append({*before, *(node.node_status["term"] for node in nodes)})


async def test_an_outside_client_and_the_embedded_node_see_the_same(tmp_path: Path) -> None:
    (file,) = cluster(tmp_path, 1)
    async with open_node(file) as node, connect(node.address) as client:
        await client.create_topic("orders")
        await client.append("orders", b"from outside")
        await node.append("orders", b"from inside")
        assert [record.value async for record in client.read("orders")] == [b"from outside", b"from inside"]
        assert [status["id"] for status in await node.status()] == ["n1"]


async def test_large_records_pass_the_bridge_in_both_directions(tmp_path: Path) -> None:
    """The records exceed the unsent bytes that the bridge allows: it pushes back, and nothing hangs."""
    (file,) = cluster(tmp_path, 1)
    values = [bytes([number]) * 900_000 for number in range(12)]
    async with open_node(file) as node:
        await node.create_topic("blobs")
        await asyncio.gather(*(node.append("blobs", value) for value in values))
        assert [record.value async for record in node.read("blobs")] == values


async def test_a_lone_member_of_three_gives_up_after_its_timeout_and_names_the_missing_ones(tmp_path: Path) -> None:
    first, *_ = cluster(tmp_path, 3)
    started = asyncio.get_running_loop().time()
    with pytest.raises(NoQuorumError, match=r"n1 is configuring after 0\.3 s") as caught:
        async with open_node(first, timeout=0.3):
            pytest.fail("one of three is no group")
    assert "no majority: n2 and n3 do not answer; nothing was written" in str(caught.value)
    assert "`viewstamp doctor`" in caught.value.remedy
    assert asyncio.get_running_loop().time() - started < 10
    RealDisk().lock(str(tmp_path / "n1")).release()


@pytest.mark.parametrize("thread", [True, False], ids=["in a thread", "in the caller's loop"])
async def test_cancelled_while_it_enters_it_leaves_nothing_behind(tmp_path: Path, thread: bool) -> None:
    first, *_ = cluster(tmp_path, 3)

    async def enter() -> None:
        async with open_node(first, thread=thread, timeout=20):
            pytest.fail("one of three is no group")

    for seconds in (0.0, 0.001, 0.01, 0.05, 0.3):
        entering = asyncio.create_task(enter())
        await asyncio.sleep(seconds)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        if (tmp_path / "n1").exists():
            RealDisk().lock(str(tmp_path / "n1")).release()


async def test_cancelled_while_it_is_open_it_stops_the_node_first(tmp_path: Path) -> None:
    (file,) = cluster(tmp_path, 1)
    is_open = asyncio.Event()

    async def run() -> None:
        async with open_node(file) as node:
            await node.create_topic("orders")
            is_open.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await is_open.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    RealDisk().lock(str(tmp_path / "n1")).release()
    async with open_node(file) as node:
        assert [topic.name for topic in await node.list_topics()] == ["orders"]


async def test_a_problem_with_the_settings_or_the_directory_is_raised_by_open_node(
    tmp_path: Path,
) -> None:
    (file,) = cluster(tmp_path, 1)
    async with open_node(file):
        with pytest.raises((DirectoryInUseError, ConfigError)):
            async with open_node(file):
                pytest.fail("one directory, one node")
    with pytest.raises(ConfigError):
        async with open_node(tmp_path / "nowhere.toml"):
            pytest.fail("there is no such file")
    settings = load_settings(file).settings
    assert settings.node.id == "n1"
    async with open_node(settings) as node:
        assert node.node_status["lifecycle"] == "running"


async def test_an_error_of_the_program_inside_the_context_passes_through_and_the_node_stops(tmp_path: Path) -> None:
    (file,) = cluster(tmp_path, 1)
    with pytest.raises(ZeroDivisionError):
        async with open_node(file):
            _ = 1 / 0
    RealDisk().lock(str(tmp_path / "n1")).release()


async def test_after_the_context_the_node_answers_that_it_is_closed(tmp_path: Path) -> None:
    (file,) = cluster(tmp_path, 1)
    async with open_node(file) as node:
        await node.create_topic("orders")
    with pytest.raises(ClosedError):
        await node.append("orders", b"late")


@pytest.mark.parametrize("thread", [True, False], ids=["in a thread", "in the caller's loop"])
async def test_appends_under_way_when_the_context_is_left_are_answered(tmp_path: Path, thread: bool) -> None:
    """Each append ends with a receipt or with OutcomeUnknownError; none stays unanswered."""
    (file,) = cluster(tmp_path, 1)
    async with open_node(file, thread=thread) as node:
        await node.create_topic("orders")
        appends = [asyncio.create_task(node.append("orders", b"x")) for _ in range(200)]
        await asyncio.sleep(0.002)
    results = await asyncio.wait_for(asyncio.gather(*appends, return_exceptions=True), 10)
    unexpected = [
        result
        for result in results
        if isinstance(result, BaseException) and not isinstance(result, UnavailableError | OutcomeUnknownError)
    ]
    assert unexpected == []
    written = sum(not isinstance(result, BaseException) for result in results)
    refused = sum(isinstance(result, UnavailableError) for result in results)
    async with open_node(file) as node:
        last = (await node.describe_topic("orders")).last_position
        assert written <= last <= 200 - refused


async def test_a_failure_of_the_node_is_shown_and_calls_end(tmp_path: Path) -> None:
    """For example, its files are removed: the node stops, the program gets an error and continues."""
    (file,) = cluster(tmp_path, 1)
    async with open_node(file) as node:
        await node.create_topic("orders")
        (tmp_path / "n1" / "wal").rename(tmp_path / "n1" / "taken")
        value = b"." * 100_000
        for _ in range(60):
            try:
                await node.append("orders", value, timeout=5.0)
            except (UnavailableError, OutcomeUnknownError):
                break
        else:
            pytest.fail("the appends did not fail although the log's files are gone")

        async def has_failed() -> bool:
            return node.failure is not None

        await eventually(has_failed)
    RealDisk().lock(str(tmp_path / "n1")).release()
