"""Commands for actors, snapshots and retention, against a cluster of real processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
MODULE = """
import viewstamp as vs

class Short(vs.CommandError):
    pass

class Inventory(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.stock: dict[str, int] = {}

    @vs.command
    def receive(self, sku: str, n: int = 1) -> int:
        self.stock[sku] = self.stock.get(sku, 0) + n
        return self.stock[sku]

    @vs.command
    def reserve(self, sku: str, n: int) -> int:
        if self.stock.get(sku, 0) < n:
            raise Short(f"{self.stock.get(sku, 0)} left")
        self.stock[sku] -= n
        return self.stock[sku]

    @vs.query
    def all(self) -> dict[str, int]:
        return self.stock
"""
SETTINGS = ("--set", "actors.inventory=stock_of_a_test:Inventory", "--set", "wal.bytes_max=16777216")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("state") / "cluster"
    path.mkdir()
    # Beside the settings, where nodes find it independently of their working directory.
    (path / "stock_of_a_test.py").write_text(MODULE)
    with none_left(path):
        yield path


@pytest.fixture
def run(run: Run, directory: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command against the cluster, which is started first if it is down."""
    assert main.run(["cluster", "start", "--dir", str(directory), *SETTINGS]) == 0, capfd.readouterr().err
    return run


def test_actor_is_called_with_positional_or_named_arguments(run: Run) -> None:
    assert run("actor", "call", "inventory", "receive", '["positional", 3]') == {"result": 3}
    assert run("actor", "call", "inventory", "receive", '{"sku": "named", "n": 2}') == {"result": 2}
    assert run("actor", "call", "inventory", "receive", '["defaults"]') == {"result": 1}
    assert run("actor", "call", "inventory", "all") == {"result": {"positional": 3, "named": 2, "defaults": 1}}
    assert run("actor", "call", "inventory", "all", "--key", "another") == {"result": {}}
    stale = run("actor", "call", "inventory", "all", "--stale")
    assert set(stale) == {"result", "applied_index", "age_seconds"}
    fresh = run("actor", "call", "inventory", "all", "--max-staleness", "0")
    assert (fresh["result"], fresh["age_seconds"]) == ({"positional": 3, "named": 2, "defaults": 1}, 0)
    (listed,) = run("actor", "list")["actors"]
    assert (listed["name"], listed["class"], listed["version"], listed["instances"]) == ("inventory", "Inventory", 1, 1)


def test_error_of_a_command_exits_with_8_and_an_unknown_command_with_5(run: Run) -> None:
    error = run("actor", "call", "inventory", "reserve", '["nothing", 1]', code=8)
    assert (error["error"], error["kind"], error["message"]) == ("CommandError", "Short", "Short: 0 left")
    for arguments in (
        ("inventory", "reserve", "[1, 2, 3]"),
        ("inventory", "resrve", "[]"),
        ("inventry", "reserve", "[]"),
        ("inventory", "receive", '["x"]', "--stale"),
    ):
        error = run("actor", "call", *arguments, code=5)
        assert (error["error"], arguments[0] in error["message"].lower()) == ("UnknownActorError", True)
    assert run("actor", "call", "inventory", "all", "7", code=2)["error"] == "UsageError"
    assert run("actor", "call", "inventory", "__init__", code=2)["error"] == "UsageError"


def test_snapshots_are_taken_listed_and_used_by_a_restart(run: Run) -> None:
    run("actor", "call", "inventory", "receive", '["kept", 9]')
    taken = run("snapshot", "create")["snapshots"]
    assert [each["node"] for each in taken] == ["n1", "n2", "n3"]
    listed = run("snapshot", "list")["snapshots"]
    for each in taken:
        newest = next(other for other in listed if other["node"] == each["node"])
        assert (newest["index"], newest["bytes"]) == (each["index"], each["bytes"])
        assert abs(newest["created"] - time.time()) < 300
    assert [each["node"] for each in run("snapshot", "create", "--node", "n2")["snapshots"]] == ["n2"]
    run("cluster", "stop")
    run("cluster", "start")
    assert run("actor", "call", "inventory", "all")["result"]["kept"] == 9
    assert run("snapshot", "create", "--node", "n9", code=5)["error"] == "RequestError"


def test_status_has_logs_and_equal_actor_digests(run: Run) -> None:
    run("actor", "call", "inventory", "receive", '["told"]')
    status = run("status")
    assert status["warnings"] == []
    for node in status["nodes"]:
        assert node["log_bytes_max"] == 16777216
        assert 0 < node["log_bytes"] <= node["log_bytes_max"]
        assert node["restart_seconds_estimate"] < 10
        assert node["last_snapshot_index"] >= 0
        assert node["durability"] == "majority, synced"
        assert node["actors"]["inventory"]["instances"] == 1
    digests = {(node["applied_index"], node["actors"]["inventory"]["digest"]) for node in status["nodes"]}
    assert len(digests) == len({applied for applied, _ in digests})


def test_topic_is_trimmed_by_command_and_by_retention(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes((b"." * 2000 + b"\n") * 100)
    made = run("topic", "create", "short", "--retain-age", "36h")
    assert (made["retain_bytes"], made["retain_seconds"]) == (0, 129_600)
    assert run("topic", "create", "short", "--retain-age", "36h") == made
    assert run("topic", "create", "short") == made
    assert run("topic", "create", "short", "--retain-age", "1h", code=5)["error"] == "TopicExistsError"
    run("append", "short", str(tmp_path / "lines"))
    trimmed = run("topic", "trim", "short", "41")
    assert (trimmed["first_position"], trimmed["last_position"]) == (41, 100)
    assert run("read", "short", "--from", "40", code=5)["error"] == "TrimmedError"
    assert len(run("read", "short", "--from", "41")) == 60
    configured = run("topic", "configure", "short", "--retain-bytes", "100")
    assert (configured["retain_bytes"], configured["retain_seconds"]) == (100, 129_600)
    run("append", "short", str(tmp_path / "lines"))
    assert run("topic", "describe", "short")["first_position"] > 41
    assert run("topic", "trim", "short", "999", code=5)["error"] == "RequestError"
    assert run("topic", "configure", "short", code=2)["error"] == "UsageError"


def test_set_does_not_change_the_settings_of_an_existing_cluster(run: Run, directory: Path) -> None:
    run("cluster", "start", *SETTINGS)
    error = run("cluster", "start", "--set", "wal.bytes_max=33554432", code=2)
    assert error["message"].startswith("--set wal.bytes_max=33554432: the cluster exists, and its file ")
    assert error["message"].endswith("n1.toml has 16777216")
    error = run("cluster", "start", "--set", "actors.other=x:Y", code=2)
    assert error["message"].endswith("n1.toml has no such setting")


def test_start_reports_a_missing_module_of_an_actor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    setting = ["--set", "actors.inventory=nowhere_at_all:Inventory"]
    assert main.run(["config", "new", "--nodes", "1", str(tmp_path / "c"), *setting]) == 0
    assert main.run(["cluster", "start", "--dir", str(tmp_path / "c"), "--output", "json"]) == 2
    error = json.loads(capfd.readouterr().err)
    assert error["error"] == "ConfigError"
    assert "[actors] inventory = 'nowhere_at_all:Inventory': there is no module nowhere_at_all" in error["message"]


def test_start_with_a_missing_module_creates_no_cluster(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Otherwise the files of a cluster that never ran would reject the corrected command."""
    arguments = ["cluster", "start", "--nodes", "1", "--dir", str(tmp_path / "c"), "--output", "json"]
    assert main.run([*arguments, "--set", "actors.inventory=nowhere_at_all:Inventory"]) == 2
    assert "there is no module nowhere_at_all" in json.loads(capfd.readouterr().err)["message"]
    assert not (tmp_path / "c").exists()


def test_read_fails_after_its_timeout(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["read", "any", "--cluster", "127.0.0.1:1", "--timeout", "0.2", "--output", "json"]) == 3
    assert json.loads(capfd.readouterr().err)["error"] == "NoQuorumError"
