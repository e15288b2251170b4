"""The archive process: it answers its node, and if one of the two dies or hangs, the other one goes on."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.archive.test_run_store import RUN, TOPIC, batch, objects
from tests.mutants.mutants import patched
from tests.node import group
from viewstamp.archive import columns, run_process
from viewstamp.archive.run_process import RunProcess
from viewstamp.errors import (
    ClosedError,
    ConfigError,
    CorruptionError,
    FrameError,
    StorageError,
    UnavailableError,
)
from viewstamp.ids import ClusterId, GroupId, Position, RunId
from viewstamp.local.process import is_paused, start_mark
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.wire.batch import build_batch

pytestmark = [pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed"), pytest.mark.slow]

CLUSTER = ClusterId("c1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunProcess]:
    found = RunProcess(objects(tmp_path))
    yield found
    found.close()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + group.PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


def calling(call: Callable[[], object]) -> list[UnavailableError]:
    """Make a call in a thread; return a list that gets its error."""
    failed: list[UnavailableError] = []

    def run() -> None:
        try:
            call()
        except UnavailableError as error:
            failed.append(error)

    threading.Thread(target=run, daemon=True).start()
    return failed


def process_of(store: RunProcess) -> Any:
    assert store._current is not None
    return store._current.popen


def kill(store: RunProcess) -> None:
    process_of(store).kill()


def hang(path: Path) -> None:
    """Let each list of the store hang: the system opens a FIFO for reading once somebody writes into it."""
    (path / "store" / CLUSTER).mkdir(parents=True, exist_ok=True)
    os.mkfifo(path / "store" / CLUSTER / f"{77:020d}.parquet")


def write(store: Any, run: RunId = RUN) -> ArchivedRun:
    written = store.begin(run, TOPIC, Position(3))
    assert written.add(Position(9), [batch(1, 4).buffer, batch(5, 1).buffer]) == 6
    assert written.add(Position(9), [batch(6, 5).buffer]) == 9
    described = written.finish()
    return ArchivedRun(run, TOPIC, Position(3), Position(9), "committed", "", described.size, described.digest)


def test_the_process_writes_the_same_run_as_a_thread(store: RunProcess, tmp_path: Path) -> None:
    store.check_usable()
    store.recognise([])
    found = write(store)
    inside = objects(tmp_path / "inside")
    assert write(inside) == found
    name = f"{CLUSTER}/{RUN:020d}.parquet"
    assert (tmp_path / "store" / name).read_bytes() == (tmp_path / "inside" / "store" / name).read_bytes()
    assert sum(store.check(found)) == sum(inside.check(found)) > 0
    assert store.list_sizes() == {RUN: found.size}
    assert store.recognise([found])
    assert not store.of_group(GroupId(7)).recognise([replace(found, id=RunId(1))])
    with pytest.raises(UnavailableError, match="already"):
        store.begin(RUN, TOPIC, Position(3))
    (tmp_path / "store" / name).write_bytes(b"x" * found.size)
    with pytest.raises(CorruptionError, match="damaged"):
        list(store.check(found))
    store.remove(RUN)
    assert store.list_sizes() == {}


def test_a_call_that_fails_does_not_end_the_process(store: RunProcess) -> None:
    written = store.begin(RUN, TOPIC, Position(3))
    pid = process_of(store).pid
    with pytest.raises(FrameError, match="is not the batch of topic 3 that holds position 3"):
        written.add(Position(9), [batch(5, 2).buffer])
    written.abandon()
    assert store.list_sizes() == {}
    assert process_of(store).pid == pid


def test_the_error_of_a_piece_is_raised_by_the_next_calls_and_no_run_is_completed(store: RunProcess) -> None:
    """The process writes a piece after its answer, so the node has gone on when the disk of the store is full."""
    written = store.begin(RUN, TOPIC, Position(1))
    process, limit = process_of(store).pid, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (0, limit[1]))
    built = build_batch([bytes(1_000_000)] * 40, topic=TOPIC)
    large = b"".join(built.placed(Position(1), 7))
    assert written.add(Position(99), [large]) == 41
    with pytest.raises(StorageError, match="File too large"):
        written.add(Position(99), [batch(41, 1).buffer])
    resource.prlimit(process, resource.RLIMIT_FSIZE, limit)
    with pytest.raises(StorageError, match="File too large"):
        written.finish()
    written.abandon()
    assert store.list_sizes() == {}
    assert write(store).size > 0, "the next object is another one"
    assert process_of(store).pid == process


def test_a_process_that_is_killed_before_any_call_fails_that_call_only(store: RunProcess, tmp_path: Path) -> None:
    last = write(store)
    for number, step in enumerate(("begin", "add", "finish", "abandon", "check", "step", "remove", "list")):
        run = RunId(RUN + 1 + number)
        written = store.begin(run, TOPIC, Position(3)) if step in ("add", "finish", "abandon") else None
        if step == "finish":
            assert written is not None
            written.add(Position(9), [batch(1, 10).buffer])
        checking = store.check(last)
        if step == "step":
            next(checking)
        kill(store)
        calls: dict[str, Callable[[], object]] = {
            "begin": lambda run=run: store.begin(run, TOPIC, Position(3)),  # type: ignore[misc]
            "add": lambda written=written: written.add(Position(9), [batch(1, 4).buffer]),  # type: ignore[misc]
            "finish": lambda written=written: written.finish(),  # type: ignore[misc]
            "check": lambda: list(store.check(last)),
            "step": lambda checking=checking: list(checking),  # type: ignore[misc]
            "remove": lambda run=run: store.remove(run),  # type: ignore[misc]
            "list": store.list_sizes,
        }
        if step == "abandon":
            assert written is not None
            written.abandon()
        else:
            with pytest.raises(UnavailableError, match=r"did not complete '.*: it ended|was ended"):
                calls[step]()
        if written is not None:
            with pytest.raises(UnavailableError):
                written.finish()
            store.remove(run)
        assert write(store, run).size == last.size, "the next call has another process"
        store.remove(run)
        assert store.list_sizes() == {RUN: last.size}
        assert sum(store.check(last)) > 0


def test_a_store_that_hangs_is_left_at_the_time_limit_and_its_process_killed(store: RunProcess, tmp_path: Path) -> None:
    found = write(store)
    hang(tmp_path)
    process = process_of(store)
    assert store._current is not None
    store._current._pipe.settimeout(0.1)
    failed = calling(store.list_sizes)
    eventually(lambda: failed != [])
    assert "did not answer within" in str(failed[0])
    eventually(lambda: process.poll() is not None)
    assert sum(store.check(found)) > 0, "what does not hang goes on"


@pytest.mark.parametrize("is_final", [False, True])
def test_a_call_that_hangs_is_ended_by_rest_and_close(store: RunProcess, tmp_path: Path, is_final: bool) -> None:
    found = write(store)
    hang(tmp_path)
    process = process_of(store)
    failed = calling(store.list_sizes)
    assert store._current is not None
    eventually(store._current._busy.locked)
    (store.close if is_final else store.rest)()
    eventually(lambda: failed != [])
    eventually(lambda: process.poll() is not None)
    if is_final:
        with pytest.raises(ClosedError):
            list(store.check(found))
    else:
        assert sum(store.check(found)) > 0


def test_processes_that_do_not_end_are_two_at_most(store: RunProcess) -> None:
    """As a process that waits for a disk in the kernel: SIGKILL has no effect before the disk answers."""
    processes = []
    own = next(each for each in subprocess.Popen.__mro__ if "kill" in vars(each))
    try:
        with patched(own, kill=lambda self: None):
            for _ in range(2):
                store.recognise([])
                processes.append(process_of(store))
                processes[-1].send_signal(signal.SIGSTOP)
                eventually(lambda: is_paused(processes[-1].pid))
                store.rest()
            with pytest.raises(UnavailableError, match=r"2 processes .* have not ended yet"):
                store.recognise([])
    finally:
        for process in processes:
            process.kill()
            process.wait(group.PATIENCE_SECONDS)
    store.recognise([])


def test_a_process_without_pyarrow_says_so_before_anything_is_written(store: RunProcess, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "pyarrow.py").write_text("raise ImportError('libarrow.so.1 is missing')\n")
    sys.path.insert(0, str(tmp_path / "broken"))
    try:
        with pytest.raises(ConfigError, match=r"need pyarrow, .*libarrow"):
            store.recognise([])
    finally:
        sys.path.remove(str(tmp_path / "broken"))
    assert write(store).size > 0
    with patched(columns, find_spec=lambda name: None), pytest.raises(ConfigError, match="need pyarrow"):
        store.check_usable()


@pytest.mark.parametrize("interpreter", ["", "/nowhere/python"])
def test_a_process_that_cannot_be_started_is_an_error_of_the_machine(store: RunProcess, interpreter: str) -> None:
    with patched(sys, executable=interpreter), pytest.raises(ConfigError, match="no process could be started"):
        store.recognise([])


NODE = """
import os, sys, threading
from viewstamp.archive import run_process
from viewstamp.archive.location import open_store
from viewstamp.archive.run_process import RunProcess
from viewstamp.archive.run_store import RunObjects
from viewstamp.ids import ClusterId, Position, RunId, TopicId
run_process._START = sys.argv[3]
store = RunProcess(RunObjects(open_store(sys.argv[1]), ClusterId("c1")))
if sys.argv[2] == "writes":
    store.begin(RunId(900), TopicId(3), Position(1))
else:
    store.recognise([])
    if sys.argv[2] == "hangs":
        threading.Thread(target=store.list_sizes, daemon=True).start()
        while not store._current._busy.locked():
            pass
    elif os.fork() == 0:  # A program that embeds a node forks, and the new process keeps the socket.
        threading.Event().wait()
print(store._current.popen.pid, flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("state", ["writes", "hangs", "forks"])
def test_the_process_ends_with_a_node_that_is_killed(tmp_path: Path, state: str) -> None:
    hang(tmp_path)
    node = subprocess.Popen(
        [sys.executable, "-c", NODE, str(tmp_path / "store"), state, run_process._START],
        stdout=subprocess.PIPE,
        process_group=0,
    )
    assert node.stdout is not None
    pid, mark = 0, None
    try:
        pid = int(node.stdout.readline())
        mark = start_mark(pid)
        assert mark is not None
        assert os.getpriority(os.PRIO_PROCESS, pid) >= min(os.getpriority(os.PRIO_PROCESS, node.pid) + 1, 19)
        node.kill()
        node.wait(group.PATIENCE_SECONDS)
        eventually(lambda: start_mark(pid) != mark)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(node.pid, signal.SIGKILL)
        if mark is not None and start_mark(pid) == mark:  # It is in a session of its own.
            os.kill(pid, signal.SIGKILL)
        node.wait(group.PATIENCE_SECONDS)
        node.stdout.close()


def test_the_process_has_no_file_of_the_node(store: RunProcess, tmp_path: Path) -> None:
    """The lock of a data directory belongs to an open file, and ends only when no process has it."""
    with open(tmp_path / "lock", "w", encoding="ascii") as lock, socket.socket() as other:
        store.recognise([])
        folder = f"/proc/{process_of(store).pid}/fd"
        inherited = {os.path.realpath(f"{folder}/{each}") for each in os.listdir(folder)}
        assert str(tmp_path / "lock") not in inherited
        inode = os.fstat(other.fileno()).st_ino
        assert not any(f"socket:[{inode}]" in each for each in inherited)
        assert lock.fileno() >= 0
