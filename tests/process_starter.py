"""Forks processes of ``python -m viewstamp``: the program behind ``tests/quick_processes.py``.

It imports the product once. A request names the arguments, the environment and the directory of a process, and carries
its standard streams. The process is a fork that goes on as ``python -m viewstamp`` begins, with nothing of this program
but the imported modules. A second fork between the two ends at once, so that the process becomes a child of the
requester, which is a subreaper meanwhile.

This program has one thread, because a fork has only the thread that called it, and ends when its requester has ended.
"""

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
from typing import Any

__all__ = ["SIGNALS"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that a process ignores if its parent does."""


def import_all() -> None:
    """Import what nodes and commands import."""
    import uvloop  # noqa: F401

    import viewstamp.embed.run_node
    import viewstamp.local.offline  # noqa: F401
    from viewstamp.cli.commands import command_tree

    command_tree()
    gc.collect()
    gc.freeze()


def next_process(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Answer requests. Return in each forked process, with its request and streams; None = the requester has ended."""
    while True:
        size, streams, _, _ = socket.recv_fds(requests, 4, 3)
        if not size:
            return None
        text = bytearray()
        while len(text) < int.from_bytes(size):
            text += requests.recv(int.from_bytes(size) - len(text))
        numbers = os.pipe()
        adopted = os.pipe()
        between = os.fork()
        if not between:
            process = os.fork()
            if process:
                os.write(numbers[1], process.to_bytes(4))
                os._exit(0)
            os.close(adopted[1])
            os.read(adopted[0], 1)  # Until the process between has ended, and the requester is the parent.
            return json.loads(text), streams
        number = os.read(numbers[0], 4)
        os.waitpid(between, 0)
        requests.sendall(number)
        for descriptor in (*streams, *numbers, *adopted):
            os.close(descriptor)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Take on what a process has from its parent and from its command line, and drop all else."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["session"]:
        os.setsid()
    for number in SIGNALS:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, _opened(number, getattr(sys, name)))
    sys.path[0] = request["directory"]
    sys.argv[1:] = request["arguments"]
    sys.orig_argv[:] = [sys.executable, "-m", "viewstamp", *request["arguments"]]


def _opened(number: int, like: Any) -> io.TextIOWrapper:
    is_written, is_direct = number != 0, like.write_through
    bare: Any = os.fdopen(number, "wb" if is_written else "rb", 0 if is_written and is_direct else -1, closefd=False)
    by_lines = is_written and not is_direct and (number == 2 or os.isatty(number))
    return io.TextIOWrapper(bare, like.encoding, like.errors, line_buffering=by_lines, write_through=is_direct)


def main() -> None:
    """Fork processes until the requester at stdin ends; then, in each of them, run its command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the requester, and so this program.
    requests = socket.socket(fileno=os.dup(0))
    import_all()
    asked = next_process(requests)
    if asked is not None:
        requests.detach()
        become(*asked)
        runpy.run_module("viewstamp", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
