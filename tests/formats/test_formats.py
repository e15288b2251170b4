"""Directories of earlier versions open, show the same contents, accept writes, and can be read offline.

Each fixture is an archive of three members' directories with the cluster's visible contents (``build.py``). n1 and n2
were stopped cleanly, n3 was killed.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.formats.build import FIXTURES, contents
from tests.integration.actor_group import ActorGroup
from viewstamp.host.disk import RealDisk
from viewstamp.replay import Digest, ExtentReader, OfflineReplay
from viewstamp.wal.offline import verify
from viewstamp.wire.batch import build_columns

pytestmark = pytest.mark.slow

ALL = sorted(FIXTURES.glob("*.tar.xz"))
MEMBERS = ("n1", "n2", "n3")


@pytest.fixture(params=ALL, ids=[path.name.removesuffix(".tar.xz") for path in ALL])
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one fixture's directories."""
    with tarfile.open(request.param) as archive:
        if hasattr(tarfile, "data_filter"):  # Since Python 3.11.4; the archive is our own.
            archive.extractall(tmp_path, filter="data")
        else:
            archive.extractall(tmp_path)
    return tmp_path


@pytest.fixture
def expected(unpacked: Path) -> Any:
    found = json.loads((unpacked / "expected.json").read_text(encoding="utf-8"))
    found.pop("token", None)
    return found


@pytest.fixture
def token(unpacked: Path) -> str:
    """The administrator's token; "" = a fixture without tokens."""
    return str(json.loads((unpacked / "expected.json").read_text(encoding="utf-8")).get("token", ""))


def test_there_is_a_fixture() -> None:
    assert ALL, "no fixture: nothing in this file would test anything"


async def test_a_cluster_opens_shows_the_same_and_takes_writes(unpacked: Path, expected: Any, token: str) -> None:
    async with ActorGroup(unpacked, 3) as group:
        await group.run()
        client = group.client(token=token)
        assert expected == await contents(client)
        receipt = await client.append("orders", b"by a newer version")
        assert receipt.position == expected["topics"]["orders"][-1][0] + 1
        await client.create_snapshot()
        await group.caught_up()
    expected["topics"]["orders"].append([receipt.position, "by a newer version", None, {}])
    async with ActorGroup(unpacked, 3) as group:
        await group.run()
        assert expected == await contents(group.client(token=token))


async def test_a_member_that_lost_everything_is_rebuilt_from_old_directories(
    unpacked: Path, expected: Any, token: str
) -> None:
    """The new member gets snapshots and batches of the older version."""
    for path in sorted((unpacked / "n3").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    async with ActorGroup(unpacked, 3) as group:
        await group.start()
        assert expected == await contents(group.client(token=token))
        await group.caught_up_with_leader("n3")


def test_offline_every_log_is_whole(unpacked: Path) -> None:
    for name in MEMBERS:
        found = verify(RealDisk(), str(unpacked / name))
        assert found.verdict == "clean", (name, found)
        assert found.segments > 1, "a fixture has a sealed segment"


def test_offline_the_records_are_the_same(unpacked: Path, expected: Any) -> None:
    disk = RealDisk()
    replay = OfflineReplay.open(disk, [str(unpacked / name) for name in MEMBERS])
    assert replay.problem is None
    assert replay.is_majority
    found: dict[str, list[list[Any]]] = {name: [] for name in expected["topics"]}
    with ExtentReader(disk) as reader:
        for run, columns in replay.runs(reader, Digest()):
            values = build_columns(columns).values()
            found[run.topic] += [[run.position + at, bytes(value).decode()] for at, value in enumerate(values)]
    wanted = {name: [record[:2] for record in records] for name, records in expected["topics"].items()}
    assert found == wanted
