"""Copies of this member's log and snapshots, and a description of its state, for a backup.

A copy leaves the cluster, so it does not have the incarnations of members, with which a process could pose as one. Each
is replaced by text of the same length, and the checksums are computed again. So sizes, indices and the state that the
log leads to stay the same.

| incarnations of | are in | become |
| --- | --- | --- |
| the members of a group, as they vote | MEMBERSHIP, the header of a snapshot | zeros |
| the founders of other groups | HOSTED, FORK_GROUPS, the first piece of a snapshot of group 0 | \
a digest of them, because the state compares them: no two founders of a group have the same |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgpack

from viewstamp.consensus.membership import Membership
from viewstamp.errors import RequestError, TrimmedError
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Disk
from viewstamp.node.archive_queries import ArchiveQuery, note_archived
from viewstamp.node.options import NodeOptions
from viewstamp.node.order_queries import HomeCutQuery
from viewstamp.node.parts import Parts
from viewstamp.node.placement_queries import GroupsQuery
from viewstamp.node.snapshots.file import (
    TRAILER_SIZE,
    adapt_piece,
    adapt_trailer,
    encode_header,
    encode_piece,
    first_piece_end,
    read_first_piece,
    read_header,
)
from viewstamp.node.snapshots.store import StoredSnapshot
from viewstamp.node.state_machine import ActorsQuery, SinksQuery, StateMachine, TopicsQuery
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = ["ConcealedSnapshot", "conceal_batch", "copy_snapshot", "describe_log"]

_ROUNDS: Final = 1000


def describe_log(options: NodeOptions, parts: Parts, *, with_groups: bool = False) -> dict[str, object]:
    """Return the fields of the answer to DescribeLog. Never awaits, so that all of them belong to one index.

    ``with_groups``: the caller copies the logs of the other groups, too. ``end`` is the applied end and not the
    committed one, because the checksums of the state are known only there.

    Raises:
      RequestError: the cluster has other groups, whose records a backup of group 0 alone would not contain.
    """
    applier, machine = parts.applier, parts.applier.machine
    groups = [each.id for each in machine.query(GroupsQuery()) if each.is_established]
    if groups and not with_groups:
        raise RequestError(
            f"the cluster also has the groups {', '.join(map(str, groups))}, and a backup of group 0 alone would lack"
            " their records; nothing was written",
            remedy="take the backup with the release that the nodes run, and without --stale",
        )
    end = applier.applied_end
    return {
        **(_home(machine, groups) if groups else {}),
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


def _home(machine: StateMachine, groups: Sequence[int]) -> dict[str, object]:
    """Return the fields of group 0 of a cluster with other groups."""
    cut = machine.query(HomeCutQuery())
    return {
        "groups": groups,
        "version": cut.version,
        "open_attempts": sorted(cut.open_attempts),
        "pending_attempts": sorted(cut.pending_attempts),
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
    founders_in = parts.applier.machine.founders_in
    concealed = await in_thread(ConcealedSnapshot.open, disk, stored, founders_in, offset, offset + bytes_max)
    data = await parts.snapshotter.read(stored, offset, bytes_max)
    return concealed.size, concealed.identity, concealed.patched(offset, data)


def conceal_batch(batch: Batch) -> Batch:
    """Return a batch without incarnations: ``batch`` itself, if it has none."""
    if batch.kind is Kind.MEMBERSHIP:
        value = _conceal(batch.values()[0])
    elif batch.kind is Kind.HOSTED or batch.kind is Kind.FORK_GROUPS:
        value = _conceal_founders(bytes(batch.values()[0]), batch.kind)
    else:
        return batch
    concealed = build_batch([value], kind=batch.kind)
    concealed.stamp(
        term=batch.term,
        first_index=batch.first_index,
        previous_term=batch.previous_term,
        log_time=batch.log_time,
        first_position=batch.first_position,
    )
    return concealed


class ConcealedSnapshot:
    """A snapshot's file without incarnations: another header, maybe another first piece, and a trailer that fits.

    Attributes:
      size: the bytes of the file.
      identity: that of the file with the other header.
    """

    def __init__(self, size: int, identity: int, parts: Sequence[tuple[int, bytes]]) -> None:
        """Made by :meth:`open`; ``parts`` are the bytes that differ, with their places."""
        self.size = size
        self.identity = identity
        self._parts = parts

    @classmethod
    def open(
        cls,
        disk: Disk,
        stored: StoredSnapshot,
        founders_in: Callable[[bytes], Iterable[str]],
        start: int,
        end: int,
    ) -> ConcealedSnapshot:
        """Read what is needed for the bytes from ``start`` up to ``end``; blocking.

        The first piece may be large. It is read only for its own bytes and those of the trailer.

        Args:
          disk: the disk with the file.
          stored: the snapshot.
          founders_in: returns the incarnations of the founders of groups in a first piece.
          start: the first byte that is copied.
          end: the byte after the last one.

        Raises:
          TrimmedError: its file has been removed.
          CorruptionError, StorageError: the header or the first piece cannot be read.
        """
        try:
            file = disk.open_read(stored.path)
        except FileNotFoundError:
            raise _not_kept(stored.end) from None
        try:
            header = read_header(file)
            encoded = encode_header(replace(header.meta, membership=_conceal(header.meta.membership)))
            assert len(encoded) == header.size, f"a header of {header.size} bytes became one of {len(encoded)}"
            trailer_at = stored.size - TRAILER_SIZE
            trailer, identity = adapt_trailer(file.read(trailer_at, TRAILER_SIZE), encoded)
            parts = [(0, encoded), (trailer_at, trailer)]
            if start < first_piece_end(file, header) or end > trailer_at:
                first = read_first_piece(file, header)
                concealed = _without(first, founders_in(first))
                parts[1] = (trailer_at, adapt_piece(trailer, first, concealed))
                parts.append((header.size, encode_piece(concealed)))
            return cls(stored.size, identity, parts)
        finally:
            file.close()

    def patched(self, offset: int, data: bytes) -> bytes:
        """Return ``data``, the stored bytes from ``offset`` on, with the parts that differ replaced."""
        end = offset + len(data)
        if not any(offset < at + len(part) and at < end for at, part in self._parts):
            return data
        changed = bytearray(data)
        for at, part in self._parts:
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


def _conceal_founders(value: bytes, kind: Kind) -> bytes:
    """Return the value of a HOSTED or a FORK_GROUPS without the incarnations of the founders."""
    fields = msgpack.unpackb(value)
    if kind is Kind.HOSTED:
        return _without(value, [fields["incarnation"]])
    return _without(value, [disk for _, founders in fields["groups"] for _, disk in founders.values()])


def _without(data: bytes, incarnations: Iterable[str]) -> bytes:
    for incarnation in incarnations:
        text = incarnation.encode()
        data = data.replace(text, _digest(text))
    return data


@lru_cache(maxsize=4096)
def _digest(incarnation: bytes) -> bytes:
    """Return a digest of the same length, in hexadecimal digits.

    Slow on purpose, because an incarnation has 64 random bits.
    """
    digest = hashlib.pbkdf2_hmac("sha256", incarnation, b"viewstamp backup", _ROUNDS)
    return digest.hex().encode()[: len(incarnation)]


def _not_kept(end: int) -> TrimmedError:
    return TrimmedError(f"the snapshot up to index {end - 1} is not kept any more", remedy="fetch a newer one")
