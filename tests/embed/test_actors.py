"""Replicated actors in a program's own nodes, given as classes or named by the settings."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import viewstamp as vs
from viewstamp.config import create_cluster, load_settings, node_file

pytestmark = pytest.mark.slow

SETTINGS = {"wal.bytes_max": 16 * 2**20, "snapshots.kept_max": 3}


class Short(vs.CommandError):
    """An item is asked for in a greater quantity than there is."""


class Inventory(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.stock: dict[str, int] = {}

    @vs.command
    def receive(self, sku: str, n: int) -> int:
        self.stock[sku] = self.stock.get(sku, 0) + n
        return self.stock[sku]

    @vs.command
    def reserve(self, sku: str, n: int) -> int:
        if self.stock.get(sku, 0) < n:
            raise Short(f"{self.stock.get(sku, 0)} left")
        self.stock[sku] -= n
        return self.stock[sku]

    @vs.query
    def available(self, sku: str) -> int:
        return self.stock.get(sku, 0)


class Other(vs.ReplicatedActor):
    @vs.query
    def name(self) -> str:
        return "given"


@pytest.mark.parametrize("thread", [True, False], ids=["in a thread", "in the caller's loop"])
async def test_commands_change_the_state_once_and_it_is_there_after_a_restart(tmp_path: Path, thread: bool) -> None:
    create_cluster(str(tmp_path), 1, {"wal.segment_bytes": "1048576"})
    file = node_file(str(tmp_path), "n1")
    async with vs.open_node(file, actors={"inventory": Inventory}, thread=thread) as node:
        inventory = node.actor("inventory", Inventory)
        assert await inventory.receive("A-17", 100) == 100
        left = await asyncio.gather(*(inventory.reserve("A-17", 1) for _ in range(90)))
        assert sorted(left) == list(range(10, 100))
        with pytest.raises(Short, match="10 left"):
            await inventory.reserve("A-17", 11)
        assert await node.actor("inventory", Inventory, key="elsewhere").available("A-17") == 0
        snapshot = await node.create_snapshot()
        assert await inventory.reserve("A-17", 1) == 9
    async with vs.open_node(file, actors={"inventory": Inventory}, thread=thread) as node:
        assert node.node_status["last_snapshot_index"] == snapshot.index
        assert await node.actor("inventory", Inventory).available("A-17") == 9


async def test_a_watcher_in_the_program_sees_commands_sent_to_another_member() -> None:
    async with vs.local_cluster(nodes=3, actors={"inventory": Inventory}, settings=SETTINGS) as cluster:
        first, second, _ = cluster.nodes.values()
        changes = first.watch("inventory")
        await first.actor("inventory", Inventory).receive("A-17", 1)  # The watcher begins with its first answer.
        watched = asyncio.create_task(anext(changes))
        while not watched.done():
            await second.actor("inventory", Inventory).receive("A-17", 1)
        change = await watched
        assert (change.actor, change.command, change.arguments, change.error) == (
            "inventory",
            "receive",
            ["A-17", 1],
            None,
        )
        await changes.aclose()
        settings = load_settings(node_file(str(cluster.directory), "n2")).settings
        assert (settings.wal.bytes_max, settings.snapshots.kept_max) == (16 * 2**20, 3)
        assert [node.node_status["log_bytes_max"] for node in cluster.nodes.values()] == [16 * 2**20] * 3


async def test_the_programs_classes_win_over_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "classes_of_a_test.py").write_text(
        "import viewstamp as vs\n"
        "class Named(vs.ReplicatedActor):\n"
        "    @vs.query\n"
        "    def name(self) -> str:\n"
        "        return 'named'\n"
    )
    settings = {"actors.one": "classes_of_a_test:Named", "actors.two": "nowhere_at_all:Named"}
    create_cluster(str(tmp_path), 1, settings | {"wal.segment_bytes": "65536"})
    file = node_file(str(tmp_path), "n1")
    async with vs.open_node(file, actors={"two": Other}) as node:
        assert await node.query("one", "name") == "named"
        assert await node.query("two", "name") == "given"
        assert [(each.name, each.class_name) for each in await node.list_actors()] == [
            ("one", "Named"),
            ("two", "Other"),
        ]
    with pytest.raises(vs.ConfigError, match="there is no module nowhere_at_all"):
        async with vs.open_node(file):
            pytest.fail("it names a class that is nowhere")


async def test_a_command_that_the_code_no_longer_has_stops_the_start_and_is_named(tmp_path: Path) -> None:
    """The failed start does no harm: with the code restored, the state is complete."""
    create_cluster(str(tmp_path), 1, {"wal.segment_bytes": "65536"})
    file = node_file(str(tmp_path), "n1")
    async with vs.open_node(file, actors={"inventory": Inventory}) as node:
        await node.actor("inventory", Inventory).receive("A-17", 7)
    with pytest.raises(vs.OutdatedCodeError, match="inventory"):
        async with vs.open_node(file, actors={"other": Other}):
            pytest.fail("a command would have been skipped")
    async with vs.open_node(file, actors={"inventory": Inventory}) as node:
        assert await node.actor("inventory", Inventory).available("A-17") == 7


async def test_the_interval_mode_is_named_in_receipts_and_status() -> None:
    settings = {"wal.durability": "interval_may_lose_acknowledged_writes", "wal.sync_interval_ms": 5}
    async with vs.local_cluster(nodes=1, settings=settings) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        receipt = await client.append("orders", b"x")
        assert receipt.durability == "interval_may_lose_acknowledged_writes"
        assert cluster.nodes["n1"].node_status["durability"] == receipt.durability


async def test_a_wrong_setting_makes_no_cluster() -> None:
    with pytest.raises(vs.ConfigError, match=r"--set wal\.durabilty=sync: there is no key durabilty in \[wal\]"):
        async with vs.local_cluster(settings={"wal.durabilty": "sync"}):
            pytest.fail("there is no such setting")


async def test_a_reader_begins_at_the_first_record_that_is_kept_unless_it_names_another(tmp_path: Path) -> None:
    """A trimmed position is an error for a reader that names it, but not for one that asks for the kept records."""
    async with vs.local_cluster(nodes=1, directory=tmp_path) as cluster:
        node = cluster.nodes["n1"]
        await node.create_topic("orders")
        await node.append_many("orders", [b"%d" % number for number in range(1, 11)])
        await node.append_many("orders", [b"%d" % number for number in range(11, 21)])
        await node.trim_topic("orders", 15)
        assert [record.value async for record in node.read("orders")] == [b"%d" % number for number in range(15, 21)]
        with pytest.raises(vs.TrimmedError) as caught:
            [record async for record in node.read("orders", 1)]
        assert caught.value.first == 15


async def test_the_files_of_a_trimmed_log_still_contain_the_names_of_its_topics(tmp_path: Path) -> None:
    """The name of a topic may be in a snapshot only; reading it needs neither the node nor its actors' classes."""
    from viewstamp.local.offline import offline_records

    settings = {"wal.segment_bytes": 65_536}
    async with vs.local_cluster(
        nodes=1, actors={"inventory": Inventory}, settings=settings, directory=tmp_path
    ) as cluster:
        node = cluster.nodes["n1"]
        inventory = node.actor("inventory", Inventory)
        await node.create_topic("early")
        for number in range(1, 41):
            await node.append("early", b"%d" % number + bytes(10_000))
            await inventory.receive("A", number)
            if number == 20:
                await node.create_snapshot()  # All kept records come after this snapshot.
        await node.trim_topic("early", 31)
        await node.create_topic("late")
        await node.append("late", b"one")
        await node.create_snapshot()
        async with asyncio.timeout(10):
            while node.node_status["first_index"] == 1:  # noqa: ASYNC110 - another thread drops the log
                await asyncio.sleep(0.01)
    data = str(tmp_path / "n1")
    kept = [record.position for record in offline_records(data, "early")]
    assert kept[-10:] == list(range(31, 41))
    assert kept[0] > 1, "the log's prefix was dropped"
    assert [record.value for record in offline_records(data, "late")] == [b"one"]
    with pytest.raises(vs.UnknownTopicError, match="early, late"):
        list(offline_records(data, "never"))
