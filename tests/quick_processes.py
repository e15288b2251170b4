"""Processes of ``python -m viewstamp`` that are started with a tenth of the processor time.

A process of a node imports nearly 500 modules before it does anything, which is most of the work of its start. Here a
process that has imported them, ``tests/process_starter.py``, forks it. The fork is a process as any other: a child of
the process that starts it, with its own number, descriptors, signals, environment and exit code.

It differs in that /proc does not show its command line, that it has more modules than it would import, and that all
forks of one run of pytest hash strings alike. So the tests of a start, those in ``REAL``, fork nothing. Nor does a
command that is not exactly ``python -m viewstamp ...``, or a start of a process by the product in another process.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.process_starter import SIGNALS

__all__ = ["REAL", "QuickPopen"]

REAL = ("tests/local/", "tests/packaging/", "tests/formats/", "tests/guides/", "tests/cli/test_fail_stop.py")
"""The beginnings of the names of the tests that start each process as users do."""
_PROGRAM = [sys.executable, "-m", "viewstamp"]
_OF_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "SSL_")
"""The beginnings of the environment variables that a process looks at before or while it imports modules."""
_PLAIN = {
    "executable": None,
    "preexec_fn": None,
    "close_fds": True,
    "pass_fds": (),
    "shell": False,
    "restore_signals": True,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}
"""The arguments of ``Popen`` that a fork supports with these values only."""
_NAMES = list(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_PR_SET_CHILD_SUBREAPER = 36


class Starter:
    """The process that forks others."""

    def __init__(self) -> None:
        self.interpreter = _of_interpreter(os.environ)
        self._requests, theirs = socket.socketpair()
        self._prctl = ctypes.CDLL(None).prctl
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.process_starter"],
                stdin=theirs,
                cwd=Path(__file__).parents[1],
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    def fork(self, streams: list[int], request: dict[str, Any]) -> int:
        """Start a process as a child of this one; return its number."""
        text = json.dumps(request).encode()
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._requests, [len(text).to_bytes(4)], streams)
            self._requests.sendall(text)
            number = self._requests.recv(4)
        finally:
            self._prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert len(number) == 4, "tests/process_starter.py has ended"
        return int.from_bytes(number)

    def _end(self) -> None:
        self._requests.close()
        self._process.wait()


class QuickPopen(subprocess.Popen[Any]):
    """``subprocess.Popen`` that forks ``python -m viewstamp`` while ``is_on``."""

    is_on = False
    _starter: Starter | None = None
    _lock = threading.RLock()

    def _execute_child(self, *arguments: Any) -> None:
        given = dict(zip(_NAMES, arguments, strict=True))
        command = given["args"]
        environment = os.environ if given["env"] is None else given["env"]
        if (
            not self.is_on
            or not isinstance(command, (list, tuple))
            or [str(each) for each in command[:3]] != _PROGRAM
            or any(given[name] != value for name, value in _PLAIN.items())
        ):
            return super()._execute_child(*arguments)  # type: ignore[misc,no-any-return]
        with self._lock:
            if QuickPopen._starter is None:
                QuickPopen._starter = Starter()
            if _of_interpreter(environment) != QuickPopen._starter.interpreter:
                return super()._execute_child(*arguments)  # type: ignore[misc,no-any-return]
            pipes = (given["p2cread"], given["c2pwrite"], given["errwrite"])
            self.pid = QuickPopen._starter.fork(
                [own if pipe == -1 else pipe for own, pipe in enumerate(pipes)],
                {
                    "arguments": [os.fsdecode(each) for each in command[3:]],
                    "environment": dict(environment),
                    "directory": os.path.abspath(os.fspath(given["cwd"] or os.getcwd())),
                    "session": bool(given["start_new_session"]),
                    "umask": _umask(),
                    "ignored": [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
                },
            )
        self._child_created = True
        self._close_pipe_fds(*(given[name] for name in _PIPES))  # type: ignore[attr-defined]
        return None


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_INTERPRETER)}


def _umask() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("Umask:")[2].split()[0], 8)
