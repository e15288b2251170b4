"""``examples/trio_service.py`` grants no request beyond the limit."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from viewstamp.config import create_cluster, node_file

pytestmark = pytest.mark.slow

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "trio_service.py")


def test_no_request_too_many_is_granted_while_the_leader_leaves() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("n")
    assert done.stdout.endswith(" led and went away; granted: ada 100, bob 100, eve 100 of 100 each\n")


def ask(port: int, lines: bytes) -> bytes:
    """Send lines to the service as ``nc`` does, as soon as it listens."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(lines)
                connection.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: connection.recv(4096), b""))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_member_answers_and_keeps_its_state_over_a_restart(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answers = []
    for lines in (b"take ada 30\nshow ada\ntake ada 80\nwhat\n", b"show ada\n"):
        command = [sys.executable, EXAMPLE, node_file(str(tmp_path), "n1"), str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as service:
            answers.append(ask(port, lines))
            service.send_signal(signal.SIGINT)
            assert service.communicate(timeout=120) == (b"stopped\n", b"")
    assert answers == [
        b"ok 70\nok 70\nno: 70 left\nno: say take CUSTOMER N, or show CUSTOMER\n",
        b"ok 70\n",
    ]
