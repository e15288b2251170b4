"""A node reports to systemd: ready without a majority, alive as long as it is, stopping before it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import PATIENCE_SECONDS
from viewstamp.config import create_cluster, free_addresses, node_file

pytestmark = pytest.mark.slow


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "notify"))
        found.settimeout(PATIENCE_SECONDS)
        yield found


def messages(manager: socket.socket) -> Iterator[str]:
    while True:
        yield from manager.recv(4096).decode().splitlines()


def test_node_alone_is_ready_for_systemd_and_not_for_clients(tmp_path: Path, manager: socket.socket) -> None:
    """Two members of three are missing: the service has started, and /readyz fails with the reason."""
    create_cluster(str(tmp_path), 3)
    [health] = free_addresses(1)
    environment = {
        **os.environ,
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "200000",
        "VIEWSTAMP_NODE__HEALTH": health,
    }
    command = [sys.executable, "-m", "viewstamp", "node", "run", "--config", node_file(str(tmp_path), "n1")]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, env=environment, stderr=log) as process:
        try:
            said = messages(manager)
            assert next(said).startswith("STATUS=")
            assert next(said).startswith("EXTEND_TIMEOUT_USEC=")
            assert "READY=1" in said
            assert [next(said) for _ in range(2)] == [
                "WATCHDOG=1",
                "STATUS=no leader is known in term 0; `viewstamp doctor` names the reason",
            ]
            assert "WATCHDOG=1" in said
            assert b"ok     running: no part has failed" in get(health, "livez", 200)
            assert b"failed leader: no leader is known" in get(health, "readyz", 503)
            process.send_signal(signal.SIGSTOP)
            with pytest.raises((TimeoutError, urllib.error.URLError)):
                urllib.request.urlopen(f"http://{health}/livez", timeout=0.3)
            process.send_signal(signal.SIGCONT)
            process.terminate()
            assert "STOPPING=1" in said
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def get(address: str, path: str, code: int) -> bytes:
    """Return the body of a response, which has to have this status."""
    try:
        with urllib.request.urlopen(f"http://{address}/{path}", timeout=PATIENCE_SECONDS) as response:
            found, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        found, body = error.code, error.read()
    assert found == code, body
    return bytes(body)


async def test_messages_are_dropped_without_a_service_manager() -> None:
    from viewstamp.embed.service_manager import ServiceManager

    for environment in ({}, {"NOTIFY_SOCKET": "/nowhere"}, {"NOTIFY_SOCKET": "@nowhere", "WATCHDOG_USEC": "soon"}):
        ServiceManager(environment).tell("READY=1")
    await asyncio.sleep(0)
