"""Directories with groups and an archive that an earlier version wrote open, show the same contents, and accept writes.

Each fixture is an archive of three members' directories, the store of runs, and what a client sees: see
``build_groups.py``.
"""

from __future__ import annotations

import json
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.formats.build_groups import GROUP_FIXTURES, STORE, cluster, contents
from tests.node.group import wait_for
from viewstamp.client import Client
from viewstamp.host.disk import RealDisk
from viewstamp.wal.offline import verify

pytestmark = [
    pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed"),
    pytest.mark.slow,
]

ALL = sorted(GROUP_FIXTURES.glob("*.tar.xz"))


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
    return json.loads((unpacked / "expected.json").read_text(encoding="utf-8"))


async def append(client: Client, expected: Any) -> None:
    """Append in order, and to a plain topic; add the records to what is expected."""
    orders, rows = expected["topics"]["orders"], expected["topics"]["rows"]
    receipt = await client.append("orders", b"by a newer version", key=b"k1", ordered=True)
    assert receipt.global_position == orders["records"][-1][0] + 1
    orders["records"].append([receipt.global_position, b"by a newer version".hex(), b"k1".hex()])
    orders["streams"].append([receipt.stream, receipt.position])
    await client.append_rows("rows", [{"id": 1000}])
    last = [record async for record in client.read("rows", rows["records"][-1][0] + 1)]
    rows["records"] += [[each.position, each.value.hex(), None] for each in last]
    rows["streams"] += [[0, 0] for _ in last]


async def test_a_cluster_with_groups_opens_shows_the_same_and_takes_writes(unpacked: Path, expected: Any) -> None:
    async with cluster(unpacked) as nodes:
        await nodes.run()
        client = nodes.client()
        assert await contents(client) == expected
        await append(client, expected)
        await client.create_snapshot()
        await nodes.caught_up()
    async with cluster(unpacked) as nodes:
        await nodes.run()
        assert await contents(nodes.client()) == expected


async def test_a_member_that_lost_all_its_groups_is_rebuilt_from_old_directories(unpacked: Path, expected: Any) -> None:
    for path in sorted((unpacked / "n3").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    async with cluster(unpacked) as nodes:
        await nodes.start()
        client = nodes.client()
        assert await contents(client) == expected

        def is_whole() -> bool:
            hosted = nodes.nodes["n3"].groups  # type: ignore[index]
            wanted = [group for group, _, hosts in expected["groups"] if "n3" in hosts]
            return all(group in hosted and hosted[group].applied_index > 0 for group in wanted)

        await wait_for(is_whole, nodes.journal.tail)
        await append(client, expected)
        assert await contents(client) == expected


def test_offline_every_log_of_a_group_is_whole(unpacked: Path, expected: Any) -> None:
    for name in ("n1", "n2", "n3"):
        for group, *_ in expected["groups"]:
            found = verify(RealDisk(), str(unpacked / name / "groups" / str(group)))
            assert found.verdict == "clean", (name, group, found)
    assert list((unpacked / STORE).rglob("*.parquet")), "a fixture has archived runs"
