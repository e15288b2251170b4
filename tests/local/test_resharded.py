"""A cluster of three processes and three groups, whose actors are moved to other numbers of groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.local.cluster import LocalCluster

pytestmark = pytest.mark.slow

SOURCE = """
import viewstamp as vs

class Till(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.total = 0

    @vs.command
    def put(self, amount: int) -> list:
        self.total += amount
        return [self.total, str(self.new_id()), self.random.random()]
"""
KEYS = [f"till {number}" for number in range(9)]


class Shell:
    """Runs commands on one cluster, and returns the exit code and the output of each."""

    def __init__(self, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capfd = capfd

    def __call__(self, *arguments: str) -> tuple[int, Any]:
        self._capfd.readouterr()
        code = main.run([*arguments, "--dir", str(self.directory), "--output", "json"])
        captured = self._capfd.readouterr()
        return code, json.loads((captured.err if code and captured.err else captured.out or "null").splitlines()[-1])

    def ok(self, *arguments: str) -> Any:
        code, told = self(*arguments)
        assert code == 0, (arguments, told)
        return told

    def put(self) -> list[list[Any]]:
        """Put one into each till, by one client; return the answers."""

        async def put(client: Any) -> list[list[Any]]:
            return [
                [name, key, *await client.call(name, "put", 1, key=key)] for name in ("till", "home") for key in KEYS
            ]

        return LocalCluster.open(self.directory).target.ask(put)


@pytest.fixture
def shell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    shell = Shell(tmp_path / "shop", capfd)
    with none_left(tmp_path):
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "tills.py").write_text(SOURCE)
        actors = [f"--set=actors.{name}=tills:Till" for name in ("till", "home")]
        shell.ok("cluster", "start", "--nodes", "3", *actors)
        for _ in range(3):
            shell.ok("group", "place")
        shell.ok("actor", "spread", "till")
        yield shell


def test_all_instances_answer_in_more_groups_and_then_in_fewer(shell: Shell) -> None:
    answers = shell.put()
    code, told = shell("reshard", "--groups", "5", "--timeout", "1")
    assert (code, told["error"]) == (2, "ConfigError"), "a node still uses the directory"
    shell.ok("cluster", "stop")
    code, told = shell("reshard", "--groups", "3")
    assert (code, told["error"]) == (5, "RequestError")
    assert "live in these groups already" in told["message"]

    old = LocalCluster.open(shell.directory).id
    made = shell.ok("reshard", "--groups", "5", "--spread", "home")
    assert made["cluster_id"] == LocalCluster.open(shell.directory).id != old
    assert len(made["new_groups"]) == 2
    assert made["groups"][-2:] == made["new_groups"]
    moved = {row["name"]: (len(row["before"]), len(row["after"]), row["instances"]) for row in made["actors"]}
    assert moved == {"till": (3, 5, len(KEYS)), "home": (1, 5, len(KEYS))}
    shell.ok("cluster", "start")
    answers += shell.put()
    listed = {row["name"]: (row["instances"], len(row["groups"])) for row in shell.ok("actor", "list")["actors"]}
    assert listed == {"till": (len(KEYS), 5), "home": (len(KEYS), 5)}

    shell.ok("cluster", "stop")
    made = shell.ok("reshard", "--groups", "2", "--actor", "home=tills:Till")
    assert [made["new_groups"], [len(row["after"]) for row in made["actors"]]] == [[], [2, 2]]
    shell.ok("cluster", "start")
    answers += shell.put()
    assert [total for _, _, total, _, _ in answers] == [1] * 18 + [2] * 18 + [3] * 18
    assert len({drawn for *_, drawn, _ in answers}) == len({number for *_, number in answers}) == len(answers)
