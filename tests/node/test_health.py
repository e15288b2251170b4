"""The health port: whether a node is alive and ready, and an HTTP server that answers two requests only."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.node.group import Group, not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.errors import ConfigError
from viewstamp.host.disk import RealDisk
from viewstamp.host.network import RealNetwork
from viewstamp.ids import NodeId
from viewstamp.node.health.checks import APPLY_LAG_MAX, Check, liveness, readiness
from viewstamp.node.health.port import HealthPort

WELL: dict[str, Any] = {
    "failure": "",
    "stopping": False,
    "disk_seconds": 0.0,
    "lifecycle": "running",
    "repair": None,
    "silent_until": None,
    "member_id": "n1",
    "members": {"n1": "127.0.0.1:1"},
    "leader": "n1",
    "term": 3,
    "full": None,
    "applied_index": 5,
    "commit_index": 5,
    "loop_lag_ms": 0.1,
}


def failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.is_ok]


@pytest.mark.parametrize(
    ("change", "not_alive", "not_ready"),
    [
        ({}, [], []),
        ({"failure": "StorageError"}, ["running"], ["running"]),
        ({"stopping": True}, [], ["running"]),
        ({"disk_seconds": 6.0}, [], ["disk"]),
        ({"disk_seconds": 31.0}, ["disk"], ["disk"]),
        ({"lifecycle": "bootstrapping"}, [], ["log_replayed"]),
        ({"repair": {"sentence": "it fetches"}}, [], ["repaired"]),
        ({"silent_until": [4, 9]}, [], ["repaired"]),
        ({"members": {"n2": "127.0.0.1:1"}}, [], ["member"]),
        ({"leader": None}, [], ["leader"]),
        ({"full": ["the disk is full", "free space"]}, [], ["disk_room"]),
        ({"commit_index": 5 + APPLY_LAG_MAX}, [], []),
        ({"commit_index": 6 + APPLY_LAG_MAX}, [], ["applied"]),
        ({"unserved": {}}, [], []),
        ({"unserved": {7: "no leader is known in term 2"}}, [], ["groups"]),
    ],
)
def test_each_fact_fails_its_check(change: dict[str, Any], not_alive: list[str], not_ready: list[str]) -> None:
    status = {**WELL, **change}
    assert (failed(liveness(status)), failed(readiness(status))) == (not_alive, not_ready)


async def test_node_without_a_majority_is_alive_and_not_ready(tmp_path: Path) -> None:
    """A restart would bring no majority back, so the program that restarts nodes must leave it alone."""
    async with Group(tmp_path, 3) as group:
        stopped = group.make("n3")
        assert (failed(stopped.check_alive()), failed(stopped.check_ready())) == ([], ["log_replayed"])
        await group.run()
        await wait_for(lambda: not any(failed(node.check_ready()) for node in group.nodes.values()), group.journal.tail)
        await group.stop("n1", "n2")
        node = group.nodes[NodeId("n3")]
        await wait_for(lambda: failed(node.check_ready()) == ["leader"], group.journal.tail)
        assert failed(node.check_alive()) == []
        assert list(node.status["not_ready"]) == ["leader"]  # type: ignore[call-overload]


async def test_disk_that_does_not_return_is_measured_on_an_idle_node(tmp_path: Path) -> None:
    """Nothing is written there, so only the probe shows it."""
    goes_on = threading.Event()
    goes_on.set()

    def hook(call: str, path: str, caller: str) -> bool:
        if not call.startswith("async "):
            goes_on.wait(30)
        return not_on_the_loop(call, path, caller)

    async with Group(tmp_path, 1, disks=lambda _: HookedDisk(RealDisk(), hook)) as group:
        await group.run()
        node = group.nodes[NodeId("n1")]
        wal = node.group.wal
        assert wal is not None
        node.check_alive()
        await wait_for(lambda: node._disk_probe.seconds == 0, group.journal.tail)
        goes_on.clear()
        wal.run(lambda: goes_on.wait(30) and None, lambda _: None)
        await asyncio.sleep(0)
        node.check_alive()
        await wait_for(lambda: node._disk_probe.seconds > 0.05, group.journal.tail)
        node.check_alive()
        assert node._disk_probe.seconds > 0.05, "a second look does not begin anew"
        goes_on.set()
        await wait_for(lambda: node._disk_probe.seconds == 0, group.journal.tail)


# HTTP.


@pytest.fixture
async def port() -> AsyncIterator[HealthPort]:
    checks = {
        "/livez": lambda: [Check("event_loop", True, "turns")],
        "/readyz": lambda: [Check("leader", False, "no leader"), Check("disk", True, "answers")],
    }
    found = HealthPort(checks)
    await found.open("127.0.0.1:0", RealNetwork())
    try:
        yield found
    finally:
        await found.close()


async def connect(port: HealthPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, number = port.address.rpartition(":")
    return await asyncio.open_connection(host, int(number))


async def ask(port: HealthPort, *parts: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a request in parts; return status, header fields and body of the response, after which it has to end."""
    reader, writer = await connect(port)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    return int(line.split()[1]), {name.lower(): value for name, value in (field.split(": ") for field in fields)}, body


async def test_checks_are_answered_as_text(port: HealthPort) -> None:
    assert (await ask(port, b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"))[::2] == (200, b"ok     event_loop: turns\n")
    code, fields, body = await ask(port, b"GET /read", b"yz?x HTTP/1.0\r", b"\n\r\n")
    assert (code, body) == (503, b"failed leader: no leader\nok     disk: answers\n")
    assert fields["content-length"] == str(len(body))
    assert fields["connection"] == "close"


@pytest.mark.parametrize(
    "request_", [b"GET /readyz?format=json HTTP/1.1", b"GET /readyz HTTP/1.1\r\naccept: application/json"]
)
async def test_checks_are_answered_as_json(port: HealthPort, request_: bytes) -> None:
    code, fields, body = await ask(port, request_ + b"\r\n\r\n")
    assert (code, fields["content-type"]) == (503, "application/json")
    assert json.loads(body) == {
        "ok": False,
        "checks": [
            {"name": "leader", "ok": False, "reason": "no leader"},
            {"name": "disk", "ok": True, "reason": "answers"},
        ],
    }


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /livez HTTP/1.1\r\nContent-Length: 9\r\n\r\n", 405),
        (b"hello\r\n\r\n", 400),
        (b"GET /livez SPDY/9\r\n\r\n", 400),
        (b"\xff\x00\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nA: " + b"x" * 9000, 431),
        (b"GET /livez HTTP/1.1\r\nA: " + b"x" * 9000 + b"\r\n\r\n", 431),
    ],
)
async def test_other_requests_are_refused(port: HealthPort, request_: bytes, code: int) -> None:
    assert (await ask(port, request_))[0] == code


async def test_connections_that_send_nothing_do_not_hide_the_node(port: HealthPort) -> None:
    held = [await connect(port) for _ in range(40)]
    assert (await ask(port, b"GET /livez HTTP/1.1\r\n\r\n"))[0] == 200
    assert len(port.requests) <= 16
    for _, writer in held:
        writer.close()


async def test_connection_that_is_too_slow_is_ended(port: HealthPort) -> None:
    port.request_seconds = 0.05
    reader, writer = await connect(port)
    writer.write(b"GET /livez")
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    assert len(port.requests) == 0


async def test_address_in_use_is_named(port: HealthPort) -> None:
    with pytest.raises(ConfigError, match=r"\[node\] health: cannot listen on") as caught:
        await HealthPort({}).open(port.address, RealNetwork())
    assert "set another port in [node] health" in caught.value.remedy


async def test_node_answers_on_its_port_from_its_start_to_its_end(tmp_path: Path) -> None:
    async with Group(tmp_path, 1, health="127.0.0.1:99") as group:
        network = group.board.network("client")

        async def get() -> bytes:
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            connection = await network.connect("127.0.0.1:99", lambda _: Answer(answer))
            connection.send([b"GET /readyz HTTP/1.1\r\n\r\n"])
            return await answer

        await group.run()
        assert (await get()).startswith(b"HTTP/1.1 200 OK\r\n")
        await group.stop("n1")
        with pytest.raises(ConnectionError):
            await get()


class Answer:
    """Collects the bytes of a connection until its end."""

    def __init__(self, answer: asyncio.Future[bytes]) -> None:
        self._answer = answer
        self._data = b""

    def on_bytes(self, data: bytes) -> None:
        self._data += data

    def on_closed(self, error: BaseException | None) -> None:
        self._answer.set_result(self._data)
