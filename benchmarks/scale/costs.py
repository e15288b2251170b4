"""The costs that are measured on this machine: messages between two processes, and syncs of the disk.

| cost | measured |
| --- | --- |
| ``send``, ``receive`` | processor time of ``send`` and ``recv`` of a TCP socket on the loopback, 300 bytes; and for \
each byte the difference to 64 KiB |
| ``wake`` | two processes on event loops send 300 bytes to and fro. Each round trip takes each of them a wake-up, a \
``recv`` and a ``send``; the last two and the turn are subtracted |
| ``turn`` | processor time of a poll of a selector, with nothing ready |
| ``sync`` | duration and processor time of a write of 8 KiB and an fdatasync, with 1, 3 and 9 threads that do so \
at once in files of their own |

A loaded machine makes all of them longer. So measure on a quiet one, or use those that were recorded.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from viewstamp.host.event_loop import new_event_loop
from viewstamp.local.process import cpu_seconds

__all__ = ["Costs", "measure_costs"]

_MESSAGE = bytes(300)
_LARGE = bytes(64 * 1024)
_CALLS = 2_000
_ROUND_TRIPS = 4_000
_SYNCS = 150
_THREADS = (1, 3, 9)
_WRITE = bytes(8192)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of processor time, and of the disk."""

    send_seconds: float
    send_byte_seconds: float
    receive_seconds: float
    receive_byte_seconds: float
    wake_seconds: float
    turn_seconds: float
    sync_cpu_seconds: float
    """Processor time of a write and a sync, in the kernel."""
    sync_seconds: Mapping[str, Sequence[float]]
    """Durations of a write and a sync, by the number of those that are under way."""

    def draw_sync(self, under_way: int, entropy: random.Random) -> float:
        """Draw a duration of a sync while ``under_way`` are, with this one."""
        known = sorted(map(int, self.sync_seconds))
        place = max(0, bisect_right(known, under_way) - 1)
        return entropy.choice(self.sync_seconds[str(known[place])])

    def as_json(self) -> str:
        """Return the costs as text, for a file."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> Costs:
        """Return the costs in a file."""
        return Costs(**json.loads(text))


def measure_costs(directory: Path) -> Costs:
    """Measure, in some seconds; the disk is that of ``directory``."""
    send, receive = _socket(_MESSAGE)
    large_send, large_receive = _socket(_LARGE)
    poll = _poll()
    each = asyncio.Runner(loop_factory=new_event_loop).run(_round_trip())
    syncs = {str(threads): _syncs(directory, threads) for threads in _THREADS}
    cpu = sorted(used for _, used in syncs["1"])
    return Costs(
        send_seconds=send,
        send_byte_seconds=max(0.0, large_send - send) / len(_LARGE),
        receive_seconds=receive,
        receive_byte_seconds=max(0.0, large_receive - receive) / len(_LARGE),
        wake_seconds=max(0.0, each - send - receive - poll),
        turn_seconds=poll,
        sync_cpu_seconds=cpu[len(cpu) // 2],
        sync_seconds={name: [round(took, 7) for took, _ in found] for name, found in syncs.items()},
    )


def _socket(message: bytes) -> tuple[float, float]:
    """Return the median processor seconds of a send and of a receive."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as mine, listener.accept()[0] as theirs:
        for each in (mine, theirs):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sends, receives = [], []
        clock = time.thread_time_ns
        for _ in range(_CALLS):
            began = clock()
            mine.sendall(message)
            sent = clock()
            left = len(message)
            while left:
                left -= len(theirs.recv(left))
            sends.append(sent - began)
            receives.append(clock() - sent)
    own = _middle([-(clock() - clock()) for _ in range(_CALLS)])
    return max(0.0, _middle(sends) - own) * 1e-9, max(0.0, _middle(receives) - own) * 1e-9


def _poll() -> float:
    poll = select.poll()
    took = []
    for _ in range(_CALLS):
        began = time.thread_time_ns()
        poll.poll(0)
        took.append(time.thread_time_ns() - began)
    return _middle(took) * 1e-9


class _Echo(asyncio.Protocol):
    """Sends back what it gets; the side that began stops after some round trips."""

    def __init__(self, left: int, done: asyncio.Future[None] | None = None) -> None:
        self._left, self._done = left, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer."""
        self._left -= 1
        if not self._left and self._done is not None:
            self._done.set_result(None)
        else:
            self._transport.write(data)


_CHILD = "import asyncio; from benchmarks.scale.costs import echo; echo()"


def echo() -> None:
    """Serve the echo until standard input ends; print the port. The program of the other process."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Echo(sys.maxsize), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)

    asyncio.Runner(loop_factory=new_event_loop).run(serve())


async def _round_trip() -> float:
    """Return the processor seconds of one process for a wake-up, a receive and a send."""
    command = [sys.executable, "-c", _CHILD]
    child = await asyncio.to_thread(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None, "it is a pipe"
    assert child.stdout is not None, "it is a pipe"
    try:
        port = int(await asyncio.to_thread(child.stdout.readline))
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        transport, _ = await loop.create_connection(lambda: _Echo(_ROUND_TRIPS, done), "127.0.0.1", port)
        before = _used() + sum(cpu_seconds(child.pid))
        transport.write(_MESSAGE)
        await done
        used = _used() + sum(cpu_seconds(child.pid)) - before
        transport.close()
        return used / _ROUND_TRIPS / 2
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _syncs(directory: Path, threads: int) -> list[tuple[float, float]]:
    """Return duration and processor time of each write with its sync, of all threads."""
    found: list[tuple[float, float]] = []

    def work(number: int) -> None:
        descriptor = os.open(directory / f"sync-{threads}-{number}", os.O_RDWR | os.O_CREAT)
        try:
            os.posix_fallocate(descriptor, 0, _SYNCS * len(_WRITE))
            os.fsync(descriptor)
            for each in range(_SYNCS):
                began, used = time.perf_counter(), time.thread_time()
                os.pwrite(descriptor, _WRITE, each * len(_WRITE))
                os.fdatasync(descriptor)
                found.append((time.perf_counter() - began, time.thread_time() - used))
        finally:
            os.close(descriptor)

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return found


def _middle(values: Sequence[int]) -> float:
    return float(sorted(values)[len(values) // 2])
