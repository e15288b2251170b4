"""Members, leaders, chaos and the doctor against a cluster of real processes."""

from __future__ import annotations

import json
import os
import shutil
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
from viewstamp.local.cluster import LocalCluster
from viewstamp.terminal.flags import program

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Doctor = Callable[..., dict[str, dict[str, Any]]]
BUSY = {"slow_disk", "slow_loop", "behind"}
"""Findings that may appear in addition, because the machine is busy with other tests."""
READS = ("leader show", "topic list", "sink list", "read", "status")
"""Commands, or their first words, that only read. Their errors contain that nothing was read."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("operating") / "cluster"
    lines = path.parent / "lines"
    lines.write_bytes(b"".join(b"%0100d\n" % number for number in range(5_000)))
    with none_left(path):
        assert main.run(["cluster", "start", "--dir", str(path), "--set", "wal.segment_bytes=65536"]) == 0
        for command in (["topic", "create", "t"], ["append", "t", str(lines)]):
            assert main.run([*command, "--dir", str(path)]) == 0
        yield path


@pytest.fixture
def doctor(directory: Path, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """Run the doctor until it finds exactly these codes; return the findings by code."""

    def ask() -> dict[str, dict[str, Any]]:
        capfd.readouterr()
        code = main.run(["doctor", "--dir", str(directory), "--output", "json"])
        report = json.loads(capfd.readouterr().out)
        assert report["healthy"] == (not report["findings"])
        assert code == any(each["severity"] == "error" for each in report["findings"])
        assert all(set(each) == {"code", "node", "severity", "sentence", "remedy"} for each in report["findings"])
        return {each["code"]: each for each in report["findings"]}

    def doctor(*codes: str) -> dict[str, dict[str, Any]]:
        deadline = time.monotonic() + 60
        while True:
            found = ask()
            if set(found) - BUSY == set(codes):
                return found
            assert time.monotonic() < deadline, found

    return doctor


def names(run: Run) -> dict[str, str]:
    """Return each member and its role."""
    return {each["node"]: each["role"].replace("leader", "voter") for each in run("members", "list")["members"]}


def others(run: Run) -> tuple[str, list[str]]:
    """Return the leader, and the other members."""
    leader = run("leader", "show")["leader"]
    return leader, [name for name in names(run) if name != leader]


def test_members_are_added_replaced_and_removed_without_loss(run: Run, doctor: Doctor, directory: Path) -> None:
    doctor()
    assert run("members", "add") == {
        "node": "n4",
        "address": LocalCluster.open(directory).node("n4").address,
        "role": "voter",
    }
    assert run("members", "add", "n4")["role"] == "voter"
    assert names(run) == dict.fromkeys(("n1", "n2", "n3", "n4"), "voter")
    assert run("leader", "transfer", "n4") == {"leader": "n4"}
    assert run("leader", "show")["leader"] == "n4"
    assert run("members", "replace", "n3")["node"] == "n5"
    assert run("members", "remove", "n4") == {"node": "n4", "removed": True, "voters": 3, "tolerated": 1}
    assert names(run) == dict.fromkeys(("n1", "n2", "n5"), "voter")
    # Removed nodes are stopped, keep their data, are not started again, and their names are not reused.
    assert sorted(path.name for path in directory.glob("*.removed")) == ["n3.toml.removed", "n4.toml.removed"]
    assert (directory / "n4" / "wal").is_dir()
    assert [node["id"] for node in run("cluster", "start")["nodes"]] == ["n1", "n2", "n5"]
    assert "exists already" in run("members", "add", "n4", code=2)["message"]
    assert "n9 is no member" in run("members", "remove", "n9", code=5)["message"]
    assert "n9 is no member" in run("leader", "transfer", "n9", code=5)["message"]
    doctor()
    assert run("topic", "describe", "t")["last_position"] == 5_000


def test_partition_is_reported_by_the_doctor_and_healed(run: Run, doctor: Doctor) -> None:
    leader, (first, second) = others(run)
    assert run("chaos", "partition", first, "--one-way")["others"] == [name for name in names(run) if name != first]
    assert doctor("unheard", "chaos")["unheard"]["sentence"].startswith(
        f"messages from {first} do not reach {' and '.join(sorted((leader, second)))}"
    )
    assert run("chaos", "heal") == {"healed": {first: ["partition"]}}
    run("chaos", "partition", leader)
    assert doctor("unheard", "chaos")["unheard"]["node"] == leader
    assert run("leader", "show")["leader"] != leader
    warnings = run("status")["warnings"]
    assert any(warning.startswith("CHAOS: partition from") and f"into {leader};" in warning for warning in warnings)
    run("chaos", "partition", second, "--from", first, "--seconds", "600")
    finding = doctor("no_leader", "unheard", "chaos")["no_leader"]
    assert "because no voter is connected to a majority of the voters" in finding["sentence"]
    assert "viewstamp" in finding["remedy"]
    assert "chaos heal" in finding["remedy"]
    assert set(run("chaos", "heal")["healed"]) == {leader, first, second}
    doctor()
    assert "cannot be cut off from itself" in run("chaos", "partition", first, "--from", first, code=2)["message"]


def test_slow_disk_and_full_disk_are_reported_and_the_cluster_works(run: Run, doctor: Doctor) -> None:
    _, (slow, full) = others(run)
    run("chaos", "slow-disk", slow, "--milliseconds", "600")
    run("chaos", "fill-disk", full)
    run("topic", "create", "meanwhile")
    assert doctor("chaos")["chaos"]["sentence"] == (
        "faults are injected on purpose: " + "; ".join(sorted([f"{slow}: slow-disk by 600 ms", f"{full}: fill-disk"]))
    )
    status = {node["id"]: node for node in run("status")["nodes"]}
    assert status[slow]["write_ms"] > 600
    run("chaos", "heal")
    doctor()


def test_paused_and_dead_processes_are_distinguished_and_ctrl_c_ends_the_pause(
    run: Run, doctor: Doctor, directory: Path
) -> None:
    _, (paused, dead) = others(run)
    command = [sys.executable, "-m", "viewstamp", "chaos", "pause", paused, "--seconds", "600", "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as pause:
        assert pause.stderr is not None
        assert b"is paused for 600 s" in pause.stderr.readline()
        run("cluster", "kill", dead)
        found = doctor("no_leader", "paused", "down")
        assert f"{dead} is down" in found["no_leader"]["sentence"]
        assert f"{paused} is paused" in found["no_leader"]["sentence"]
        assert f"cluster restart {dead}" in found["down"]["remedy"]
        pause.send_signal(signal.SIGINT)
        assert pause.wait(60) == 130
    doctor("down")
    assert f"{dead} is not running" in run("chaos", "partition", dead, code=3)["message"]
    run("cluster", "restart", dead)
    doctor()


def test_flipped_bit_is_repaired_from_another_member(
    run: Run, doctor: Doctor, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, (node, _) = others(run)
    done = run("chaos", "flip-bit", node, "--restart")
    assert done["mended"][0] == "it found the damage"
    assert done["mended"][1].startswith("fetched ")
    damaged = os.path.basename(done["path"])
    assert [path.name for path in (directory / node).glob("damaged-*/wal/*")] == [damaged]
    doctor()
    assert main.run(["wal", "verify", str(directory / node), "--output", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["verdict"] == "clean"


def test_missing_beginning_of_a_log_is_repaired_from_another_member(run: Run, doctor: Doctor) -> None:
    """The first file has no record that this node needs, but a new member needs it; the second file leaves a gap."""
    _, (node, _) = others(run)
    run("snapshot", "create", "--node", node)
    for segment, sentence in (("1", "it found that the beginning of its log is missing"), ("2", "it found the damage")):
        found, fetched = run("chaos", "drop-segment", node, "--segment", segment, "--restart")["mended"]
        assert found == sentence
        assert fetched.startswith("fetched ")
    doctor()


def test_node_with_a_new_disk_is_a_member_under_a_longer_name_and_is_found_by_its_own(
    run: Run, doctor: Doctor, directory: Path
) -> None:
    _, (node, _) = others(run)
    run("cluster", "kill", node)
    shutil.rmtree(directory / node)
    run("cluster", "restart", node)
    while not (
        longer := [name for name, role in names(run).items() if name.startswith(f"{node}~") and role == "voter"]
    ):
        pass
    assert node not in names(run)
    assert run("snapshot", "list", "--node", node) == {"snapshots": [], "failures": []}
    assert run("leader", "transfer", node) == {"leader": longer[0]}
    doctor()


def test_with_the_cluster_down_every_command_has_the_same_message(run: Run, doctor: Doctor, directory: Path) -> None:
    stopped = run("cluster", "stop")["stopped"]
    assert "cluster start" in doctor("no_answer", "down")["no_answer"]["remedy"]
    *names, last = LocalCluster.open(directory).nodes
    wording = f"no majority: {', '.join(names)} and {last} do not answer; nothing was "
    (directory.parent / "line").write_bytes(b"x")
    for command in (
        ["leader", "show"],
        ["leader", "transfer", "--timeout", "0.3"],
        ["members", "list", "--timeout", "0.3"],
        ["members", "remove", last, "--timeout", "0.3"],
        ["topic", "list", "--timeout", "0.3"],
        ["topic", "create", "u", "--timeout", "0.3"],
        ["topic", "trim", "t", "2", "--timeout", "0.3"],
        ["append", "t", str(directory.parent / "line"), "--timeout", "0.3"],
        ["read", "t", "--timeout", "0.3"],
        ["snapshot", "list"],
        ["sink", "list", "--timeout", "0.3"],
        ["status"],
    ):
        error = run(*command, code=3)
        verb = "read" if " ".join(command[:2]) in READS or command[0] in READS else "written"
        assert (error["error"], error["message"]) == ("NoQuorumError", wording + verb), command
        assert f"`{program()} doctor --dir {directory}`" in error["remedy"]
    assert len(stopped) == 3
