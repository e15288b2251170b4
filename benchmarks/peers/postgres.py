"""PostgreSQL: a primary and two standbys, one of which must have synced before an insert is acknowledged."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import struct
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from benchmarks.peers.peer import Session, Spawned
from benchmarks.peers.processes import Servers, free_ports
from viewstamp.errors import UnavailableError

__all__ = ["Postgres"]

_PROGRAMS = ("postgres", "initdb", "pg_basebackup")
_USERS = ("postgres", "nobody")
"""Users to run as if we are root, because PostgreSQL refuses root. The first existing one is used."""
_PRIMARY = "primary"
_STANDBYS = ("standby1", "standby2")
_DATABASE = "postgres"
_SESSIONS_MAX = 64
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.02

_SETTINGS = f"""
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = on
synchronous_commit = on
synchronous_standby_names = 'ANY 1 ({", ".join(_STANDBYS)})'
wal_level = replica
wal_keep_size = 1GB
max_connections = 100
max_wal_senders = 8
autovacuum = off
"""
_TABLE = "CREATE TABLE records (position bigserial PRIMARY KEY, value bytea NOT NULL)"
_INSERT = b"INSERT INTO records (value) VALUES ($1)"
_STATEMENT = b"append"


class Postgres(Spawned):
    """Each record is a row in a transaction of its own. There are many connections, because group commit needs them."""

    name = "PostgreSQL"
    client = "our own client on the event loop, a prepared INSERT, one connection for each caller up to 64"

    def __init__(self) -> None:
        self._ports: dict[str, int] = {}

    def absent(self) -> str:
        """Return the missing program, or why its user cannot reach this directory; "" = it can run."""
        missing = [program for program in _PROGRAMS if shutil.which(program) is None]
        if missing:
            return f"{', '.join(missing)} not on the PATH"
        if os.geteuid() == 0:
            user = _user()
            if user is None:
                return f"it refuses root, and there is no user {' or '.join(_USERS)}"
            if not _reaches(user, Path.cwd()):
                return f"it refuses root, and the user {user} cannot get to {Path.cwd()}"
        return ""

    def sessions(self, in_flight: int) -> int:
        """Return the number of connections: one for each caller, up to 64."""
        return min(in_flight, _SESSIONS_MAX)

    async def start(self, directory: Path) -> None:
        """Start the primary and two copies of it, and wait until both copies follow. See :class:`Peer`."""
        _make_reachable(directory)
        self._servers = Servers(directory)
        self._ports = dict(zip((_PRIMARY, *_STANDBYS), free_ports(3), strict=True))
        await self._run("initdb", "--no-sync", "--auth=trust", "--username", _DATABASE, "--pgdata", _PRIMARY)
        with (directory / _PRIMARY / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(_SETTINGS)
        self._spawn(_PRIMARY)
        connection = await self._connected()
        for name in _STANDBYS:
            source = f"host=127.0.0.1 port={self._ports[_PRIMARY]} user={_DATABASE} application_name={name}"
            copying = ("--no-sync", "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream")
            await self._run("pg_basebackup", *copying, "--dbname", source, "--pgdata", name)
            self._spawn(name)
        await self._until_both_follow(connection)
        await connection.query(_TABLE)
        await self._describe(connection)
        connection.close()

    async def connect_to(self, server: str) -> Session:
        """Connect and prepare the insert; only the primary accepts inserts."""
        connection = await self._connect_to(server)
        await connection.prepare()

        async def close() -> None:
            connection.close()

        return Session(connection.append, close)

    async def leader(self) -> str:
        """Return the primary, because PostgreSQL promotes no standby by itself."""
        (await self._connected()).close()
        return _PRIMARY

    async def connect(self) -> Session:
        """Connect to the primary."""
        return await self.connect_to(_PRIMARY)

    async def kill(self, server: str) -> None:
        """End a server as in a crash, by an immediate shutdown, because that also ends its child processes."""
        pid = self.pids().get(server)
        if pid is not None:
            os.kill(pid, signal.SIGQUIT)
            await asyncio.to_thread(self._wait_gone, server)
            await self.servers.kill(server)

    def _wait_gone(self, server: str) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        while server in self.pids() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _spawn(self, name: str) -> None:
        command = [_program("postgres"), "-D", str(self.servers.directory / name), "-p", str(self._ports[name])]
        self.servers.spawn(name, command, user=_user())

    async def _run(self, program: str, *arguments: str) -> None:
        """Run one of its programs to its end, as the user that owns the directory."""
        done = await asyncio.to_thread(
            subprocess.run,
            [_program(program), *arguments],
            capture_output=True,
            text=True,
            cwd=self.servers.directory,
            user=_user(),
            extra_groups=[] if _user() is not None else None,
            timeout=_START_SECONDS,
            check=False,
        )
        if done.returncode:
            raise UnavailableError(f"{program} failed: {done.stderr.strip()}", remedy="see whether the disk has room")

    async def _connect_to(self, server: str) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, "127.0.0.1", self._ports[server])
        await connection.begin()
        return connection

    async def _connected(self) -> _Connection:
        """Connect to the primary as soon as it accepts connections."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                return await self._connect_to(_PRIMARY)
            except (OSError, UnavailableError) as error:
                if time.monotonic() > deadline or _PRIMARY not in self.pids():
                    raise self.servers.error(_PRIMARY, "does not come up") from error
            await asyncio.sleep(_LOOK_SECONDS)

    async def _until_both_follow(self, connection: _Connection) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            rows = await connection.query("SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'")
            following = {row[0] for row in rows}
            missing = [name for name in _STANDBYS if name not in following]
            if not missing:
                return
            if time.monotonic() > deadline or missing[0] not in self.pids():
                raise self.servers.error(missing[0], "does not follow")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _describe(self, connection: _Connection) -> None:
        async def show(name: str) -> str:
            return (await connection.query(f"SHOW {name}"))[0][0]

        self.version = (await show("server_version")).split()[0]
        names = ("synchronous_standby_names", "synchronous_commit", "fsync", "wal_sync_method")
        self.durability = "primary and 2 standbys, " + ", ".join([f"{name}: {await show(name)}" for name in names])


@dataclass(eq=False, slots=True)
class _Answer:
    """The received part of the response to one request."""

    future: asyncio.Future[list[list[str]]]
    rows: list[list[str]] = field(default_factory=list)
    error: str = ""


class _Connection(asyncio.Protocol):
    """The frontend's side of protocol 3.0. Requests are sent at once, and responses arrive in their order.

    Each insert is followed by a Sync, so that each is a transaction of its own, also if several are unanswered.

    Source: PostgreSQL documentation, "Frontend/Backend Protocol", "Message Formats".
    """

    _INSERTED = b"2\0\0\0\x04" + b"C\0\0\0\x0fINSERT 0 1\0" + b"Z\0\0\0\x05I"
    """The complete response to a successful insert."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._waiting: deque[_Answer] = deque()
        self._rest = b""
        self._is_lost = False

    # Requests.

    async def begin(self) -> None:
        """Log in."""
        parameters = b"".join(text.encode() + b"\0" for text in ("user", _DATABASE, "database", _DATABASE, ""))
        await self._ask(struct.pack("!ii", 8 + len(parameters), 3 << 16) + parameters)

    async def prepare(self) -> None:
        """Prepare the insert, so that it is parsed and planned only once."""
        text = _STATEMENT + b"\0" + _INSERT + b"\0" + struct.pack("!h", 0)
        await self._ask(_message(b"P", text) + _message(b"S", b""))

    def append(self, value: bytes) -> asyncio.Future[list[list[str]]]:
        """Insert a row; the future is done when it is committed."""
        bind = b"\0" + _STATEMENT + struct.pack("!xhhhi", 1, 1, 1, len(value)) + value + b"\0\0"
        return self._ask(_message(b"B", bind) + _EXECUTE_AND_SYNC)

    def query(self, text: str) -> asyncio.Future[list[list[str]]]:
        """Run a statement; the result is its rows, all columns as text."""
        return self._ask(_message(b"Q", text.encode() + b"\0"))

    def close(self) -> None:
        """Close the connection."""
        if not self._is_lost:
            self._transport.write(_message(b"X", b""))
            self._transport.close()

    def _ask(self, data: bytes) -> asyncio.Future[list[list[str]]]:
        answer = _Answer(self._loop.create_future())
        if self._is_lost:
            answer.future.set_exception(_lost())
        else:
            self._waiting.append(answer)
            self._transport.write(data)
        return answer.future

    # Responses.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses of asyncio's.

    def data_received(self, data: bytes) -> None:
        if data == self._INSERTED and not self._rest:
            _resolve(self._waiting.popleft().future, [])
            return
        data = self._rest + data
        at = 0
        while len(data) - at >= 5:
            end = at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
            if end > len(data):
                break
            self._on_message(data[at : at + 1], data[at + 5 : end])
            at = end
        self._rest = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        while self._waiting:
            _fail(self._waiting.popleft().future, _lost())

    def _on_message(self, kind: bytes, body: bytes) -> None:
        if not self._waiting:
            return  # A message without a request, for example that the server is shutting down.
        answer = self._waiting[0]
        if kind == b"Z":
            self._waiting.popleft()
            if answer.error:
                _fail(answer.future, UnavailableError(answer.error, remedy="see the log of PostgreSQL's primary"))
            else:
                _resolve(answer.future, answer.rows)
        elif kind == b"D":
            answer.rows.append(_columns(body))
        elif kind == b"E":
            fields = [each for each in body.split(b"\0") if each]
            answer.error = next(
                (each[1:].decode() for each in fields if each[:1] == b"M"), "an error without a message"
            )


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", 4 + len(body)) + body


_EXECUTE_AND_SYNC = _message(b"E", b"\0" + struct.pack("!i", 0)) + _message(b"S", b"")


def _columns(body: bytes) -> list[str]:
    found = []
    at = 2
    for _ in range(int.from_bytes(body[:2], "big")):
        (size,) = struct.unpack_from("!i", body, at)
        found.append(body[at + 4 : at + 4 + max(0, size)].decode())
        at += 4 + max(0, size)
    return found


def _resolve(future: asyncio.Future[list[list[str]]], rows: list[list[str]]) -> None:
    if not future.done():
        future.set_result(rows)


def _fail(future: asyncio.Future[list[list[str]]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _lost() -> UnavailableError:
    return UnavailableError("PostgreSQL closed the connection", remedy="see the log of its primary")


def _program(name: str) -> str:
    return shutil.which(name) or name


def _user() -> str | None:
    """Return the user for PostgreSQL's programs; None = the present one."""
    if os.geteuid() != 0:
        return None
    return next((name for name in _USERS if name in {each.pw_name for each in pwd.getpwall()}), None)


def _make_reachable(directory: Path) -> None:
    """Create a directory to which PostgreSQL's programs can write.

    Raises:
      UnavailableError: their user has no access to it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    user = _user()
    if user is not None:
        shutil.chown(directory, user)
        if not _reaches(user, directory):
            raise UnavailableError(
                f"PostgreSQL refuses root, and the user {user} cannot get to {directory}",
                remedy="let others pass through the directories above it (chmod o+x), or run this as another user",
            )


def _reaches(user: str, directory: Path) -> bool:
    """Return whether ``user`` has access to a directory and to all directories above it."""
    command: Sequence[str] = ["test", "-x", str(directory)]
    return subprocess.run(command, user=user, extra_groups=[], check=False).returncode == 0
