"""A node's life cycle.

Requirements for a start, when it accepts requests, admission of peers, and a stop without leftovers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.loop_errors import left_behind
from tests.node.caller import body_of, call
from tests.node.group import CLUSTER, PATIENCE_SECONDS, Group, not_on_the_loop, term, wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.consensus.state import RaftOptions as CoreOptions
from viewstamp.errors import (
    ConfigError,
    CorruptionError,
    DirectoryInUseError,
    NoQuorumError,
    StorageError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.disk import RealDisk
from viewstamp.host.network import RealNetwork
from viewstamp.ids import ClusterId, NodeId
from viewstamp.wire.frame import FrameKind

ELECTION_SECONDS = 0.24
"""The longest time that a member of a test's group waits before it campaigns."""


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path, 3) as group:
        yield group


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path, 1) as group:
        yield group


def files(directory: Path) -> dict[str, bytes]:
    """Return the contents of every file below ``directory`` except the lock."""
    found = {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}
    return {path: data for path, data in found.items() if not path.endswith("/lock")}


async def fill(group: Group, count: int = 5) -> None:
    client = group.client()
    await client.create_topic("orders")
    for number in range(count):
        await client.append("orders", str(number).encode())


# -- BOOTSTRAPPING, CONFIGURING, RUNNING --------------------------------------------------------------------------


class SlowReplay:
    """Disks with segments that cannot be read until the test allows it."""

    def __init__(self) -> None:
        self._may_read = threading.Event()

    def disk(self, _: NodeId) -> HookedDisk:
        return HookedDisk(RealDisk(), self._hook)

    def release(self) -> None:
        self._may_read.set()

    def _hook(self, call: str, path: str, caller: str) -> bool:
        if call == "open_read" and path.endswith(".segment"):
            assert self._may_read.wait(PATIENCE_SECONDS)
        return not_on_the_loop(call, path, caller)


async def test_a_node_that_replays_its_log_is_bootstrapping_and_refuses_everything_but_its_status(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        await fill(group)
    replay = SlowReplay()
    async with Group(tmp_path, 1, disks=replay.disk) as group:
        node = group.make("n1")
        starting = asyncio.create_task(node.start())
        await wait_for(lambda: bool(group.board.ports), lambda: "it does not listen")
        async with call(group) as caller:
            status = body_of(await caller.ask(FrameKind.STATUS))["status"]
            assert (status["id"], status["lifecycle"]) == ("n1", "bootstrapping")
            assert await caller.refusal(FrameKind.OPEN_SESSION) == "UnavailableError"
            assert await caller.refusal(FrameKind.CREATE_TOPIC, name="payments") == "UnavailableError"
            assert await caller.refusal(FrameKind.LIST_TOPICS, stale=False) == "UnavailableError"
            assert await caller.refusal(FrameKind.LIST_TOPICS, stale=True) == "UnavailableError"
            read = {"topic": 1, "position": 1, "bytes_max": 1000, "applied_index": 0, "wait": 0.0}
            answer = await caller.ask(FrameKind.READ, **read)  # type: ignore[arg-type]
            assert answer.body["error"] == "UnavailableError"
            replay.release()
            await starting
            group.nodes[NodeId("n1")] = node
            await node.wait_running(PATIENCE_SECONDS)
            topics = body_of(await caller.ask(FrameKind.LIST_TOPICS, stale=False))["topics"]
            assert topics[0]["last_position"] == 5


async def test_a_member_that_replays_its_log_counts_as_absent(tmp_path: Path) -> None:
    """While a majority of the group is BOOTSTRAPPING, there is no leader."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        await fill(group)
    replay = SlowReplay()
    async with Group(tmp_path, 3) as group, Group(tmp_path, 3, disks=replay.disk) as slow:
        slow.board = group.board
        await group.start("n1")
        starting = [asyncio.create_task(slow.start(name)) for name in ("n2", "n3")]
        await wait_for(lambda: len(group.board.ports) == 3, lambda: "they do not listen")
        with pytest.raises(NoQuorumError, match="n2 refuses n1: n2 is replaying its log"):
            await group.nodes[NodeId("n1")].wait_running(1.5 * ELECTION_SECONDS)
        replay.release()
        await asyncio.gather(*starting)
        await group.nodes[NodeId("n1")].wait_running(PATIENCE_SECONDS)


async def test_a_lone_member_of_a_new_group_stays_configuring_and_refuses_clients(group: Group) -> None:
    await group.start("n1")
    with pytest.raises(NoQuorumError, match="no majority: n2 and n3 do not answer; nothing was written") as caught:
        await group.nodes[NodeId("n1")].wait_running(0.3)
    assert "`viewstamp doctor`" in caught.value.remedy
    async with call(group) as caller:
        assert body_of(await caller.ask(FrameKind.STATUS))["status"]["lifecycle"] == "configuring"
        assert await caller.refusal(FrameKind.CREATE_TOPIC, name="orders") in ("UnavailableError", "NotLeaderError")


@pytest.mark.parametrize("again", [False, True], ids=["new group", "rebooted group"])
async def test_a_group_runs_only_after_its_membership_is_committed_in_this_term(group: Group, again: bool) -> None:
    """This holds for a new group, a restarted one and every new leader: the record must be of the leader's own term."""
    if again:
        await group.run()
        await group.stop("n1", "n2", "n3")
    await group.run()
    leader = await group.leader()
    for node in (leader, *group.nodes.values()):
        assert node.replica is not None
        core = node.replica.raft.core
        assert core.memberships[-1].term == core.term == term(leader)
        assert core.memberships[-1].index < core.log.commit_end
    before = term(leader)
    await group.stop(leader.options.node)
    leader = await group.leader()
    assert leader.replica is not None
    core = leader.replica.raft.core
    assert core.memberships[-1].term == core.term > before
    assert core.memberships[-1].index < core.log.commit_end


async def test_the_hinted_leader_of_a_new_group_leads_at_once(tmp_path: Path) -> None:
    """No member waits for an election timeout, which would be 10 s or more here."""
    async with Group(tmp_path, 3, core=CoreOptions(election_timeout_ticks=1000, heartbeat_ticks=5)) as group:
        async with asyncio.timeout(8):
            await group.run()
        leader = await group.leader()
        assert leader.options.node == "n1"
        leader.hands_over = False  # No other member could take over before that timeout.


async def test_without_the_hinted_leader_the_others_elect_one(group: Group) -> None:
    await group.run("n2", "n3")
    assert (await group.leader()).options.node in ("n2", "n3")
    await group.run("n1")
    await fill(group)
    await group.caught_up()


async def test_the_settings_count_only_where_the_log_holds_no_membership(group: Group) -> None:
    """A member must not continue alone because its settings name it as the whole group."""
    await group.run()
    await fill(group)
    await group.stop("n1", "n2", "n3")
    await group.start("n1", members={NodeId("n1"): group.members[NodeId("n1")]})
    node = group.nodes[NodeId("n1")]
    with pytest.raises(NoQuorumError):
        await node.wait_running(1.5 * ELECTION_SECONDS)
    assert sorted(node.status["members"]) == ["n1", "n2", "n3"]  # type: ignore[call-overload]
    await group.run("n2")
    await node.wait_running(PATIENCE_SECONDS)


# -- Directories and ports ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"cluster": ClusterId("c2")}, "cluster c1"), ({"node": NodeId("n2")}, "node n1 of")],
    ids=["another cluster", "another node"],
)
async def test_a_directory_of_another_node_or_cluster_is_refused_unchanged(
    single: Group, changes: dict[str, str], match: str
) -> None:
    await single.run()
    await fill(single)
    await single.stop("n1")
    before = files(single.directory)
    with pytest.raises(ConfigError, match=match) as caught:
        await single.start("n1", **changes)
    assert "data_dir" in caught.value.remedy
    assert files(single.directory) == before
    await single.run("n1")


async def test_a_directory_is_used_by_one_node_at_a_time(single: Group) -> None:
    """The second node's error names the process that has the directory, and the first node is unharmed."""
    await single.run()
    with pytest.raises(DirectoryInUseError, match=f"process {os.getpid()}"):
        await single.make("n1", listen="127.0.0.1:2").start()
    await fill(single)
    await single.stop("n1")
    await single.run("n1")


async def test_a_port_in_use_is_a_clear_error_and_the_directory_is_released(single: Group) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        node = single.make("n1", listen=address)
        node.host = type(node.host)(node.host.clock, node.host.disk, RealNetwork(), node.host.entropy)
        with pytest.raises(ConfigError, match=address) as caught:
            await node.start()
        assert "port" in caught.value.remedy
    await single.run("n1")


async def test_a_directory_that_cannot_be_made_is_an_error_with_a_remedy(single: Group) -> None:
    (single.directory / "file").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        await single.start("n1", data_dir=str(single.directory / "file" / "n1"))
    assert "data_dir" in caught.value.remedy
    assert (single.directory / "file").read_bytes() == b""


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
async def test_a_directory_that_cannot_be_written_is_an_error_with_a_remedy(single: Group) -> None:
    directory = single.directory / "n1"
    directory.mkdir()
    directory.chmod(0o500)
    try:
        with pytest.raises(StorageError) as caught:
            await single.start("n1")
    finally:
        directory.chmod(0o700)
    assert "data_dir" in caught.value.remedy


def lose_control_file(directory: Path) -> None:
    for path in directory.glob("control-*"):
        path.unlink()


def lose_log(directory: Path) -> None:
    shutil.rmtree(directory / "wal")


def lose_segment(directory: Path) -> None:
    min((directory / "wal").glob("*.segment")).unlink()


def flip_control_file(directory: Path) -> None:
    for path in directory.glob("control-*"):
        data = bytearray(path.read_bytes())
        data[30] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize("damage", [lose_control_file, lose_log, lose_segment, flip_control_file])
async def test_a_missing_or_damaged_file_is_named_and_nothing_is_repaired_by_guessing(
    single: Group, damage: Callable[[Path], None]
) -> None:
    """A node without its vote or its acknowledged records must not take part as if it were new."""
    await single.run()
    await fill(single, 200)
    await single.stop("n1")
    damage(single.directory / "n1")
    before = files(single.directory)
    with pytest.raises(CorruptionError) as caught:
        await single.start("n1")
    assert str(single.directory) in caught.value.path
    assert caught.value.remedy
    assert files(single.directory) == before


def newer_control_file(directory: Path) -> None:
    for path in directory.glob("control-*"):
        data = bytearray(path.read_bytes())
        data[3] += 1
        data[4:8] = struct.pack("<I", crc32c(bytes(data[8:]), crc32c(bytes(data[:4]))))
        path.write_bytes(data)


def newer_segment(directory: Path) -> None:
    path = max((directory / "wal").glob("*.segment"))
    data = bytearray(path.read_bytes())
    data[3] += 1
    data[4:8] = struct.pack("<I", crc32c(bytes(data[8:64]), crc32c(bytes(data[:4]))))
    path.write_bytes(data)


@pytest.mark.parametrize("change", [newer_control_file, newer_segment])
async def test_files_of_a_newer_format_are_left_alone(single: Group, change: Callable[[Path], None]) -> None:
    await single.run()
    await fill(single)
    await single.stop("n1")
    change(single.directory / "n1")
    before = files(single.directory)
    with pytest.raises(ConfigError, match="format") as caught:
        await single.start("n1")
    assert "newer" in caught.value.remedy
    assert files(single.directory) == before


# -- Admission of peers -------------------------------------------------------------------------------------------


async def test_a_wiped_member_is_refused_by_members_that_met_its_old_disk_and_never_votes_under_its_old_id(
    group: Group,
) -> None:
    """The log could be copied back, but not the lost vote: two leaders of one term could be elected."""
    await group.run()
    await fill(group)
    await group.caught_up()
    await group.stop("n3")
    shutil.rmtree(group.directory / "n3")
    await group.start("n3")
    await wait_for(
        lambda: any("another disk" in line["reason"] for line in group.journal.of("! refused")),
        lambda: f"no member refuses the wiped one\n{group.journal.tail()}",
    )
    leader = await group.leader()
    assert leader.options.node != "n3"
    other = ({NodeId("n1"), NodeId("n2")} - {leader.options.node}).pop()
    await group.stop(other)
    await wait_for(lambda: leader.status["role"] != "leader", lambda: "it leads with the wiped member alone")
    await asyncio.sleep(2 * ELECTION_SECONDS)
    assert not any(node.status["role"] == "leader" for node in group.nodes.values()), group.journal.tail()
    assert group.nodes[NodeId("n3")].me != "n3", "it waits under another id until a majority adds it"
    await group.run(other)
    values = [record.value async for record in group.client().read("orders")]
    assert values == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_peer_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with Group(tmp_path / "a", 3) as group, Group(tmp_path / "b", 3, cluster=ClusterId("c2")) as stranger:
        stranger.board = group.board
        await group.run("n1", "n2")
        await stranger.start("n3")
        await wait_for(
            lambda: any(f"belongs to cluster {CLUSTER}" in line["reason"] for line in group.journal.of("! refused")),
            lambda: f"no member refuses the stranger\n{group.journal.tail()}",
        )
        assert stranger.nodes[NodeId("n3")].status["term"] == 0


# -- The end ------------------------------------------------------------------------------------------------------


async def test_stop_leaves_no_task_no_thread_no_lock_and_no_port_behind(tmp_path: Path) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    group = Group(tmp_path, 3)
    await group.run()
    await fill(group)
    nodes = list(group.nodes.values())
    client = group.client()
    reading = asyncio.create_task(anext(client.read("orders", 6, follow=True)))
    await asyncio.sleep(0.05)
    await group.stop("n1", "n2", "n3")
    reading.cancel()
    await asyncio.wait([reading])
    await group.close()
    assert await left_behind(tasks, threads) == []
    assert group.board.ports == {}
    for node in nodes:
        assert node.failed.cancelled()
        RealDisk().lock(node.options.data_dir).release()
        await node.stop()  # A second stop does nothing.


async def test_a_start_that_is_cancelled_anywhere_leaves_nothing_behind(tmp_path: Path) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    group = Group(tmp_path, 1)
    turns = 0
    while True:
        node = group.make("n1")
        starting = asyncio.create_task(node.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        was_done = starting.done()
        starting.cancel()
        await asyncio.wait([starting])
        if was_done:
            await node.stop()
            break
        assert starting.cancelled() or starting.exception() is None
        await node.stop()
        assert await left_behind(tasks, threads) == [], f"cancelled after {turns} turns"
        if turns:
            RealDisk().lock(node.options.data_dir).release()
        turns += 1 if turns < 20 else turns // 2
    assert turns > 3
    assert await left_behind(tasks, threads) == []
    assert group.board.ports == {}


class FailingDisk:
    """A disk on which writes and syncs fail from a given moment on, as on a broken device."""

    def __init__(self) -> None:
        self.is_broken = False

    def disk(self, node: NodeId, broken: str) -> HookedDisk:
        def hook(call: str, path: str, caller: str) -> bool:
            if self.is_broken and node == broken and call in ("write", "sync", "sync_data"):
                raise StorageError(f"cannot {call} {path}: input/output error", remedy="replace the device")
            return not_on_the_loop(call, path, caller)

        return HookedDisk(RealDisk(), hook)


@pytest.mark.parametrize("broken", ["n1", "n3"], ids=["leader", "follower"])
async def test_a_failed_disk_stops_its_node_and_nothing_that_was_acknowledged_is_lost(
    tmp_path: Path, broken: str
) -> None:
    device = FailingDisk()
    async with Group(tmp_path, 3, disks=lambda node: device.disk(node, broken)) as group:
        await group.run()
        client = group.client()
        if (await group.leader()).options.node != "n1":  # A busy machine delays heartbeats.
            await client.transfer_leadership("n1")
        await client.create_topic("orders")
        await client.append("orders", b"before")
        device.is_broken = True
        receipt = await client.append("orders", b"after")
        assert receipt.position == 2
        failure = await asyncio.wait_for(asyncio.shield(group.nodes[NodeId(broken)].failed), PATIENCE_SECONDS)
        assert isinstance(failure, StorageError)
        assert group.journal.of("! node failed", node=broken)
        with pytest.raises(StorageError):
            await group.nodes[NodeId(broken)].wait_running()
        await wait_for(lambda: len(group.board.ports) == 2, lambda: "a failed node still answers")
        await group.stop(broken)
        device.is_broken = False
        await group.run(broken)
        await group.caught_up()
        for name in group.members:
            assert [record.value async for record in client.read("orders", node=name)] == [b"before", b"after"]


async def test_wait_running_raises_the_reason_when_the_node_fails(tmp_path: Path) -> None:
    device = FailingDisk()
    async with Group(tmp_path, 3, disks=lambda node: device.disk(node, "n1")) as group:
        await group.start("n1")
        waiting = asyncio.create_task(group.nodes[NodeId("n1")].wait_running(PATIENCE_SECONDS))
        await asyncio.sleep(0)
        device.is_broken = True
        await group.start("n2")
        with pytest.raises(StorageError, match="input/output error"):
            await waiting


async def test_requests_that_come_while_a_node_stops_are_answered_or_their_connection_ends(single: Group) -> None:
    """No request hangs, and none gets a receipt for a record that was not written."""
    await single.run()
    await fill(single)
    client = single.client(timeout=2.0)
    appends = [asyncio.create_task(client.append("orders", b"late")) for _ in range(50)]
    await asyncio.sleep(0)
    await single.stop("n1")
    await single.run("n1")
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert all(not isinstance(result, BaseException) or isinstance(result, ViewstampError) for result in results)
    written = sum(not isinstance(result, BaseException) for result in results)
    values = [record.value async for record in single.client().read("orders")]
    assert values.count(b"late") >= written
    refused = sum(isinstance(result, UnavailableError) for result in results)
    assert values.count(b"late") <= 50 - refused


async def test_a_group_with_slow_elections_can_be_described(tmp_path: Path) -> None:
    """The status of a running group shows the leader, every member's progress and the connected members."""
    async with Group(tmp_path, 3, core=CoreOptions(election_timeout_ticks=300, heartbeat_ticks=5)) as group:
        await group.run()
        await fill(group)
        await wait_for(
            lambda: all(len(node.status["connected"]) == 2 for node in group.nodes.values()),  # type: ignore[arg-type]
            lambda: f"not connected: {group.status()}",
        )
        await group.caught_up()
        statuses = [node.status for node in group.nodes.values()]
        assert {status["leader"] for status in statuses} == {"n1"}
        assert [status["role"] for status in statuses] == ["leader", "follower", "follower"]
        (end,) = {status["last_index"] for status in statuses}
        assert end >= 8  # type: ignore[operator]
        assert {status["commit_index"] for status in statuses} == {end}
        assert statuses[0]["led_terms"] == 1
        assert statuses[0]["cluster_id"] == CLUSTER
