"""The scrubber finds and repairs rot in cold files while the node runs, without a noticeable cost."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from tests.node.damage import check_same_bytes, flip, flip_in_group, segments
from tests.node.group import Group, wait_for
from tests.node.test_repair import fill, stop_all
from viewstamp.ids import NodeId
from viewstamp.node import Node
from viewstamp.node.repair.scrubber import Scrubber, ScrubOptions

QUICK_SCRUB = ScrubOptions(bytes_per_second=1 << 30, first_seconds=0.05, period_seconds=0.1)
NEVER = ScrubOptions(bytes_per_second=0)

pytestmark = pytest.mark.slow


async def passed(node: Node) -> dict[str, object]:
    """Wait for a whole pass that begins after the call."""
    scrubber = node.group.parts.scrubber if node.group.parts is not None else None
    assert scrubber is not None
    for _ in range(2):
        before = scrubber.status.get("finished")
        await wait_for(partial(_has_passed, scrubber, before), lambda: f"no pass: {node.status}")
    return scrubber.status


def _has_passed(scrubber: Scrubber, before: object) -> bool:
    return scrubber.status.get("finished") != before


async def test_a_healthy_node_is_read_and_nothing_happens(tmp_path: Path) -> None:
    async with Group(tmp_path, 3, scrub=QUICK_SCRUB) as group:
        await group.run()
        await fill(group)
        await group.caught_up()
        for node in group.nodes.values():
            await node.group.create_snapshot()
        status = await passed(group.nodes[NodeId("n2")])
        assert status["damaged"] == []
        assert int(str(status["bytes"])) > 150_000
        assert group.nodes[NodeId("n2")].status["scrub"] == group.nodes[NodeId("n2")].group.parts.scrubber.status  # type: ignore[union-attr]
        assert not group.journal.of("! starts again")


@pytest.mark.parametrize("name", ["n1", "n3"])
async def test_rot_in_a_sealed_segment_is_found_and_repaired_in_the_same_process(tmp_path: Path, name: str) -> None:
    """n1 leads, so it transfers leadership before it restarts its parts."""
    async with Group(tmp_path, 3, scrub=QUICK_SCRUB) as group:
        await group.run()
        values = await fill(group)
        await group.caught_up()
        flip_in_group(segments(tmp_path / name)[1], 2)
        await wait_for(lambda: group.journal.of("= repaired", node=name), lambda: group.journal.tail())
        await wait_for(
            lambda: group.nodes[NodeId(name)].replica is not None, lambda: f"not running again: {group.status()}"
        )
        values += await fill(group, 2, len(values))
        await group.caught_up()
        client = group.client()
        assert [record.value async for record in client.read("orders", node=name)] == values
        assert len(group.journal.of("! starts again", node=name)) == 1
        await stop_all(group)
        check_same_bytes(group)


async def test_every_sealed_segment_is_read(tmp_path: Path) -> None:
    async with Group(tmp_path, 1, scrub=NEVER) as group:
        await group.run()
        await fill(group)
        node = group.nodes[NodeId("n1")]
        assert node.group.parts is not None
        assert node.group.wal is not None
        node.group.parts.scrubber._options = QUICK_SCRUB
        sealed = [each.path for each in node.group.wal.segments() if each.sealed]
        assert len(sealed) > 2
        await node.group.parts.scrubber.run_pass()
        assert node.group.parts.scrubber.status["bytes"] == sum(map(os.path.getsize, sealed))
        for path in sealed:
            flip_in_group(Path(path), 0)
        await node.group.parts.scrubber.run_pass()
        assert node.group.parts.scrubber.status["damaged"] == sealed


async def test_a_lost_segment_is_found_too(tmp_path: Path) -> None:
    async with Group(tmp_path, 3, scrub=QUICK_SCRUB) as group:
        await group.run()
        await fill(group)
        await group.caught_up()
        segments(tmp_path / "n2")[1].unlink()
        await wait_for(lambda: group.journal.of("= repaired", node="n2"), lambda: group.journal.tail())
        await stop_all(group)
        check_same_bytes(group)


async def test_a_read_that_meets_rot_does_not_wait_for_the_scrubber(tmp_path: Path) -> None:
    async with Group(tmp_path, 3, scrub=NEVER) as group:
        await group.run()
        values = await fill(group)
        await stop_all(group)
        await group.run()  # nothing old is in memory
        flip_in_group(segments(tmp_path / "n3")[1], 1)
        client = group.client()
        found = [record.value async for record in client.read("orders", node="n3")]
        assert found == values
        assert group.journal.of("= repaired", node="n3")


async def test_a_damaged_snapshot_is_set_aside_and_a_new_one_taken(tmp_path: Path) -> None:
    async with Group(tmp_path, 1, scrub=QUICK_SCRUB) as group:
        await group.run()
        await fill(group, 4)
        node = group.nodes[NodeId("n1")]
        await node.group.create_snapshot()
        await fill(group, 4, 4)
        (path,) = (tmp_path / "n1" / "snapshots").glob("*.snapshot")
        flip(path, path.stat().st_size // 2)
        await wait_for(lambda: group.journal.of("! damaged snapshot", node="n1"), lambda: group.journal.tail())
        assert node.group.parts is not None
        store = node.group.parts.snapshotter.store
        await wait_for(
            lambda: [each.path for each in store.stored if each.path != str(path)], lambda: f"none taken: {node.status}"
        )


async def test_rot_on_a_single_node_is_reported_and_the_node_goes_on(tmp_path: Path) -> None:
    async with Group(tmp_path, 1, scrub=QUICK_SCRUB) as group:
        await group.run()
        await fill(group)
        flip_in_group(segments(tmp_path / "n1")[1], 2)
        await wait_for(
            lambda: group.journal.of("! rot, and no other voter to repair it from"), lambda: group.journal.tail()
        )
        await fill(group, 2, 18)
        status = await passed(group.nodes[NodeId("n1")])
        assert status["damaged"] == [str(segments(tmp_path / "n1")[1])]


async def test_a_log_that_lost_its_beginning_below_a_snapshot_gets_it_back(tmp_path: Path) -> None:
    """The log alone looks the same as after a trim.

    But the state refers to the missing records, and the others have them.
    """
    async with Group(tmp_path, 3, scrub=NEVER) as group:
        await group.run()
        values = await fill(group)
        await group.caught_up()
        for node in group.nodes.values():
            await node.group.create_snapshot()
        await group.stop("n3")
        for path in segments(tmp_path / "n3")[:2]:
            path.unlink()
        await group.run("n3")
        assert group.journal.of("! the beginning of the log is lost", node="n3")
        (repaired,) = group.journal.of("= repaired", node="n3")
        assert repaired["bytes"] > 16_000
        assert repaired["peer"] in ("n1", "n2")
        client = group.client()
        assert [record.value async for record in client.read("orders", node="n3")] == values
        await stop_all(group)
        check_same_bytes(group)


async def test_a_log_that_lost_records_needed_only_by_a_new_member_gets_them_back(tmp_path: Path) -> None:
    """No topic keeps the lost records, but without them the log cannot follow the only snapshot for a new member."""
    async with Group(tmp_path, 3, scrub=NEVER) as group:
        await group.run()
        await fill(group, 2)
        await group.caught_up()
        for node in group.nodes.values():
            await node.group.create_snapshot()
        await fill(group, 16, 2)
        await group.client().trim_topic("orders", 16)
        await group.caught_up()
        for node in group.nodes.values():
            await node.group.create_snapshot()
        await group.stop("n3")
        for path in segments(tmp_path / "n3")[:3]:
            path.unlink()
        await group.run("n3")
        node = group.nodes[NodeId("n3")]
        assert node.group.wal is not None
        assert node.group.parts is not None
        assert group.journal.of("! the beginning of the log is lost", node="n3"), node.group.wal.first_index
        assert not node.group.parts.snapshotter.is_base_lost


async def test_a_log_whose_first_file_was_written_again_from_a_snapshot_on_gets_the_rest_too(tmp_path: Path) -> None:
    """There is no number left before the first file, so the records in use below the snapshot go into that file."""
    async with Group(tmp_path, 3, scrub=NEVER) as group:
        await group.run()
        values = await fill(group, 2)
        await group.caught_up()
        await group.nodes[NodeId("n3")].group.create_snapshot()
        values += await fill(group, 16, 2)
        await group.caught_up()
        await group.stop("n3")
        segments(tmp_path / "n3")[0].unlink()
        await group.run("n3")
        assert group.journal.of("! the beginning of the log is lost", node="n3")
        node = group.nodes[NodeId("n3")]
        assert node.group.wal is not None
        assert node.group.wal.first_index == 1, (
            "no snapshot ends below the oldest record of the topic: a new member needs the whole log"
        )
        client = group.client()
        assert [record.value async for record in client.read("orders", node="n3")] == values
        await stop_all(group)
        check_same_bytes(group)


async def test_a_pass_keeps_its_pace(tmp_path: Path) -> None:
    """The limit is 512 KiB/s, so a log of 200 kB takes at least 0.4 s."""
    slowly = ScrubOptions(bytes_per_second=512 * 1024, first_seconds=0.0, period_seconds=0.0)
    async with Group(tmp_path, 1, scrub=NEVER) as group:
        await group.run()
        await fill(group, 14)
        node = group.nodes[NodeId("n1")]
        assert node.group.parts is not None
        node.group.parts.scrubber._options = slowly
        started = asyncio.get_running_loop().time()
        await node.group.parts.scrubber.run_pass()
        seconds = asyncio.get_running_loop().time() - started
        assert seconds >= int(str(node.group.parts.scrubber.status["bytes"])) / (512 * 1024)
