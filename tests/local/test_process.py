"""A process number alone does not say who a process is."""

from __future__ import annotations

import os
import subprocess
import sys

from viewstamp.local.process import command_line, start_mark


def test_a_process_keeps_its_mark_and_another_one_has_another() -> None:
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


def test_a_process_that_has_ended_is_gone_even_before_anybody_waited_for_it() -> None:
    reading, writing = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", "pass"], pass_fds=[writing])
    os.close(writing)
    assert os.read(reading, 1) == b""  # Nobody holds the other end any more: it has ended.
    while start_mark(child.pid) is not None:
        os.sched_yield()
    child.wait()
    assert start_mark(child.pid) is None
    os.close(reading)
