"""A node of the product whose process ends itself by SIGKILL at a chosen step of the archive.

``python -m tests.integration.dying_node FILE`` reads steps from its input, one a line, and runs the node of the
settings file in a new process for each of them, until that process has ended; then it writes ``died`` and the signal.
It forks, so the imports are made once. At the end of its input it ends the node, if it runs.

A step is ``JOB: PLACE``, or ``JOB: PLACE, worker PLACE``: the archive process is killed at the second place first, so
that the node drops the run that it was writing. The job is ``dump``, ``merge`` or ``run`` for the runs that were
prepared so in group 0, ``stream`` for those of other groups, or ``any``. Places are ``RECORD proposed`` (one turn of
the loop later), ``RECORD applied``, ``CALL sent`` or ``CALL answered`` for the calls of the archive process, and ``log
trim begun`` or ``log trimmed`` when a group other than 0 deletes segments of its log. An empty step lets the node live.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from tests.mutants.mutants import patched
from tests.quick_rounds import quick_rounds
from viewstamp.archive import pipe, run_process
from viewstamp.ids import GROUP_0, Index
from viewstamp.local.node_process import run_process as run_node_process
from viewstamp.node.archivist import Archivist
from viewstamp.node.snapshots import policy
from viewstamp.wire.batch import Batch, Kind

__all__ = ["ROUNDS"]

FAST_LOG = {"_DROP_SECONDS": 0.1, "_IDLE_LOOK_SECONDS": 0.1}
"""Archived records are deleted from the log soon."""
ROUNDS = {"wait_seconds": 0.0, "dump_bytes": 2000, "range_bytes": 4000}
"""A run is due as soon as there are records, and a merge after some dumps; merges divide their range."""


def main(file: str) -> None:
    with quick_rounds(**ROUNDS), patched(policy, **FAST_LOG):
        while line := sys.stdin.readline():
            child = os.fork()
            if not child:
                try:
                    _install(line.strip())
                    run_node_process(file, {})
                finally:
                    os._exit(1)
            _say("running")
            status = _wait(child)
            _say(f"died {os.WTERMSIG(status) if os.WIFSIGNALED(status) else -status}")


def _wait(child: int) -> int:
    """Wait until a process has ended, or kill it when the input ends or has the next line; return its status."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if select.select([sys.stdin], [], [], 0.01)[0]:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _install(step: str) -> None:
    """Let this process end at a step."""
    place, _, of_worker = step.partition(", worker ")
    wanted, _, place = place.partition(": ")
    job = ""
    workers: list[int] = []

    def reach(name: str) -> None:
        if of_worker and name == of_worker and job == wanted and not workers:
            for pid in (each for each in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_worker(each)):
                workers.append(pid)
                os.kill(pid, signal.SIGKILL)
        elif name == place and wanted in (job, "any") and (workers or not of_worker):
            os.kill(os.getpid(), signal.SIGKILL)

    send, receive, propose, trim = pipe.send, pipe.receive, Archivist._propose, policy.Snapshotter._trim
    calls: list[str] = []

    def sending(to: Any, fields: Any, pieces: Sequence[Any] = ()) -> None:
        calls[:] = [str(fields["call"])]
        send(to, fields, pieces)
        reach(f"{calls[0]} sent")

    def receiving(source: Any) -> Any:
        answer = receive(source)
        reach(f"{calls[0]} answered")
        return answer

    async def proposing(self: Archivist, batch: Batch) -> dict[str, object]:
        nonlocal job
        name = batch.kind.name
        if batch.kind is Kind.PREPARE_RUN:
            job = "run" if self._group.id == GROUP_0 else "stream"
        elif batch.kind is Kind.PREPARE_KEYS:
            job = "merge" if msgpack.unpackb(batch.values()[0])["is_merge"] else "dump"
        asyncio.get_running_loop().call_soon(reach, f"{name} proposed")
        result = await propose(self, batch)
        reach(f"{name} applied")
        return result

    async def trimming(self: policy.Snapshotter, end: Index) -> None:
        if "/groups/" not in self._wal.directory:
            await trim(self, end)
            return
        before = self._wal.first_index
        reach("log trim begun")
        await trim(self, end)
        if self._wal.first_index > before:
            reach("log trimmed")

    _set(policy.Snapshotter, _trim=trimming)
    _set(run_process, send=sending, receive=receiving)
    _set(Archivist, _propose=proposing)


def _set(target: object, **named: Callable[..., Any]) -> None:
    for name, call in named.items():
        setattr(target, name, call)


def _is_worker(pid: int) -> bool:
    """Return whether a process is the archive process of this one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return int(stat.read().rpartition(")")[2].split()[1]) == os.getpid()
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1])
