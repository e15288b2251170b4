"""One node of a local cluster: its files, and the process that runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from viewstamp import errors
from viewstamp.config import NodeSettings, load_settings
from viewstamp.errors import (
    ConfigError,
    OutcomeUnknownError,
    StorageError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.private import make_private_directory, open_private
from viewstamp.local.process import command_line, start_mark

if TYPE_CHECKING:
    from viewstamp.client.routing import ExpectedNode

__all__ = ["LocalNode", "is_process_of"]

POLL_SECONDS: Final = 0.02
LOG_TAIL_BYTES: Final = 64 * 1024
_CONTROL_READS: Final = 3

_children: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""Nodes that this process started: a child that has ended is a zombie until its parent asks."""


class LocalNode:
    """One node of a local cluster, running or not.

    The process is found by DIR/NODE/pid, which holds its number, a mark that no other process of that number has,
    and the directory's own mark, which a copy of the directory does not have; failing that by the data directory's
    lock file and the process's own command line, so that a node that somebody started by hand is found too.
    """

    def __init__(self, settings: NodeSettings, file: str) -> None:
        self.settings = settings
        self.id = settings.node.id
        self.address = settings.node.advertise
        self.directory = settings.node.data_dir
        self.file = file
        self.log_file = os.path.join(self.directory, "log.jsonl")
        self._pid_file = os.path.join(self.directory, "pid")
        self._log_start = 0

    def pid(self) -> int | None:
        """Return the number of the node's process; None = it does not run."""
        for child in list(_children.values()):
            if child.poll() is not None:
                del _children[child.pid]
        with suppress(FileNotFoundError, ValueError), open(self._pid_file, encoding="ascii") as stream:
            number, mark, place = stream.read().splitlines()
            if start_mark(int(number)) == mark and place == self._place():
                return int(number)
        with suppress(FileNotFoundError, ValueError), open(os.path.join(self.directory, "lock"), "rb") as stream:
            pid = int(stream.read())
            if start_mark(pid) is not None and self._is_ours(pid):
                return pid
        return None

    @property
    def identity(self) -> ExpectedNode:
        """Who has to answer at the node's address, as its settings and its control file say."""
        from viewstamp.client.routing import ExpectedNode

        place = ""
        with suppress(OSError):
            place = self._place()
        return ExpectedNode(
            node=str(self.id),
            incarnation=self._incarnation(),
            file=self.file,
            directory=self.directory,
            directory_id=place,
        )

    def _incarnation(self) -> str:
        """Return the incarnation of the data directory; "" = it has none, or none that can be read."""
        from viewstamp.host.disk import RealDisk
        from viewstamp.wal.control_file import read_control_state

        for _ in range(_CONTROL_READS):
            # The two copies may be of different versions while the node writes them.
            with suppress(ViewstampError):
                state = read_control_state(RealDisk(), self.directory)
                return "" if state is None else state.incarnation
        return ""

    def _place(self) -> str:
        """Return what tells the data directory from a copy of it; moving it changes nothing."""
        from viewstamp.host.disk import directory_id

        return directory_id(self.directory)

    def _is_ours(self, pid: int) -> bool:
        """Say whether a process was started as ``viewstamp node run`` with this node's settings file."""
        arguments = command_line(pid)
        if "node" not in arguments or "run" not in arguments:
            return False
        with suppress(OSError):
            base = os.readlink(f"/proc/{pid}/cwd")
            files = [os.path.realpath(os.path.join(base, part.removeprefix("--config="))) for part in arguments]
            return os.path.realpath(self.file) in files
        return False

    def check_settings(self, settings: Mapping[str, str]) -> None:
        """Check that the node's file says what ``settings`` (``section.key`` to text) say.

        Raises:
          ConfigError: it says something else, or these are no settings.
        """
        wanted = load_settings(self.file, environment={}, overrides=settings)
        present = {name: value for name, value, _ in load_settings(self.file, environment={}).rows()}
        for name, value, _ in wanted.rows():
            if name in settings and value != present.get(name):
                raise ConfigError(
                    f"--set {name}={settings[name]}: the cluster is there already, and {self.file} says "
                    f"{present.get(name, 'nothing of it')}",
                    remedy="change it in the files of all nodes, and restart these one after the other",
                )

    def spawn(self) -> None:
        """Start the process; it is not RUNNING yet.

        Raises:
          StorageError: the directory cannot be written.
        """
        command = [sys.executable, "-m", "viewstamp", "node", "run", "--config", self.file, "--output", "json"]
        try:
            make_private_directory(self.directory)
            with open(self.log_file, "ab", opener=open_private) as log:
                self._log_start = log.tell()
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=_environment(os.environ),
                    start_new_session=True,  # Ctrl-C in the terminal is for the command, not for the nodes.
                )
            _children[child.pid] = child
            mark = start_mark(child.pid)
            with open(self._pid_file + ".new", "w", encoding="ascii", opener=open_private) as stream:
                stream.write(f"{child.pid}\n{mark}\n{self._place()}\n")
            os.rename(self._pid_file + ".new", self._pid_file)
        except OSError as error:
            raise StorageError(
                f"cannot start {self.id} in {self.directory}: {error.strerror}",
                remedy="choose a directory that this user may write, on a disk with free space",
            ) from error

    def send_signal(self, number: signal.Signals) -> bool:
        """Send a signal to the node's process; return whether there was one."""
        pid = self.pid()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid is not None

    async def wait_gone(self, timeout: float) -> bool:
        """Wait until the process is gone; return whether it is."""
        deadline = time.monotonic() + timeout
        while self.pid() is not None:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        with suppress(FileNotFoundError):
            os.remove(self._pid_file)
        return True

    async def kill(self, timeout: float = 30.0) -> bool:
        """Kill the process with SIGKILL and wait until it is gone; return whether it ran."""
        ran = self.send_signal(signal.SIGKILL)
        if not await self.wait_gone(timeout):
            raise UnavailableError(f"{self.id} (process {self.pid()}) does not end, not even by SIGKILL")
        return ran

    async def stop(self, timeout: float) -> bool:
        """Stop the process cleanly and wait until it is gone; return whether it ran.

        Raises:
          UnavailableError: it still runs after ``timeout`` seconds.
        """
        self.send_signal(signal.SIGCONT)  # A process that is paused would not hear the other one.
        ran = self.send_signal(signal.SIGTERM)
        if not await self.wait_gone(timeout):
            raise UnavailableError(
                f"{self.id} (process {self.pid()}) has not stopped within {timeout:g} s",
                remedy=f"look into {self.log_file}, or kill it: viewstamp cluster kill {self.id}",
            )
        return ran

    def last_words(self) -> ViewstampError:
        """Return why the process that was spawned last has ended, as far as its log says."""
        lines = self._log_lines()
        for line in reversed(lines):
            if (error := _error_of(line)) is not None:
                return type(error)(f"{self.id} did not start: {error.message}", remedy=error.remedy)
        last = lines[-1] if lines else "it printed nothing"
        return UnavailableError(f"{self.id} did not start: {last}", remedy=f"look into {self.log_file}")

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return what the process that was spawned last has logged under these names, as far as its log is at hand."""
        found = []
        for line in self._log_lines():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") in names:
                    found.append(event)
        return found

    def epitaph(self) -> ViewstampError | None:
        """Return the error with which the process ended that ran last; None = it was stopped, or killed."""
        lines = self._log_lines()
        return _error_of(lines[-1]) if lines else None

    def _log_lines(self) -> list[str]:
        try:
            with open(self.log_file, "rb") as stream:
                end = stream.seek(0, os.SEEK_END)
                start = self._log_start if self._log_start <= end else 0  # It was set aside since: log.jsonl.1.
                stream.seek(max(start, end - LOG_TAIL_BYTES))
                return stream.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []


def is_process_of(node: LocalNode, status: Mapping[str, Any]) -> bool:
    """Say whether a status comes from the process that ``node`` runs as; an older release does not name its process."""
    return not status.get("process") or status["process"] == node.pid()


def _error_of(line: str) -> ViewstampError | None:
    """Return the error that a line of a node's log is; None = it is none."""
    with suppress(ValueError, AttributeError, KeyError):
        words = json.loads(line)
        kind = getattr(errors, str(words.get("error")), None)
        if isinstance(kind, type) and issubclass(kind, ViewstampError) and kind is not OutcomeUnknownError:
            return kind(str(words["message"]), remedy=str(words["remedy"]))
    return None


def _environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Leave out what can only be meant for one node: every node has its own in its file."""
    single = ("VIEWSTAMP_NODE__", "VIEWSTAMP_CLUSTER__")
    return {name: value for name, value in environment.items() if not name.startswith(single)}
