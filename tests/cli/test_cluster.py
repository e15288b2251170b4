"""The commands against a cluster of real processes."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.doctor.status import KEYS
from viewstamp.local.cluster import LocalCluster

pytestmark = pytest.mark.slow

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("cli") / "a cluster"
    with none_left(path):
        yield path


@pytest.fixture
def run(run: Run, directory: Path) -> Run:
    """Run a command against the cluster, which is started first if it is down."""
    assert main.run(["cluster", "start", "--dir", str(directory)]) == 0
    return run


def leader_of(run: Run) -> str:
    """Return the leader. On a busy machine there may be none for a moment."""
    while not (leader := run("status")["leader"]):
        pass
    return str(leader)


def test_start_twice_changes_nothing_and_another_size_is_rejected(run: Run) -> None:
    again = run("cluster", "start")
    assert [(node["id"], node["started"]) for node in again["nodes"]] == [("n1", False), ("n2", False), ("n3", False)]
    assert "has 3 nodes, not 5" in run("cluster", "start", "--nodes", "5", code=2)["message"]


def test_status_has_the_documented_keys(run: Run) -> None:
    status = run("status")
    assert {"cluster_id", "leader", "term", "nodes"} <= set(status)
    assert status["leader"] in ("n1", "n2", "n3", None)
    assert [node["id"] for node in status["nodes"]] == ["n1", "n2", "n3"]
    for node in status["nodes"]:
        assert set(KEYS) <= set(node)
        assert node["reachable"]
        assert node["history"][0] == [0, 1]


def test_appended_lines_are_read_back_byte_for_byte(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\n\nb\xff\nlast")
    assert run("topic", "create", "lines")["name"] == "lines"
    assert run("topic", "create", "lines")["last_position"] == 0
    appended = run("append", "lines", str(tmp_path / "lines"))
    positions = {"first_position": 1, "last_position": 4}
    described = {"topic": "lines", "durability": "majority, synced"}
    assert appended == {"acknowledged": 4, "unknown": 0, **positions, **described}
    records = run("read", "lines")
    assert [record["position"] for record in records] == [1, 2, 3, 4]
    assert [record.get("value") for record in records] == ["one", "", None, "last"]
    assert records[2]["value_base64"] == "Yv8="
    assert run("read", "lines", "--from", "2", "--to", "3") == records[1:3]
    assert run("read", "lines", "--from", "2", "--limit", "1") == records[1:2]
    assert run("read", "lines", "--follow", "--limit", "2") == records[:2]
    assert run("topic", "describe", "lines")["last_position"] == 4
    assert run("topic", "list")["topics"][0] == run("topic", "describe", "lines")


def test_append_with_a_wrong_expected_position_is_rejected(run: Run, tmp_path: Path) -> None:
    (tmp_path / "many").write_bytes(b"".join(b"%d\n" % n for n in range(5000)))
    (tmp_path / "one").write_bytes(b"late\n")
    run("topic", "create", "expected")
    appended = run("append", "expected", str(tmp_path / "many"), "--expected-position", "1")
    assert (appended["first_position"], appended["last_position"]) == (1, 5000)
    refused = run("append", "expected", str(tmp_path / "one"), "--expected-position", "7", code=5)
    assert refused["error"] == "PositionMismatchError"
    assert "is 5001, not 7" in refused["message"]
    assert [record["value"] for record in run("read", "expected")] == [str(n) for n in range(5000)]


def test_stale_read_prints_its_age(run: Run, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run("topic", "create", "stale")
    command = ["read", "stale", "--dir", str(directory)]
    for options in (["--stale"], ["--max-staleness", "0", "--node", "n2"]):
        assert main.run([*command, *options]) == 0
        assert re.fullmatch(r"as of \d+\.\d{3} s ago, applied index \d+\n", capfd.readouterr().err)
    assert run("read", "stale", "--stale", "--follow", code=2)["error"] == "UsageError"


def test_append_that_fails_reports_the_acknowledged_records(run: Run, directory: Path, tmp_path: Path) -> None:
    run("topic", "create", "bad")
    (tmp_path / "lines").write_bytes(b"fits\n" + b"x" * 2_000_000 + b"\nnever\n")
    command = [sys.executable, "-m", "viewstamp", "append", "bad", "--dir", str(directory), "--output", "json"]
    result = subprocess.run([*command, str(tmp_path / "lines")], capture_output=True, check=False, timeout=120)
    assert result.returncode == 5
    assert json.loads(result.stdout)["acknowledged"] == 1
    assert json.loads(result.stderr)["error"] == "RecordTooLargeError"
    assert run("append", "nowhere", str(tmp_path / "lines"), code=5)["error"] == "UnknownTopicError"
    assert [record["value"] for record in run("read", "bad")] == ["fits"]


def test_append_of_an_empty_input_succeeds(run: Run, tmp_path: Path) -> None:
    """Otherwise a pipeline under pipefail would fail when it filters all lines."""
    run("topic", "create", "nothing")
    (tmp_path / "empty").write_bytes(b"")
    for options in ([], ["--raw"]):
        assert run("append", "nothing", str(tmp_path / "empty"), *options)["acknowledged"] == 0


def test_stale_read_in_json_prints_its_age_in_json(
    run: Run, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run("topic", "create", "stale")
    assert main.run(["read", "stale", "--dir", str(directory), "--stale", "--output", "json"]) == 0
    staleness = json.loads(capfd.readouterr().err)
    assert staleness["age_seconds"] >= 0
    assert staleness["applied_index"] > 0


def test_second_process_of_a_node_exits_and_the_first_keeps_running(run: Run, directory: Path) -> None:
    command = [sys.executable, "-m", "viewstamp", "node", "run", "--config", str(directory / "n2.toml")]
    result = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert result.returncode == 2
    assert b"in use" in result.stderr
    assert all(node["reachable"] for node in run("status")["nodes"])


def test_killed_leader_is_replaced_and_restarted_without_loss(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "kill")
    (tmp_path / "lines").write_bytes(b"before\n")
    run("append", "kill", str(tmp_path / "lines"))
    leader = leader_of(run)
    assert run("cluster", "kill", leader) == {"id": leader, "killed": True}
    assert run("cluster", "kill", leader) == {"id": leader, "killed": False}
    (tmp_path / "lines").write_bytes(b"after\n")
    assert run("append", "kill", str(tmp_path / "lines"))["last_position"] == 2
    away = next(node for node in run("status")["nodes"] if node["id"] == leader)
    assert not away["reachable"]
    assert run("cluster", "restart", leader)["was_running"] is False
    assert [record["value"] for record in run("read", "kill")] == ["before", "after"]
    assert "there is no node n9" in run("cluster", "kill", "n9", code=2)["message"]


def test_follow_prints_later_records_until_ctrl_c(run: Run, directory: Path, tmp_path: Path) -> None:
    run("topic", "create", "follow")
    (tmp_path / "lines").write_bytes(b"early\n")
    run("append", "follow", str(tmp_path / "lines"))
    command = [sys.executable, "-m", "viewstamp", "read", "follow", "--follow", "--dir", str(directory)]
    with subprocess.Popen([*command, "--output", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert json.loads(reader.stdout.readline())["value"] == "early"
        (tmp_path / "lines").write_bytes(b"late\n")
        run("append", "follow", str(tmp_path / "lines"))
        assert json.loads(reader.stdout.readline())["position"] == 2
        reader.send_signal(signal.SIGINT)
        rest, errors = reader.communicate(timeout=120)
    assert (reader.returncode, rest, json.loads(errors)["error"]) == (130, b"", "Interrupted")


def test_cluster_is_found_by_environment_and_by_addresses(
    run: Run, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    addresses = [node["address"] for node in run("status")["nodes"]]
    monkeypatch.chdir(tmp_path)
    assert main.run(["status"]) == 2
    assert "there is no cluster" in capfd.readouterr().err
    monkeypatch.setenv("VIEWSTAMP_CLUSTER", addresses[1])
    assert main.run(["status", "--output", "json"]) == 0
    assert [node["address"] for node in json.loads(capfd.readouterr().out)["nodes"]] == addresses
    assert main.run(["status", "--cluster", "127.0.0.1:1", "--output", "json"]) == 3
    captured = capfd.readouterr()
    assert [node["reachable"] for node in json.loads(captured.out)["nodes"]] == [False]
    assert "refused" in json.loads(captured.err)["message"]


def test_bench_and_verify_and_the_simulator_have_the_documented_keys(
    run: Run, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    benched = run("bench", "append", "--callers", "2", "--seconds", "0.2")
    assert list(benched) == [
        *("appends_per_second", "megabytes_per_second", "client_cores"),
        *("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"),
        *("callers", "sessions", "bytes", "in_flight", "durability", "filesystem", "embedded"),
    ]
    assert main.run(["wal", "verify", str(directory / "n1"), "--output", "json"]) == 0
    assert set(json.loads(capfd.readouterr().out)) >= {
        *("path", "verdict", "segments", "batches", "records", "first_index", "last_index", "torn_bytes", "damage"),
    }
    assert main.run(["sim", "run", "--seed", "1", "--steps", "50", "--output", "json"]) == 0
    simulated = json.loads(capfd.readouterr().out)
    assert list(simulated) == ["seeds", "events", "failures", "interrupted"]
    assert (simulated["seeds"], simulated["failures"], simulated["interrupted"]) == (1, [], False)


def test_append_from_a_directory_is_rejected(run: Run, directory: Path) -> None:
    command = [sys.executable, "-m", "viewstamp", "append", "any", str(directory), "--dir", str(directory)]
    result = subprocess.run([*command, "--output", "json"], capture_output=True, check=False, timeout=120)
    assert result.returncode == 2
    assert "Is a directory" in json.loads(result.stderr)["message"]
    assert json.loads(result.stdout)["acknowledged"] == 0


def test_copy_of_a_running_cluster_has_no_processes(run: Run, directory: Path, tmp_path: Path) -> None:
    run("status")
    copy = LocalCluster.open(shutil.copytree(directory, tmp_path / "copy"))
    assert [node.pid() for node in copy.nodes.values()] == [None, None, None]
    assert asyncio.run(copy.node("n1").kill()) is False
    assert all(node["reachable"] for node in run("status")["nodes"])


def test_append_reports_its_progress_when_the_majority_dies_and_one_member_is_still_readable(
    run: Run, directory: Path
) -> None:
    run("topic", "create", "dies")
    command = [sys.executable, "-m", "viewstamp", "append", "dies", "--dir", str(directory), "--timeout", "4"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--output", "json"], stdin=pipe, stdout=pipe, stderr=pipe) as append:
        assert append.stdin is not None
        append.stdin.write(b"".join(b"%d\n" % number for number in range(2_000)))
        append.stdin.flush()
        while run("topic", "describe", "dies")["last_position"] < 2_000:
            pass
        leader = leader_of(run)
        alone, other = (name for name in ("n1", "n2", "n3") if name != leader)
        run("cluster", "kill", leader)
        run("cluster", "kill", other)
        result, errors = append.communicate(b"".join(b"%d\n" % number for number in range(2_000, 3_000)), timeout=120)
    appended, error = json.loads(result), json.loads(errors)
    assert (append.returncode, error["error"]) in ((3, "NoQuorumError"), (4, "OutcomeUnknownError"))
    assert (appended["acknowledged"], appended["first_position"], appended["last_position"]) == (2_000, 1, 2_000)
    status = run("status")
    assert [(node["id"], node["reachable"]) for node in status["nodes"] if node["reachable"]] == [(alone, True)]
    assert run("read", "dies", "--node", other, code=3)["error"] == "UnavailableError"
    assert [record["value"] for record in run("read", "dies", "--node", alone, "--to", "2")] == ["0", "1"]
    run("cluster", "start")
    values = [record["value"] for record in run("read", "dies")]
    assert values == [str(number) for number in range(len(values))]
    assert 2_000 <= len(values) <= 2_000 + appended["unknown"]


def test_stopped_cluster_is_read_offline_and_started_again(run: Run, directory: Path, tmp_path: Path) -> None:
    run("topic", "create", "stop")
    (tmp_path / "lines").write_bytes(b"kept\n")
    run("append", "stop", str(tmp_path / "lines"))
    assert run("cluster", "stop") == {"stopped": ["n1", "n2", "n3"]}
    assert run("cluster", "stop") == {"stopped": []}
    for name in ("n1", "n2", "n3"):
        command = [sys.executable, "-m", "viewstamp", "wal"]
        read = subprocess.run([*command, "read", str(directory / name), "stop"], capture_output=True, check=True)
        assert read.stdout == b"kept\n"
        verify = subprocess.run(
            [*command, "verify", str(directory / name), "--output", "json"], capture_output=True, check=True
        )
        found = json.loads(verify.stdout)
        assert (found["verdict"], found["damage"], found["torn_bytes"]) == ("clean", [], 0)
    assert run("append", "stop", str(tmp_path / "lines"), "--timeout", "0.3", code=3)["error"] == "NoQuorumError"
    message = run("cluster", "restart", "n1", "--timeout", "0.5", code=3)["message"]
    assert "not RUNNING within 0.5 s" in message
    run("cluster", "start")
    assert [record["value"] for record in run("read", "stop")] == ["kept"]


def test_demo_holds_with_equal_lines_and_removes_its_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_bytes(b"same\nsame\n\nb\xff\nsame")
    target = tmp_path / "demo"
    assert main.run(["demo", "--input", str(tmp_path / "lines"), "--dir", str(target), "--output", "json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["records"], result["acknowledged"], result["replicas_equal"]) == (5, 5, True)
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert len(result["failovers_ms"]) == 2
    assert result["failover_ms"] == result["failovers_ms"][0] > 0
    assert not target.exists()


def test_demo_with_streams_reads_one_order_from_each_node(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_bytes(b"one\n" * 3000)
    target = tmp_path / "demo"
    options = ["--input", str(tmp_path / "lines"), "--dir", str(target), "--output", "json"]
    assert main.run(["demo", "--streams", "2", *options]) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["records"], result["acknowledged"], result["ordered"]) == (3000, 3000, 3000)
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert result["one_order"]
    assert [each["equal"] for each in result["readers"].values()] == [True] * 3
    assert len(result["killed"]) == 1
    assert len(result["leaders"]) == 2
    assert not target.exists()


def test_demo_does_not_touch_a_directory_with_other_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_bytes(b"x\n")
    arguments = ["demo", "--input", str(tmp_path / "lines"), "--dir", str(tmp_path), "--output", "json"]
    assert main.run(arguments) == 2
    assert "is not empty" in json.loads(capfd.readouterr().err)["message"]
    assert (tmp_path / "lines").read_bytes() == b"x\n"
