"""Finds, starts, watches and kills the server processes of a peer; each has a log in the directory."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from viewstamp.errors import UnavailableError

__all__ = ["Servers", "find_program", "free_ports", "packaged_program", "program_version", "with_children"]

_POLL_SECONDS = 0.02
_TAIL_BYTES = 4096
_TAIL_LINES = 8


class Servers:
    """Child processes by name. The command of each is stored, so that it can be started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._commands: dict[str, Sequence[str]] = {}
        self._users: dict[str, str | None] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(self, name: str, command: Sequence[str], *, user: str | None = None) -> None:
        """Start a server in the directory, as ``user`` (None = the present one). Its log is ``NAME.log``."""
        with open(self._log(name), "ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # So that Ctrl-C ends only the measurement, which then ends its servers.
                user=user,
            )
        self._commands[name], self._users[name] = command, user

    def spawn_missing(self) -> None:
        """Start the processes that have ended again, with the same commands."""
        for name in self._commands.keys() - self.pids().keys():
            self.spawn(name, self._commands[name], user=self._users[name])

    def pids(self) -> dict[str, int]:
        """Return the ids of the running processes, by name."""
        return {name: process.pid for name, process in sorted(self._processes.items()) if process.poll() is None}

    async def kill(self, name: str) -> None:
        """End a process by SIGKILL and wait until it has ended."""
        process = self._processes[name]
        process.kill()  # Does nothing if the process has been waited for.
        await asyncio.to_thread(process.wait)

    async def wait_listening(self, name: str, address: str, timeout: float = 30.0) -> None:
        """Wait until the process accepts connections at ``address``.

        Raises:
          UnavailableError: it does not within ``timeout`` seconds, or the process has ended.
        """
        host, _, port = address.rpartition(":")
        deadline = time.monotonic() + timeout
        while True:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                return
            self.check(name)
            if time.monotonic() > deadline:
                raise self.error(name, f"does not listen on {address} within {timeout:g} s")
            await asyncio.sleep(_POLL_SECONDS)

    def check(self, name: str) -> None:
        """Raise UnavailableError if the process has ended."""
        code = self._processes[name].poll()
        if code is not None:
            raise self.error(name, f"has ended with {code}")

    def error(self, name: str, what: str) -> UnavailableError:
        """Return an error about a server, with the last lines of its log."""
        with open(self._log(name), "rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
        said = "\n  ".join(lines) or "(nothing)"
        return UnavailableError(f"{name} {what}; the end of its log:\n  {said}", remedy=f"look into {self._log(name)}")

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def free_ports(count: int) -> list[int]:
    """Return unused ports of 127.0.0.1 outside the range from which outgoing connections get theirs."""
    from viewstamp.config.create import free_addresses

    return [int(address.rpartition(":")[2]) for address in free_addresses(count)]


def with_children(pids: Iterable[int]) -> Iterator[int]:
    """Yield the ids of processes and of their descendants; except on Linux, only the processes themselves."""
    for pid in pids:
        yield pid
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                yield from with_children(map(int, task.read_text(encoding="ascii").split()))


def find_program(name: str) -> str | None:
    """Return the path of a program in this Python's environment, or else on the PATH; None = there is none."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.is_file() else shutil.which(name)


def packaged_program(package: str, path: str) -> str | None:
    """Return the path of a program inside an installed package; None = it is not there.

    The file of this name in the environment's ``bin`` may be a script that starts the program as a child. It is not
    used, because killing it would leave the server running.
    """
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        if (program := Path(place) / path).is_file():
            return str(program)
    return None


def program_version(command: Sequence[str]) -> str:
    """Return the first number with dots that a program prints about itself."""
    said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else "unknown"
