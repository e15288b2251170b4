"""An upper limit for the speed of an embedded leader in Python: group commit on three disks, without any safety.

The records that callers append in one turn of the loop are joined, sent to two follower processes and given to a
thread that writes and syncs them into a file of zeros. The followers write, sync and report the number of their bytes.
An append ends when this file and that of one follower have its bytes. There are no terms, checksums, elections,
sessions, recovery or bounds on memory, so a system that has them is slower. Both are measured in turns.

    python -m benchmarks.ceiling FILE PORT      one follower, which ends with its connection
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

from viewstamp.host.executor import ThreadExecutor

__all__ = ["Ceiling"]

_ROOT = Path(__file__).parents[1]
_FILE_BYTES: Final = 64 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
_FOLLOWERS = 2
_WAIT_SECONDS = 30.0


class _File:
    """A file of zeros that is overwritten from front to back, again and again."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        for _ in range(_FILE_BYTES // _PIECE_BYTES):
            os.write(self._descriptor, bytes(_PIECE_BYTES))
        os.fsync(self._descriptor)
        self._at = 0

    def write(self, data: bytes) -> None:
        """Write ``data`` and sync it; blocks."""
        if self._at + len(data) > _FILE_BYTES:
            self._at = 0
        os.pwrite(self._descriptor, data, self._at)
        os.fdatasync(self._descriptor)
        self._at += len(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Ceiling:
    """The leader. All of its methods run on one event loop."""

    client = "256 tasks on the leader's loop"
    durability = "only fdatasync here and on one of two followers"

    def __init__(self, file: _File) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._executor: ThreadExecutor[bytes, int] = ThreadExecutor("ceiling", self._sync, self._on_synced)
        self._values: list[bytes] = []
        self._futures: list[asyncio.Future[None]] = []
        self._waiting: deque[tuple[int, list[asyncio.Future[None]]]] = deque()
        """Unanswered appends: the end of their bytes, and their futures."""
        self._end = 0
        self._synced = 0
        self._followed = 0
        """Bytes that the faster follower has synced."""
        self.followers: list[_Follower] = []
        self.pids: list[int] = []
        """Process ids of the followers."""

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path) -> AsyncIterator[Ceiling]:
        """Start a leader and two followers with their files in ``directory``; all of them end at exit."""
        loop = asyncio.get_running_loop()
        file = await asyncio.to_thread(_File, directory / "leader")
        leader = cls(file)
        complete = asyncio.Event()

        def connect() -> _Follower:
            follower = _Follower(leader)
            leader.followers.append(follower)
            if len(leader.followers) == _FOLLOWERS:
                complete.set()
            return follower

        server = await loop.create_server(connect, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        processes = [_spawn(directory / f"follower{number}", port) for number in range(_FOLLOWERS)]
        leader.pids = [process.pid for process in processes]
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await complete.wait()
            yield leader
        finally:
            for process in processes:
                process.kill()
                process.wait()
            server.close()
            await leader._executor.close()
            file.close()

    def append(self, value: bytes) -> asyncio.Future[None]:
        """Append a record; the future is done when it is on two disks."""
        if not self._values:
            self._loop.call_soon(self._flush)
        future = self._loop.create_future()
        self._values.append(value)
        self._futures.append(future)
        return future

    def _flush(self) -> None:
        data = b"".join(self._values)
        self._end += len(data)
        self._waiting.append((self._end, self._futures))
        self._values, self._futures = [], []
        for follower in self.followers:
            follower.transport.write(data)
        self._executor.put(data)

    def _sync(self, groups: list[bytes]) -> int:
        data = b"".join(groups)
        self._file.write(data)
        return len(data)

    def _on_synced(self, _: Sequence[bytes], outcome: int | BaseException) -> None:
        if isinstance(outcome, BaseException):
            raise outcome
        self._synced += outcome
        self._answer()

    def on_followed(self, end: int) -> None:
        """Complete the appends below ``end``, the number of bytes that a follower has synced."""
        if end > self._followed:
            self._followed = end
            self._answer()

    def _answer(self) -> None:
        committed = min(self._synced, self._followed)
        while self._waiting and self._waiting[0][0] <= committed:
            for future in self._waiting.popleft()[1]:
                if not future.done():
                    future.set_result(None)


class _Follower(asyncio.Protocol):
    """The leader's side of a connection."""

    def __init__(self, leader: Ceiling) -> None:
        self._leader = leader
        self._rest = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses of asyncio's.

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % 8
        self._rest = data[whole:]
        if whole:
            self._leader.on_followed(int.from_bytes(data[whole - 8 : whole], "little"))


def _spawn(path: Path, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.ceiling", str(path), str(port)], cwd=_ROOT)


def follow(path: Path, port: int) -> None:
    """Write, sync and acknowledge all received bytes, until the connection ends."""
    file = _File(path)
    total = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(_PIECE_BYTES):
            file.write(data)
            total += len(data)
            connection.sendall(total.to_bytes(8, "little"))


if __name__ == "__main__":
    follow(Path(sys.argv[1]), int(sys.argv[2]))
