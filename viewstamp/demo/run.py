"""``viewstamp demo``: appends records while leaders are killed, and proves that none is lost.

A file of lines goes into a new cluster, one record a line. At half of the lines the leader is killed with SIGKILL (with
five nodes a minority at once, the leader among it) and restarted; at three quarters the next leader. For the proof,
other processes read the records from each node, and from each node's files when all are stopped, and compare them with
the input, line by line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from viewstamp.consensus.standing import majority

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import Receipt
    from viewstamp.demo.result import DemoResult, Kill
    from viewstamp.demo.source import Source
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.terminal.bulk import Appended
    from viewstamp.terminal.show import Show

__all__ = ["APPEND_SECONDS", "WAIT_SECONDS", "WATCH_SECONDS", "Demo", "disk_bytes", "start_reader"]

KILLS: Final = (1 / 2, 3 / 4)
WAIT_SECONDS: Final = 60.0
APPEND_SECONDS: Final = 120.0
WATCH_SECONDS: Final = 0.2


class Demo:
    """One run, from the first process to the last reader. It ends all its processes."""

    def __init__(
        self, directory: str, nodes: int, source: Source, show: Show, settings: Mapping[str, str] | None = None
    ) -> None:
        """Prepare; ``settings`` are those of the nodes, as for :meth:`LocalCluster.open_or_create`."""
        from viewstamp.demo.result import DemoResult
        from viewstamp.local.cluster import LocalCluster
        from viewstamp.terminal.bulk import Appended

        self._source = source
        self._show = show
        self._cluster: LocalCluster = LocalCluster.open_or_create(directory, nodes, settings)
        self._result: DemoResult = DemoResult(source=source, nodes=nodes)
        self._kills: Sequence[float] = KILLS
        """At which shares of the lines the leader is killed."""
        self._appended: Appended = Appended()
        self._sent = 0
        self._last_index = 0
        self._terms_led: dict[int, str] = {}
        self._fallen: asyncio.Task[None] | None = None

    async def run(self) -> DemoResult:
        """Run the demo, and return its result."""
        try:
            self._show.phase(f"starting {self._result.nodes} nodes in {self._cluster.directory}")
            self._cluster.spawn_missing()
            await self._cluster.wait_running(self._cluster.nodes.values(), WAIT_SECONDS)
            async with self._cluster.target.connect() as client:
                await client.create_topic(self._source.topic)
                await self._append(client)
                self._result.retried = client.batches_retried
            await self._read_online()
            self._show.phase("stopping all nodes")
            await self._cluster.stop(WAIT_SECONDS)
            await self._read_offline()
            self._measure_disk()
        finally:
            await self._end()
        return self._result

    async def _end(self) -> None:
        """End all processes."""
        self._show.close()
        if self._fallen is not None:
            self._fallen.cancel()
            await asyncio.gather(self._fallen, return_exceptions=True)
        for node in self._cluster.nodes.values():
            await node.kill()

    # Appending while nodes are killed.

    async def _append(self, client: Client) -> None:
        from viewstamp.terminal.bulk import Appended, append_chunks

        self._appended = Appended(on_receipts=self._on_receipts)
        watcher = asyncio.create_task(self._watch())
        started = time.monotonic()
        try:
            await append_chunks(
                client, self._source.topic, self._chunks(client), self._appended, timeout=APPEND_SECONDS
            )
        finally:
            watcher.cancel()
        self._result.seconds = time.monotonic() - started
        self._result.acknowledged = self._appended.acknowledged
        if self._appended.error is not None:
            raise self._appended.error
        if self._fallen is not None:
            await self._fallen
        for node in self._cluster.nodes.values():
            self._cluster.spawn(node)
        self._show.phase("waiting until every node has all records")
        await self._cluster.wait_running(self._cluster.nodes.values(), WAIT_SECONDS)
        await self._wait_applied(self._last_index)
        await self._note_leader()
        self._result.led.update(self._terms_led.values())

    def _on_receipts(self, receipts: list[Receipt]) -> None:
        """Note the end of a failover: the first receipt of a later term.

        Receipts of the killed leader may still arrive after its death, so its own term does not count.
        """
        self._last_index = receipts[-1].index
        for kill in self._result.kills:
            if kill.next_at is None and receipts[-1].term > kill.term:
                kill.next_at = time.monotonic()

    async def _chunks(self, client: Client) -> AsyncIterator[list[bytes]]:
        """Yield the lines, and wait at each kill until it is done, so that it happens under load at that line."""
        from viewstamp.terminal.lines import chunks_of, opened, read_lines

        limit = client.record_bytes_max
        stops = [int(self._source.lines * share) for share in self._kills]
        with opened(self._source.path) as descriptor:
            async for chunk in chunks_of(read_lines(descriptor, limit), lambda _: None):
                at = 0
                while at < len(chunk):
                    if stops and self._sent == stops[0]:
                        stops.pop(0)
                        await self._fall()
                        continue
                    size = min(len(chunk) - at, stops[0] - self._sent if stops else len(chunk))
                    self._sent += size
                    yield chunk[at : at + size]
                    at += size

    async def _fall(self) -> None:
        """Kill the leader and as many other nodes as leave a majority. Nodes that are down are restarted first."""
        if self._fallen is not None:
            await self._fallen
        kill = await self._kill_leader()
        self._result.kills.append(kill)
        self._fallen = asyncio.create_task(self._bring_back(kill))

    async def _kill_leader(self) -> Kill:
        from viewstamp.demo.result import Kill

        leader, term = await self._cluster.leader(WAIT_SECONDS)
        self._terms_led[term] = str(leader.id)
        nodes = [leader, *(node for node in self._cluster.nodes.values() if node is not leader)]
        doomed = nodes[: len(nodes) - majority(len(nodes))]
        moment = time.monotonic()
        for node in doomed:
            node.send_signal(signal.SIGKILL)
        for node in doomed:
            await node.wait_gone(WAIT_SECONDS)
        followers = [node.id for node in doomed if node is not leader]
        also = f" and {', '.join(followers)}" if followers else ""
        self._show.note(f"killed the leader {leader.id}{also} with SIGKILL")
        return Kill([str(node.id) for node in doomed], term, moment)

    async def _bring_back(self, kill: Kill) -> None:
        """Restart the killed nodes, once the cluster has acknowledged an append without them."""
        deadline = time.monotonic() + WAIT_SECONDS
        while kill.next_at is None and time.monotonic() < deadline:
            if self._appended.acknowledged == self._sent or self._appended.error is not None:
                break  # No append is in flight that could be acknowledged.
            await asyncio.sleep(0.02)
        nodes = [self._cluster.nodes[name] for name in self._cluster.nodes if name in kill.nodes]
        for node in nodes:
            self._cluster.spawn(node)
        await self._cluster.wait_running(nodes, WAIT_SECONDS)
        self._show.note(f"restarted {' and '.join(kill.nodes)}")

    async def _note_leader(self) -> tuple[str, int] | None:
        summary = await self._summary()
        if summary["leader"] is None:
            return None
        self._terms_led[summary["term"]] = summary["leader"]
        return summary["leader"], summary["term"]

    async def _summary(self) -> Mapping[str, Any]:
        from viewstamp.doctor.status import summary

        async with self._cluster.target.connect() as client:
            return summary(await client.status(), self._cluster.target.names)

    async def _watch(self) -> None:
        """Update the progress line, and note the leader of each term."""
        before, count_before = time.monotonic(), 0
        while True:
            found = await self._note_leader()
            now, count = time.monotonic(), self._appended.acknowledged
            rate = (count - count_before) / max(now - before, 1e-6)
            before, count_before = now, count
            self._show.progress(count, self._source.lines, found[0] if found else None, rate)
            await asyncio.sleep(WATCH_SECONDS)

    async def _wait_applied(self, index: int) -> None:
        def is_applied(state: Mapping[str, Any]) -> bool:
            return all(node["reachable"] and node["applied_index"] >= index for node in state["nodes"])

        await self._cluster.wait_until(is_applied, WAIT_SECONDS, f"not every node has applied index {index}")

    # Reading, in other processes than the writer.

    async def _read_online(self) -> None:
        for name in self._cluster.nodes:
            arguments = ["read", self._source.topic, "--node", name, "--dir", self._cluster.directory]
            await self._compare(f"{name}, read --node", arguments)

    async def _read_offline(self) -> None:
        for name, node in self._cluster.nodes.items():
            arguments = ["wal", "read", node.directory, self._source.topic]
            await self._compare(f"{name}, its own files", arguments)

    async def _compare(self, reader: str, arguments: Sequence[str]) -> None:
        """Run a reader and compare its output in a thread, because that takes a core for some seconds."""
        from viewstamp.demo.proof import compare, records_of

        self._show.phase(f"comparing {reader}, with the input")
        command = [sys.executable, "-m", "viewstamp", *arguments, "--output", "json"]
        process = start_reader(command)
        with process:
            try:
                self._result.readers[reader] = await asyncio.to_thread(
                    compare, self._source.path, records_of(process.stdout or []), self._result.acknowledged
                )
            finally:
                process.kill()

    def _measure_disk(self) -> None:
        from viewstamp.host.disk import RealDisk
        from viewstamp.wal.offline import inspect

        nodes = self._cluster.nodes.values()
        self._result.disk_bytes = sum(disk_bytes(node.directory) for node in nodes)
        self._result.filesystem = RealDisk().filesystem(self._cluster.directory)
        # A group is one write and one sync.
        groups = sum(entry.kind == "group" for node in nodes for entry in inspect(RealDisk(), node.directory))
        self._result.syncs = round(groups / len(nodes) / self._source.lines, 6)


def start_reader(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process whose output is read. The caller ends it."""
    # In a session of its own, so that Ctrl-C reaches only this process, which then ends the reader.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)


def disk_bytes(directory: str) -> int:
    """Return the bytes that the files of a directory take on the disk; 0 = there is none."""
    blocks = 0
    for base, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                blocks += os.stat(os.path.join(base, name)).st_blocks
    return blocks * 512
