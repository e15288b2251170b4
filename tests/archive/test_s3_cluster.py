"""A node with its archive in a bucket: from the settings to the runs, and what its status says about a store."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import viewstamp
from tests.archive.s3_server import Fault, Proxy, answer, running_proxy, running_server
from tests.archive.test_run_store import RUN, TOPIC, batch
from tests.processes import eventually
from viewstamp.archive.location import open_store
from viewstamp.archive.run_store import RunObjects
from viewstamp.archive.s3_store import S3Objects
from viewstamp.client.aio import Client
from viewstamp.errors import ConfigError, CorruptionError, RequestError, UnavailableError
from viewstamp.host.object_url import ObjectUrl
from viewstamp.ids import ClusterId, Position
from viewstamp.node.archive_queries import ArchivedRun

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("botocore", reason="botocore is not installed")
pytest.importorskip("moto.server", reason="moto is not installed")
pytestmark = pytest.mark.slow

URL = "s3://bucket/archive"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Run S3 with an empty bucket, and let the environment of this process name it."""
    with running_server() as server, running_proxy(server) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", found.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        S3Objects(ObjectUrl("bucket", ""))._call("create the bucket", "create_bucket", Bucket="bucket")
        yield found


async def status(client: Client) -> dict[str, Any]:
    [found] = await client.status()
    archive: dict[str, Any] = found["archive"]
    return archive


async def test_a_node_archives_into_a_bucket(proxy: Proxy, tmp_path: Path) -> None:
    async with viewstamp.local_cluster(nodes=1, settings={"archive.url": URL}, directory=tmp_path) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        await client.append_many("orders", [b"record"] * 100)
        assert await client.archive_topic("orders") == 101
        [run] = await client.list_runs()
        assert await client.check_run(run.id) == ""
        store = S3Objects(ObjectUrl("bucket", "archive"))
        [(name, size)] = store.list_sizes(f"{(await client.status())[0]['cluster_id']}/").items()
        assert (name.partition("/")[2], size) == (f"{run.id:020d}.parquet", run.bytes)
        assert await client.find_orphans() == {}
        store.remove(name)
        with pytest.raises(RequestError, match=f"is empty, or another store, because it has no file of run {run.id}"):
            await client.check_run(run.id)
        store.create(name, [b"x" * size])
        assert "cannot be read as Parquet" in await client.check_run(run.id)
        assert await status(client) == {"where": URL, "trouble": "", "remedy": "", "is_current": True}


async def test_nothing_is_archived_in_a_store_that_replaces_objects(proxy: Proxy, tmp_path: Path) -> None:
    proxy.fault = lambda _: Fault(without=("If-None-Match",))
    async with viewstamp.local_cluster(nodes=1, settings={"archive.url": URL}, directory=tmp_path) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        await client.append("orders", b"record")

        async def is_refused() -> bool:
            return "replaced an object" in (await status(client))["trouble"]

        await eventually(is_refused)
        with pytest.raises(RequestError, match=r"cannot use the archive: .* replaced an object") as raised:
            await client.archive_topic("orders")
        assert "conditional writes" in raised.value.remedy
        assert await client.list_runs() == []


async def test_a_store_that_is_away_does_not_keep_a_node_from_starting(proxy: Proxy, tmp_path: Path) -> None:
    proxy.fault = lambda _: answer(403, "AccessDenied")
    async with viewstamp.local_cluster(nodes=1, settings={"archive.url": URL}, directory=tmp_path) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        await client.append("orders", b"record")
        with pytest.raises((RequestError, UnavailableError)):
            await client.archive_topic("orders", timeout=5)
        proxy.fault = lambda _: None

        async def is_archived() -> bool:
            with suppress(RequestError):  # The newest error is raised for two seconds.
                return await client.archive_topic("orders") == 2
            return False

        await eventually(is_archived)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def missing(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("botocore"):
            raise ImportError("No module named 'botocore'")
        return original(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match="needs botocore") as raised:
        open_store(URL)
    assert raised.value.remedy == "pip install 'viewstamp[archive,s3]'"


def test_the_object_of_another_cluster_is_not_read(proxy: Proxy, tmp_path: Path) -> None:
    store = S3Objects(ObjectUrl("bucket", "archive"))
    other = RunObjects(store, ClusterId("c2"))
    written = other.begin(RUN, TOPIC, Position(1))
    written.add(Position(5), [batch(1, 4).buffer])
    described = written.finish()
    run = ArchivedRun(RUN, TOPIC, Position(1), Position(5), "committed", "", described.size, described.digest)
    assert sum(other.check(run)) > 0
    own = RunObjects(store, ClusterId("c1"))
    assert own.list_sizes() == {}
    data = store.read_part(f"c2/{RUN:020d}.parquet", 0, 1 << 30)
    store.create(f"c1/{RUN:020d}.parquet", [data])
    with pytest.raises(CorruptionError, match="is that of run 900 of cluster c2, not of run 900 of cluster c1"):
        sum(own.check(run))
