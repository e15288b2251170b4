"""The store of runs as a node calls it: each call is made by the archive process, and has a time limit.

Writing Parquet in a thread of the node would hold the interpreter's lock for up to 50 ms, and a thread that hangs in a
store cannot be ended. The process (``worker.py``) is started with the first call, and ended when the archivist rests.

| event | effect |
| --- | --- |
| the process is killed, or ends for lack of memory | the call under way raises UnavailableError at once; the next \
call of the store starts another process |
| the store hangs | after ``seconds`` the process is killed, and the call raises UnavailableError |
| the socket breaks, or an answer is no message | the same |
| ``close`` or ``rest`` | the process is killed, and a call under way raises |
| the node's process ends, however | the process sees the end of its socket, and ends itself |
| a killed process does not end, because the kernel waits for a disk | after two of them no other one is started |
| an object was begun by a process that has ended | all its calls raise UnavailableError; ``abandon`` does nothing |
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from viewstamp.archive.columns import check_arrow
from viewstamp.archive.pipe import receive, send
from viewstamp.archive.run_store import RunObjects
from viewstamp.errors import ClosedError, ConfigError, UnavailableError
from viewstamp.ids import GROUP_0, GroupId, Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.keyed_archivist import WrittenKeys
from viewstamp.node.run_objects import WrittenRun
from viewstamp.wire.answers import error_from
from viewstamp.wire.batch import Buffer
from viewstamp.wire.ordering import GlobalRun

__all__ = ["CALL_SECONDS", "RunProcess"]

CALL_SECONDS = 180.0
"""Time limit of a call. The longest one writes 16 MiB, or syncs a whole object; a store may repeat its own calls."""
_ENDING_MAX = 2
"""The most killed processes that have not ended yet."""
_START = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from viewstamp.archive.worker import main
main(int(sys.argv[2]))
"""
_SCARCE = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class RunProcess:
    """The objects of the runs of one cluster. It has the calls of ``node.archivist.RunStore``, which block.

    Invariants:
      * at most one process is in use; only one thread at a time makes a call
      * ``rest`` and ``close`` may be called by any thread at any time, and do not block
    """

    def __init__(self, runs: RunObjects, *, seconds: float = CALL_SECONDS) -> None:
        """Let a process call the store of ``runs``; ``seconds`` is the time limit of each call."""
        self.where = runs.where
        self.runs = runs
        """The same runs, called in this process, by readers."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._current: _Process | None = None
        self._ending: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    def check_usable(self) -> None:
        """Check that pyarrow is installed, and that the store can be used; as ``RunStore``."""
        check_arrow()
        self.runs.check_store()

    def status(self) -> dict[str, object]:
        """Return what is wrong with the store; as ``RunStore``."""
        return self.runs.status()

    def recognise(self, runs: Sequence[ArchivedRun]) -> bool:
        """Return whether the store has one of these runs; as ``RunStore``."""
        return self._recognise(GROUP_0, runs)

    def _recognise(self, group: GroupId, runs: Sequence[ArchivedRun]) -> bool:
        return bool(self.process().call("recognise", group=group, runs=[asdict(run) for run in runs])["is_known"])

    def begin(self, run: RunId, topic: TopicId, first: Position, schema: str = "") -> _RunObject:
        """Begin to write the object of a run; as ``RunStore``."""
        return self._begin(GROUP_0, run, topic, first, schema)

    def _begin(self, group: GroupId, run: RunId, topic: TopicId, first: Position, schema: str) -> _RunObject:
        process = self.process()
        process.call("begin", run=run, topic=topic, first=first, schema=schema, group=group)
        return _RunObject(process)

    def check(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run and compare it with the catalogue; as ``RunStore``."""
        process = self.process()
        process.call("check", **asdict(run))
        while (size := process.call("step")["bytes"]) is not None:
            yield size

    @property
    def keys(self) -> KeyProcess:
        """The runs of keys, whose calls the same process makes."""
        return KeyProcess(self)

    def remove(self, run: RunId) -> None:
        """Remove the object of a run of this cluster; as ``RunStore``."""
        self.process().call("remove", run=run, group=GROUP_0)

    def list_sizes(self) -> dict[int, int]:
        """Return the size of each object of this cluster, by the id of its run; as ``RunStore``."""
        return dict(self.process().call("list", group=GROUP_0)["sizes"])

    def of_group(self, group: GroupId) -> GroupRuns:
        """Return the objects of another group, whose calls the same process makes; as ``RunStore``."""
        return GroupRuns(self, group)

    def rest(self) -> None:
        """End the process; the next call starts another one. A call under way raises UnavailableError."""
        with self._lock:
            process, self._current = self._current, None
        if process is not None:
            process.end()

    def close(self) -> None:
        """End the process for good. A call under way raises UnavailableError, and each later one ClosedError."""
        self._is_closed = True
        self.rest()

    def process(self) -> _Process:
        """Return the process, which is started if there is none."""
        with self._lock:
            if self._is_closed:
                raise ClosedError("the node is stopping", remedy="ask another node")
            if self._current is not None and self._current.is_usable:
                return self._current
            self._ending = [each for each in self._ending if each.poll() is None]
            if len(self._ending) >= _ENDING_MAX:
                raise UnavailableError(
                    f"{_ENDING_MAX} processes that used {self.where} were killed and have not ended yet",
                    remedy="check the file system of the archive; nothing was archived",
                )
            process = self._current = _Process(self.where, self._seconds)
            self._ending.append(process.popen)
        try:
            process.call("open", where=self.where, cluster=self.runs.cluster)
        except BaseException:
            process.end()
            raise
        return process


class GroupRuns:
    """The objects of the runs of another group than 0. It has the calls of ``node.archivist.RunStore``, which block."""

    def __init__(self, runs: RunProcess, group: GroupId) -> None:
        self.where = runs.where
        self._runs = runs
        self._group = group

    @property
    def keys(self) -> KeyProcess:
        """The runs of keys."""
        return self._runs.keys

    def of_group(self, group: GroupId) -> GroupRuns:
        """Return the objects of another group."""
        return GroupRuns(self._runs, group)

    def check_usable(self) -> None:
        """Check that the store can be used."""
        self._runs.check_usable()

    def status(self) -> dict[str, object]:
        """Return what is wrong with the store."""
        return self._runs.status()

    def recognise(self, runs: Sequence[ArchivedRun]) -> bool:
        """Return whether the store has one of these runs."""
        return self._runs._recognise(self._group, runs)

    def begin(self, run: RunId, topic: TopicId, first: Position, schema: str = "") -> _RunObject:
        """Begin to write the object of a run."""
        return self._runs._begin(self._group, run, topic, first, schema)

    def check(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run and compare it with the catalogue."""
        return self._runs.check(run)

    def remove(self, run: RunId) -> None:
        """Remove the object of a run of this group."""
        self._runs.process().call("remove", run=run, group=self._group)

    def list_sizes(self) -> dict[int, int]:
        """Return the size of each object of this group, by the id of its run."""
        return dict(self._runs.process().call("list", group=self._group)["sizes"])

    def rest(self) -> None:
        """End the process."""
        self._runs.rest()

    def close(self) -> None:
        """End the process for good."""
        self._runs.close()


class _RunObject:
    """The object of a run that the process writes; as ``node.archivist.RunObject``."""

    def __init__(self, process: _Process) -> None:
        self._process = process

    def add(self, end: Position, buffers: Sequence[Buffer], order: Sequence[GlobalRun] = ()) -> Position:
        """Add records before ``end``; ``order``: the runs that hold them, if the topic is a stream."""
        return Position(self._process.call("add", buffers, end=end, order=[list(run) for run in order])["next"])

    def finish(self) -> WrittenRun:
        """Complete the file, and make the object durable."""
        return WrittenRun(**self._process.call("finish"))

    def abandon(self) -> None:
        """Remove what was written, unless the process has ended: then it stays until the run is removed."""
        with suppress(UnavailableError):
            self._process.call("abandon")


class KeyProcess:
    """The runs of keys. It has the calls of ``node.keyed_archivist.KeyStore``, which block."""

    def __init__(self, runs: RunProcess) -> None:
        self._runs = runs

    def begin_dump(self, run: RunId, topic: TopicId, first: Position, end: Position) -> _DumpObject:
        """Begin to write the object of a dump; as ``KeyStore``."""
        process = self._runs.process()
        process.call("dump", run=run, topic=topic, first=first, end=end)
        return _DumpObject(process)

    def begin_merge(
        self,
        run: ArchivedRun,
        slices: Sequence[ArchivedRun],
        *,
        start: bytes,
        end: bytes | None,
        is_oldest: bool,
        range_bytes: int,
    ) -> _MergeObject:
        """Begin to write the object of a merge; as ``KeyStore``."""
        process = self._runs.process()
        process.call(
            "merge",
            run=asdict(run),
            slices=[asdict(each) for each in slices],
            start=start,
            end=end,
            is_oldest=is_oldest,
            range_bytes=range_bytes,
        )
        return _MergeObject(process)

    def check_keys(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run and compare it with the catalogue; as ``KeyStore``."""
        process = self._runs.process()
        process.call("check keys", **asdict(run))
        while (size := process.call("step")["bytes"]) is not None:
            yield size


class _DumpObject:
    """The object of a dump that the process writes; as ``node.keyed_archivist.DumpObject``."""

    def __init__(self, process: _Process) -> None:
        self._process = process

    def add(self, end: Position, buffers: Sequence[Buffer]) -> Position:
        """Add records before ``end``."""
        return Position(self._process.call("add", buffers, end=end)["next"])

    def finish(self) -> WrittenKeys:
        """Complete the file, and make the object durable."""
        return WrittenKeys(**self._process.call("finish"))

    def abandon(self) -> None:
        """Remove what was written, unless the process has ended: then it stays until the run is removed."""
        with suppress(UnavailableError):
            self._process.call("abandon")


class _MergeObject:
    """The object of a merge that the process writes; as ``node.keyed_archivist.MergeObject``."""

    def __init__(self, process: _Process) -> None:
        self._process = process

    def step(self) -> bool:
        """Write further rows; return whether there are more."""
        return bool(self._process.call("merge step")["goes_on"])

    def finish(self) -> WrittenKeys:
        """Complete the file, and make the object durable."""
        return WrittenKeys(**self._process.call("finish merge"))

    def abandon(self) -> None:
        """Remove what was written, unless the process has ended."""
        with suppress(UnavailableError):
            self._process.call("abandon merge")


class _Process:
    """One archive process, and the socket to it."""

    def __init__(self, where: str, seconds: float) -> None:
        """Start it. Raises ConfigError, UnavailableError."""
        self._where = where
        self._busy = threading.Lock()
        self._pipe, inherited = socket.socketpair()
        self._pipe.settimeout(seconds)
        self._seconds = seconds
        self.is_usable = True
        try:
            with inherited:
                self.popen = _start(inherited)
        except BaseException:
            self._pipe.close()
            raise

    def call(self, name: str, pieces: Sequence[Buffer] = (), **fields: object) -> dict[str, Any]:
        """Make a call and return its answer.

        Raises:
          UnavailableError: the process has ended, or did not answer in time and was killed.
          ViewstampError: the error of the call.
        """
        with self._busy:
            why = "it was ended"
            answer = None
            if self.is_usable:
                try:
                    send(self._pipe, {"call": name, **fields}, pieces)
                    answer = receive(self._pipe)
                    why = "it ended"
                except TimeoutError:
                    why = f"it did not answer within {self._seconds:g} s, and was killed"
                except OSError:
                    why = "it ended"
                except ValueError as error:
                    why = f"{error}, so it was killed"
        if answer is None:
            if self.is_usable and why == "it ended":
                why += self._exit()
            self.end()
            raise UnavailableError(
                f"the archive process of this node did not complete {name!r} in {self._where}: {why}",
                remedy="check the store of the archive, and the memory of this machine; then try again",
            )
        found = answer[0]
        if "error" in found:
            raise error_from(found)
        return found

    def end(self) -> None:
        """Kill the process, and end a call that waits for it. Never blocks. Idempotent, from any thread."""
        self.is_usable = False
        with suppress(OSError):
            self._pipe.shutdown(socket.SHUT_RDWR)
        if self.popen.poll() is None:
            self.popen.kill()
            # Reaps the process. It may take long if the kernel waits for a disk.
            threading.Thread(target=self.popen.wait, name="viewstamp-archive-end", daemon=True).start()
        if self._busy.acquire(blocking=False):
            self._pipe.close()
            self._busy.release()

    def _exit(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            code = self.popen.wait(1.0)
            return f" by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
        return ""


def _start(inherited: socket.socket) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _START, json.dumps(sys.path), str(os.getpid())]
    try:
        return subprocess.Popen(
            command,
            stdin=inherited.fileno(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # So that Ctrl-C in the terminal reaches only the node, which may need it to stop.
        )
    except OSError as error:
        if error.errno in _SCARCE:
            raise UnavailableError(
                f"no process could be started for the archive: {error.strerror}", remedy="try again later"
            ) from error
        raise ConfigError(
            f"no process could be started for the archive with {sys.executable!r}: {error.strerror}",
            remedy="run the node with a Python interpreter that programs can start",
        ) from error
