"""Forked processes of ``python -m viewstamp``: each finds what a started one finds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.quick_processes import QuickPopen
from tests.signals import default_signals
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.process import nodes_end_with_this_process, start_mark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")

MODULE = """
import json, os, resource, signal, sys
streams = sys.stdin, sys.stdout, sys.stderr
umask = os.umask(0)
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "directory": os.getcwd(), "umask": umask,
    "environment": dict(os.environ), "parent": os.getppid(), "session": os.getsid(0) == os.getpid(),
    "group": os.getpgid(0) if os.getsid(0) != os.getpid() else 0, "main": sys.modules["__main__"].__spec__.name,
    "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "descriptors": [number for number in range(100) if os.path.exists(f"/proc/self/fd/{number}")],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "input": sys.stdin.read(),
    "streams": [(s.encoding, s.errors, s.line_buffering, s.isatty(), s.write_through) for s in streams],
}))
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


def found_by(path: Path, *, is_forked: bool, in_session: bool) -> dict[str, Any]:
    """Return what a node finds when it begins to load its actors."""
    QuickPopen.is_on = is_forked
    with subprocess.Popen(
        [sys.executable, "-m", "viewstamp", "node", "run", "--config", str(path / "n1.toml")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=path,
        env=dict(os.environ, PLACE="moved"),
        start_new_session=in_session,
    ) as process:
        out, err = process.communicate(b"a line")
    assert (process.returncode, err) == (7, b"to stderr\n")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("in_session", [False, True])
def test_a_forked_process_inherits_what_a_started_one_inherits(tmp_path: Path, in_session: bool) -> None:
    LocalCluster.open_or_create(tmp_path, 1)
    with (tmp_path / "n1.toml").open("a") as settings:
        settings.write('\n[actors]\nprobe = "probe:Probe"\n')
    (tmp_path / "probe.py").write_text(MODULE)
    umask = os.umask(0o027)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        started = found_by(tmp_path, is_forked=False, in_session=in_session)
        forked = found_by(tmp_path, is_forked=True, in_session=in_session)
    finally:
        os.umask(umask)
        signal.signal(signal.SIGHUP, before)

    assert started == forked
    assert (forked["parent"], forked["umask"], forked["input"]) == (os.getpid(), 0o027, "a line")


def test_a_forked_node_is_a_child_that_signals_reach_and_that_leaves_no_zombie(tmp_path: Path) -> None:
    QuickPopen.is_on = True
    cluster = LocalCluster.open_or_create(tmp_path, 1)
    (node,) = cluster.nodes.values()
    with default_signals(), nodes_end_with_this_process():
        command = [sys.executable, "-m", "viewstamp", "node", "run", "--config", node.file]
        killed = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        killed.kill()
        assert killed.wait(60) == -signal.SIGKILL
        asyncio.run(cluster.start(60))
        pid = node.pid()
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        assert asyncio.run(node.wait_gone(60))
        assert start_mark(pid) is None
    assert node.events("= node stopped")


def test_a_command_with_other_variables_of_the_interpreter_is_started(tmp_path: Path) -> None:
    """A fork could not follow them, because its interpreter and its modules have read them before."""
    QuickPopen.is_on = True
    (tmp_path / "viewstamp.py").write_text("print('another program')")
    environment = dict(os.environ, PYTHONPATH=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "viewstamp"], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert done.stdout == b"another program\n"
