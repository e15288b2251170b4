"""``viewstamp demo-archive``: archives records while the leader is killed, drops the logs, and reads all back.

The lines go into a new cluster, as in :class:`Demo`, and an operator archives them all the time. At half of the lines
the leader is killed with SIGKILL while it writes a file of the archive. When all records are archived and the nodes
have deleted most of their logs, other processes read the topic from each node, and compare it with the input, line by
line. The sizes of the logs and of the archive are measured all the time.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from viewstamp.demo.archive_result import ArchiveDemoResult
from viewstamp.demo.archive_sizes import Sizes
from viewstamp.demo.run import WAIT_SECONDS, Demo, disk_bytes
from viewstamp.errors import ConfigError, UnavailableError, ViewstampError

if TYPE_CHECKING:
    from viewstamp.demo.result import Kill
    from viewstamp.demo.source import Source
    from viewstamp.terminal.show import Show

__all__ = ["ArchiveDemo", "check_archive_demo"]

ARCHIVE: Final = "archive"
"""The folder of the store, in the directory of the demo."""
MEASURE_SECONDS: Final = 0.25
ARCHIVE_SECONDS: Final = 0.5
"""Pause between two requests to archive what is there."""
MOMENT_SECONDS: Final = 15.0
"""Time for which the kill waits until the leader writes a file."""
DROP_SECONDS: Final = 120.0
OTHER: Final = "other"
"""A topic that keeps one record."""
SEGMENTS: Final = 24
"""About the number of segments that the records would need."""


def check_archive_demo(picture: str, *, in_directory: bool) -> None:
    """Check the requirements now. An empty ``picture`` = none is drawn.

    Raises:
      ConfigError: a package is missing, or the picture cannot be written.
    """
    missing = [name for name in ("pyarrow", "matplotlib") if importlib.util.find_spec(name) is None]
    if "pyarrow" in missing or (missing and picture and not in_directory):
        raise ConfigError(
            f"demo-archive needs {', '.join(missing)}, not installed here",
            remedy="run `make demo-archive` in a clone, or `pip install 'viewstamp[archive,plot]'`",
        )
    folder = os.path.dirname(picture)
    if picture and not in_directory and (os.path.isdir(picture) or not os.access(folder, os.W_OK)):
        raise ConfigError(
            f"--plot {picture} cannot be written", remedy="name a file in a folder that this user may write"
        )


class ArchiveDemo(Demo):
    """One run, from the first process to the last reader. It ends all its processes."""

    def __init__(self, directory: str, nodes: int, source: Source, picture: str, show: Show) -> None:
        segment = min(max(source.bytes // SEGMENTS // 4096 * 4096, 64 * 1024), 4 * 1024 * 1024)
        self._store = os.path.join(os.path.abspath(directory), ARCHIVE)
        settings = {
            "archive.directory": self._store,
            "wal.segment_bytes": str(segment),
            "wal.reserve_bytes": "0",
            "snapshots.log_bytes": str(2 * segment),
        }
        super().__init__(directory, nodes, source, show, settings)
        self._kills = (1 / 2,)
        self._picture = picture
        self._result = self._found = ArchiveDemoResult(source=source, nodes=nodes, sizes=Sizes())

    async def run(self) -> ArchiveDemoResult:
        """Run the demo, and return its result."""
        tasks: list[asyncio.Task[None]] = []
        try:
            self._show.phase(f"starting {self._result.nodes} nodes in {self._cluster.directory}")
            self._cluster.spawn_missing()
            await self._cluster.wait_running(self._cluster.nodes.values(), WAIT_SECONDS)
            async with self._cluster.target.connect() as client:
                await client.create_topic(self._source.topic)
                tasks = [asyncio.create_task(self._measure()), asyncio.create_task(self._archive_often())]
                await self._append(client)
                self._result.retried = client.batches_retried
                self._found.sizes.note("all records are acknowledged")
                tasks.pop().cancel()
                await self._finish_archive()
                await self._drop()
            await self._read_online()
            self._show.phase("stopping all nodes")
            await self._cluster.stop(WAIT_SECONDS)
            tasks.pop().cancel()
            self._measure_disk()
            await self._draw()
        finally:
            for task in tasks:
                task.cancel()
            await self._end()
        return self._found

    # The archive.

    async def _archive_often(self) -> None:
        """Archive what is there, again and again, while records are appended."""
        async with self._cluster.target.connect() as client:
            while True:
                with suppress(ViewstampError):
                    await client.archive_topic(self._source.topic, delay=0.0, timeout=WAIT_SECONDS)
                await asyncio.sleep(ARCHIVE_SECONDS)

    async def _kill_leader(self) -> Kill:
        """Kill the leader while it writes a file, if that happens soon."""
        deadline = time.monotonic() + MOMENT_SECONDS
        written = self._being_written()
        while not written and time.monotonic() < deadline:
            await asyncio.sleep(0.002)
            written = self._being_written()
        kill = await super()._kill_leader()
        self._found.killed_while_writing = written
        self._found.sizes.note(f"{kill.nodes[0]}, the leader, is killed")
        return kill

    def _being_written(self) -> str:
        """Return the name of a file of the archive that is not complete; "" = there is none."""
        for base, _, names in os.walk(self._store):
            for name in names:
                if name.endswith(".temporary") and os.path.getsize(os.path.join(base, name)):
                    return name.removesuffix(".temporary")
        return ""

    async def _finish_archive(self) -> None:
        """Archive the rest, remove what the killed leader left, and check every file."""
        self._show.phase("archiving the rest, and checking every file")
        async with self._cluster.target.connect() as client:
            deadline = time.monotonic() + DROP_SECONDS
            while True:
                with suppress(UnavailableError):
                    end = await client.archive_topic(self._source.topic, delay=0.0, timeout=WAIT_SECONDS)
                    break
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"the records were not archived within {DROP_SECONDS:g} s", remedy="look at the nodes' logs"
                    )
            self._found.archived = end - 1
            self._found.sizes.note("all records are archived")
            await client.find_orphans(remove=True, timeout=WAIT_SECONDS)
            self._found.orphans = len(await client.find_orphans(timeout=WAIT_SECONDS))
            runs = await client.list_runs()
            self._found.runs = len(runs)
            for run in runs:
                if run.state != "committed" or await client.check_run(run.id, timeout=WAIT_SECONDS):
                    self._found.damaged_runs += 1

    async def _drop(self) -> None:
        """Wait until every node has deleted the first half of the records from its log."""
        self._show.phase("waiting until the nodes have deleted what is archived")
        deadline = time.monotonic() + DROP_SECONDS
        async with self._cluster.target.connect() as client:
            await client.create_topic(OTHER, retain_bytes=1)
            while time.monotonic() < deadline:
                for name in self._cluster.nodes:
                    with suppress(UnavailableError):
                        await client.create_snapshot(name, timeout=WAIT_SECONDS)
                nodes = (await self._summary())["nodes"]
                firsts = {str(node["id"]): int(node["first_index"]) for node in nodes if node["reachable"]}
                if len(firsts) == self._result.nodes and min(firsts.values()) > self._last_index // 2:
                    break
                # The archive delay is measured in log time, which advances with records.
                with suppress(ViewstampError):
                    await client.append(OTHER, bytes(1000))
                await asyncio.sleep(MEASURE_SECONDS)
            self._found.first_indices = firsts
            self._found.last_index = self._last_index
        self._found.sizes.note("the logs are short")

    # Sizes.

    async def _measure(self) -> None:
        """Measure the sizes all the time."""
        nodes = self._cluster.nodes.values()
        while True:
            logs = [disk_bytes(os.path.join(node.directory, "wal")) for node in nodes]
            appended = self._source.bytes * self._appended.acknowledged // max(self._source.lines, 1)
            self._found.sizes.add(appended, sum(logs) // len(logs), disk_bytes(self._store))
            await asyncio.sleep(MEASURE_SECONDS)

    async def _draw(self) -> None:
        from viewstamp.demo.archive_sizes import draw

        if self._picture and importlib.util.find_spec("matplotlib") is not None:
            self._show.phase("drawing the sizes")
            await asyncio.to_thread(draw, self._picture, self._found.sizes)
            self._found.plot = self._picture
