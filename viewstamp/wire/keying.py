"""The records about runs of keyed topics: one msgpack map each. Pure. ``streams/key_runs.py`` has their rules."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from viewstamp.ids import Position, RunId, TopicId
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = [
    "SPLIT_BYTES_MAX",
    "encode_commit_keys",
    "encode_configure_keyed",
    "encode_drop_keys",
    "encode_forget_keys",
    "encode_prepare_keys",
]

SPLIT_BYTES_MAX = 1024
"""The longest key at which a range is divided: such keys are in the state and in every snapshot."""


def encode_configure_keyed(name: str, *, is_on: bool, by: str = "") -> Batch:
    """Return the record that makes a topic keyed, or ends that; ``by`` is the caller for the audit log."""
    return _record(Kind.CONFIGURE_KEYED, name=name, is_on=is_on, **({"by": by} if by else {}))


def encode_prepare_keys(topic: TopicId, first: Position, end: Position, *, merged: bytes | None = None) -> Batch:
    """Return the record that prepares a run of the positions ``[first, end)``. Its index becomes the id of the run.

    ``merged``: the start of the range whose slices at these positions it replaces; None = it is dumped from the log.
    """
    return _record(
        Kind.PREPARE_KEYS, topic=topic, first=first, end=end, is_merge=merged is not None, range=merged or b""
    )


def encode_commit_keys(run: RunId, *, records: int, size: int, digest: bytes, splits: Sequence[bytes] = ()) -> Batch:
    """Return the record that commits a run. ``splits``: rising keys at which the range of a merge is divided."""
    return _record(Kind.COMMIT_KEYS, run=run, records=records, size=size, digest=digest, splits=list(splits))


def encode_drop_keys(run: RunId) -> Batch:
    """Return the record that drops a prepared run."""
    return _record(Kind.DROP_KEYS, run=run)


def encode_forget_keys(run: RunId) -> Batch:
    """Return the record that forgets a dropped run, whose object is gone."""
    return _record(Kind.FORGET_KEYS, run=run)


def _record(kind: Kind, **fields: object) -> Batch:
    return build_batch([msgpack.packb(fields)], kind=kind)
