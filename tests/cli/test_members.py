"""Adding members twice, with an interruption, or at another address; with real processes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.config import free_addresses
from viewstamp.ids import NodeId
from viewstamp.local.cluster import LocalCluster

pytestmark = pytest.mark.slow

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("members") / "cluster"
    with none_left(path):
        assert main.run(["cluster", "start", "--dir", str(path)]) == 0
        yield path


def follower(run: Run) -> str:
    leader = run("leader", "show")["leader"]
    return next(name for name in ("n3", "n2") if name != leader)


def test_add_does_not_start_a_dead_voter_nor_make_a_voter_a_learner(run: Run) -> None:
    name = follower(run)
    assert run("members", "add", name)["role"] == "voter"
    assert (
        f"{name} is a voter, and a voter does not become" in run("members", "add", name, "--learner", code=5)["message"]
    )
    run("cluster", "kill", name)
    error = run("members", "add", name, code=5)
    assert error["message"] == f"{name} is already a voter, and is not running"
    assert f"cluster restart {name}" in error["remedy"]
    assert run("cluster", "kill", name)["killed"] is False
    run("cluster", "restart", name)


def test_voter_with_a_new_port_is_reported_by_start_and_doctor_and_moved_by_add(
    run: Run, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = follower(run)
    run("cluster", "stop", name)
    old, new = LocalCluster.open(directory).node(name).address, free_addresses(1)[0]
    file = directory / f"{name}.toml"
    file.write_text(file.read_text().replace(f'listen = "{old}"', f'listen = "{new}"'))
    error = run("cluster", "start", code=2)
    assert error["error"] == "MovedError"
    assert f"the membership has {name} at {old}, but" in error["message"]
    (found,) = (each for each in run("doctor", code=1)["findings"] if each["code"] == "moved")
    assert found["sentence"].startswith(f"the membership has {name} at {old}, but its settings say {new}")
    assert f"members add {name} --dir" in found["remedy"]
    assert run("members", "add", name) == {"node": name, "address": new, "role": "voter"}
    assert new in {each["address"] for each in run("members", "list")["members"]}
    assert {node["id"]: node["started"] for node in run("cluster", "start")["nodes"]}[name] is False
    run("leader", "transfer", name)


def test_add_that_is_interrupted_before_its_request_leaves_no_files(run: Run, directory: Path) -> None:
    command = [sys.executable, "-m", "viewstamp", "members", "add", "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as adding:
        while not (directory / "n4" / "pid").exists():
            assert adding.poll() is None
            time.sleep(0.005)
        adding.send_signal(signal.SIGINT)
        _, messages = adding.communicate(timeout=120)
    assert adding.returncode == 130
    assert "n4 is no member, and was deleted again" in messages
    assert not (directory / "n4.toml").exists()
    assert not (directory / "n4").exists()
    assert run("cluster", "start")["no_members"] == []


def test_start_reports_a_node_that_is_no_member_and_does_not_wait_for_it(
    run: Run, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = LocalCluster.open(directory)
    cluster.add_node("n5", {node.id: node.address for node in cluster.nodes.values()})
    assert run("cluster", "start")["no_members"] == ["n5"]
    assert main.run(["cluster", "start", "--dir", str(directory)]) == 0
    assert re.search(r"n5 runs and is no member: `.*members add n5 .*`.*members remove n5 ", capfd.readouterr().err)
    assert run("members", "remove", "n5") == {"node": "n5", "removed": False}
    assert NodeId("n5") not in LocalCluster.open(directory).nodes


def test_with_two_of_three_down_every_command_has_the_same_message(
    run: Run, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    leader = run("leader", "show")["leader"]
    gone = sorted([leader, follower(run)])
    (directory.parent / "line").write_bytes(b"x")
    for name in gone:
        run("cluster", "kill", name)
    # The last member follows its dead leader until an election timeout is over.
    while main.run(["leader", "show", "--dir", str(directory), "--output", "json"]) == 0:
        pass
    capfd.readouterr()
    wording = f"no majority: {gone[0]} and {gone[1]} do not answer; nothing was "
    for command in (
        ["leader", "show"],
        ["members", "remove", leader, "--timeout", "1"],
        ["topic", "create", "t", "--timeout", "1"],
        ["topic", "list", "--timeout", "1"],
        ["append", "t", str(directory.parent / "line"), "--timeout", "1"],
    ):
        error = run(*command, code=3)
        verb = "read" if command[1] in ("show", "list") else "written"
        assert (error["error"], error["message"]) == ("NoQuorumError", wording + verb), command
