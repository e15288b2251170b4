"""A node hosted from a trio program, on an asyncio loop in its own thread that ends with the context."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import viewstamp as vs
from viewstamp.config import create_cluster, node_file
from viewstamp.host.disk import RealDisk
from viewstamp.trio import EmbeddedNode, connect, open_node
from viewstamp.trio.runtime import TrioRuntime

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Check that a test leaves no thread of a node; trio keeps those of its pool for some time."""
    before = set(threading.enumerate())
    yield
    assert [each for each in set(threading.enumerate()) - before if "Trio" not in each.name] == []


class Counter(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.count = 0

    @vs.command
    def add(self, n: int) -> int:
        self.count += n
        return self.count

    @vs.query
    def value(self) -> int:
        return self.count


def cluster(directory: Path, nodes: int) -> list[str]:
    """Make the settings files of a cluster; return them."""
    return [node_file(str(directory), str(node)) for node in create_cluster(str(directory), nodes)]


def is_free(directory: Path) -> bool:
    RealDisk().lock(str(directory)).release()
    return True


def test_a_group_of_one_takes_appends_and_keeps_them(tmp_path: Path) -> None:
    (file,) = cluster(tmp_path, 1)

    async def write() -> None:
        async with open_node(file) as node:
            assert (node.id, node.failure, node.node_status["lifecycle"]) == ("n1", None, "running")
            await node.create_topic("orders")
            async with trio.open_nursery() as nursery:
                for n in range(100):
                    nursery.start_soon(node.append, "orders", str(n).encode())
            assert len([record async for record in node.read("orders")]) == 100
            async with connect(node.address) as client:
                assert (await client.append("orders", b"from outside")).position == 101

    async def read() -> None:
        async with open_node(Path(file)) as node:
            assert (await node.describe_topic("orders")).last_position == 101

    trio.run(write)
    assert is_free(tmp_path / "n1")
    trio.run(read)


def test_between_trio_and_the_node_goes_one_hand_off_for_each_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = cluster(tmp_path, 1)
    hand_offs: list[object] = []
    real = TrioRuntime.call_soon_threadsafe

    def counted(runtime: TrioRuntime, callback: object, *args: object) -> None:
        hand_offs.append(callback)
        real(runtime, callback, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(TrioRuntime, "call_soon_threadsafe", counted)

    async def main() -> None:
        async with open_node(file) as node:
            await node.create_topic("orders")
            await node.append("orders", b"x")
            hand_offs.clear()
            async with trio.open_nursery() as nursery:
                for _ in range(1000):
                    nursery.start_soon(node.append, "orders", b"x")
            assert len(hand_offs) < 100

    trio.run(main)


def test_large_records_pass_the_bridge_in_both_directions(tmp_path: Path) -> None:
    (file,) = cluster(tmp_path, 1)
    values = [bytes([n]) * 900_000 for n in range(12)]

    async def main() -> None:
        async with open_node(file) as node:
            await node.create_topic("blobs")
            for value in values:
                await node.append("blobs", value)
            assert [record.value async for record in node.read("blobs")] == values

    trio.run(main)


def test_a_program_that_blocks_trio_does_not_cost_the_group_its_leader(tmp_path: Path) -> None:
    """Three members in one program, with an actor; a second of blocking is several election timeouts."""
    files = cluster(tmp_path, 3)
    nodes: list[EmbeddedNode] = []

    async def member(file: str, end: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        async with open_node(file, actors={"counter": Counter}, timeout=20) as node:
            nodes.append(node)
            task_status.started()
            await end.wait()

    async def main() -> None:
        end = trio.Event()
        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as starting:
                for file in files:
                    starting.start_soon(nursery.start, member, file, end)
            counters = [node.actor("counter", Counter) for node in nodes]
            for counter in counters:
                await counter.add(2)
            terms: list[set[object]] = []
            while not terms or len(terms[-1]) > 1:  # A busy machine can cost the group its leader, too.
                assert len(terms) < 5, terms
                before = [node.node_status["term"] for node in nodes]
                time.sleep(1.0)  # noqa: ASYNC251 - this mistake must do no harm
                total = 7 + len(terms)
                assert await counters[0].add(1) == total
                assert [await counter.value() for counter in counters] == [total] * 3
                terms.append({*before, *(node.node_status["term"] for node in nodes)})
            end.set()

    trio.run(main)


def test_a_problem_is_raised_by_open_node_and_not_in_an_exception_group(tmp_path: Path) -> None:
    first, *_ = cluster(tmp_path, 3)

    async def enter(file: str | Path, timeout: float = 20) -> None:
        async with open_node(file, timeout=timeout):
            pytest.fail("it must not open")

    with pytest.raises(vs.ConfigError):
        trio.run(enter, tmp_path / "nowhere.toml")
    with pytest.raises(vs.NoQuorumError, match=r"no majority: n2 and n3 do not answer.*n1 is configuring after 0\.3 s"):
        trio.run(enter, first, 0.3)
    assert is_free(tmp_path / "n1")


def test_cancelled_while_it_enters_it_leaves_nothing_behind(tmp_path: Path) -> None:
    first, *_ = cluster(tmp_path, 3)

    async def main() -> None:
        for seconds in (0.0, 0.001, 0.01, 0.05, 0.3):
            with trio.move_on_after(seconds) as scope:
                async with open_node(first):
                    pytest.fail("one of three is no group")
            assert scope.cancelled_caught
            assert not (tmp_path / "n1").exists() or is_free(tmp_path / "n1")

    trio.run(main)


def test_an_error_or_a_cancellation_inside_passes_through_and_the_node_stops(tmp_path: Path) -> None:
    (file,) = cluster(tmp_path, 1)

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with open_node(file):
                _ = 1 / 0
        assert is_free(tmp_path / "n1")
        with trio.CancelScope() as scope:
            async with open_node(file) as node:
                scope.cancel()
                await node.create_topic("orders")
        assert scope.cancelled_caught
        assert is_free(tmp_path / "n1")
        with pytest.raises(vs.ClosedError):
            await node.append("orders", b"late")

    trio.run(main)


def test_appends_under_way_when_the_context_is_left_are_answered(tmp_path: Path) -> None:
    (file,) = cluster(tmp_path, 1)
    results: list[object] = []

    async def append(node: EmbeddedNode) -> None:
        try:
            results.append(await node.append("orders", b"x"))
        except (vs.UnavailableError, vs.OutcomeUnknownError) as error:
            results.append(error)

    async def main() -> int:
        async with trio.open_nursery() as nursery, open_node(file) as node:
            await node.create_topic("orders")
            for _ in range(200):
                nursery.start_soon(append, node)
            await trio.sleep(0.002)
        async with open_node(file) as node:
            return (await node.describe_topic("orders")).last_position

    last = trio.run(main)
    assert len(results) == 200
    written = sum(isinstance(result, vs.Receipt) for result in results)
    refused = sum(isinstance(result, vs.UnavailableError) for result in results)
    assert written <= last <= 200 - refused


def test_a_failure_of_the_node_is_shown_and_calls_end(tmp_path: Path) -> None:
    """For example, its files are removed: the node stops, the program gets an error and continues."""
    (file,) = cluster(tmp_path, 1)
    with open(file, "a", encoding="utf-8") as stream:
        stream.write("\n[wal]\nsegment_bytes = 1048576\n")

    async def main() -> None:
        async with open_node(file) as node:
            await node.create_topic("orders")
            (tmp_path / "n1" / "wal").rename(tmp_path / "n1" / "taken")
            with pytest.raises((vs.UnavailableError, vs.OutcomeUnknownError)):  # noqa: PT012 - any of the appends
                for _ in range(60):
                    await node.append("orders", b"." * 100_000, timeout=5.0)
            with trio.fail_after(20):
                while node.failure is None:  # noqa: ASYNC110 - the node runs on another thread
                    await trio.sleep(0.01)
            assert isinstance(node.failure, vs.StorageError)

    trio.run(main)
