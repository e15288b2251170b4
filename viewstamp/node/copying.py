"""Copies of this member's log and snapshots, and a description of its state, for a backup.

A copy leaves the cluster, so it does not have the incarnations of members, with which a process could pose as one. Each
is replaced by zeros of the same length, and the checksums are computed again. So sizes, indices and the state that the
log leads to stay the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from viewstamp.consensus.membership import Membership
from viewstamp.errors import RequestError, TrimmedError
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Disk
from viewstamp.node.archive_queries import ArchiveQuery, note_archived
from viewstamp.node.options import NodeOptions
from viewstamp.node.parts import Parts
from viewstamp.node.placement_queries import GroupsQuery
from viewstamp.node.snapshots.file import TRAILER_SIZE, SnapshotHeader, adapt_trailer, encode_header, read_header
from viewstamp.node.snapshots.store import StoredSnapshot
from viewstamp.node.state_machine import ActorsQuery, SinksQuery, StateMachine, TopicsQuery
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = ["ConcealedSnapshot", "conceal_batch", "copy_snapshot", "describe_log"]


def describe_log(options: NodeOptions, parts: Parts) -> dict[str, object]:
    """Return the fields of the answer to DescribeLog. Never awaits, so that all of them belong to one index.

    ``end`` is the applied end and not the committed one, because the checksums of the state are known only there.

    Raises:
      RequestError: the cluster has other groups, whose records a backup would not contain.
    """
    applier, machine = parts.applier, parts.applier.machine
    if groups := [each.id for each in machine.query(GroupsQuery()) if each.is_established]:
        raise RequestError(
            f"the cluster also has the groups {', '.join(map(str, groups))}, and a backup would lack their"
            " records; nothing was written",
            remedy="stop all nodes, and copy their whole data directories",
        )
    end = applier.applied_end
    return {
        "cluster": options.cluster,
        "node": options.node,
        "first_index": parts.wal.first_index,
        "end": end,
        "term": applier.applied_term,
        "log_time": applier.log_time,
        "history": [list(start) for start in parts.raft.core.history.starts if start.begin < end],
        "chain": machine.chain,
        "lineage": machine.lineage,
        "topics": _topics(machine),
        "sinks": machine.query(SinksQuery()),
        "actors": machine.query(ActorsQuery()),
        "snapshots": [stored.as_dict() for stored in parts.snapshotter.store.stored if stored.end <= end],
    }


def _topics(machine: StateMachine) -> list[dict[str, Any]]:
    """Return the maps of the topics; of those with archived records with ``archived_last``, the last such position."""
    topics = machine.query(TopicsQuery())
    return [note_archived(topic, machine.query(ArchiveQuery(topic["name"])).archived_end) for topic in topics]


async def copy_snapshot(
    disk: Disk, parts: Parts, end: int, term: int, offset: int, bytes_max: int
) -> tuple[int, int, bytes]:
    """Return size and identity of the copy of a snapshot's file, and bytes of it from ``offset`` on.

    Raises:
      TrimmedError: the snapshot is not kept any more.
      CorruptionError, StorageError: its header cannot be read.
    """
    stored = parts.snapshotter.store.find(end, term)
    if stored is None:
        raise _not_kept(end)
    concealed = await in_thread(ConcealedSnapshot.open, disk, stored)
    data = await parts.snapshotter.read(stored, offset, bytes_max)
    return concealed.size, concealed.identity, concealed.patched(offset, data)


def conceal_batch(batch: Batch) -> Batch:
    """Return a batch without incarnations: ``batch`` itself, unless it is a membership record."""
    if batch.kind is not Kind.MEMBERSHIP:
        return batch
    concealed = build_batch([_conceal(batch.values()[0])], kind=Kind.MEMBERSHIP)
    concealed.stamp(
        term=batch.term,
        first_index=batch.first_index,
        previous_term=batch.previous_term,
        log_time=batch.log_time,
        first_position=batch.first_position,
    )
    return concealed


class ConcealedSnapshot:
    """A snapshot's file without incarnations: it has another header, and a trailer that belongs to it."""

    def __init__(self, header: SnapshotHeader, trailer: bytes, size: int) -> None:
        """Take the header, the last ``TRAILER_SIZE`` bytes and the size of the stored file."""
        self.size = size
        meta = replace(header.meta, membership=_conceal(header.meta.membership))
        self._header = encode_header(meta)
        self._trailer, self.identity = adapt_trailer(trailer, self._header)
        assert len(self._header) == header.size, f"a header of {header.size} bytes became one of {len(self._header)}"

    @classmethod
    def open(cls, disk: Disk, stored: StoredSnapshot) -> ConcealedSnapshot:
        """Read header and trailer of a stored snapshot; blocking.

        Raises:
          TrimmedError: its file has been removed.
          CorruptionError, StorageError: the header cannot be read.
        """
        try:
            file = disk.open_read(stored.path)
        except FileNotFoundError:
            raise _not_kept(stored.end) from None
        try:
            return cls(read_header(file), file.read(stored.size - TRAILER_SIZE, TRAILER_SIZE), stored.size)
        finally:
            file.close()

    def patched(self, offset: int, data: bytes) -> bytes:
        """Return ``data``, the stored bytes from ``offset`` on, with the parts of header and trailer replaced."""
        end = offset + len(data)
        trailer_at = self.size - len(self._trailer)
        if offset >= len(self._header) and end <= trailer_at:
            return data
        changed = bytearray(data)
        for at, part in ((0, self._header), (trailer_at, self._trailer)):
            start, stop = max(offset, at), min(end, at + len(part))
            if start < stop:
                changed[start - offset : stop - offset] = part[start - at : stop - at]
        return bytes(changed)


def _conceal(value: bytes) -> bytes:
    """Return the value of a membership record with zeros for the incarnations."""
    membership = Membership.decode(value)
    if not membership.incarnations:
        return value
    zeros = {member: "0" * len(text) for member, text in membership.incarnations.items()}
    return replace(membership, incarnations=zeros).encode()


def _not_kept(end: int) -> TrimmedError:
    return TrimmedError(f"the snapshot up to index {end - 1} is not kept any more", remedy="fetch a newer one")
