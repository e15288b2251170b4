"""PySyncObj: three members of ``benchmarks/rival.py``, with the unchanged journal or with one patched to sync."""

from __future__ import annotations

import asyncio
import itertools
import struct
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from benchmarks.peers.gathered import PeerConnection
from benchmarks.peers.peer import Session, Spawned
from benchmarks.peers.processes import Servers, free_ports
from viewstamp.errors import UnavailableError

__all__ = ["PySyncObj"]

_ROOT = Path(__file__).parents[2]
_PERIOD_SECONDS = 0.001
"""Period at which its leader sends: the fastest of those tried, and a hundredth of its default."""
_START_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_REQUEST = struct.Struct("<II")
_RESPONSE = struct.Struct("<IB")


class PySyncObj(Spawned):
    """Three members that accept records over a socket (``benchmarks/rival.py``), because PySyncObj has no client."""

    name = "PySyncObj"
    client = "our own, over a socket to the leader's process, because it has none"

    def __init__(self, *, sync: bool = False) -> None:
        """``sync``: patch the journal to sync, because PySyncObj has no setting for that."""
        self._sync = sync
        if sync:
            self.name = "PySyncObj, synced"  # type: ignore[misc]
        self.durability = (
            "a journal in a mapped file, " + ("synced by a patch of ours" if sync else "never synced")
        ) + f", its leader sends every {_PERIOD_SECONDS * 1000:.0f} ms"
        self._ports: dict[str, int] = {}

    def absent(self) -> str:
        """Return a message if PySyncObj is not installed; "" = it is."""
        return "" if find_spec("pysyncobj") else "pysyncobj is not installed"

    async def start(self, directory: Path) -> None:
        """Start three members and wait for a leader. See :class:`Peer`."""
        self.version = version("pysyncobj")
        self._servers = Servers(directory)
        ports = free_ports(6)
        self._ports = {f"member{number}": port for number, port in enumerate(ports[:3], start=1)}
        addresses = [f"127.0.0.1:{port}" for port in ports[3:]]
        for name, address in zip(self._ports, addresses, strict=True):
            others = [other for other in addresses if other != address]
            command = [sys.executable, "-m", "benchmarks.rival", address, *others]
            command += ["--journal", str(directory / f"{name}.journal"), "--listen", str(self._ports[name])]
            command += ["--period", str(_PERIOD_SECONDS), *(["--sync"] if self._sync else [])]
            self._servers.spawn(name, ["env", f"PYTHONPATH={_ROOT}", *command])
        await self.leader()

    async def connect_to(self, server: str) -> Session:
        """Connect to a member, which forwards records if another member leads."""
        connection = await self._connect_to(server)
        return Session(connection.append, connection.close)

    async def leader(self) -> str:
        """Return the leader, by a request to each member."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            for name in self.pids():
                with suppress(OSError, UnavailableError):
                    connection = await self._connect_to(name)
                    try:
                        if await connection.leads():
                            return name
                    finally:
                        await connection.close()
            await asyncio.sleep(_LOOK_SECONDS)
        raise UnavailableError("PySyncObj elected no leader", remedy="look into the logs of its members")

    async def _connect_to(self, server: str) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, "127.0.0.1", self._ports[server]
        )
        return connection


class _Connection(PeerConnection):
    """The callers' side of a connection to a member."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._rest = b""

    def append(self, value: bytes) -> asyncio.Future[bool]:
        """Send a record; the future is done when it is committed."""
        assert value, "an empty record would ask whether the member leads"
        return self._ask(value, must=True)

    def leads(self) -> asyncio.Future[bool]:
        """Return a future that is done with whether this member leads."""
        return self._ask(b"", must=False)

    def _ask(self, value: bytes, *, must: bool) -> asyncio.Future[bool]:
        number = next(self._numbers) * 2 + must
        future = self._waiting[number] = self._loop.create_future()
        self._transport.write(_REQUEST.pack(number, len(value)) + value)
        return future

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        end = len(data) - len(data) % _RESPONSE.size
        for number, is_so in _RESPONSE.iter_unpack(data[:end]):
            future = self._waiting.pop(number)
            if future.done():
                continue
            if is_so or number % 2 == 0:
                future.set_result(bool(is_so))
            else:
                future.set_exception(UnavailableError("PySyncObj did not commit a record", remedy="try again"))
        self._rest = data[end:]

    def connection_lost(self, exc: Exception | None) -> None:
        while self._waiting:
            _, future = self._waiting.popitem()
            if not future.done():
                future.set_exception(
                    UnavailableError("PySyncObj closed the connection", remedy="look into the logs of its members")
                )
