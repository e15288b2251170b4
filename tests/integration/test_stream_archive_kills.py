"""SIGKILL at each step of the archive of a topic with streams, and of its export: nothing is lost, doubled or moved."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.test_archive_kills import nursery
from tests.processes import PATIENCE_SECONDS, eventually, running
from viewstamp.client import Client
from viewstamp.client.results import SpreadRecord
from viewstamp.client.stream_archives import StreamRunInfo
from viewstamp.config import create_cluster, node_file
from viewstamp.errors import ViewstampError
from viewstamp.local.cluster import LocalCluster

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")]

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
TOPIC = "parcels"
BATCH = 2
SIZE = 12_000
SMALL_LOG = {"wal.segment_bytes": "64KiB", "wal.reserve_bytes": "0", "snapshots.log_bytes": "64KiB"}
STEPS = [
    "stream: PREPARE_RUN applied",
    "stream: check sent",
    "stream: COMMIT_RUN proposed",
    "any: log trimmed",
    "stream: remove sent, worker finish sent",
]
MORE_STEPS = [
    "stream: PREPARE_RUN proposed",
    "stream: begin sent",
    "stream: begin answered",
    "stream: add sent",
    "stream: add answered",
    "stream: finish sent",
    "stream: finish answered",
    "stream: check answered",
    "stream: COMMIT_RUN applied",
    "any: log trim begun",
    "stream: DROP_RUN proposed, worker finish sent",
    "stream: DROP_RUN applied, worker begin sent",
    "stream: remove answered, worker add answered",
    "stream: FORGET_RUN proposed, worker check sent",
    "stream: FORGET_RUN applied, worker finish answered",
]


class Appender:
    """Appends to both streams of the topic; it knows what was acknowledged."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._number = 0
        self.by_place: dict[tuple[int, int], bytes] = {}
        """The values of acknowledged records, by stream and position in it."""
        self.by_position: dict[int, tuple[int, int]] = {}
        """Stream and position in it of the records whose positions in the topic were acknowledged."""

    async def append(self) -> None:
        """Append batches to one stream after the other, each second one with its positions, until cancelled."""
        while True:
            await asyncio.sleep(0.02)  # Not more than the test has to read.
            self._number += 1
            stream, is_ordered = 1 + self._number % 2, self._number % 4 < 2
            values = [b"%d.%d " % (self._number, at) + bytes(SIZE) for at in range(BATCH)]
            with suppress(ViewstampError):
                receipts = await self._client.append_many(
                    TOPIC, values, stream=stream, ordered=is_ordered, timeout=PATIENCE_SECONDS
                )
                for receipt, value in zip(receipts, values, strict=True):
                    self.by_place[stream, receipt.position] = value
                    if receipt.global_position is not None:
                        self.by_position[receipt.global_position] = stream, receipt.position

    def check(self, records: list[SpreadRecord]) -> None:
        """Compare the records of a read by position with what was acknowledged."""
        assert [record.position for record in records] == list(range(1, len(records) + 1))
        places = [(record.stream, record.stream_position) for record in records]
        for stream in (1, 2):
            own = [position for each, position in places if each == stream]
            assert own == list(range(1, len(own) + 1)), f"stream {stream}: each record once, in its order"
        values = {(each.stream, each.stream_position): each.value for each in records}
        assert self.by_place.items() <= values.items()
        assert self.by_position.items() <= dict(enumerate(places, 1)).items()


async def test_a_kill_at_each_step_of_the_archive_of_streams_keeps_each_record_and_its_place(tmp_path: Path) -> None:
    """One node leads two groups. Half of the runs are those of the leader's rounds, the others are asked for."""
    objects = tmp_path / "objects"
    settings = {"archive.directory": str(objects), **SMALL_LOG}
    await asyncio.to_thread(create_cluster, str(tmp_path), 1, settings)
    target = LocalCluster.open(tmp_path).target
    async with nursery(node_file(str(tmp_path), "n1")) as node, target.connect() as client:
        appender, before = Appender(client), list[SpreadRecord]()
        for number, step in enumerate(STEPS + MORE_STEPS * SOAK):
            await node.start(step)
            if not number:
                await create(client)
            if number == len(STEPS) - 1:
                before = await read(client)
            calls = [appender.append(), archive(client, by_rounds=number % 2 == 0)]
            tasks = [asyncio.create_task(call) for call in calls]
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert await node.died() == "9", step
            except TimeoutError:
                runs = (await list_runs(client))[-3:]
                pytest.fail(f"the node does not come to {step!r}: {await client.status()}, {runs}")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        await node.start("")
        assert all(task.cancelled() for task in tasks)
        info = await client.describe_spread_topic(TOPIC, timeout=PATIENCE_SECONDS)
        ends = await client.archive_spread_topic(TOPIC, delay=0.0, timeout=PATIENCE_SECONDS)
        assert list(ends.values()) >= list(info.ordered_ends)
        await eventually(lambda: is_level(client, objects))
        records = await read(client)
        appender.check(records)
        assert before == records[: len(before)] != []


@pytest.mark.skipif(not SOAK, reason="half a minute: VIEWSTAMP_SOAK=1")
async def test_streams_that_are_archived_while_leaders_are_killed_are_read_from_each_node(tmp_path: Path) -> None:
    """The leader of a group, or any of three nodes, dies at any time; each second time the others archive meanwhile."""
    objects, entropy = tmp_path / "objects", random.Random(4)
    settings = {"archive.directory": str(objects), **SMALL_LOG}
    async with running(tmp_path / "cluster", settings=settings) as cluster, cluster.connect() as client:
        await create(client)
        appender = Appender(client)
        tasks = [asyncio.create_task(call) for call in (appender.append(), archive(client, by_rounds=False))]
        for kill in range(16):
            await asyncio.sleep(entropy.uniform(0.2, 1.0))
            victim = await eventually(lambda: leader_in(client, entropy)) if kill % 4 else entropy.choice(cluster.names)
            await cluster.kill(victim)
            if kill % 2:
                await asyncio.sleep(entropy.uniform(0.2, 1.0))
            await cluster.run(victim)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await client.archive_spread_topic(TOPIC, delay=0.0, timeout=PATIENCE_SECONDS)
        await eventually(lambda: is_level(client, objects))
        for node in [None, *cluster.names]:
            appender.check(await read(client, node))


async def leader_in(client: Client, entropy: random.Random) -> str:
    """Return a node that leads a group other than 0; "" = none is known."""
    hosted = [(str(node["id"]), each) for node in await client.status() for each in node.get("hosted", [])]
    leaders = [node for node, each in hosted if each["role"] == "leader"]
    return entropy.choice(leaders) if leaders else ""


async def create(client: Client) -> None:
    """Create two groups, and a topic with a stream in each, which is archived by the rounds."""
    for name in ("first", "second"):
        await client.place_group(name, timeout=PATIENCE_SECONDS)
    await eventually(lambda: is_established(client))
    await client.create_spread_topic(TOPIC, 2)
    await client.configure_spread_topic(TOPIC, archive=True, archive_delay_seconds=0.0)


async def is_established(client: Client) -> bool:
    return all(group.is_established for group in await client.list_groups())


async def archive(client: Client, *, by_rounds: bool) -> None:
    """Switch the rounds on, or off and ask for runs again and again, until cancelled."""
    while True:
        with suppress(ViewstampError):
            delay = 0.0 if by_rounds else None
            await client.configure_spread_topic(
                TOPIC, archive=by_rounds, archive_delay_seconds=delay, timeout=PATIENCE_SECONDS
            )
            if not by_rounds:
                await client.archive_spread_topic(TOPIC, delay=0.0, timeout=PATIENCE_SECONDS)
        await asyncio.sleep(0.05)


async def read(client: Client, node: str | None = None) -> list[SpreadRecord]:
    found = [record async for record in client.read(TOPIC, 1, node=node)]
    return [record for record in found if isinstance(record, SpreadRecord)]


async def list_runs(client: Client) -> list[StreamRunInfo]:
    return await client.list_stream_runs(TOPIC, timeout=PATIENCE_SECONDS)


async def is_level(client: Client, objects: Path) -> bool:
    """Return whether the store has the files of the committed runs of the groups, each whole, and nothing else."""
    runs = await list_runs(client)
    for group in sorted({run.group for run in runs}):
        await client.find_stream_orphans(group, remove=True, timeout=PATIENCE_SECONDS)
    files = await asyncio.to_thread(lambda: sorted(str(each.relative_to(objects)) for each in objects.glob("*/*")))
    cluster = files[0].partition("@")[0] if files else ""
    names = sorted(f"{cluster}@{run.group}/{run.id:020d}.parquet" for run in runs)
    if files != names or any(run.state != "committed" for run in runs):
        return False
    for run in runs:
        assert await client.check_stream_run(run.group, run.id, timeout=PATIENCE_SECONDS) == ""
    return len({run.group for run in runs}) == 2
