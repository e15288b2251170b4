"""Clusters that are copied, moved and recovered: real processes on 127.0.0.2 to 127.0.0.4, which stand for machines."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.config import free_addresses
from viewstamp.host.address import parse_address
from viewstamp.local.cluster import LocalCluster

pytestmark = pytest.mark.slow

NAMES = ("n1", "n2", "n3")


def spread(directory: Path, machines: Sequence[int] = (2, 3, 4)) -> None:
    """Write other addresses into the settings of a stopped cluster: each node on a loopback address of its own."""
    ports = [parse_address(address)[1] for address in free_addresses(len(NAMES))]
    texts = {name: (directory / f"{name}.toml").read_text() for name in NAMES}
    for at, name in enumerate(NAMES):
        [old] = re.findall(r'^listen = "(.*?)"', texts[name], re.MULTILINE)
        new = f"127.0.0.{machines[at]}:{ports[at]}"
        texts = {other: text.replace(f'"{old}"', f'"{new}"') for other, text in texts.items()}
    for name, text in texts.items():
        (directory / f"{name}.toml").write_text(text)


def addresses(directory: Path) -> dict[str, str]:
    return {str(node.id): node.address for node in LocalCluster.open(directory).nodes.values()}


@pytest.fixture
def prod(tmp_path: Path) -> Iterator[Path]:
    """Three stopped nodes with a topic of three records."""
    path = tmp_path / "prod"
    (tmp_path / "lines").write_bytes(b"a\nb\nc\n")
    (tmp_path / "more").write_bytes(b"d\n")
    with none_left(tmp_path):
        assert main.run(["config", "new", str(path), "--nodes", "3"]) == 0
        spread(path)
        run = (
            ["cluster", "start"],
            ["topic", "create", "t"],
            ["append", "t", str(tmp_path / "lines")],
            ["cluster", "stop"],
        )
        for command in run:
            assert main.run([*command, "--dir", str(path)]) == 0
        yield path


class Shell:
    """Runs commands, and returns the exit code and the output of each."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str | Path) -> tuple[int, Any]:
        self._capfd.readouterr()
        code = main.run([*map(str, arguments), "--output", "json"])
        captured = self._capfd.readouterr()
        return code, json.loads((captured.err if code and captured.err else captured.out or "null").splitlines()[-1])

    def ok(self, *arguments: str | Path) -> Any:
        code, told = self(*arguments)
        assert code == 0, (arguments, told)
        return told

    def values(self, directory: Path) -> list[str]:
        self._capfd.readouterr()
        assert main.run(["read", "t", "--dir", str(directory)]) == 0
        return self._capfd.readouterr().out.split()


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capfd)


def test_survivor_of_three_begins_a_cluster_and_the_lost_members_cannot_come_back(prod: Path, shell: Shell) -> None:
    lost = prod.parent / "lost"
    shutil.copytree(prod, lost)
    for name in ("n2", "n3"):
        shutil.rmtree(prod / name)
    code, told = shell("cluster", "fork", "--dir", prod)
    assert (code, told["error"]) == (3, "NoQuorumError")
    old = LocalCluster.open(prod).id
    code, told = shell("recover", "--dir", prod)
    assert (code, told["error"]) == (2, "ConfigError")
    assert f"--yes-lose-data {old}" in told["remedy"]
    made = shell.ok("recover", "--dir", prod, "--yes-lose-data", old)
    assert [member["id"] for member in made["members"]] == ["n1"]
    # With their old settings two empty nodes would be a majority of the listed members, and elect an empty log.
    assert not [name for name in ("n2", "n3") if (prod / f"{name}.toml").exists()]
    assert "n2" not in (prod / "n1.toml").read_text()
    shell.ok("cluster", "start", "--dir", prod)
    assert shell.values(prod) == ["a", "b", "c"]
    shell.ok("append", "t", prod.parent / "more", "--dir", prod)
    shell.ok("members", "add", "--dir", prod, "--timeout", "60")
    assert len(shell.ok("members", "list", "--dir", prod)["members"]) == 2

    shutil.rmtree(lost / "n1")
    (lost / "n1.toml").rename(lost / "n1.toml.removed")
    code, told = shell("cluster", "start", "--dir", lost, "--timeout", "20")
    assert code == 0, "the lost members are a majority of their own cluster"
    assert shell.values(lost) == ["a", "b", "c"]
    assert shell.values(prod) == ["a", "b", "c", "d"]
    shell.ok("cluster", "stop", "--dir", lost)


def test_recover_is_refused_where_nothing_is_lost_or_a_member_still_answers(prod: Path, shell: Shell) -> None:
    old = LocalCluster.open(prod).id
    code, told = shell("recover", "--dir", prod, "--yes-lose-data", old)
    assert (code, told["error"]) == (5, "RequestError")
    assert "nothing is lost" in told["message"]
    alone = prod.parent / "alone"
    alone.mkdir()
    shutil.copytree(prod / "n1", alone / "n1")
    shutil.copy(prod / "n1.toml", alone / "n1.toml")
    shell.ok("cluster", "start", "--dir", prod)
    code, told = shell("recover", "--dir", alone, "--yes-lose-data", old)
    assert (code, told["error"]) == (3, "UnavailableError")
    assert "are not lost" in told["message"]


def test_one_member_and_then_all_members_move(prod: Path, shell: Shell) -> None:
    shell.ok("cluster", "start", "--dir", prod)
    shell.ok("cluster", "stop", "n3", "--dir", prod)
    [free] = free_addresses(1)
    text = (prod / "n3.toml").read_text()
    (prod / "n3.toml").write_text(text.replace(addresses(prod)["n3"], free))
    moved = shell.ok("node", "readdress", "--config", prod / "n3.toml")
    assert moved["committed"]
    assert list(moved["moved"]) == ["n3"]
    shell.ok("cluster", "start", "--dir", prod)
    members = {row["node"]: row["address"] for row in shell.ok("members", "list", "--dir", prod)["members"]}
    assert members == addresses(prod)
    shell.ok("cluster", "stop", "--dir", prod)

    for name in ("n1", "n2"):  # Their files still have the old address of n3.
        file = prod / f"{name}.toml"
        file.write_text(re.sub(r'n3 = "[^"]*"', f'n3 = "{free}"', file.read_text()))
    spread(prod, (4, 2, 3))
    code, told = shell("node", "readdress", "--config", prod / "n1.toml", "--timeout", "1")
    assert (code, told["error"]) == (3, "NoQuorumError")
    assert "node readdress --without-majority --config FILE" in told["remedy"]
    for name in NAMES:
        arguments = "node", "readdress", "--config", prod / f"{name}.toml", "--without-majority", "--timeout", "1"
        told = shell.ok(*arguments)
        assert not told["committed"]
        assert sorted(told["moved"]) == list(NAMES)
    shell.ok("cluster", "start", "--dir", prod)
    assert shell.values(prod) == ["a", "b", "c"]
    shell.ok("append", "t", prod.parent / "more", "--dir", prod)
    members = {row["node"]: row["address"] for row in shell.ok("members", "list", "--dir", prod)["members"]}
    assert members == addresses(prod)
    shell.ok("cluster", "stop", "--dir", prod)
    shell.ok("cluster", "start", "--dir", prod)  # By now the log has the addresses.
    assert shell.values(prod) == ["a", "b", "c", "d"]


def test_readdress_of_a_copy_is_refused_while_the_original_runs(prod: Path, shell: Shell) -> None:
    copy = prod.parent / "copy"
    shutil.copytree(prod, copy)
    spread(copy)
    shell.ok("cluster", "start", "--dir", prod)
    for flag in ([], ["--without-majority"]):
        code, told = shell("node", "readdress", "--config", copy / "n1.toml", *flag)
        assert (code, told["error"]) == (2, "MovedError")
        assert "viewstamp cluster fork" in told["remedy"]
