"""A process is identified by more than its number."""

from __future__ import annotations

import os
import subprocess
import sys

from viewstamp.local.process import command_line, start_mark


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
