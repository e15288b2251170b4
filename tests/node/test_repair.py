"""A damaged member repairs itself from the others, loses and changes no record, and reports its progress."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.damage import check_same_bytes, flip, flip_in_group, lose_log, segments
from tests.node.group import Group, wait_for
from viewstamp.errors import ClosedError, CorruptionError, UnavailableError
from viewstamp.ids import NodeId
from viewstamp.node import Node

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
COUNT = 18


async def fill(group: Group, count: int = COUNT, start: int = 0) -> list[bytes]:
    """Append records that fill a few segments; return the acknowledged ones."""
    client = group.client()
    if start == 0:
        await client.create_topic("orders")
    values = [b"%d " % number + b"." * 16_000 for number in range(start, start + count)]
    for value in values:
        await client.append("orders", value)
    return values


async def stop_all(group: Group) -> None:
    for node in group.nodes.values():
        node.hands_over = False
    await group.stop(*group.nodes)


async def check(group: Group, values: list[bytes]) -> None:
    """Check that all members have every acknowledged record and identical files, and that the group accepts appends."""
    await group.caught_up()
    client = group.client()
    await client.append("orders", b"more")
    await group.caught_up()
    for node in group.nodes.values():
        found = [record.value async for record in client.read("orders", node=node.me)]
        assert found == [*values, b"more"], node.me
    await stop_all(group)
    check_same_bytes(group)


def flip_sealed(directory: Path) -> None:
    flip_in_group(segments(directory)[1], 2)


def flip_open(directory: Path) -> None:
    flip_in_group(segments(directory)[-1], 0)


def flip_header(directory: Path) -> None:
    flip(segments(directory)[2], 12)


def lose_first(directory: Path) -> None:
    segments(directory)[0].unlink()


def lose_middle(directory: Path) -> None:
    segments(directory)[2].unlink()


def lose_last(directory: Path) -> None:
    segments(directory)[-1].unlink()


def lose_last_two(directory: Path) -> None:
    for path in segments(directory)[-2:]:
        path.unlink()


def shorten(directory: Path) -> None:
    os.truncate(segments(directory)[1], 10_000)


def leave_a_rotten_mark(directory: Path) -> None:
    (directory / "wal" / "truncation.mark").write_bytes(b"rot" * 21)


DAMAGES: list[tuple[Callable[[Path], None], bool]] = [
    (flip_sealed, False),
    (flip_open, False),
    (lose_first, False),
    (lose_middle, False),
    (lose_last, True),
    (lose_log, True),
    (leave_a_rotten_mark, True),
]
if SOAK:
    DAMAGES += [(flip_header, False), (shorten, False), (lose_last_two, True)]
"""Ways to damage a member's files, and whether the member cannot determine how much is missing."""


@pytest.mark.parametrize(("damage", "is_recovering"), DAMAGES, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_member_whose_files_are_damaged_repairs_itself_and_nothing_is_lost(
    tmp_path: Path, damage: Callable[[Path], None], is_recovering: bool
) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await fill(group)
        await group.caught_up()
        await group.stop("n3")
        damage(tmp_path / "n3")
        values += await fill(group, 5, COUNT)
        await group.run("n3")
        assert group.journal.of("! damaged", node="n3")
        assert bool(group.journal.of("= recovering until the lost records are replaced", node="n3")) == is_recovering
        assert (tmp_path / "n3" / "damaged-1").is_dir() or damage in (lose_middle, lose_first, lose_log)
        if is_recovering:
            # Only a higher term ends a recovery with an unknown target.
            assert group.nodes[NodeId("n3")].status["silent_until"] is not None
            leader = await group.leader()
            await leader.group.transfer_leadership("")
            await wait_for(
                lambda: group.nodes[NodeId("n3")].status["silent_until"] is None,
                lambda: f"still recovering: {group.status()}\n{group.journal.tail()}",
            )
        await check(group, values)


async def test_a_damaged_former_leader_repairs_itself_too(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await fill(group)
        leader = (await group.leader()).options.node
        await group.stop(leader)
        flip_sealed(tmp_path / leader)
        lose_last(tmp_path / leader)
        values += await fill(group, 5, COUNT)
        await group.run(leader)
        await check(group, values)


@pytest.mark.parametrize("one_is_whole", [True, False])
async def test_members_damaged_at_different_places_below_the_commit_repair_each_other(
    tmp_path: Path, one_is_whole: bool
) -> None:
    """No member needs a whole log, not even a majority, as long as each record is intact somewhere."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await fill(group)
        await group.caught_up()
        await stop_all(group)
        flip_in_group(segments(tmp_path / "n1")[1], 2)
        segments(tmp_path / "n2")[2].unlink()
        if not one_is_whole:
            flip_in_group(segments(tmp_path / "n3")[0], 3)
        await asyncio.gather(group.run("n1"), group.run("n2"), group.run("n3"))
        await check(group, values)


async def test_a_record_lost_by_all_members_blocks_them_until_one_copy_returns(tmp_path: Path) -> None:
    """No member treats its remaining records as complete. Each member reports its loss in a sentence."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await fill(group)
        await group.caught_up()
        await stop_all(group)
        (tmp_path / "kept").mkdir()
        kept = shutil.copy2(segments(tmp_path / "n2")[2], tmp_path / "kept")
        for name in ("n1", "n2", "n3"):
            lose_middle(tmp_path / name)
        starting = [await start_in_background(group, name) for name in ("n1", "n2", "n3")]
        for node, task in starting:
            # Until each has scanned its log, the others only know that it is being repaired.
            sentence = await repair_sentence(node, "repairs its log too", times=2)
            assert sentence.count("has lost index") == 2, "the losses of both others, once each"
            assert len(sentence) < 400
            assert not task.done()
        node, task = starting[1]
        await node.stop()
        with pytest.raises(ClosedError):
            await task
        shutil.copy2(kept, tmp_path / "n2" / "wal")
        await group.start("n2")
        for node, task in (starting[0], starting[2]):
            await task
            group.nodes[node.options.node] = node
        await check(group, values)


async def start_in_background(group: Group, name: str) -> tuple[Node, asyncio.Task[None]]:
    node = group.make(name)
    return node, asyncio.get_running_loop().create_task(node.start())


async def repair_sentence(node: Node, part: str, *, times: int = 1) -> str:
    def look() -> str:
        repair = node.status["repair"]
        sentence = repair["sentence"] if isinstance(repair, dict) else ""
        return sentence if sentence.count(part) >= times else ""

    return await wait_for(look, lambda: f"no sentence with {times} times {part!r}: {node.status}")


async def test_with_a_damaged_majority_the_group_stalls_with_a_message_and_invents_nothing(tmp_path: Path) -> None:
    """The group continues without intervention when an undamaged member returns."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await fill(group)
        await group.caught_up()
        await stop_all(group)
        for name in ("n2", "n3"):
            lose_middle(tmp_path / name)
        starting = [await start_in_background(group, name) for name in ("n2", "n3")]
        for node, task in starting:
            sentence = await repair_sentence(node, "no other member can give it the records from index")
            assert "n1: " in sentence
            assert not task.done()
            with pytest.raises(UnavailableError, match="is repairing"):
                node.group.list_snapshots()
        await group.start("n1")
        for node, task in starting:
            await task
            group.nodes[node.options.node] = node
        await check(group, values)


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_repair_that_waits_can_be_given_up_and_begun_again(tmp_path: Path, is_cancelled: bool) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await fill(group)
        await group.caught_up()
        await stop_all(group)
        lose_middle(tmp_path / "n3")
        node, task = await start_in_background(group, "n3")
        await repair_sentence(node, "no other member can give it")
        if is_cancelled:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await node.stop()
            with pytest.raises(ClosedError):
                await task
        await group.start("n1", "n2")
        await group.run("n3")
        await check(group, values)


async def test_two_members_that_lost_their_logs_elect_no_leader_and_the_third_cannot_alone(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        await fill(group)
        await group.caught_up()
        await stop_all(group)
        for name in ("n1", "n2"):
            lose_log(tmp_path / name)
        await group.start()
        await asyncio.sleep(0.6)
        for name in ("n1", "n2"):
            status = group.nodes[NodeId(name)].status
            assert status["silent_until"] is not None
            assert group.nodes[NodeId(name)].group.applied_index == 0
        assert all(node.replica is not None and not node.replica.is_leading for node in group.nodes.values())


async def test_a_damaged_single_node_refuses_to_start_because_there_is_no_copy(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        await fill(group)
        await group.stop("n1")
        lose_middle(tmp_path / "n1")
        before = {path.name: path.read_bytes() for path in (tmp_path / "n1" / "wal").iterdir()}
        with pytest.raises(CorruptionError, match="n1 is the only voter"):
            await group.start("n1")
        assert {path.name: path.read_bytes() for path in (tmp_path / "n1" / "wal").iterdir()} == before


def lose_control_file(directory: Path) -> None:
    for path in directory.glob("control-*"):
        path.unlink()


def rot_control_file(directory: Path) -> None:
    for path in directory.glob("control-*"):
        flip(path, 100)


@pytest.mark.parametrize("damage", [lose_control_file, rot_control_file] if SOAK else [rot_control_file])
async def test_a_member_without_term_and_vote_joins_anew_under_another_id(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await fill(group)
        await group.caught_up()
        await group.stop("n3")
        damage(tmp_path / "n3")
        await group.start("n3")
        me = group.nodes[NodeId("n3")].me
        assert me.startswith("n3~")
        leader = await group.leader()
        await wait_for(
            lambda: me in leader.status["membership"]["voters"],  # type: ignore[index]
            lambda: f"not promoted: {group.status()}\n{group.journal.tail()}",
        )
        assert len(list((tmp_path / "n3" / "damaged-1" / "wal").glob("*.segment"))) >= 4
        await group.nodes[NodeId("n3")].wait_running(20)
        await check(group, values)


async def test_a_majority_without_control_files_begins_no_group_of_its_own(tmp_path: Path) -> None:
    """Otherwise two empty members would elect a leader and acknowledge other records at existing positions."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        await fill(group)
        await stop_all(group)
        for name in ("n1", "n2"):
            lose_control_file(tmp_path / name)
        await group.start()
        await asyncio.sleep(0.6)
        assert all(node.replica is not None and not node.replica.is_leading for node in group.nodes.values())
        assert [node.group.applied_index for node in group.nodes.values()][:2] == [0, 0]


async def take_snapshots(group: Group) -> None:
    await group.caught_up()
    for node in group.nodes.values():
        await node.group.create_snapshot()


async def wait_dropped(group: Group, index: int) -> None:
    """Wait until every running member has dropped its log up to ``index``."""
    await wait_for(
        lambda: all(node.group.wal is not None and node.group.wal.first_index > index for node in group.nodes.values()),
        lambda: f"nothing dropped: {group.status()}",
    )


async def test_a_member_whose_snapshots_rotted_takes_one_that_reaches_its_log(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        values = await fill(group, 10)
        await take_snapshots(group)
        values += await fill(group, 8, 10)
        client = group.client()
        await client.trim_topic("orders", 13)
        await take_snapshots(group)
        await wait_dropped(group, 1)
        values += await fill(group, 3, 18)
        await group.caught_up()
        await group.stop("n3")
        for path in (tmp_path / "n3" / "snapshots").glob("*.snapshot"):
            flip(path, path.stat().st_size // 2)
        await group.run("n3")
        assert group.nodes[NodeId("n3")].status["silent_until"] is None
        assert list((tmp_path / "n3" / "damaged-1" / "snapshots").iterdir())
        await group.caught_up()
        for name in group.members:
            assert [record.value async for record in client.read("orders", node=name)] == values[12:]


@pytest.mark.parametrize("away", [["n3"], ["n4", "n5"]], ids=["one", "two that lost the same"])
async def test_a_member_does_not_wait_for_batches_that_the_others_have_dropped(tmp_path: Path, away: list[str]) -> None:
    """Their logs were behind and no member keeps the gap. So they begin anew from a snapshot, as recovering members."""
    async with Group(tmp_path, 2 * len(away) + 1) as group:
        await group.run()
        values = await fill(group, 10)
        await group.caught_up()
        await group.stop(*away)
        client = group.client()
        values += await fill(group, 5, 10)
        await take_snapshots(group)
        values += await fill(group, 6, 15)
        await client.trim_topic("orders", 18)
        await take_snapshots(group)
        await wait_dropped(group, 5)
        for name in away:
            flip_in_group(segments(tmp_path / name)[0], 2)
        await asyncio.gather(*(group.run(name) for name in away))
        await group.caught_up()
        for name in away:
            assert group.journal.of("! no member keeps the missing records: the log begins anew", node=name)
            assert group.nodes[NodeId(name)].status["silent_until"] is None, "the pair was known, and is reached"
        for name in group.members:
            assert [record.value async for record in client.read("orders", node=name)] == values[17:]
