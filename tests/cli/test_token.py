"""Tokens against a cluster of real processes: denied and permitted commands. No secret is shown."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.client.options import ClientOptions
from viewstamp.embed.connect import connect
from viewstamp.errors import AccessDeniedError
from viewstamp.local.cluster import LocalCluster

pytestmark = pytest.mark.slow

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("tokens") / "cluster"
    with none_left(path):
        assert main.run(["cluster", "start", "--dir", str(path), "--output", "json"]) == 0
        yield path


@pytest.fixture(scope="module")
def addresses(directory: Path) -> str:
    return ",".join(LocalCluster.open(directory).target.addresses)


@pytest.fixture
def away(addresses: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command as a client that has only the addresses and perhaps a token; return its output or its error."""

    def away(*arguments: str, token: str = "", code: int = 0) -> Any:
        monkeypatch.setenv("VIEWSTAMP_TOKEN", token)
        capfd.readouterr()
        assert main.run([*arguments, "--cluster", addresses, "--output", "json"]) == code, capfd.readouterr().err
        captured = capfd.readouterr()
        assert token == "" or token.rsplit("_")[-1] not in captured.out + captured.err
        return json.loads((captured.err if code else captured.out).splitlines()[-1])

    return away


@pytest.fixture
def append(away: Run, tmp_path: Path) -> Run:
    """Append one record to orders, as :func:`away`."""

    def append(value: str, **options: Any) -> Any:
        (tmp_path / "record").write_text(f"{value}\n")
        return away("append", "orders", str(tmp_path / "record"), **options)

    return append


def test_a_token_allows_what_its_roles_say_until_it_is_revoked(
    run: Run, away: Run, append: Run, addresses: str, directory: Path, tmp_path: Path
) -> None:
    run("topic", "create", "orders")
    assert append("before")["acknowledged"] == 1
    writer = run("token", "create", "writer", "--role", "append:orders*", "--expires", "30d")
    assert append("off")["acknowledged"] == 1
    admin = run("token", "create", "ops", "--role", "administer")
    assert admin["is_on"]

    denied = append("anonymous", code=5)
    assert denied["error"] == "AccessDeniedError"
    assert "no token" in denied["message"]
    assert append("mine", token=writer["token"])["acknowledged"] == 1
    for command in (
        ["topic", "trim", "orders", "1"],
        ["token", "list"],
        ["audit"],
        ["read", "orders"],
        ["leader", "transfer"],
    ):
        assert away(*command, token=writer["token"], code=5)["error"] == "AccessDeniedError"

    # The directory of the nodes is enough, and an administrator's token.
    assert [each["name"] for each in run("token", "list")["tokens"]] == ["writer", "ops"]
    assert len(away("token", "list", token=admin["token"])["tokens"]) == 2
    assert "leader" in away("status", token=writer["token"])
    assert "leader" in away("status")
    stranger = away("doctor", token="")
    assert [(each["code"], each["severity"]) for each in stranger["findings"]] == [("no_token", "warning")]
    assert away("doctor", token=writer["token"])["healthy"]

    async def revoke_meanwhile() -> None:
        options = ClientOptions(timeout=10, token=writer["token"])
        async with connect(addresses, options=options) as client:
            await client.append("orders", b"open")
            async with LocalCluster.open(directory).target.connect() as operator:
                await operator.revoke_token("writer")
            with pytest.raises(AccessDeniedError, match="was revoked"):
                await client.append("orders", b"after")
            with pytest.raises(AccessDeniedError):
                await client.describe_topic("orders")

    asyncio.run(revoke_meanwhile())
    values = [record["value"] for record in run("read", "orders")]
    assert values == ["before", "off", "mine", "open"]

    file = tmp_path / "token"
    run("token", "rotate", "ops", "--keep-old", "1h", "--out", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert away("token", "list", "--token-file", str(file))["is_on"]
    assert away("token", "list", token=admin["token"])["is_on"]
    run("token", "revoke", "ops", "--old-secret")
    assert away("token", "list", token=admin["token"], code=5)["error"] == "AccessDeniedError"
    assert away("token", "list", "--token-file", str(file))["is_on"]

    actions = [(entry["action"], entry["by"]) for entry in run("audit")["entries"]]
    assert [action for action, _ in actions] == [
        *("token create", "token create", "token revoke", "token rotate", "token revoke"),
    ]
    assert all("directory of n" in by for _, by in actions)

    # No secret is in any file of the nodes: in logs, in the WAL, in snapshots.
    run("snapshot", "create")
    secrets = [each.rsplit("_")[-1] for each in (writer["token"], admin["token"], file.read_text().strip())]
    for path in directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret.encode() in content or bytes.fromhex(secret) in content for secret in secrets), path
    assert not any(secret in json.dumps(run("doctor", code=0)) for secret in secrets)


def test_a_text_that_is_no_token_is_refused_without_showing_it(away: Run, tmp_path: Path) -> None:
    assert away("topic", "list", token="vst_nonsense", code=2)["error"] == "ConfigError"
    assert "cannot be read" in away("topic", "list", "--token-file", str(tmp_path / "none"), code=2)["message"]
    file = tmp_path / "wrong"
    file.write_text("secret words")
    error = away("topic", "list", "--token-file", str(file), code=2)
    assert "secret words" not in json.dumps(error)
