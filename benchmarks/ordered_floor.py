"""How long do the messages and syncs of a durable and of an ordered append take without any of viewstamp's code?

Three processes and a client exchange messages of the same sizes over the same event loop, and sync a file of zeros with
the same threads. There are no logs, terms, checksums, sessions or streams, so viewstamp takes longer. Node 0 leads a
stream, node 1 group 0. Node 1 and node 0 find commits by themselves, as members do that are sent notices
(docs/design/0021-log-streams.md).

Expected: a durable append is four messages and a sync, an ordered one four messages and two syncs. With a processor for
each process and 0.05 ms for a message, and 0.2 ms for a sync, that is 1.5 times as long. On two processors the second
commit waits for them as well as for the disk, so it is more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, cast

from benchmarks.report import print_table
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.host.event_loop import new_event_loop
from viewstamp.host.executor import ThreadExecutor

_ROOT = Path(__file__).parents[1]
_FILE_BYTES: Final = 8 * 1024 * 1024
_PAGE_BYTES: Final = 4096
_APPEND_BYTES, _ORDER_BYTES = 240, 160
_HEADER: Final = 4
"""Bytes before the content of a message: its length, its kind, and the number of its append modulo 256."""
_TURNS, _APPENDS, _UNCOUNTED = 12, 100, 5
_STREAM, _HOME = 0, 1
"""The nodes that lead the stream and group 0."""


class _Kind(IntEnum):
    DURABLE = 1
    """A client appends."""
    ORDERED = 2
    """A client appends, and waits for the order."""
    RECORD = 3
    """The leader of the stream sends the record."""
    RECORD_SYNCED = 4
    STREAM_NOTICE = 5
    """The leader of the stream has synced the record."""
    ORDER = 6
    """The leader of group 0 orders the record."""
    ORDER_SYNCED = 7
    ORDER_NOTICE = 8
    """The leader of group 0 has synced ORDER."""
    RECEIPT = 9
    POSITION = 10


class _Log:
    """A file of zeros that is overwritten by a thread, a page for each write."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.write(self._descriptor, bytes(_FILE_BYTES))
        os.fsync(self._descriptor)
        self._at = 0
        self._executor: ThreadExecutor[tuple[_Kind, int], None] = ThreadExecutor("floor", self._write, self._on_done)
        self._node: _Node

    def put(self, node: _Node, kind: _Kind, number: int) -> None:
        """Write and sync, then call ``node.synced(kind, number)``."""
        self._node = node
        self._executor.put((kind, number))

    def _write(self, items: list[tuple[_Kind, int]]) -> None:
        os.pwrite(self._descriptor, bytes(_APPEND_BYTES), self._at)
        os.fdatasync(self._descriptor)
        self._at = (self._at + _PAGE_BYTES) % _FILE_BYTES

    def _on_done(self, items: Sequence[tuple[_Kind, int]], outcome: BaseException | None) -> None:
        if outcome is not None:
            raise outcome
        for kind, number in items:
            self._node.synced(kind, number)


class _Connection(asyncio.Protocol):
    """Messages on one connection."""

    def __init__(self, owner: _Node | _Client) -> None:
        self._owner = owner
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= _HEADER:
            end = _HEADER + int.from_bytes(self._rest[:2], "little")
            if len(self._rest) < end:
                return
            kind, number, self._rest = _Kind(self._rest[2]), self._rest[3], self._rest[end:]
            self._owner.receive(kind, number, self)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.lost()

    def send(self, kind: _Kind, number: int, size: int = 0) -> None:
        """Send a message about an append, with ``size`` bytes of content."""
        self._transport.write(size.to_bytes(2, "little") + bytes([kind, number]) + bytes(size))


class _Node:
    """A node. One append is under way at a time, and ``_seen`` is what has happened in it."""

    def __init__(self, number: int, directory: Path) -> None:
        self._number = number
        self._logs = {kind: _Log(directory / f"{number}.{kind.name}") for kind in (_Kind.RECORD, _Kind.ORDER)}
        self._links: dict[int, _Connection] = {}
        self._caller: _Connection
        self._synced = 0
        """How many nodes have synced the record, as the leader of the stream knows."""
        self._append = 0
        """The number of the newest append. What is left of the one before has no effect."""
        self._seen: set[_Kind] = set()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, ports: Sequence[int]) -> None:
        """Connect to the other nodes, and work until a connection ends."""
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: _Connection(self), "127.0.0.1", ports[self._number])
        for number, port in enumerate(ports):
            while number != self._number and number not in self._links:
                try:
                    _, self._links[number] = await loop.create_connection(lambda: _Connection(self), "127.0.0.1", port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
        print("connected", flush=True)
        await self._ended

    def lost(self) -> None:
        """End, because another process has."""
        if not self._ended.done():
            self._ended.set_result(None)

    def receive(self, kind: _Kind, number: int, connection: _Connection) -> None:
        """Take a message."""
        match kind:
            case _Kind.DURABLE | _Kind.ORDERED:
                self._caller, self._synced, self._seen, self._append = connection, 0, {kind}, number
                self._replicate(_Kind.RECORD, _APPEND_BYTES)
            case _Kind.RECORD:
                self._seen, self._append = {kind}, number
                self._logs[kind].put(self, kind, number)
            case _Kind.ORDER:
                self._logs[kind].put(self, kind, number)
            case _Kind.RECORD_SYNCED if number == self._append:
                self._count()
            case _Kind.STREAM_NOTICE | _Kind.ORDER_NOTICE if number == self._append:
                self._note(kind)

    def synced(self, kind: _Kind, number: int) -> None:
        """Go on after the own sync of a record or an ORDER."""
        if kind is _Kind.RECORD and self._number != _STREAM:
            self._links[_STREAM].send(_Kind.RECORD_SYNCED, number)
        elif kind is _Kind.ORDER and self._number != _HOME:
            self._links[_HOME].send(_Kind.ORDER_SYNCED, number)
        elif kind is _Kind.ORDER:
            self._links[_STREAM].send(_Kind.ORDER_NOTICE, number)
        elif number == self._append:
            if _Kind.ORDERED in self._seen:
                self._links[_HOME].send(_Kind.STREAM_NOTICE, number)
            self._count()
        if number == self._append:
            self._note(_Kind.RECORD_SYNCED if kind is _Kind.RECORD else _Kind.ORDER_SYNCED)

    def _replicate(self, kind: _Kind, size: int) -> None:
        for link in self._links.values():
            link.send(kind, self._append, size)
        self._logs[kind].put(self, kind, self._append)

    def _count(self) -> None:
        """Answer the caller when two nodes have synced the record."""
        self._synced += 1
        if self._synced == 2:
            self._caller.send(_Kind.RECEIPT, self._append)

    def _note(self, kind: _Kind) -> None:
        """Go on if the leader and this node have synced the same."""
        self._seen.add(kind)
        if self._number == _HOME and self._seen == {_Kind.RECORD, _Kind.RECORD_SYNCED, _Kind.STREAM_NOTICE}:
            self._replicate(_Kind.ORDER, _ORDER_BYTES)
        elif self._number == _STREAM and {_Kind.ORDER_SYNCED, _Kind.ORDER_NOTICE} <= self._seen:
            self._caller.send(_Kind.POSITION, self._append)


class _Client:
    """The caller."""

    def __init__(self) -> None:
        self._wanted = _Kind.RECEIPT
        self._number = 0
        self._future: asyncio.Future[None]

    def receive(self, kind: _Kind, number: int, connection: _Connection) -> None:
        """Take an answer."""
        if kind is self._wanted and number == self._number:
            self._future.set_result(None)

    def lost(self) -> None:
        """A node has ended, as at the end of a run."""

    async def append(self, connection: _Connection, kind: _Kind) -> float:
        """Append a record, and return the seconds until it is durable, or ordered."""
        self._wanted = _Kind.RECEIPT if kind is _Kind.DURABLE else _Kind.POSITION
        self._number = (self._number + 1) % 256
        self._future = asyncio.get_running_loop().create_future()
        began = perf_counter()
        connection.send(kind, self._number, _APPEND_BYTES)
        await self._future
        return perf_counter() - began


async def _measure(port: int, pids: Sequence[int]) -> dict[_Kind, tuple[float, float]]:
    """Return the median seconds, and the seconds of processor time, of a durable and of an ordered append."""
    client = _Client()
    _, connection = await asyncio.get_running_loop().create_connection(lambda: _Connection(client), "127.0.0.1", port)
    took: dict[_Kind, list[float]] = {_Kind.DURABLE: [], _Kind.ORDERED: []}
    used = dict.fromkeys(took, 0.0)
    for _ in range(_TURNS):
        for kind, times in took.items():
            before = _processor(pids)
            times += [await client.append(connection, kind) for _ in range(_APPENDS)][_UNCOUNTED:]
            used[kind] += (_processor(pids) - before) / (_TURNS * _APPENDS)
    return {kind: (median(times), used[kind]) for kind, times in took.items()}


def _processor(pids: Sequence[int]) -> float:
    """Return the processor time of processes so far, in seconds."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


def _free_ports(count: int) -> list[int]:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in listening]
    for each in listening:
        each.close()
    return ports


def main() -> None:
    """Measure and print the figures; with arguments, be a node."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if options.node:
            number, directory, ports = options.node
            runner.run(_run_node(int(number), Path(directory), [int(port) for port in ports.split(",")]))
            return
        with own_directory(Path("viewstamp-data")) as directory:
            found = conditions(directory)
            ports = _free_ports(3)
            command = [sys.executable, "-m", "benchmarks.ordered_floor", "--node"]
            text = ",".join(map(str, ports))
            nodes = [
                subprocess.Popen([*command, str(number), str(directory), text], cwd=_ROOT, stdout=subprocess.PIPE)
                for number in range(3)
            ]
            try:
                for node in nodes:
                    assert node.stdout is not None, "it was asked for"
                    node.stdout.readline()
                results = runner.run(_measure(ports[_STREAM], [os.getpid(), *(node.pid for node in nodes)]))
            finally:
                for node in nodes:
                    node.kill()
                    node.wait()
    (durable, used), (ordered, used_ordered) = results[_Kind.DURABLE], results[_Kind.ORDERED]
    print_table(
        f"medians of one caller, and processor time of all processes; load average {found['load_average']}",
        ["", "ms", "CPU us"],
        [
            ["durable", f"{1e3 * durable:.2f}", f"{1e6 * used:.0f}"],
            ["ordered", f"{1e3 * ordered:.2f}", f"{1e6 * used_ordered:.0f}"],
            ["ratio", f"{ordered / durable:.2f}", f"{used_ordered / used:.2f}"],
        ],
    )


async def _run_node(number: int, directory: Path, ports: Sequence[int]) -> None:
    await _Node(number, directory).run(ports)


if __name__ == "__main__":
    main()
