"""A member may end at any step of taking, installing or choosing a snapshot, and comes back with all it had.

The power is cut after every disk operation in turn, which leaves the synced data and any subset of the rest. A few cuts
are always tried, all of them with VIEWSTAMP_SOAK=1.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.actor_group import ActorGroup, Callers
from tests.integration.ledger import Ledger
from tests.node.group import not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.cli import main
from viewstamp.config import create_cluster, node_file
from viewstamp.errors import CorruptionError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId
from viewstamp.node.snapshots.policy import SnapshotOptions
from viewstamp.sim.recording import OperationKind, Playback, Recording
from viewstamp.wal.budget import WalOptions

KIB, MIB = 1024, 1024 * 1024
SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
WAL = WalOptions(segment_bytes=64 * KIB, bytes_max=MIB, reserve_bytes=0, margin_bytes=8 * KIB)
ONLY_WHEN_ASKED = SnapshotOptions(log_bytes=1 << 40, restart_seconds_max=0)
VALUE = bytes(4000)
N1, N3 = NodeId("n1"), NodeId("n3")

pytestmark = pytest.mark.slow


def choose(cuts: Iterable[int], count: int, entropy: random.Random) -> list[int]:
    """Return all cuts, or ``count`` random ones in a short run."""
    chosen = list(cuts)
    return chosen if SOAK else sorted(entropy.sample(chosen, min(count, len(chosen))))


def ledger_of(group: ActorGroup, name: str) -> str:
    """Return a digest of the ledger's state on a member; a digest of the whole state would also reflect new leaders."""
    state: Any = group.nodes[NodeId(name)].status["state"]
    return str(state["actors"]["ledger"]["digest"])


async def test_a_power_cut_at_any_step_of_taking_a_snapshot_and_dropping_the_log_loses_nothing(tmp_path: Path) -> None:
    """Checklist B1, line 3: before, during and after the drop of the log; the state is the same to the byte."""
    live = tmp_path / "live"
    live.mkdir()
    recording = Recording(str(live))
    disk = recording.disk(RealDisk())
    async with ActorGroup(live, 1, disks=lambda _: disk, wal=WAL, snapshots=ONLY_WHEN_ASKED) as group:
        await group.run()
        client = group.client()
        await client.create_topic("news")
        callers = Callers(client, ["one", "two"], padding=VALUE)
        await callers.send(20)
        await client.create_snapshot()
        await callers.send(20)
        for number in range(5):
            await client.append("news", b"%d" % number)
        node = group.nodes[N1]
        before = ledger_of(group, "n1")
        begin = len(recording)
        await client.create_snapshot()
        await client.trim_topic("news", 6)
        taken = len(recording)
        await client.create_snapshot()
        await wait_for(lambda: node.group.wal is not None and node.group.wal.first_index > 30, group.journal.tail)
        end = len(recording)
    assert {each.kind for each in recording.operations[taken:end]} >= {OperationKind.RENAME, OperationKind.SYNC}
    entropy = random.Random(1)
    replay = Playback(recording)
    for cut in choose(range(begin, end + 1), 30, entropy):
        replay.advance(cut)
        root = tmp_path / f"cut-{cut}"
        replay.write(entropy, str(root))
        async with ActorGroup(root, 1, wal=WAL, snapshots=ONLY_WHEN_ASKED) as group:
            await group.run()
            assert ledger_of(group, "n1") == before, f"cut at {cut}: another state"
            news = await group.client().describe_topic("news")
            assert news.last_position == 5
            assert news.first_position in ((6,) if cut >= taken else (1, 6)), f"cut at {cut}: the trim is lost"
            if news.first_position == 1:
                values = [record.value async for record in group.client().read("news")]
                assert values == [b"%d" % number for number in range(5)]
            assert not [name for name in os.listdir(root / "n1" / "snapshots") if name.endswith(".temporary")]
            again = Callers(group.client(), callers.names, VALUE, dict(callers.acknowledged), list(callers.results))
            await again.send(1)
            await again.check()
        await asyncio.to_thread(shutil.rmtree, root)


async def test_a_power_cut_at_any_step_of_installing_a_snapshot_loses_nothing(tmp_path: Path) -> None:
    """The member comes back with its own records or with the received snapshot, and catches up from there."""
    often = SnapshotOptions(log_bytes=64 * KIB)
    recording = Recording(str(tmp_path / "n3"))
    recorded = recording.disk(RealDisk())

    def disk(node: NodeId) -> HookedDisk:
        return HookedDisk(recorded if node == N3 else RealDisk(), not_on_the_loop)

    async with ActorGroup(tmp_path, disks=disk, wal=WAL, snapshots=often) as group:
        await group.run()
        callers = Callers(group.client(), ["one", "two"], padding=VALUE)
        await callers.send(10)
        await group.stop("n3")
        held = len(recording)
        while True:
            await callers.send(10)
            if all(node.group.wal is not None and node.group.wal.first_index > 60 for node in group.nodes.values()):
                break
        await group.start("n3")
        await group.caught_up()
        end = len(recording)
        assert group.journal.of("= snapshot installed", node="n3")
        await group.stop("n3")
        entropy = random.Random(1)
        replay = Playback(recording)
        for cut in choose(range(held, end + 1), 20, entropy):
            replay.advance(cut)
            root = tmp_path / f"cut-{cut}" / "n3"
            replay.write(entropy, str(root))
            node = group.make("n3", data_dir=str(root))
            group.nodes[N3] = node
            await node.start()
            await group.caught_up()
            assert len(set(group.digests().values())) == 1, f"cut at {cut}"
            await callers.send(1)
            await group.stop("n3")
            await asyncio.to_thread(shutil.rmtree, root)
        await callers.check()


# The choice of a snapshot.


async def make_snapshots(directory: Path) -> tuple[str, int]:
    """Make a member with at least two snapshots, and a log that begins before the older one ends; return its state."""
    async with ActorGroup(directory, 1, wal=WAL, snapshots=ONLY_WHEN_ASKED) as group:
        await group.run()
        callers = Callers(group.client(), ["one"], padding=VALUE)
        for _ in range(3):
            await callers.send(30)
            await group.client().create_snapshot()
        await callers.send(5)
        node = group.nodes[N1]
        await wait_for(lambda: node.group.wal is not None and node.group.wal.first_index > 1, group.journal.tail)
        return ledger_of(group, "n1"), callers.acknowledged["one"]


def snapshots_of(directory: Path) -> list[Path]:
    return sorted((directory / "n1" / "snapshots").glob("*.snapshot"), reverse=True)


def damage(path: Path) -> None:
    """Change one byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def everything_in(directory: Path) -> dict[str, bytes]:
    """Return the contents of every file except the lock."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


async def test_a_damaged_snapshot_is_skipped_for_the_next_older_one(tmp_path: Path) -> None:
    """Checklist B1, line 6: the log reaches back to the older snapshot, and provides the rest."""
    digest, count = await make_snapshots(tmp_path)
    newest, *older = snapshots_of(tmp_path)
    assert older
    damage(newest)
    async with ActorGroup(tmp_path, 1, wal=WAL, snapshots=ONLY_WHEN_ASKED) as group:
        await group.run()
        node = group.nodes[N1]
        assert ledger_of(group, "n1") == digest
        assert node.status["damaged_snapshots"] == [str(newest)]
        assert group.journal.of("! damaged snapshot")
        assert await group.client().actor("ledger", Ledger).enter("one", count + 1) == count + 1


async def test_without_an_intact_snapshot_a_member_refuses_to_start(tmp_path: Path) -> None:
    """It neither starts with an empty or outdated state, nor changes anything on the disk."""
    await make_snapshots(tmp_path)
    for path in snapshots_of(tmp_path):
        damage(path)
    before = everything_in(tmp_path)
    async with ActorGroup(tmp_path, 1, wal=WAL, snapshots=ONLY_WHEN_ASKED) as group:
        for _ in range(2):
            with pytest.raises(CorruptionError, match="no snapshot that is whole reaches the log"):
                await group.start("n1")
    assert everything_in(tmp_path) == before


async def test_a_snapshot_older_than_the_logs_begin_is_no_way_out(tmp_path: Path) -> None:
    """A snapshot that was restored from a backup, for example, leaves a gap before the log."""
    await make_snapshots(tmp_path)
    old = tmp_path / "old"
    async with ActorGroup(old, 1, wal=WAL, snapshots=ONLY_WHEN_ASKED) as group:
        await group.run()
        await Callers(group.client(), ["one"], padding=VALUE).send(3)
        await group.client().create_snapshot()
    for path in snapshots_of(tmp_path):
        path.unlink()
    (backup,) = snapshots_of(old)
    shutil.copy(backup, tmp_path / "n1" / "snapshots" / backup.name)
    async with ActorGroup(tmp_path, 1, wal=WAL, snapshots=ONLY_WHEN_ASKED) as group:
        with pytest.raises(CorruptionError):
            await group.start("n1")


def test_the_command_ends_with_exit_code_7(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asyncio.run(make_snapshots(tmp_path))
    for path in snapshots_of(tmp_path):
        damage(path)
    settings = tmp_path / "settings"
    settings.mkdir()
    create_cluster(str(settings), 1)
    overrides = ["--set", "cluster.id=c1", "--set", f"node.data_dir={tmp_path / 'n1'}"]
    command = ["node", "run", "--config", node_file(str(settings), "n1"), *overrides, "--output", "json"]
    assert main.run(command) == 7
    said = capfd.readouterr().err
    assert "CorruptionError" in said
    assert "no snapshot that is whole" in said
