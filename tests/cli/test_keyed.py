"""Keyed topics on the command line, and in a trio program, against a node of the product with an archive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import viewstamp
from tests.cli.test_sink import table
from tests.in_thread import in_thread
from tests.processes import eventually
from tests.quick_rounds import quick_rounds
from viewstamp.cli import main
from viewstamp.embed.local_cluster import ClusterHandle

pytestmark = pytest.mark.slow


@pytest.fixture(name="address", scope="module")
def _address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a node with an archive, whose topic ``prices`` has three records with keys."""
    if find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed")
    archive = {"archive.directory": str(tmp_path_factory.mktemp("archive"))}

    @asynccontextmanager
    async def opened() -> AsyncIterator[ClusterHandle]:
        async with viewstamp.local_cluster(nodes=1, settings=archive) as cluster:
            client = cluster.client()
            await client.create_topic("prices")
            for key, value in ((b"ACME", b"17.20"), (b"INIT", b"4.10"), (b"ACME", b"17.35")):
                await client.append("prices", value, key=key)
            yield cluster

    with in_thread(opened) as held:
        yield held.held.address("n1")


def test_lines_are_appended_with_keys(address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def create() -> None:
        async with viewstamp.connect(address) as client:
            await client.create_topic("lines")

    asyncio.run(create())
    file = tmp_path / "lines"
    file.write_bytes(b"a\t1\nb\t2\t3\na\t\n")
    run(address, "append", "lines", str(file), "--keyed")
    file.write_bytes(b"4\n5\n")
    run(address, "append", "lines", str(file), "--key", "c")
    run(address, "append", "lines", str(file), "--key", "c", "--keyed", code=2)
    run(address, "append", "lines", str(file), "--keyed", code=5)
    assert "line 1: b'4' has no tab between its key and its value" in capfd.readouterr().err
    run(address, "read", "lines", "--output", "json")
    read = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(each["key"], each["value"]) for each in read] == [
        ("a", "1"),
        ("b", "2\t3"),
        ("a", ""),
        ("c", "4"),
        ("c", "5"),
    ]


def run(address: str, *arguments: str, code: int = 0) -> None:
    assert main.run([*arguments, "--cluster", address]) == code


def test_a_topic_becomes_keyed_and_its_keys_are_found(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    run(address, "get", "prices", "ACME", code=5)
    assert "is not keyed" in capfd.readouterr().err
    run(address, "topic", "create", "prices", "--keyed")
    run(address, "topic", "configure", "prices", "--keyed", "--output", "json")
    assert json.loads(capfd.readouterr().out.partition("ready\n")[2])["keyed"]["dumped_end"] == 1
    run(address, "topic", "describe", "prices")
    shown = table(capfd.readouterr().out)
    assert shown[2] == ["keyed topic", "dumped to", "ranges", "runs", "rows", "size"]
    assert " ".join(shown[4]).startswith("the next dump of prices is due when 16MiB of log wait (now ")
    assert " ".join(shown[5]) == "the archivist is idle"
    run(address, "get", "prices", "ACME")
    assert capfd.readouterr().out == "17.35\n"
    run(address, "get", "prices", "INIT", "--output", "json")
    assert json.loads(capfd.readouterr().out)["position"] == 2
    run(address, "get", "prices", "NONE", code=1)
    assert "no record with the key 'NONE'" in capfd.readouterr().err
    for options, expected in (
        ((), "17.35\n4.10\n"),
        (("--prefix", "IN"), "4.10\n"),
        (("--from", "B"), "4.10\n"),
        (("--to", "B"), "17.35\n"),
        (("--limit", "1"), "17.35\n"),
    ):
        run(address, "scan", "prices", *options)
        assert capfd.readouterr().out == expected
    run(address, "scan", "prices", "--prefix", "A", "--to", "B", code=2)
    capfd.readouterr()
    run(address, "scan", "prices", "--from", "B", "--to", "A", code=2)
    assert "--to 'A' is not behind --from 'B'" in capfd.readouterr().err
    run(address, "topic", "create", "parts", "--streams", "2", "--keyed", code=2)


def test_runs_of_keys_are_listed_checked_and_told_from_orphans(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    archive = {"archive.directory": str(tmp_path / "archive")}

    @asynccontextmanager
    async def opened() -> AsyncIterator[ClusterHandle]:
        async with viewstamp.local_cluster(nodes=1, settings=archive) as cluster:
            client = cluster.client()
            await client.create_topic("levels")
            await client.configure_keyed("levels")
            await client.append_many("levels", [b"1", b"2", b"3"], keys=[b"a", b"b", b"a"])

            async def has_dumped() -> bool:
                return any(run.state == "committed" for run in await client.list_key_runs())

            await eventually(has_dumped)
            yield cluster

    with quick_rounds(dump_bytes=1), in_thread(opened) as held:
        address = held.held.address("n1")
        run(address, "archive", "log")
        captured = capfd.readouterr()
        shown = table(captured.out)
        assert shown[0] == ["run of keys", "topic", "first", "last", "state", "size", "rows", "made by"]
        assert (shown[1][1], shown[1][2], shown[1][4], shown[1][7]) == ("levels", "1", "committed", "dump")
        assert next(row for row in shown if row[0] == "keyed topic")[:2] == ["keyed topic", "dumped to"]
        assert "no runs" not in captured.err
        run(address, "archive", "log", "levels", "--output", "json")
        listed = json.loads(capfd.readouterr().out)
        [first, *_] = listed["key_runs"]
        assert (listed["runs"], first["made_by"], listed["keyed_topics"][0]["name"]) == ([], "dump", "levels")
        run(address, "archive", "log", "prices", "--output", "json", code=5)
        assert "no topic is named 'prices'" in capfd.readouterr().err
        run(address, "archive", "orphans")
        assert "none" in capfd.readouterr().err
        run(address, "archive", "check", "levels", "--output", "json")
        assert {each["damage"] for each in json.loads(capfd.readouterr().out)["key_runs"]} == {""}
        [file] = (tmp_path / "archive").glob(f"*/{first['id']:020d}.parquet")
        file.write_bytes(file.read_bytes()[:-1])
        run(address, "archive", "check", code=7)
        captured = capfd.readouterr()
        assert "damaged" in captured.out
        assert "--no-keyed, then --keyed" in captured.err


def test_a_trio_program_finds_keys(address: str) -> None:
    trio = pytest.importorskip("trio")
    from viewstamp.trio import connect

    async def main() -> list[bytes]:
        with trio.fail_after(60):
            async with connect(address) as client:
                await client.create_topic("levels")
                await client.configure_keyed("levels")
                await client.append_many("levels", [b"1", b"2", b""], keys=[b"a", b"b", b"a"])
                assert await client.get("levels", "a") is None
                found = await client.get("levels", b"b")
                assert found is not None
                return [found.value, *[record.value async for record in client.scan("levels", "a", "c")]]

    assert trio.run(main) == [b"2", b"2"]


def test_a_topic_without_an_archive_is_created_and_not_keyed(capfd: pytest.CaptureFixture[str]) -> None:
    with in_thread(lambda: viewstamp.local_cluster(nodes=1)) as held:
        address = held.held.address("n1")
        for _ in range(2):
            run(address, "topic", "create", "prices", "--keyed", code=5)
            said = capfd.readouterr().err
            assert "topic 'prices' exists now, and is not keyed: n1 leads, and" in said
            assert "then give the same command again" in said
        run(address, "topic", "configure", "prices", "--archive")
        assert "n1 leads, and cannot archive yet: it has no [archive] directory or url" in capfd.readouterr().err
