"""The commands against a cluster of processes with TLS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_operating import BUSY
from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.config import make_certificates

pytestmark = pytest.mark.slow

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("tls") / "a cluster"
    with none_left(path):
        yield path


@pytest.fixture
def run(run: Run, directory: Path) -> Run:
    """Run a command against the cluster, which is started first if it is down."""
    assert main.run(["cluster", "start", "--tls", "--dir", str(directory)]) == 0
    return run


def addresses(run: Run) -> str:
    return ",".join(node["address"] for node in run("cluster", "status")["nodes"])


def test_commands_with_a_directory_use_its_certificates(run: Run) -> None:
    run("topic", "create", "orders")
    assert [node["tls"]["name"].rpartition("/")[2] for node in run("status")["nodes"]] == ["n1", "n2", "n3"]


def findings(run: Run) -> list[dict[str, Any]]:
    """Return the findings of the doctor, except those that a busy machine gives it."""
    return [found for found in run("doctor")["findings"] if found["code"] not in BUSY]


def test_the_doctor_warns_before_a_certificate_ends(run: Run, directory: Path) -> None:
    assert findings(run) == []
    make_certificates(str(directory), days=20, renew=True)
    run("status")  # The nodes look at the files when a connection begins.
    for _ in range(50):
        found = findings(run)
        if len(found) == 3:
            break
    assert [finding["code"] for finding in found] == ["certificate_ends"] * 3
    assert "ends in 20 days" in found[0]["sentence"]


def test_show_prints_the_names_and_dates(run: Run, directory: Path) -> None:
    shown = run("tls", "show")["certificates"]
    assert [row["name"].rpartition("/")[2] for row in shown[:3]] == ["n1", "n2", "n3"]
    assert all(row["state"].endswith("days left") for row in shown)
    made = run("tls", "new", "--client", "bob", "--days", "3")["certificates"]
    assert [row["made"] for row in made] == [False, False, False, True]
    assert made[-1]["hosts"] == []
    assert made[0]["hosts"] == ["127.0.0.1"]


def test_only_a_directory_in_which_tls_is_switched_on_has_to_be_started(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files for several machines are not started with ``cluster start``, and renewed certificates need no restart."""
    assert main.run(["config", "new", str(tmp_path), "--nodes", "1"]) == 0
    capfd.readouterr()
    for arguments, is_first in (([], True), (["--client", "bob"], False), (["--renew"], False)):
        assert main.run(["tls", "new", "--dir", str(tmp_path), *arguments]) == 0
        printed = capfd.readouterr().out
        assert ("cluster start" in printed) == ("without TLS have to be stopped" in printed) == is_first


def test_files_of_an_old_and_a_new_cluster_need_two_directories(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("n1", "n2"):
        arguments = ["config", "new", str(tmp_path), "--member", f"{name}=127.0.0.1:7001", "--cluster-id", f"of-{name}"]
        assert main.run(arguments) == 0
    assert main.run(["tls", "new", "--dir", str(tmp_path)]) == 2
    error = capfd.readouterr().err
    assert "of the clusters of-n1, of-n2" in error
    assert "into a new directory" in error


def test_other_clusters_need_options_or_variables(
    run: Run, directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    where = addresses(run)
    files = make_certificates(str(directory), clients=["carol"])[-1].tls.files
    for name in ("AUTHORITY", "CERTIFICATE", "KEY"):
        monkeypatch.setenv(f"VIEWSTAMP_TLS_{name}", "")
    command = ["topic", "list", "--cluster", where, "--output", "json"]
    capfd.readouterr()
    assert main.run(command) == 3
    assert json.loads(capfd.readouterr().err)["error"] == "TlsError"
    assert main.run(["--tls-authority", files.authority, *command]) == 2
    assert "are missing" in capfd.readouterr().err
    options = ["--tls-authority", files.authority, "--tls-certificate", files.certificate, "--tls-key", files.key]
    assert main.run([*options, *command]) == 0
    monkeypatch.setenv("VIEWSTAMP_TLS_AUTHORITY", files.authority)
    monkeypatch.setenv("VIEWSTAMP_TLS_CERTIFICATE", files.certificate)
    monkeypatch.setenv("VIEWSTAMP_TLS_KEY", files.key)
    assert main.run(command) == 0


def test_a_new_member_of_a_local_cluster_gets_a_certificate(run: Run, directory: Path) -> None:
    assert run("members", "add", "--wait")["role"] == "voter"
    assert 'certificate = "tls/n4.pem"' in (directory / "n4.toml").read_text()
    run("members", "remove", "n4")


def test_a_cluster_without_tls_is_not_started_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["config", "new", str(tmp_path), "--nodes", "1"]) == 0
    assert main.run(["cluster", "start", "--tls", "--dir", str(tmp_path)]) == 2
    assert "has no TLS" in capfd.readouterr().err
    assert main.run(["tls", "show", "--dir", str(tmp_path)]) == 2
    assert main.run(["tls", "new", "--dir", str(tmp_path)]) == 0
    assert main.run(["tls", "show", str(tmp_path / "n1.toml")]) == 0
    assert "member/n1" in capfd.readouterr().out


def test_a_directory_without_settings_gets_no_certificates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["tls", "new", "--dir", str(tmp_path)]) == 2
    assert "viewstamp config new" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_node_warns_at_each_start_if_its_network_is_insecure(tmp_path: Path) -> None:
    with none_left(tmp_path):
        assert main.run(["config", "new", str(tmp_path), "--nodes", "1"]) == 0
        file = tmp_path / "n1.toml"
        file.write_text(file.read_text().replace("[cluster]", "insecure_network = true\n\n[cluster]"))
        for starts in (1, 2):
            assert main.run(["cluster", "start", "--dir", str(tmp_path)]) == 0
            lines = (tmp_path / "n1" / "log.jsonl").read_text().splitlines()
            assert sum("! INSECURE NETWORK" in line for line in lines) == starts
            assert main.run(["doctor", "--dir", str(tmp_path), "--output", "json"]) == 0
            assert main.run(["cluster", "stop", "--dir", str(tmp_path)]) == 0
