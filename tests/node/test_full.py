"""A full disk or log refuses writes before they do harm.

The other members continue, and the node recovers when there is room.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.caller import body_of, call
from tests.node.group import PATIENCE_SECONDS, SMALL, Group, not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.client import Client
from viewstamp.errors import OutcomeUnknownError, StorageFullError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId, Sequence, SessionId, TopicId
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.frame import FrameKind

SEGMENT_BYTES = 512 * 1024
THREE_SEGMENTS = replace(
    SMALL, segment_bytes=SEGMENT_BYTES, bytes_max=3 * SEGMENT_BYTES, margin_bytes=SEGMENT_BYTES // 4
)
VALUE = b"." * 32_000


async def append_until_full(client: Client, count: int = 80) -> tuple[int, StorageFullError | None]:
    """Append record after record; return the number of acknowledged ones and the error that ended the loop, if any."""
    for number in range(count):
        try:
            await client.append("orders", f"{number} ".encode() + VALUE)
        except StorageFullError as error:
            return number, error
    return count, None


async def numbers(client: Client, node: str | None = None) -> list[int]:
    return [int(record.value.split()[0]) async for record in client.read("orders", node=node)]


async def test_a_follower_whose_log_is_full_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """The full follower reports it, stays a member, and catches up once it has room."""
    async with Group(tmp_path, 3) as group:
        await group.run("n1", "n2")
        await group.run("n3", wal=THREE_SEGMENTS)
        client = group.client()
        await client.create_topic("orders")
        assert await append_until_full(client) == (80, None)
        full = group.nodes[NodeId("n3")]
        await wait_for(lambda: group.journal.of("! full", node="n3"), group.journal.tail)
        assert not full.failed.done()
        assert full.status["role"] == "follower"
        held = await numbers(client, "n3")
        assert held == list(range(len(held)))
        assert 10 < len(held) < 80
        await group.stop("n3")
        await group.run("n3")
        await group.caught_up()
        assert await numbers(client, "n3") == list(range(80))


async def test_a_follower_takes_the_part_of_an_append_for_which_it_has_room(tmp_path: Path) -> None:
    """All or nothing would leave its log half full: no reason to drop anything, and no room for the whole append."""
    async with Group(tmp_path, 3) as group:
        await group.run("n1", "n2")
        client = group.client()
        await client.create_topic("orders")
        assert await append_until_full(client) == (80, None)
        await group.run("n3", wal=THREE_SEGMENTS)
        full = group.nodes[NodeId("n3")]
        await wait_for(
            lambda: (wal := full.group.wal) is not None and wal.bytes_left < 2 * len(VALUE),
            lambda: f"there is room for more: {group.status()}",
        )
        held = await numbers(client, "n3")
        assert held == list(range(len(held)))


async def test_of_the_batches_of_an_append_the_first_that_fit_are_taken(tmp_path: Path) -> None:
    async with Group(tmp_path, 1, wal=THREE_SEGMENTS) as group:
        await group.run()
        parts = group.nodes[NodeId("n1")].group.parts
        assert parts is not None
        space, left = parts.replica.space, parts.wal.bytes_left
        batches = tuple(build_batch([VALUE], topic=TopicId(1)) for _ in range(80))
        few = space.fitting(batches[:5])
        assert few == batches[:5]
        more = space.fitting(batches[5:])
        assert more == batches[5 : 5 + len(more)]
        assert 0.8 * left < (len(few) + len(more)) * len(VALUE) < left
        assert space.fitting(batches[:1]) == ()


async def test_a_retry_for_which_there_is_no_room_gets_the_refusal_of_its_position_again(tmp_path: Path) -> None:
    """It is in the log, and the caller of a compare-and-append decides by it what to append next."""
    async with Group(tmp_path, 1, wal=replace(SMALL, bytes_max=4 * SMALL.segment_bytes)) as group:
        await group.run()
        await group.client().create_topic("orders")
        async with call(group) as caller:
            session = SessionId(body_of(await caller.ask(FrameKind.OPEN_SESSION))["session"])
            for value in (b"", bytes(5 * SMALL.segment_bytes)):
                batch = build_batch([value], topic=TopicId(1), session=session, sequence=Sequence(1))
                body = (await caller.ask(FrameKind.APPEND_AT, batch.buffer, position=9)).body
                assert (body.get("error"), body.get("actual")) == ("PositionMismatchError", 1)


async def test_a_full_log_does_not_keep_an_administrator_from_a_change_of_members_or_a_revocation(
    tmp_path: Path,
) -> None:
    """A change writes into the audit log first. Both records may use the last bytes, as a trim may."""
    async with Group(tmp_path, 1, wal=replace(SMALL, bytes_max=4 * SMALL.segment_bytes)) as group:
        await group.run()
        _, ops = await group.client().create_token("ops", ["administer"])
        admin = group.client(seed=2, token=ops)
        await admin.create_topic("orders")
        await admin.create_token("writer", ["append"])
        for size in (32_000, 2_000, 100, 1):
            with suppress(StorageFullError):
                while True:
                    await admin.append("orders", bytes(size))
        await admin.add_member("n9", "127.0.0.1:9", voter=False)
        await admin.revoke_token("writer")
        assert [entry.action for entry in await admin.list_audit()][-2:] == ["members change", "token revoke"]


async def test_entries_of_the_audit_log_leave_room_for_the_records_that_free_space(tmp_path: Path) -> None:
    """A program that repeats a change of members must not use up the room for the trim that would help."""
    async with Group(tmp_path, 1, wal=replace(SMALL, bytes_max=4 * SMALL.segment_bytes)) as group:
        await group.run()
        parts = group.nodes[NodeId("n1")].group.parts
        assert parts is not None
        space = parts.replica.space

        def admitted(kind: Kind) -> int:
            count = 0
            with suppress(StorageFullError):
                while True:
                    space.check(batch := build_batch([bytes(300)], kind=kind))
                    space.turn_bytes += batch.size
                    count += 1
            return count

        assert admitted(Kind.RECORDS) > 100
        entries = admitted(Kind.AUDIT)
        assert entries > 2
        assert admitted(Kind.TRIM_TOPIC) >= entries


async def test_a_leader_whose_log_is_full_refuses_clearly_and_loses_nothing(tmp_path: Path) -> None:
    async with Group(tmp_path, 3, wal=THREE_SEGMENTS) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        count, error = await append_until_full(client)
        assert error is not None
        assert "bytes_max" in error.remedy
        assert "the log is full" in error.message
        assert 20 < count < 60
        with pytest.raises(StorageFullError):
            await client.append("orders", 8 * VALUE)  # A leader elected meanwhile may have some room left.
        for node in group.nodes.values():
            assert not node.failed.done(), group.journal.tail()
        for name in group.members:
            assert await numbers(client, name) == list(range(count)), "a full member still serves reads"
        await group.stop("n1", "n2", "n3")
        await group.run(wal=SMALL)
        receipt = await client.append("orders", f"{count} ".encode())
        assert receipt.position == count + 1, "no refused record is in the topic"
        assert await numbers(client) == list(range(count + 1))


async def test_a_full_group_starts_again_full_and_can_still_elect(tmp_path: Path) -> None:
    """Terms, votes and the membership record of a new leader need room, too; a part of the log is reserved for them."""
    async with Group(tmp_path, 3, wal=THREE_SEGMENTS) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        count, _ = await append_until_full(client)
        for _ in range(3):
            await group.stop("n1", "n2", "n3")
            await group.run()
            with pytest.raises(StorageFullError):
                await client.append("orders", 8 * VALUE)
        assert await numbers(group.client()) == list(range(count))


async def test_a_leader_is_full_before_followers_whose_logs_have_a_quarter_less_room(tmp_path: Path) -> None:
    """Full followers accept nothing, not even the trim that would make room, so the group could never recover."""
    wal = replace(SMALL, bytes_max=1024 * 1024)
    async with Group(tmp_path, 3, wal=replace(wal, bytes_max=768 * 1024)) as group:
        await asyncio.gather(group.run("n1", wal=wal), group.run("n2", "n3"))
        client = group.client(timeout=3.0)
        await client.create_topic("orders")
        await group.caught_up()
        leader = group.nodes[NodeId("n1")].group.parts
        assert leader is not None
        assert leader.replica.is_leading
        await wait_for(
            lambda: leader.headroom.spared_bytes > 0, lambda: f"no follower reported its room: {group.status()}"
        )
        count, error = await append_until_full(client)
        assert count > 15
        assert error is not None
        await client.trim_topic("orders", count)
        for _ in range(100):
            if await append_until_full(client, 5) == (5, None):
                break
            await asyncio.sleep(0.1)  # Wait for snapshots, after which the covered prefix is dropped.
        else:
            pytest.fail(f"still full: {group.journal.tail()}")


@pytest.mark.parametrize("size", [4_000, 32_000, 90_000])
async def test_a_flood_on_a_log_that_is_nearly_full_does_not_bring_the_leader_down(tmp_path: Path, size: int) -> None:
    """Batches that are admitted in one turn are written in the same turn, so the check must sum their sizes."""
    async with Group(tmp_path, 1, wal=THREE_SEGMENTS) as group:
        await group.run()
        node = group.nodes[NodeId("n1")]
        async with call(group) as caller:
            body_of(await caller.ask(FrameKind.CREATE_TOPIC, name="orders"))
            session = body_of(await caller.ask(FrameKind.OPEN_SESSION))["session"]
            acknowledged, sequence = 0, 1
            for _ in range(60):
                sent = list(range(sequence, sequence + 12))
                for number in sent:
                    batch = build_batch(
                        [bytes(size)], topic=TopicId(1), session=SessionId(session), sequence=Sequence(number)
                    )
                    caller.send(FrameKind.APPEND, {"id": number}, batch.buffer)
                answers = [await caller.frame() for _ in sent]
                good = [answer for answer in answers if answer.kind == FrameKind.OK]
                acknowledged += len(good)
                sequence += len(good)
                if not good:
                    break
            assert acknowledged * size < THREE_SEGMENTS.bytes_max + SEGMENT_BYTES
            assert acknowledged > 5
            assert {answer.body["error"] for answer in answers} <= {
                "StorageFullError",
                "OverloadedError",
                "UnavailableError",
            }
            await asyncio.sleep(0.05)
            assert not node.failed.done(), group.journal.tail()
            topics = body_of(await caller.ask(FrameKind.LIST_TOPICS, stale=False))["topics"]
            assert topics[0]["last_position"] == acknowledged


class FullDevice:
    """A device without room for another segment, until the test changes that."""

    def __init__(self) -> None:
        self.is_full = False

    def disk(self, node: NodeId, full: str) -> HookedDisk:
        def hook(call: str, path: str, caller: str) -> bool:
            if self.is_full and node == full and call == "create":
                raise StorageFullError(f"cannot create {path}: no space left on device", remedy="free space")
            return not_on_the_loop(call, path, caller)

        def free_bytes(free: int) -> int:
            return 0 if self.is_full and node == full else free

        return HookedDisk(RealDisk(), hook, free_bytes=free_bytes)


@pytest.mark.parametrize("full", ["n1", "n3"], ids=["leader", "follower"])
async def test_a_full_device_is_met_before_it_does_harm_and_goes_on_by_itself(tmp_path: Path, full: str) -> None:
    device = FullDevice()
    async with Group(tmp_path, 3, disks=lambda node: device.disk(node, full)) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        device.is_full = True
        count, error = await append_until_full(client)
        if full == "n1":
            assert error is not None
            assert "free space" in error.remedy
        else:
            assert error is None
        for node in group.nodes.values():
            assert not node.failed.done(), group.journal.tail()
        assert await numbers(client) == list(range(count))
        device.is_full = False

        async def is_taken() -> bool:
            try:
                await client.append("orders", f"{count} ".encode())
            except (StorageFullError, OutcomeUnknownError):
                return False
            return True

        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if await is_taken():
                    break
                await asyncio.sleep(0.01)
        await wait_for(
            lambda: len({node.group.applied_index for node in group.nodes.values()}) == 1,
            lambda: f"not level: {group.status()}",
        )
        for name in group.members:
            assert await numbers(client, name) == list(range(count + 1))
