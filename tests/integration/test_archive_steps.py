"""A node may end at any step of archiving records and deleting them from its log: each is in the log or in a run."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node.group import CLUSTER, PATIENCE_SECONDS, Group, not_on_the_loop
from tests.node.hooked_disk import HookedDisk
from tests.processes import Processes, eventually, leader_of, running
from viewstamp.archive.run_store import RunObjects
from viewstamp.archive.store import DirectoryObjects
from viewstamp.client import Client
from viewstamp.errors import ViewstampError
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Disk
from viewstamp.ids import NodeId
from viewstamp.node.run_objects import RunStore
from viewstamp.node.snapshots import policy
from viewstamp.sim.recording import Playback, Recording
from viewstamp.streams import state
from viewstamp.wire.batch import Record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed"),
]

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
BATCH = 20
BATCHES = 12


@contextmanager
def quick() -> Iterator[None]:
    """Let archive delays end, and logs be deleted, without a wait for the next second."""
    with patched(state, _SECOND_US=1000), patched(policy, _DROP_SECONDS=0.05, _IDLE_LOOK_SECONDS=0.05):
        yield


def store_of(root: Path, disk: Disk) -> Callable[[NodeId], RunStore]:
    return lambda _: RunObjects(DirectoryObjects(disk, str(root / "store")), CLUSTER)


async def records_of(client: Client) -> list[Record]:
    return [record async for record in client.read("orders", 1)]


def first_index(group: Group) -> int:
    wal = group.nodes[NodeId("n1")].group.wal
    return int(wal.first_index) if wal is not None else 0


async def test_a_power_cut_at_any_step_of_archiving_and_dropping_the_log_loses_no_record(tmp_path: Path) -> None:
    """The cut hits the node and the store at once, and leaves what was synced and any subset of the rest."""
    live = tmp_path / "live"
    live.mkdir()
    recording = Recording(str(live))
    disk = HookedDisk(recording.disk(RealDisk()), not_on_the_loop)
    with quick():
        async with Group(live, 1, disks=lambda _: disk, run_stores=store_of(live, disk)) as group:
            await group.run()
            client = group.client()
            await client.create_topic("orders")
            await client.create_topic("filler", retain_bytes=1)
            for number in range(BATCHES):
                await client.append_many("orders", [b"%d %d" % (number, at) + bytes(1000) for at in range(BATCH)])
            before = await records_of(client)
            begin = len(recording)
            await client.archive_topic("orders", 120, delay=0.0)
            await client.archive_topic("orders", delay=0.0)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while first_index(group) < BATCH * BATCHES:
                    await client.append("filler", bytes(10_000))
                    await group.nodes[NodeId("n1")].group.create_snapshot()
            end = len(recording)
        entropy, replay, dropped = random.Random(1), Playback(recording), 0
        cuts = list(range(begin, end + 1))
        for cut in cuts if SOAK else [*sorted(entropy.sample(cuts, min(24, len(cuts)))), end]:
            replay.advance(cut)
            root = tmp_path / f"cut-{cut}"
            replay.write(entropy, str(root))
            async with Group(root, 1, run_stores=store_of(root, HookedDisk(RealDisk(), not_on_the_loop))) as group:
                await group.run()
                assert await records_of(group.client()) == before, f"cut at {cut} of {end}"
                dropped += first_index(group) > BATCH
                assert await group.client().archive_topic("orders") == len(before) + 1
            await asyncio.to_thread(shutil.rmtree, root)
        assert dropped, "in no case did a record come from the archive"


async def test_records_that_are_archived_while_processes_are_killed_are_all_read(tmp_path: Path) -> None:
    """The leader, and then other nodes, die while runs are written and logs are deleted; readers go on."""
    settings = {
        "archive.directory": str(tmp_path / "store"),
        "wal.segment_bytes": "64KiB",
        "wal.reserve_bytes": "0",
        "snapshots.log_bytes": "128KiB",
    }
    entropy = random.Random(2)
    async with running(tmp_path / "cluster", settings=settings) as cluster, cluster.connect() as client:
        await client.create_topic("orders")
        acknowledged: dict[int, bytes] = {}
        is_over = asyncio.Event()

        async def append() -> None:
            while not is_over.is_set():
                values = [b"%d %d " % (len(acknowledged), at) + bytes(2000) for at in range(BATCH)]
                with suppress(ViewstampError):
                    receipts = await client.append_many("orders", values)
                    acknowledged.update(enumerate(values, receipts[0].position))
                await asyncio.sleep(0.01)

        async def archive() -> None:
            while not is_over.is_set():
                with suppress(ViewstampError):
                    await client.archive_topic("orders", delay=0.0, timeout=5.0)
                await asyncio.sleep(0.1)

        tasks = [asyncio.create_task(append()), asyncio.create_task(archive())]
        try:
            for kill in range(4 if not SOAK else 40):
                await asyncio.sleep(entropy.uniform(0.3, 1.5))
                victim = (
                    (await eventually(lambda: leader_of(client))) if kill % 2 == 0 else entropy.choice(cluster.names)
                )
                await cluster.kill(victim)
                await cluster.run(victim)
            await eventually(lambda: is_dropped(client))
        finally:
            is_over.set()
            await asyncio.wait(tasks)
        for task in tasks:
            task.result()
        await check(cluster, client, acknowledged)


async def is_dropped(client: Client) -> bool:
    """Return whether the logs of all nodes have deleted their beginning."""
    nodes = await client.status()
    return len(nodes) == 3 and all(int(node.get("first_index", 0)) > BATCH for node in nodes)


async def check(cluster: Processes, client: Client, acknowledged: dict[int, bytes]) -> None:
    """Every acknowledged record is read from every node, and each position once."""
    runs = await client.list_runs()
    assert sum(run.state == "prepared" for run in runs) <= 1
    for node in [None, *cluster.names]:
        found = [record async for record in client.read("orders", 1, node=node)]
        assert [record.position for record in found] == list(range(1, len(found) + 1))
        values = {record.position: record.value for record in found}
        lost = [position for position, value in acknowledged.items() if values.get(position) != value]
        assert not lost, f"{node}: {len(lost)} of {len(acknowledged)}, the first at {lost[0]}"
    for run in runs:
        if run.state == "committed":
            assert await client.check_run(run.id, timeout=60.0) == ""
