"""A process is identified by more than its number."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from viewstamp.local.process import command_line, start_mark, working_directory


def test_each_process_has_a_mark_of_its_own() -> None:
    program = "print('here', flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"here\n"
        mark = start_mark(child.pid)
        assert mark is not None
        assert start_mark(child.pid) == mark
        assert start_mark(os.getpid()) not in (None, mark)
        assert command_line(child.pid)[-2:] == ["-c", program]
        child.kill()


def test_zombie_counts_as_ended() -> None:
    reading, writing = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", "pass"], pass_fds=[writing])
    os.close(writing)
    assert os.read(reading, 1) == b""  # The child was the only holder of the other end, so it has ended.
    while start_mark(child.pid) is not None:
        os.sched_yield()
    child.wait()
    assert start_mark(child.pid) is None
    os.close(reading)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a process whose first thread has ended")
def test_a_process_has_not_ended_while_one_of_its_threads_keeps_its_files_open() -> None:
    """SIGKILL ends the first thread at once, and a thread that waits for its disk later."""
    program = (
        "import ctypes, sys, threading; threading.Thread(target=sys.stdin.read).start();"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        mark = start_mark(child.pid)
        while _state(child.pid) != "Z":
            os.sched_yield()
        assert start_mark(child.pid) == mark is not None
        assert command_line(child.pid)[-1] == program, "so that a node is still found by its arguments"
        assert working_directory(child.pid) == os.getcwd()
        child.stdin.close()
        child.wait()
        assert start_mark(child.pid) is None


def _state(pid: int) -> str:
    """Return the state of a process's first thread; "Z" = it has ended."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
        return stream.read().rpartition(")")[2].split()[0]
