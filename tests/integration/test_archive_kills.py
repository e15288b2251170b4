"""SIGKILL at each step of a dump, a merge and a run of archived records: nothing is lost, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.processes import PATIENCE_SECONDS, eventually
from viewstamp.client import Client, KeyRunInfo, RunInfo
from viewstamp.config import create_cluster, node_file
from viewstamp.errors import RequestError, ViewstampError
from viewstamp.local.cluster import LocalCluster
from viewstamp.wire.batch import Record

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")]

NAMES = [b"key %02d" % number for number in range(24)]
BATCH = 20

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))

RUNS = [
    "run: PREPARE_RUN applied",
    "run: add answered",
    "run: finish sent",
    "run: check answered",
    "run: COMMIT_RUN proposed",
    "run: DROP_RUN proposed, worker finish sent",
    "run: remove sent, worker add sent",
    "run: FORGET_RUN proposed, worker check sent",
]
MORE_RUNS = [
    "run: PREPARE_RUN proposed",
    "run: begin sent",
    "run: begin answered",
    "run: finish answered",
    "run: COMMIT_RUN applied",
    "run: DROP_RUN applied, worker begin sent",
    "run: remove answered, worker add answered",
    "run: FORGET_RUN applied, worker finish answered",
]
KEYS = [
    "dump: PREPARE_KEYS applied",
    "dump: add answered",
    "dump: finish sent",
    "dump: check keys answered",
    "dump: COMMIT_KEYS proposed",
    "dump: DROP_KEYS proposed, worker finish sent",
    "dump: remove sent, worker check keys sent",
    "dump: FORGET_KEYS proposed, worker dump sent",
    "merge: PREPARE_KEYS applied",
    "merge: merge step answered",
    "merge: finish merge sent",
    "merge: check keys answered",
    "merge: COMMIT_KEYS proposed",
    "merge: remove sent",
    "merge: FORGET_KEYS proposed",
]
MORE_KEYS = [
    "dump: PREPARE_KEYS proposed",
    "dump: dump sent",
    "dump: dump answered",
    "dump: finish answered",
    "dump: COMMIT_KEYS applied",
    "dump: DROP_KEYS applied, worker add sent",
    "dump: remove answered, worker add answered",
    "dump: FORGET_KEYS applied, worker finish answered",
    "merge: PREPARE_KEYS proposed",
    "merge: merge sent",
    "merge: merge answered",
    "merge: finish merge answered",
    "merge: COMMIT_KEYS applied",
    "merge: remove answered",
    "merge: FORGET_KEYS applied",
    "merge: DROP_KEYS proposed, worker merge sent",
    "merge: DROP_KEYS applied, worker merge step sent",
    "merge: FORGET_KEYS applied, worker finish merge sent",
]


class Nursery:
    """The process that runs the node of a settings file once for each step, until it has died there."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def start(self, step: str) -> None:
        """Start the node, which dies at ``step``; "" = it lives."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{step}\n".encode())
        assert await self._line() == "running"

    async def died(self) -> str:
        """Wait until the node has died; return the signal."""
        return (await self._line()).removeprefix("died ")

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()


@asynccontextmanager
async def nursery(file: str) -> AsyncIterator[Nursery]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.dying_node", file, stdin=pipe, stdout=pipe, stderr=-3
    )
    try:
        yield Nursery(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def test_a_kill_at_each_step_of_a_run_loses_no_record_and_leaves_no_file(tmp_path: Path) -> None:
    await kill_at_each(tmp_path, RUNS + MORE_RUNS * SOAK, is_keyed=False)


async def test_a_kill_at_each_step_of_a_dump_and_a_merge_loses_no_key_and_leaves_no_file(tmp_path: Path) -> None:
    await kill_at_each(tmp_path, KEYS + MORE_KEYS * SOAK, is_keyed=True)


async def kill_at_each(tmp_path: Path, steps: list[str], *, is_keyed: bool) -> None:
    """Run one node, which ends at each step in turn, and compare what it has then with what was acknowledged."""
    objects, acknowledged = tmp_path / "objects", dict[int, bytes]()
    await asyncio.to_thread(create_cluster, str(tmp_path), 1, {"archive.directory": str(objects)})
    target = LocalCluster.open(tmp_path).target
    entropy = random.Random(3)

    async def append(client: Client, batches: int) -> None:
        """Append batches with keys and deletions. Each is due for a dump, and dumps come before merges."""
        for _ in range(batches):
            keys = entropy.choices(NAMES, k=BATCH)
            values = [entropy.choice([b"", entropy.randbytes(200)]) for _ in range(BATCH)]
            with suppress(ViewstampError):
                receipts = await client.append_many("prices", values, keys=keys, timeout=PATIENCE_SECONDS)
                acknowledged.update(zip((each.position for each in receipts), values, strict=True))

    async with nursery(node_file(str(tmp_path), "n1")) as node, target.connect() as client:
        for number, step in enumerate(steps):
            await node.start(step)
            if not number:
                await client.create_topic("prices", timeout=PATIENCE_SECONDS)
                if is_keyed:
                    await client.configure_keyed("prices")
                else:
                    await client.configure_topic("prices", archive=True, archive_delay_seconds=0.0)
            appending = asyncio.create_task(append(client, 10 if step.startswith("merge") else 2))
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert await node.died() == "9", step
            except TimeoutError:
                pytest.fail(f"the node does not come to {step!r}: {await client.status()}, {await runs_of(client)}")
            finally:
                appending.cancel()
                await asyncio.wait([appending])
        await node.start("")
        await check(client, acknowledged, objects, is_keyed=is_keyed)


async def check(client: Client, acknowledged: dict[int, bytes], objects: Path, *, is_keyed: bool) -> None:
    """Compare the topic, its keys and its files with what was acknowledged."""
    try:
        await eventually(lambda: is_intact(client, objects, is_keyed=is_keyed))
    except TimeoutError:
        pytest.fail(f"the archive does not settle: {await client.status()}, {await runs_of(client)}")
    records = [record async for record in client.read("prices", 1)]
    assert [record.position for record in records] == list(range(1, len(records) + 1))
    values = {record.position: record.value for record in records}
    assert acknowledged.items() <= values.items()
    if is_keyed:
        last: dict[bytes, Record] = {record.key: record for record in records if record.key is not None}
        kept = {key: (record.position, record.value) for key, record in last.items() if record.value}
        scanned = {record.key: (record.position, record.value) async for record in client.scan("prices")}
        assert scanned == kept
        for key in NAMES:
            found = await client.get("prices", key)
            assert (found and (found.position, found.value)) == kept.get(key)


async def runs_of(client: Client) -> list[object]:
    return [*await client.list_runs(), *await client.list_key_runs()]


async def is_intact(client: Client, objects: Path, *, is_keyed: bool) -> bool:
    """Return whether the store has the files of the runs and nothing else, and each is as the catalogue says."""
    runs = await settled(client, objects, is_keyed=is_keyed)
    for run in runs:
        try:
            assert await client.check_run(run, timeout=PATIENCE_SECONDS) == ""
        except RequestError:  # A merge has replaced it since.
            return False
    return bool(runs)


async def settled(client: Client, objects: Path, *, is_keyed: bool) -> list[int]:
    """Return the runs when nothing is due and the store has their files, and nothing else; [] until then."""
    runs: list[RunInfo] | list[KeyRunInfo] = await (client.list_key_runs() if is_keyed else client.list_runs())
    await client.find_orphans(remove=True, timeout=PATIENCE_SECONDS)
    files = await asyncio.to_thread(lambda: sorted(each.name for each in objects.glob("*/*")))
    is_level = files == [f"{run.id:020d}.parquet" for run in runs]
    return [run.id for run in runs] if is_level and all(run.state == "committed" for run in runs) else []
