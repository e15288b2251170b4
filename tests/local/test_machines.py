"""Machines, for which directories and 127.0.0.2 to 127.0.0.5 stand: moved, copied, restored and recovered."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from viewstamp.cli import main
from viewstamp.config import free_addresses, load_settings
from viewstamp.host.address import parse_address
from viewstamp.local.node import LocalNode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and the others"),
]


class Machines:
    """Nodes, each with its settings and its data on a machine of its own."""

    def __init__(self, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.places: dict[str, Path] = {}
        self._capfd = capfd
        self._started: list[LocalNode] = []

    def ok(self, *words: str | Path) -> Any:
        """Run a command that has to succeed; return its output."""
        self._capfd.readouterr()
        code = main.run([*map(str, words), "--output", "json"])
        captured = self._capfd.readouterr()
        assert code == 0, (words, captured.err)
        return json.loads(captured.out.splitlines()[-1]) if captured.out else None

    def place(self, name: str, machine: str, made: Path) -> None:
        """Copy one node's settings, and its data if there are any, to its machine, and to no other."""
        place = self.directory / machine
        place.mkdir()
        shutil.copy(made / f"{name}.toml", place)
        if (made / name).is_dir():
            shutil.copytree(made / name, place / name)
        self.places[name] = place

    def file(self, name: str) -> Path:
        return self.places[name] / f"{name}.toml"

    def replace(self, name: str, addresses: Mapping[str, str]) -> None:
        """Replace addresses in the settings of a node."""
        text = self.file(name).read_text()
        for old, new in addresses.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        self.file(name).write_text(text)

    def node(self, name: str) -> LocalNode:
        return LocalNode(load_settings(self.file(name), environment={}).settings, str(self.file(name)))

    def start(self, *names: str) -> str:
        """Start nodes, and wait until all members are well; return the addresses for commands."""
        for name in names:
            node = self.node(name)
            node.spawn()
            self._started.append(node)
        cluster = ",".join(self.node(name).address for name in names)
        self.ok("doctor", "--cluster", cluster, "--wait", "30s")
        return cluster

    def stop(self, *names: str) -> None:
        for name in names:
            asyncio.run(self.node(name).stop(30.0))

    def append(self, value: str, cluster: str) -> None:
        (self.directory / "line").write_text(f"{value}\n")
        self.ok("append", "t", self.directory / "line", "--cluster", cluster)

    def values(self, cluster: str) -> str:
        self._capfd.readouterr()
        assert main.run(["read", "t", "--cluster", cluster]) == 0
        return "".join(self._capfd.readouterr().out.split())

    def kill(self) -> None:
        for node in self._started:
            asyncio.run(node.kill())


@pytest.fixture
def machines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Machines]:
    found = Machines(tmp_path, capfd)
    try:
        yield found
    finally:
        found.kill()


def on_machines(*numbers: int) -> list[str]:
    """Return free addresses of 127.0.0.N."""
    return [
        f"127.0.0.{number}:{parse_address(address)[1]}"
        for number, address in zip(numbers, free_addresses(len(numbers)), strict=True)
    ]


def test_a_cluster_is_moved_copied_restored_and_recovered(machines: Machines) -> None:
    tmp_path, names = machines.directory, ("n1", "n2", "n3")
    first = dict(zip(names, on_machines(2, 3, 4), strict=True))
    members = [word for name, address in first.items() for word in ("--member", f"{name}={address}")]
    old = machines.ok("config", "new", tmp_path / "files", *members)["cluster_id"]
    for name in names:
        machines.place(name, f"machine of {name}", tmp_path / "files")
    cluster = machines.start(*names)
    machines.ok("topic", "create", "t", "--cluster", cluster)
    machines.append("a", cluster)

    # One member moves to another machine. The settings of the others keep its old address.
    machines.stop("n3")
    [address] = on_machines(5)
    machines.places["n3"] = machines.places["n3"].rename(tmp_path / "the new machine of n3")
    machines.replace("n3", {first["n3"]: address})
    assert machines.ok("node", "readdress", "--config", machines.file("n3"))["committed"]
    machines.start("n3")
    cluster = ",".join(machines.node(name).address for name in names)
    machines.append("b", cluster)
    machines.ok("backup", "create", tmp_path / "backups", "--cluster", cluster)
    machines.append("c", cluster)
    machines.stop(*names)

    # All machines are copied, and the copy becomes a cluster at other addresses.
    originals = dict(machines.places)
    now = {**first, "n3": address}
    other = dict(zip(names, on_machines(2, 3, 4), strict=True))
    for name in names:
        shutil.copytree(originals[name], tmp_path / f"copy of {name}")
        machines.places[name] = tmp_path / f"copy of {name}"
        machines.replace(name, {**{now[each]: other[each] for each in names}, first["n3"]: other["n3"]})
    configs = [word for name in names for word in ("--config", machines.file(name))]
    assert machines.ok("cluster", "fork", *configs, "--timeout", "1")["from"] == old
    cluster = machines.start(*names)
    machines.append("x", cluster)
    assert machines.values(cluster) == "abcx"
    machines.stop(*names)

    # The backup is restored for three machines, by one command.
    restored = dict(zip(("r1", "r2", "r3"), on_machines(2, 3, 4), strict=True))
    members = [word for name, at in restored.items() for word in ("--member", f"{name}={at}")]
    made = machines.ok("backup", "restore", tmp_path / "backups", "--dir", tmp_path / "made", *members)
    assert (made["old"], made["addresses"]) == (old, restored)
    for name in restored:
        machines.place(name, f"machine of {name}", tmp_path / "made")
    cluster = machines.start(*restored)
    machines.append("y", cluster)
    assert machines.values(cluster) == "aby"
    machines.stop(*restored)

    # Of the original two machines are lost. The third one continues alone, as another cluster.
    for name in ("n1", "n2"):
        shutil.rmtree(originals[name])
    machines.places = {"n3": originals["n3"]}
    machines.ok("recover", "--config", machines.file("n3"), "--yes-lose-data", old, "--timeout", "1")
    cluster = machines.start("n3")
    machines.append("z", cluster)
    assert machines.values(cluster) == "abcz"
