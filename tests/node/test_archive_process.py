"""The archivist with the archive process: a store that hangs delays only the job that uses it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node import group
from tests.node.group import PATIENCE_SECONDS, Group, wait_for
from viewstamp.archive.location import open_store
from viewstamp.archive.run_process import RunProcess
from viewstamp.archive.run_store import RunObjects
from viewstamp.errors import RequestError, UnavailableError, ViewstampError
from viewstamp.ids import ClusterId, NodeId
from viewstamp.node import archivist

pytestmark = [pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed"), pytest.mark.slow]

N1, CLUSTER = NodeId("n1"), ClusterId("c1")


def hanging(path: Path) -> RunProcess:
    """Return a store whose list hangs, because it holds a FIFO that nobody writes into."""
    folder = path / "store" / CLUSTER
    folder.mkdir(parents=True)
    os.mkfifo(folder / f"{77:020d}.parquet")
    return RunProcess(RunObjects(open_store(str(path / "store")), CLUSTER), seconds=4 * group.PATIENCE_SECONDS)


async def ended(ask: Callable[[], Awaitable[object]]) -> object:
    """Repeat a request until its job has ended."""
    while (found := await ask()) is None:
        pass
    return found


async def test_a_stop_does_not_wait_for_a_store_that_hangs(tmp_path: Path) -> None:
    store = hanging(tmp_path)
    async with Group(tmp_path, 1, run_stores=lambda _: store) as nodes:
        await nodes.run()
        job = asyncio.create_task(nodes.client().find_orphans(timeout=PATIENCE_SECONDS))
        await wait_for(lambda: store._current is not None and store._current._busy.locked(), nodes.journal.tail)
        process = store._current
        assert process is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            await nodes.stop("n1")
        await wait_for(lambda: process.popen.poll() is not None, nodes.journal.tail)
        job.cancel()
        with suppress(asyncio.CancelledError, ViewstampError):
            await job


async def test_the_next_job_begins_when_a_store_that_hangs_has_reached_its_time_limit(tmp_path: Path) -> None:
    store = hanging(tmp_path)
    async with Group(tmp_path, 1, run_stores=lambda _: store) as nodes:
        await nodes.run()
        client = nodes.client()
        await client.create_topic("orders")
        await client.append("orders", b"one")
        node = nodes.nodes[N1].archivist
        await asyncio.to_thread(store.recognise, [])
        assert store._current is not None
        store._current._pipe.settimeout(0.1)
        with pytest.raises(UnavailableError, match="did not answer within"):
            await ended(lambda: node.find_orphans(remove=False))
        assert await client.archive_topic("orders", timeout=PATIENCE_SECONDS) == 2
        [run] = await client.list_runs()
        assert await client.check_run(run.id, timeout=PATIENCE_SECONDS) == ""


async def test_the_process_ends_when_no_job_is_left_and_the_next_job_starts_another_one(tmp_path: Path) -> None:
    store = RunProcess(RunObjects(open_store(str(tmp_path / "store")), CLUSTER))
    with patched(archivist, _IDLE_SECONDS=0.0):
        async with Group(tmp_path, 1, run_stores=lambda _: store) as nodes:
            await nodes.run()
            client = nodes.client()
            await client.create_topic("orders")
            for number in range(2):
                await client.append("orders", b"one")
                assert await client.archive_topic("orders", timeout=PATIENCE_SECONDS) == number + 2
                await wait_for(lambda: store._current is None, nodes.journal.tail)
            await wait_for(lambda: all(each.poll() is not None for each in store._ending), nodes.journal.tail)


async def test_a_process_that_cannot_load_pyarrow_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "pyarrow.py").write_text("raise ImportError('libarrow.so.1 is missing')\n")
    store = RunProcess(RunObjects(open_store(str(tmp_path / "store")), CLUSTER))
    async with Group(tmp_path, 1, run_stores=lambda _: store) as nodes:
        await nodes.run()
        client = nodes.client()
        await client.create_topic("orders")
        await client.append("orders", b"one")
        with monkeypatch.context() as broken:
            broken.syspath_prepend(str(tmp_path / "broken"))
            with pytest.raises(RequestError, match=r"n1 leads, and cannot use .*libarrow"):
                await client.archive_topic("orders", timeout=PATIENCE_SECONDS)
        assert await client.list_runs() == []
        assert await client.archive_topic("orders", timeout=PATIENCE_SECONDS) == 2
