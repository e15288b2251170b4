"""``python -m tests.formats.build_groups NAME``: write a fixture with groups and the archive, with the present code.

As ``build.py``, for what that one lacks: groups, of which one is cancelled and one is removed; a topic with streams
that was trimmed and configured, with a stream that has ended and one that was added; schemas; an archived run; a keyed
topic with a run of keys; snapshots in all groups. n3 was killed. With ``--hosts`` also a group with a node that was
added, and one that n3 has left; each has a stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.formats.build import FIXTURES, anonymous
from tests.node.group import wait_for
from tests.node.test_archivist import Store
from tests.node.test_host_changes import N1, N2, N3, Moving
from tests.node.test_removed_groups import Removing
from tests.node.test_stream_topics import Spreading
from viewstamp.client import Client
from viewstamp.ids import GroupId
from viewstamp.node.options import ArchiveRoundOptions
from viewstamp.node.snapshots.policy import SnapshotOptions

GROUP_FIXTURES = FIXTURES / "groups"
SCHEMA = "id: int64, name: string?"
STORE = "store"


class Nodes(Spreading, Moving, Removing):
    """Nodes whose groups change in all ways."""


def cluster(directory: Path) -> Nodes:
    """Return the nodes of a fixture; their store is beside their directories."""
    return Nodes(
        directory,
        3,
        run_stores=lambda _: Store(directory),
        archive_rounds=ArchiveRoundOptions(seconds=0.05, pause_seconds_max=0.2, dump_bytes=2000, range_bytes=1 << 30),
        snapshots=SnapshotOptions(log_bytes=8192),
    )


async def contents(client: Client) -> dict[str, Any]:
    """Return what a client sees: groups, records by their positions in the topics, runs, the views by key, schemas."""
    groups = [[int(group.id), list(group.streams), sorted(group.hosts)] for group in await client.list_groups()]
    topics: dict[str, Any] = {}
    for spread in await client.list_spread_topics():
        topics[spread.name] = {
            "groups": list(map(int, spread.groups)),
            "ranges": [list(each) for each in spread.ranges],
            "retain": [spread.retain_bytes, spread.retain_seconds],
            "closed": [[each.stream, each.into] for each in spread.closed],
            "schema": spread.schema,
        }
    for name in [*topics, *(topic.name for topic in await client.list_topics())]:
        records = [record async for record in client.read(name)]
        shown = [[each.position, each.value.hex(), each.key.hex() if each.key else None] for each in records]
        streams = [[getattr(each, "stream", 0), getattr(each, "stream_position", 0)] for each in records]
        topics.setdefault(name, {}).update(records=shown, streams=streams)
    return {
        "groups": groups,
        "topics": topics,
        "runs": [
            [each.topic, each.first_position, each.last_position, each.state] for each in await client.list_runs()
        ],
        "view": [[(each.key or b"").hex(), each.value.hex()] async for each in client.scan("prices")],
        "schema": [[field.name, field.type, field.is_nullable] for field in (await client.get_schema("rows")).fields],
    }


async def fill(nodes: Nodes, *, hosts: bool) -> dict[str, Any]:
    """Write the contents of the fixture; return what a client sees of them."""
    await nodes.run()
    client = nodes.client()
    first, second = await nodes.established("s1"), await nodes.established("s2")
    await nodes.stop("n3")
    waiting = await nodes.place_unprobed("s3")
    await client.cancel_group(waiting)
    await nodes.run("n3")
    await client.create_spread_topic("orders", 3, retain_bytes=1 << 20)
    for number in range(60):
        await client.append("orders", b"order %d %s" % (number, b"x" * 300), key=b"k%d" % (number % 9))
    await client.append("orders", b"in order", key=b"k1", ordered=True)
    await client.trim_spread_topic("orders", 20)
    await client.add_stream("orders", group=second)
    await client.seal_stream("orders", 1, into=4)
    # A client has no event for a stream that has ended, nor for a dump.
    while not all(each.end for each in (await client.describe_spread_topic("orders")).closed):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    for number in range(30):
        await client.append("orders", b"later %d %s" % (number, b"y" * 200), key=b"k%d" % (number % 9), ordered=True)
    await client.configure_spread_topic("orders", retain_bytes=1 << 21)
    await client.create_topic("rows")
    await client.set_schema("rows", SCHEMA)
    await client.append_rows("rows", [{"id": number, "name": f"row {number}"} for number in range(40)])
    await client.archive_topic("rows", 31)
    await client.configure_topic("rows", archive=True, archive_after_seconds=86_400, delete_after_seconds=90 * 86_400)
    await client.create_topic("prices")
    await client.configure_keyed("prices")
    for number in range(60):
        await client.append("prices", b"" if number == 50 else b"%d " % number * 20, key=b"key %d" % (number % 17))
    while not await client.list_key_runs():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    removed = await nodes.established("s4")
    await nodes.remove(removed)
    await nodes.is_left(removed)
    moved = await _change_hosts(nodes, client) if hosts else []
    await client.create_snapshot()
    await client.append("orders", b"the last one", key=b"k3", ordered=True)
    await nodes.caught_up()
    for group in (first, second, *moved):
        await _level(nodes, group)
    return await contents(client)


async def _change_hosts(nodes: Nodes, client: Client) -> list[GroupId]:
    """Add a node to a group, and to another one that n3 leaves then; both have streams with records."""
    wider = await nodes.established("s5", nodes=("n1", "n2"))
    other = await nodes.established("s6", nodes=("n1", "n3"))
    for stream, group in enumerate((wider, other), 5):
        await client.add_stream("orders", group=group)
        await client.append("orders", b"before", stream=stream, ordered=True)
    await client.add_group_member(wider, "n3")
    await client.add_group_member(other, "n2")
    await nodes.votes(wider, N1, N2, N3)
    await nodes.votes(other, N1, N2, N3)
    await client.remove_group_member(other, "n3")
    await nodes.left(other, N3)
    await wait_for(lambda: other not in nodes.nodes[N3].groups, nodes.journal.tail)
    for stream in (5, 6):
        await client.append("orders", b"after", stream=stream, ordered=True)
    return [wider, other]


async def _level(nodes: Nodes, group: GroupId) -> None:
    """Wait until all nodes have applied the same records of a group."""

    def ends() -> set[int]:
        hosted = [node.groups[group] for node in nodes.nodes.values() if group in node.groups]
        return {int(each.applied_index) for each in hosted}

    await wait_for(lambda: len(ends()) == 1, nodes.journal.tail)


async def build(path: Path, *, hosts: bool) -> None:
    """Write the fixture ``path``; ``hosts`` = with groups whose hosts have changed."""
    with tempfile.TemporaryDirectory() as temporary:
        directory, kept = Path(temporary) / "running", Path(temporary) / "kept"
        directory.mkdir()
        async with cluster(directory) as nodes:
            expected = await fill(nodes, hosts=hosts)
            shutil.copytree(directory / "n3", kept / "n3")
        for name in ("n1", "n2", STORE):
            shutil.copytree(directory / name, kept / name)
        for each in kept.rglob("*"):
            if each.suffix == ".prepared" or each.name == "lock":
                each.unlink()
        (kept / "expected.json").write_text(json.dumps(expected, indent=1), encoding="utf-8")
        with tarfile.open(path, "w:xz") as archive:
            for each in sorted(kept.rglob("*")):
                archive.add(each, each.relative_to(kept), recursive=False, filter=anonymous)


def main() -> None:
    """Build the fixture of one name."""
    parser = argparse.ArgumentParser(prog="python -m tests.formats.build_groups", description=__doc__)
    parser.add_argument("name", help="of the fixture: a version or a date")
    parser.add_argument("--hosts", action="store_true", help="change the hosts of groups")
    asked = parser.parse_args()
    asyncio.run(build(GROUP_FIXTURES / f"{asked.name}.tar.xz", hosts=asked.hosts))


if __name__ == "__main__":
    main()
