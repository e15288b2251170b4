"""One node of a local cluster: its files and its process."""

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
from viewstamp.local.process import command_line, start_mark, working_directory

if TYPE_CHECKING:
    from viewstamp.client.routing import ExpectedNode

__all__ = ["LocalNode", "is_process_of"]

POLL_SECONDS: Final = 0.02
LOG_TAIL_BYTES: Final = 64 * 1024
_CONTROL_READS: Final = 3

_children: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""The nodes that this process started. It has to poll them, because an ended child stays a zombie until then."""


class LocalNode:
    """One node of a local cluster, running or not.

    The process is found by DIR/NODE/pid. That file holds the process number, a mark that no other process of that
    number has, and the directory's own mark, which a copy of the directory does not have. Without that file
    it is found by the data directory's lock file and the command line of the process, so that a node started by hand is
    found too.
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
        """The identity that has to answer at the node's address, from its settings and its control file."""
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
        """Return the incarnation of the data directory; "" = it has none, or its control file cannot be read."""
        from viewstamp.host.disk import RealDisk
        from viewstamp.wal.control_file import read_control_state

        for _ in range(_CONTROL_READS):
            # Repeated, because the two copies may differ in version while the node writes them.
            with suppress(ViewstampError):
                state = read_control_state(RealDisk(), self.directory)
                return "" if state is None else state.incarnation
        return ""

    def _place(self) -> str:
        """Return a mark that distinguishes the data directory from a copy of it, and stays the same if it is moved."""
        from viewstamp.host.disk import directory_id

        return directory_id(self.directory)

    def _is_ours(self, pid: int) -> bool:
        """Return whether a process was started as ``viewstamp node run`` with this node's settings file."""
        arguments = command_line(pid)
        if "node" not in arguments or "run" not in arguments:
            return False
        base = working_directory(pid)
        files = [os.path.realpath(os.path.join(base, part.removeprefix("--config="))) for part in arguments]
        return bool(base) and os.path.realpath(self.file) in files

    def check_settings(self, settings: Mapping[str, str]) -> None:
        """Check that the node's file has the values of ``settings`` (``section.key`` to text).

        Raises:
          ConfigError: the file has another value, or a setting does not exist.
        """
        wanted = load_settings(self.file, environment={}, overrides=settings)
        present = {name: value for name, value, _ in load_settings(self.file, environment={}).rows()}
        for name, value, _ in wanted.rows():
            if name in settings and value != present.get(name):
                raise ConfigError(
                    f"--set {name}={settings[name]}: the cluster exists, and its file {self.file} has "
                    f"{present.get(name, 'no such setting')}",
                    remedy="change it in the files of all nodes, and restart them one after the other",
                )

    def spawn(self) -> None:
        """Start the process, and return before it is RUNNING.

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
                    start_new_session=True,  # So that Ctrl-C in the terminal reaches the command, not its nodes.
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
        """Send a signal to the node's process; return whether it runs."""
        pid = self.pid()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid is not None

    async def wait_gone(self, timeout: float) -> bool:
        """Wait until the process has ended; return False if it still runs after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.pid() is not None:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        with suppress(FileNotFoundError):
            os.remove(self._pid_file)
        return True

    async def kill(self, timeout: float = 30.0) -> bool:
        """Kill the process with SIGKILL and wait until it has ended; return whether it ran."""
        ran = self.send_signal(signal.SIGKILL)
        if not await self.wait_gone(timeout):
            raise UnavailableError(f"{self.id} (process {self.pid()}) still runs {timeout:g} s after SIGKILL")
        return ran

    async def stop(self, timeout: float) -> bool:
        """Stop the process cleanly and wait until it has ended; return whether it ran.

        Raises:
          UnavailableError: it still runs after ``timeout`` seconds.
        """
        self.send_signal(signal.SIGCONT)  # A paused process would not handle SIGTERM.
        ran = self.send_signal(signal.SIGTERM)
        if not await self.wait_gone(timeout):
            raise UnavailableError(
                f"{self.id} (process {self.pid()}) has not stopped within {timeout:g} s",
                remedy=f"read {self.log_file}, or kill it: viewstamp cluster kill {self.id}",
            )
        return ran

    def last_words(self) -> ViewstampError:
        """Return the error that ended the process that was started last, as far as its log has it."""
        lines = self._log_lines()
        for line in reversed(lines):
            if (error := _error_of(line)) is not None:
                return type(error)(f"{self.id} did not start: {error.message}", remedy=error.remedy)
        if self.events("= node stopped"):
            return UnavailableError(
                f"{self.id} was stopped while it started, for example by another `cluster stop`",
                remedy="start it again",
            )
        last = lines[-1] if lines else "it printed nothing"
        return UnavailableError(f"{self.id} did not start: {last}", remedy=f"read {self.log_file}")

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the events with these names from the log of the process that was started last (its last 64 KiB)."""
        found = []
        for line in self._log_lines():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") in names:
                    found.append(event)
        return found

    def epitaph(self) -> ViewstampError | None:
        """Return the error with which the last process ended; None = it was stopped or killed."""
        lines = self._log_lines()
        return _error_of(lines[-1]) if lines else None

    def _log_lines(self) -> list[str]:
        try:
            with open(self.log_file, "rb") as stream:
                end = stream.seek(0, os.SEEK_END)
                start = self._log_start if self._log_start <= end else 0  # The log was rotated to log.jsonl.1.
                stream.seek(max(start, end - LOG_TAIL_BYTES))
                return stream.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []


def is_process_of(node: LocalNode, status: Mapping[str, Any]) -> bool:
    """Return whether a status comes from the process of ``node``. An older release does not report its process."""
    return not status.get("process") or status["process"] == node.pid()


def _error_of(line: str) -> ViewstampError | None:
    """Return the error in a line of a node's log; None = the line is not an error."""
    with suppress(ValueError, AttributeError, KeyError):
        words = json.loads(line)
        kind = getattr(errors, str(words.get("error")), None)
        if isinstance(kind, type) and issubclass(kind, ViewstampError) and kind is not OutcomeUnknownError:
            return kind(str(words["message"]), remedy=str(words["remedy"]))
    return None


def _environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the environment without the settings of one node, because every node has its own in its file."""
    single = ("VIEWSTAMP_NODE__", "VIEWSTAMP_CLUSTER__")
    return {name: value for name, value in environment.items() if not name.startswith(single)}
