"""Snapshots for tests: descriptions, pieces, and stores on a simulated disk."""

from __future__ import annotations

from collections.abc import Iterable

from viewstamp.ids import GroupId, Index, Term
from viewstamp.node.snapshots.file import SnapshotMeta
from viewstamp.node.snapshots.store import IncomingSnapshot, SnapshotStore, StoredSnapshot
from viewstamp.sim.disk import SimulatedDisk

DIRECTORY = "/data/snapshots"
CLUSTER = "c1"


def make_meta(
    end: int, term: int = 1, *, cluster: str = CLUSTER, group: int | None = 0, created_us: int = 0
) -> SnapshotMeta:
    return SnapshotMeta(
        cluster=cluster,
        group=group,
        end=Index(end),
        term=Term(term),
        history=((0, 1), (term, 2)),
        membership=b"members",
        membership_index=1,
        membership_term=1,
        log_time=end * 1000,
        created_us=created_us,
    )


def make_pieces(end: int, count: int = 3, size: int = 5000) -> list[bytes]:
    """Return pieces of different lengths; their bytes show the snapshot and the piece that they belong to."""
    return [b"%d:%d;" % (end, number) * (size // (number + 5)) for number in range(count)]


def open_store(disk: SimulatedDisk, cluster: str = CLUSTER, group: int = 0) -> SnapshotStore:
    return SnapshotStore.open(disk, DIRECTORY, cluster, GroupId(group))


async def write(
    store: SnapshotStore, end: int, term: int = 1, *, pieces: Iterable[bytes] | None = None, created_us: int = 0
) -> StoredSnapshot:
    new = await store.create(make_meta(end, term, cluster=store.cluster, group=store.group, created_us=created_us))
    for piece in make_pieces(end) if pieces is None else pieces:
        await new.add(piece)
    return await new.finish()


async def send(
    source: SnapshotStore,
    stored: StoredSnapshot,
    incoming: IncomingSnapshot,
    *,
    chunk: int = 1000,
    chunks_max: int = -1,
) -> None:
    """Send chunk after chunk, as a transfer does, until the snapshot is complete or ``chunks_max`` chunks are sent."""
    while not incoming.is_complete and chunks_max:
        chunks_max -= 1
        offset = incoming.offset
        data = await source.read_chunk(stored, offset, chunk)
        await incoming.add(data, offset=offset, size=stored.size, identity=stored.identity)
