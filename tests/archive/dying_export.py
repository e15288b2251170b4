"""``viewstamp archive export`` in processes that end themselves by SIGKILL at a chosen step.

``python -m tests.archive.dying_export`` reads lines from its input: a step, and the arguments of the command, with
tabs. It runs the command in a new process for each of them, and writes the signal by which that ended, or 0. It
forks, so the imports are made once. A step is ``before CALL`` or ``after CALL``, of the calls in ``CALLS``; an empty
one lets the command finish.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from typing import Any

import pyiceberg.io.pyarrow
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update.snapshot import _FastAppendFiles

import viewstamp.archive.export  # noqa: F401
from viewstamp.cli import main

__all__ = ["CALLS"]

CALLS: dict[str, tuple[Any, str]] = {
    "table": (SqlCatalog, "create_table"),
    "file": (pyiceberg.io.pyarrow, "write_file"),
    "manifests": (_FastAppendFiles, "_commit"),
    "metadata": (SqlCatalog, "_write_metadata"),
    "catalogue": (SqlCatalog, "commit_table"),
}


def _install(step: str) -> None:
    """Let this process end at a step."""
    moment, _, call = step.partition(" ")
    owner, name = CALLS[call]
    original = inspect.getattr_static(owner, name)
    plain = original.__func__ if isinstance(original, staticmethod) else original

    def dying(*arguments: Any, **named: Any) -> Any:
        if moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        plain(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, staticmethod(dying) if isinstance(original, staticmethod) else dying)


def _run() -> None:
    while line := sys.stdin.readline():
        step, *arguments = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if step:
                _install(step)
            os._exit(main.run(["archive", "export", *arguments]))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _run()
