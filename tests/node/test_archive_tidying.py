"""What no run needs is removed by the leader itself, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node.group import CALM, PATIENCE_SECONDS, Group, wait_for
from tests.node.test_archivist import OnceAt, Store, filled, one_node
from viewstamp.errors import NotLeaderError
from viewstamp.ids import NodeId, Position
from viewstamp.node import archivist
from viewstamp.node.archive_queries import ArchiveQuery, RunsQuery
from viewstamp.wire.archiving import encode_prepare_run

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

N1 = NodeId("n1")


class Seen:
    """The calls of a store, and how often each was made."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, call: str) -> None:
        self.calls.append(call)


async def test_the_leader_removes_what_no_run_needs_by_itself(tmp_path: Path) -> None:
    """An orphan, the run of a leader that died, and runs of deleted records; not what may still be prepared."""
    store = Store(tmp_path)
    with patched(archivist, _TIDY_SECONDS=0.05):
        async with one_node(tmp_path, store) as group:
            await group.run()
            client = group.client()
            await filled(client)
            await client.archive_topic("orders", 5)
            await client.archive_topic("orders", 8)
            first, second = await client.list_runs()
            store.file(first.id - 1).write_bytes(b"an orphan")
            later = store.file(1 << 40)
            later.write_bytes(b"of a record that is not applied yet")
            (store.directory / "notes.txt").write_bytes(b"no object")
            other = tmp_path / "store" / "another cluster"
            other.mkdir()
            (other / store.file(1).name).write_bytes(b"of another cluster")
            node = group.nodes[N1]
            topic = node.group.machine.query(ArchiveQuery("orders"))
            prepared = await node.archivist._propose(encode_prepare_run(topic.id, Position(8), Position(11)))
            assert prepared
            await client.trim_topic("orders", 5)
            kept = sorted([store.file(second.id).name, later.name, "notes.txt"])
            await wait_for(lambda: store.files() == kept, group.journal.tail)

            await wait_for(
                lambda: [run["id"] for run in node.group.machine.query(RunsQuery())] == [second.id], group.journal.tail
            )
            assert (other / store.file(1).name).read_bytes() == b"of another cluster"
            assert await client.check_run(second.id) == ""
            assert await client.archive_topic("orders") == 11


async def test_a_run_that_is_being_written_is_not_tidied_away(tmp_path: Path) -> None:
    store, seen = Store(tmp_path), Seen()
    entered, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert go_on.wait(PATIENCE_SECONDS)

    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        store.before = OnceAt("finish", wait)
        archiving = asyncio.create_task(client.archive_topic("orders", timeout=PATIENCE_SECONDS))
        try:
            await wait_for(entered.is_set, group.journal.tail)
            store.before = seen
            node = group.nodes[N1].archivist
            await node._result(("tidy",), node._tidy)
            assert [run.state for run in await client.list_runs()] == ["prepared"]
            assert "remove" not in seen.calls
        finally:
            go_on.set()
        assert await archiving == 11
        assert [run.state for run in await client.list_runs()] == ["committed"]


async def test_only_the_leader_tidies(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with Group(tmp_path, run_stores=lambda _: store, core=CALM) as group:
        await group.run()
        await group.caught_up()
        await filled(group.client())
        store.directory.mkdir(parents=True)
        store.file(1).write_bytes(b"an orphan")
        leader = (await group.leader()).options.node
        for name, node in group.nodes.items():
            if str(name) != str(leader):
                with pytest.raises(NotLeaderError):
                    await node.archivist._tidy()
                assert store.files() == [store.file(1).name]
        await group.nodes[NodeId(str(leader))].archivist._tidy()
        assert store.files() == []
