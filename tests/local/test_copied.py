"""A copy of a cluster beside its original: no command on the copy reaches the original.

Every command of the command line that has ``--dir`` is tried. ``COMMANDS`` has the arguments of each, and a test
compares its names with the command line, so a new command cannot be left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.processes import PATIENCE_SECONDS, none_left
from viewstamp.cli import main
from viewstamp.cli.commands import command_tree
from viewstamp.client import identity
from viewstamp.config import free_addresses
from viewstamp.host.address import parse_address
from viewstamp.local.cluster import LocalCluster

pytestmark = pytest.mark.slow

COMMANDS = {
    # They send requests, so they have --cluster too. A copy that is not a cluster of its own is refused.
    "topic list": "",
    "topic describe": "t",
    "topic create": "more",
    "topic configure": "t --retain-bytes 1",
    "append": "t LINES",
    "topic trim": "t 3",
    "read": "t",
    "get": "t k",
    "scan": "t",
    "actor list": "",
    "actor call": "counter add [1]",
    "actor spread": "counter",
    "sink list": "",
    "sink describe": "s",
    "sink forget": "s --yes",
    "snapshot list": "",
    "snapshot create": "",
    "leader show": "",
    "leader transfer": "",
    "members list": "",
    "members remove": "n1",
    "members add": "n9 127.0.0.1:1 --no-wait",
    "members replace": "n1 n9 127.0.0.1:1 --no-wait",
    "group list": "",
    "stream balance": "",
    "stream add": "t --timeout 1s",
    "stream move": "t 1 --group 7 --timeout 1s",
    "stream remove": "t 1 --timeout 1s",
    "stream seal": "t 1 --timeout 1s",
    "group place": "s --no-wait --timeout 1s",
    "group cancel": "1",
    "group add-member": "1 n1 --no-wait --timeout 1s",
    "group remove-member": "1 n1 --no-wait --timeout 1s",
    "group remove": "9 --yes-remove-group nine",
    "audit": "",
    "token list": "",
    "token create": "thief --role read:t",
    "token rotate": "owner",
    "token revoke": "owner",
    "backup create": "BACKUPS",
    "archive run": "t",
    "archive log": "",
    "archive check": "",
    "archive export": "t --table lake.t --warehouse LAKE",
    "archive orphans": "--remove",
    "replay": "LOG --to topic t",
    "bench append": "--seconds 0.1 --callers 1",
    "bench read": "--seconds 0.1 --records 1",
    "status": "",
    "doctor": "",
    # They act on the files and the processes of a directory.
    "cluster status": "",
    "cluster stop": "",
    "cluster kill": "n1",
    "cluster start": "--timeout 20",
    "cluster restart": "n1 --timeout 20",
    "cluster fork": "--timeout 1",
    "recover": "--timeout 1",
    "reshard": "--groups 2 --timeout 1",
    "chaos pause": "n1 --seconds 0.1",
    "chaos partition": "n1",
    "chaos delay": "n1 1ms",
    "chaos slow-disk": "n1",
    "chaos fill-disk": "n1",
    "chaos tear": "n1",
    "chaos flip-bit": "n1",
    "chaos drop-segment": "n1",
    "chaos heal": "",
    "backup restore": "BACKUPS",
    "demo": "",
    "tls show": "",
    "tls replace-authority": "",
    "tls new": "",
}
"""The arguments of each command with ``--dir``. ``tls new`` is last, because it changes the settings."""

CHANGES = (
    "append",
    "topic trim",
    "topic create",
    "topic configure",
    "snapshot create",
    "archive run",
    "sink forget",
    "token create",
    "token revoke",
    "leader transfer",
    "members add",
    "members remove",
    "group place",
    "group cancel",
    "group add-member",
    "group remove-member",
    "group remove",
    "stream add",
    "stream balance",
    "stream move",
    "stream remove",
    "stream seal",
)
"""Those that change a cluster, and so are tried on each kind of copy."""

LEFT_OUT = {
    "demo-spark": "refuses a directory with a cluster in the same way as demo, and starts a JVM first",
    "demo-archive": "refuses a directory with a cluster in the same way as demo",
    "bench wal": "writes a file of its own into the directory, and knows no cluster",
}
REQUESTS = list(COMMANDS)[: list(COMMANDS).index("cluster status")]
WITHOUT_REFUSAL = ("status", "doctor", "backup create")
"""They show the node that answers, its address and the error; they change nothing."""


def paths_with_dir(group: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """Yield each command that has ``--dir``, and whether it has ``--cluster`` too."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from paths_with_dir(command, f"{path}{name} ")
        else:
            options = {option for each in command.params for option in each.opts}
            if "--dir" in options:
                yield f"{path}{name}", "--cluster" in options


def test_no_command_with_a_directory_is_left_out() -> None:
    found = dict(paths_with_dir(typer.main.get_command(command_tree())))
    assert set(found) == {*COMMANDS, *LEFT_OUT}
    assert {name for name, sends in found.items() if sends} == set(REQUESTS)


@pytest.fixture(scope="module")
def prod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a cluster of one node with a topic and a token; its directory was copied while it was stopped."""
    path = tmp_path_factory.mktemp("copied") / "prod"
    (path.parent / "lines").write_bytes(b"a\nb\nc\n")
    with none_left(path.parent):
        for command in (["cluster", "start", "--nodes", "1"], ["topic", "create", "t"], ["cluster", "stop"]):
            assert main.run([*command, "--dir", str(path)]) == 0
        for name in ("moved", "twin", "fork"):
            shutil.copytree(path, path.parent / name)
        for command in (
            ["cluster", "start"],
            ["append", "t", str(path.parent / "lines")],
            ["token", "create", "owner", "--role", "administer"],
        ):
            assert main.run([*command, "--dir", str(path)]) == 0
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
    await asyncio.sleep(0)  # A task that is cancelled before its first step does not close the socket it has accepted.
    # A connection that is being accepted begins the task of ``serve`` later.
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
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


def run_all(copy: Path, capfd: pytest.CaptureFixture[str], commands: Iterable[str]) -> dict[str, tuple[int, Any]]:
    """Run commands with the directory of a copy; return the result of each."""
    files = {
        "LINES": str(copy.parent / "lines"),
        "LAKE": str(copy.parent / "lake"),
        "BACKUPS": str(copy.parent / f"backups of {copy.name}"),
        "LOG": str(copy / "n1"),
    }
    return {
        name: run(copy, capfd, *name.split(), *(files.get(word, word) for word in COMMANDS[name].split()))
        for name in commands
    }


def answered(directory: Path, capfd: pytest.CaptureFixture[str], *command: str) -> tuple[int, Any]:
    """Run a command that reads, again if the node was too busy to answer it in time; return its result."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        code, told = run(directory, capfd, *command)
        if code == 0 or time.monotonic() > until:
            return code, told


def state_of(directory: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return everything about a running cluster that a command could change."""
    told = {
        name: answered(directory, capfd, *name.split())
        for name in (
            "topic list",
            "members list",
            "sink list",
            "snapshot list",
            "token list",
            "audit",
            "cluster status",
        )
    }
    [node] = told.pop("cluster status")[1]["nodes"]
    kept = {name: node[name] for name in ("pid", "last_index", "applied_index", "term", "lifecycle")}
    places = [directory, directory / "n1", directory / "n1" / "wal", directory / "n1" / "snapshots"]
    return {**told, **kept, "files": [sorted(os.listdir(place)) for place in places]}


def with_address(copy: Path, prod: Path) -> tuple[str, str]:
    """Give the node of a copy another address in its settings; return the original's and the new one."""
    original, address = LocalCluster.open(prod).node("n1").address, free_addresses(1)[0]
    file = copy / "n1.toml"
    file.write_text(file.read_text().replace(original, address))
    return original, address


def test_no_command_on_a_copy_with_other_ports_reaches_the_original(
    prod: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The node at the copy's address has the copy's cluster id, name and incarnation; only the address differs."""
    copy = prod.parent / "moved"
    before = state_of(prod, capfd)
    original, address = with_address(copy, prod)
    code, told = run(copy, capfd, "cluster", "start", "--timeout", "20")
    assert (code, told["error"]) == (2, "MovedError")
    assert original in told["message"]
    assert address in told["message"]
    with forwarded(address, original):
        results = run_all(copy, capfd, [name for name in COMMANDS if name != "cluster start"])
    for name in REQUESTS:
        code, told = results[name]
        if name not in WITHOUT_REFUSAL:
            assert (code, told.get("error")) == (2, "WrongNodeError"), (name, told)
            assert address in told["message"]
            assert original in told["message"]
    code, told = results["cluster fork"]
    assert (code, told["error"]) == (3, "UnavailableError"), "the original works, so --original-goes-on is needed"
    assert state_of(prod, capfd) == before


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
    before = state_of(prod, capfd)
    results = run_all(twin, capfd, [*CHANGES, "backup create", "doctor", "cluster stop", "cluster kill", "chaos pause"])
    for name, (code, told) in results.items():
        if name in CHANGES:
            assert (code, told.get("error")) == (2, "WrongNodeError"), (name, told)
            assert f"{twin}/n1" in told["message"]
            assert f"{prod}/n1" not in told["message"], "a node shows its paths to no client"
            assert "--cluster" in told["remedy"] or "doctor" in told["remedy"]
    code, told = results["doctor"]
    assert code == 1
    assert told["findings"][-1]["code"] == "wrong_cluster"
    assert f"{twin}/n1" in told["findings"][-1]["sentence"]
    assert state_of(prod, capfd) == before


def test_no_command_on_a_fork_of_a_copy_reaches_the_original(prod: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = prod.parent / "fork"
    before = state_of(prod, capfd)
    with_address(copy, prod)
    code, told = run(copy, capfd, "cluster", "fork", "--original-goes-on")
    assert (code, told["from"]) == (0, LocalCluster.open(prod).id)
    assert run(copy, capfd, "cluster", "start")[0] == 0
    results = run_all(copy, capfd, [*CHANGES, "topic list", "backup create", "chaos pause", "cluster kill"])
    for name in ("append", "topic trim", "topic create", "token create", "snapshot create", "backup create"):
        assert results[name][0] == 0, results[name]
    assert results["topic list"][1]["topics"][0]["last_position"] == 3, "the three records of the copy"
    assert told["cluster_id"] not in (prod / "n1" / "log.jsonl").read_text(), "no node of the fork has asked it"
    assert state_of(prod, capfd) == before


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
