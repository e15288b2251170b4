"""``viewstamp demo --streams N``: a topic over N groups, two nodes killed, and one order that all nodes agree on.

Each stream has a group of its own, on all nodes, and the leaders of the groups are spread over the nodes. A file of
lines goes into the topic. At half of the lines the leader of group 0 and the node that leads the most streams are
killed with SIGKILL (with three or four nodes only the first), and restarted when every stream has acknowledged an
append without them. For the proof, one process reads the topic from each node, in its one order, and all of them are
compared: with each other, and with the receipts of the input.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from viewstamp.consensus.standing import majority
from viewstamp.demo.run import APPEND_SECONDS, WAIT_SECONDS, WATCH_SECONDS, start_reader

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import Receipt
    from viewstamp.demo.source import Source
    from viewstamp.demo.streams_result import StreamsResult
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.local.node import LocalNode
    from viewstamp.terminal.show import Show

__all__ = ["StreamsDemo"]

CHUNKS_IN_FLIGHT: Final = 32
KILLED_MAX: Final = 2


class StreamsDemo:
    """One run, from the first process to the last reader. It ends all its processes."""

    def __init__(self, directory: str, nodes: int, streams: int, source: Source, show: Show) -> None:
        from viewstamp.demo.streams_result import StreamsResult
        from viewstamp.local.cluster import LocalCluster

        self._source = source
        self._show = show
        self._cluster: LocalCluster = LocalCluster.open_or_create(directory, nodes)
        self._result: StreamsResult = StreamsResult(source=source, nodes=nodes, streams=streams)
        self._places = [array("Q") for _ in range(streams)]
        """For each stream: the number of the line, from 1, at each of its positions; 0 = none was acknowledged."""
        self._terms: dict[int, int] = {}
        """The newest term of each stream in a receipt."""
        self._sent = 0
        self._restart: asyncio.Task[None] | None = None

    async def run(self) -> StreamsResult:
        """Run the demo, and return its result."""
        try:
            self._show.phase(f"starting {self._result.nodes} nodes in {self._cluster.directory}")
            self._cluster.spawn_missing()
            await self._cluster.wait_running(self._cluster.nodes.values(), WAIT_SECONDS)
            async with self._cluster.target.connect() as client:
                await self._create(client)
                await self._append(client)
                await self._wait_ordered(client)
            for name in self._cluster.nodes:
                await self._compare(name)
            self._show.phase("stopping all nodes")
            await self._cluster.stop(WAIT_SECONDS)
        finally:
            self._show.close()
            if self._restart is not None:
                self._restart.cancel()
                await asyncio.gather(self._restart, return_exceptions=True)
            for node in self._cluster.nodes.values():
                await node.kill()
        return self._result

    async def _create(self, client: Client) -> None:
        """Place a group for each stream, create the topic, and spread the leaders."""
        streams = self._result.streams
        self._show.phase(f"placing {streams} groups on all nodes")
        for number in range(1, streams + 1):
            await client.place_group(f"{self._source.topic}-group-{number}")
        deadline = time.monotonic() + WAIT_SECONDS
        while not all(group.is_established for group in await client.list_groups()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the groups are not established within {WAIT_SECONDS:.0f} s")
            await asyncio.sleep(0.1)
        topic = await client.create_spread_topic(self._source.topic, streams)
        for number in range(1, topic.streams + 1):
            await client.describe_stream(topic.name, number, timeout=WAIT_SECONDS)
        leaders = {each.group: each.leader for each in await client.balance_leaders(timeout=WAIT_SECONDS)}
        self._result.leaders = {
            number: leaders.get(topic.group_of(number), "") for number in range(1, topic.streams + 1)
        }

    # Appending while nodes are killed.

    async def _append(self, client: Client) -> None:
        """Append all lines. Raises the first error of an append."""
        room = asyncio.Semaphore(CHUNKS_IN_FLIGHT)
        tasks: set[asyncio.Task[None]] = set()
        failed: list[BaseException] = []

        async def append(first: int, chunk: list[bytes]) -> None:
            try:
                self._note(first, await client.append_many(self._source.topic, chunk, timeout=APPEND_SECONDS))
            except BaseException as error:
                failed.append(error)
                raise
            finally:
                room.release()

        watcher = asyncio.create_task(self._watch())
        started = time.monotonic()
        try:
            async for chunk in self._chunks(client.record_bytes_max):
                await room.acquire()
                if failed:
                    break
                task = asyncio.create_task(append(self._sent + 1, chunk))
                self._sent += len(chunk)
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            watcher.cancel()
            for task in list(tasks):
                task.cancel()
        if failed:
            raise failed[0]
        self._result.seconds = time.monotonic() - started
        if self._restart is not None:
            await self._restart

    def _note(self, first: int, receipts: list[Receipt]) -> None:
        """Note the place of each line, and the end of a failover: the first receipt of a later term in each stream."""
        for number, receipt in enumerate(receipts, first):
            places = self._places[receipt.stream - 1]
            if len(places) < receipt.position:
                places.extend([0] * (receipt.position - len(places)))
            places[receipt.position - 1] = number
        last = receipts[-1]
        self._result.acknowledged += len(receipts)
        self._terms[last.stream] = max(last.term, self._terms.get(last.stream, 0))
        kill = self._result.kill
        if kill is not None and last.term > kill.terms.get(last.stream, sys.maxsize):
            kill.resumed.setdefault(last.stream, time.monotonic())

    async def _chunks(self, limit: int) -> AsyncIterator[list[bytes]]:
        """Yield the lines; at half of them the nodes are killed, while earlier ones are still under way."""
        from viewstamp.terminal.lines import chunks_of, opened, read_lines

        half = self._source.lines // 2
        with opened(self._source.path) as descriptor:
            async for chunk in chunks_of(read_lines(descriptor, limit), lambda _: None):
                if self._result.kill is None and self._sent + len(chunk) >= half:
                    await self._kill()
                yield chunk

    async def _kill(self) -> None:
        from viewstamp.demo.streams_result import StreamsKill

        leader, _ = await self._cluster.leader(WAIT_SECONDS)
        led = Counter(self._result.leaders.values())
        others = sorted(
            (node for node in self._cluster.nodes.values() if node is not leader), key=lambda node: -led[str(node.id)]
        )
        doomed = [leader, *others][: min(KILLED_MAX, self._result.nodes - majority(self._result.nodes))]
        names = [str(node.id) for node in doomed]
        affected = {stream for stream, name in self._result.leaders.items() if name in names}
        terms = {stream: self._terms.get(stream, 0) for stream in affected}
        moment = time.monotonic()
        for node in doomed:
            node.send_signal(signal.SIGKILL)
        for node in doomed:
            await node.wait_gone(WAIT_SECONDS)
        self._result.kill = StreamsKill(names, terms, moment)
        self._show.note(
            f"killed {' and '.join(names)} with SIGKILL, with the leaders of group 0 and of {len(affected)} streams"
        )
        self._restart = asyncio.create_task(self._bring_back(doomed))

    async def _bring_back(self, nodes: list[LocalNode]) -> None:
        """Restart the killed nodes, once each stream has acknowledged an append without them."""
        kill = self._result.kill
        assert kill is not None, "nodes were killed"
        deadline = time.monotonic() + WAIT_SECONDS
        while kill.resumed.keys() != kill.terms.keys() and time.monotonic() < deadline:
            if self._result.acknowledged == self._source.lines:
                break
            await asyncio.sleep(0.02)
        for node in nodes:
            self._cluster.spawn(node)
        await self._cluster.wait_running(nodes, WAIT_SECONDS)
        self._show.note(f"restarted {' and '.join(kill.nodes)}")

    async def _watch(self) -> None:
        """Update the progress line."""
        before, count_before = time.monotonic(), 0
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now, count = time.monotonic(), self._result.acknowledged
            total, rate = self._source.lines, (count - count_before) / max(now - before, 1e-6)
            self._show.count(count, total, f"{count:>9,} of {total:,}   {rate:,.0f} records/s")
            before, count_before = now, count

    # Reading, in other processes than the writer.

    async def _wait_ordered(self, client: Client) -> None:
        """Wait until all records have a position in the topic."""
        self._show.phase("waiting until all records have a position")
        deadline = time.monotonic() + WAIT_SECONDS
        while (topic := await client.describe_spread_topic(self._source.topic)).next_position <= self._source.lines:
            if time.monotonic() > deadline:
                break  # The readers find out what is missing.
            await asyncio.sleep(0.05)
        self._result.ordered = topic.next_position - 1

    async def _compare(self, name: str) -> None:
        """Run a reader of one node and compare its output in a thread, because that takes a core for some seconds."""
        from viewstamp.demo.streams_proof import compare_order, places_of

        self._show.phase(f"comparing the order on {name} with the receipts")
        arguments = ["read", self._source.topic, "--node", name, "--dir", self._cluster.directory, "--output", "json"]
        process = start_reader([sys.executable, "-m", "viewstamp", *arguments])
        with process:
            try:
                self._result.readers[name] = await asyncio.to_thread(
                    compare_order, self._source.path, places_of(process.stdout or []), self._places
                )
            finally:
                process.kill()
