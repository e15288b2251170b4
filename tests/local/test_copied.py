"""A copy of a cluster beside its original: no command on the copy reaches the original."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.client import identity
from viewstamp.config import free_addresses
from viewstamp.host.address import parse_address
from viewstamp.local.cluster import LocalCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a cluster of one node with a topic of three records; its directory was copied while it was stopped."""
    path = tmp_path_factory.mktemp("copied") / "prod"
    (path.parent / "lines").write_bytes(b"a\nb\nc\n")
    with none_left(path.parent):
        for command in (["cluster", "start", "--nodes", "1"], ["topic", "create", "t"], ["cluster", "stop"]):
            assert main.run([*command, "--dir", str(path)]) == 0
        for name in ("moved", "twin"):
            shutil.copytree(path, path.parent / name)
        assert main.run(["cluster", "start", "--dir", str(path)]) == 0
        assert main.run(["append", "t", str(path.parent / "lines"), "--dir", str(path)]) == 0
        yield path


@contextlib.contextmanager
def forwarded(listen: str, to: str) -> Iterator[None]:
    """Forward the connections of one address to another, so that the original answers at the copy's address."""
    loop = asyncio.new_event_loop()
    writers: list[asyncio.StreamWriter] = []

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        there, to_there = await asyncio.open_connection(*parse_address(to))
        writers.append(to_there)
        await asyncio.gather(copy(reader, to_there), copy(there, writer))

    server = loop.run_until_complete(asyncio.start_server(serve, *parse_address(listen)))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(_end(server, writers), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server, writers: list[asyncio.StreamWriter]) -> None:
    server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0)  # The transports close in the next turn.


def run(directory: Path, capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """Run a command; return its exit code, and its output or its error."""
    capfd.readouterr()
    code = main.run([*arguments, "--dir", str(directory), "--output", "json"])
    captured = capfd.readouterr()
    return code, json.loads((captured.err if code and captured.err else captured.out).splitlines()[-1])


MUTATING = (
    ["topic", "trim", "t", "3"],
    ["topic", "create", "more"],
    ["topic", "configure", "t", "--retain-bytes", "1"],
    ["append", "t", "LINES"],
    ["leader", "transfer"],
    ["members", "remove", "n1"],
    ["members", "add", "n9", "127.0.0.1:1"],
    ["snapshot", "create"],
    ["sink", "forget", "s"],
)


def test_no_command_on_a_copy_with_other_ports_reaches_the_original(
    prod: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The node at the copy's address has the copy's cluster id, name and incarnation; only the address differs."""
    copy = prod.parent / "moved"
    original = LocalCluster.open(prod).node("n1").address
    address = free_addresses(1)[0]
    file = copy / "n1.toml"
    file.write_text(file.read_text().replace(original, address))
    code, told = run(copy, capfd, "cluster", "start", "--timeout", "20")
    assert (code, told["error"]) == (2, "MovedError")
    assert original in told["message"]
    assert address in told["message"]
    before = run(prod, capfd, "topic", "list"), run(prod, capfd, "members", "list")

    with forwarded(address, original):
        for command in MUTATING:
            words = [str(prod.parent / "lines") if word == "LINES" else word for word in command]
            code, told = run(copy, capfd, *words)
            assert (code, told.get("error")) == (2, "WrongNodeError"), (command, told)
            assert address in told["message"]
            assert original in told["message"]
    assert (run(prod, capfd, "topic", "list"), run(prod, capfd, "members", "list")) == before


def test_start_does_not_count_the_processes_of_the_original(
    prod: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy with the same ports: the original answers at once, with all values in the copy's files.

    The original is of an older release here, which does not report its directory.
    """
    monkeypatch.setattr(identity, "_runs_elsewhere", lambda *_: False)
    code, told = run(prod.parent / "twin", capfd, "cluster", "start", "--timeout", "20")
    assert code == 2
    assert "in use" in told["message"]


def test_no_command_on_an_exact_copy_reaches_the_original(prod: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The copy names the same addresses, cluster id, names and incarnations; only the directory itself differs."""
    twin = prod.parent / "twin"
    before = run(prod, capfd, "topic", "list"), run(prod, capfd, "members", "list")
    for command in (*MUTATING, ["topic", "list"], ["members", "list"]):
        words = [str(prod.parent / "lines") if word == "LINES" else word for word in command]
        code, told = run(twin, capfd, *words)
        assert (code, told.get("error")) == (2, "WrongNodeError"), (command, told)
        assert f"{twin}/n1" in told["message"]
        assert f"{prod}/n1" not in told["message"], "a node shows its paths to no client"
        assert "--cluster" in told["remedy"] or "doctor" in told["remedy"]
    assert (run(prod, capfd, "topic", "list"), run(prod, capfd, "members", "list")) == before
    code, told = run(twin, capfd, "doctor")
    assert code == 1
    finding = told["findings"][-1]
    assert finding["code"] == "wrong_cluster"
    assert f"{twin}/n1" in finding["sentence"]


def test_directory_that_was_moved_while_its_node_runs_is_still_its_own(
    prod: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    moved = prod.rename(prod.parent / "elsewhere")
    try:
        file = moved / "n1.toml"
        text = file.read_text()
        file.write_text(text.replace(str(prod), str(moved)))
        assert run(moved, capfd, "topic", "list")[0] == 0
        file.write_text(text)
    finally:
        moved.rename(prod)
