"""The archive of real processes: its process is killed while it writes. ``test_archive_kills.py`` kills the node."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.processes import PATIENCE_SECONDS, Processes, running
from viewstamp.client import Client
from viewstamp.errors import ViewstampError
from viewstamp.local.process import command_line

pytestmark = [pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed"), pytest.mark.slow]

BATCHES, BATCH, BYTES = 24, 100, 10_000


def archive_processes(node: int) -> list[int]:
    """Return the numbers of the archive processes that a node has started."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if f"\0{node}" in _arguments(pid)]


def _arguments(pid: int) -> str:
    found = command_line(pid)
    return "\0".join(found) if any("viewstamp.archive.worker" in each for each in found) else ""


def name_is_reserved(objects: Path) -> bool:
    return any(objects.glob("*/*.parquet"))


def is_being_written(objects: Path) -> bool:
    return any(each.stat().st_size for each in objects.glob("*/*.parquet.temporary"))


def is_written(objects: Path) -> bool:
    return any(each.stat().st_size for each in objects.glob("*/*.parquet"))


def has_process(objects: Path) -> bool:
    return any(_arguments(int(pid)) for pid in os.listdir("/proc") if pid.isdigit())


@pytest.mark.parametrize("moment", [has_process, name_is_reserved, is_being_written, is_written])
async def test_a_kill_of_the_archive_process_leaves_no_damage_and_the_archive_goes_on(
    tmp_path: Path, moment: Callable[[Path], bool]
) -> None:
    objects = tmp_path / "objects"
    settings = {"archive.directory": str(objects)}
    async with running(tmp_path / "cluster", 1, settings) as cluster, cluster.connect() as client:
        await client.create_topic("orders")
        for number in range(BATCHES):
            values = [b"%d %d " % (number, at) + os.urandom(BYTES) for at in range(BATCH)]
            await client.append_many("orders", values, timeout=PATIENCE_SECONDS)
        job = asyncio.create_task(client.archive_topic("orders", timeout=PATIENCE_SECONDS))
        await asyncio.to_thread(_wait, lambda: moment(objects) or job.done())
        node = cluster.node("n1").pid()
        assert node is not None
        children = archive_processes(node)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ViewstampError):
            await job
        await _check(cluster, client, objects)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.0005)


async def _check(cluster: Processes, client: Client, objects: Path) -> None:
    """Archive the rest, and check the files: every record once, in its place, and no file that belongs to no run."""
    from pyarrow import parquet

    total = BATCHES * BATCH
    assert await client.archive_topic("orders", timeout=2 * PATIENCE_SECONDS) == total + 1
    runs = await client.list_runs()
    assert [run.state for run in runs] == ["committed"] * len(runs)
    files = await asyncio.to_thread(lambda: sorted(objects.glob("*/*.parquet")))
    chosen = [each for each in files if int(each.stem) in {run.id for run in runs}]
    assert [int(each.stem) for each in chosen] == [run.id for run in runs]
    rows = [row for each in chosen for row in parquet.read_table(each).to_pylist()]
    found = [(row["position"], row["value"]) for row in rows]
    assert found == [(each.position, each.value) async for each in client.read("orders", 1, end=total + 1)]
    assert [await client.check_run(run.id, timeout=PATIENCE_SECONDS) for run in runs] == [""] * len(runs)
    await client.find_orphans(remove=True, timeout=PATIENCE_SECONDS)
    assert await asyncio.to_thread(lambda: sorted(objects.glob("*/*"))) == chosen
    # The process ends some seconds after its last call, and with the node at the latest.
    node = cluster.node("n1").pid()
    assert node is not None
    await cluster.stop("n1")
    await asyncio.to_thread(_wait, lambda: not archive_processes(node))
