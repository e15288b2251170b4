"""The records about runs of archived records: one msgpack map each. Pure. ``streams/runs.py`` has their rules."""

from __future__ import annotations

import msgpack

from viewstamp.ids import Position, RunId, TopicId
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = ["encode_commit_run", "encode_drop_run", "encode_forget_run", "encode_prepare_run"]


def encode_prepare_run(topic: TopicId, first: Position, end: Position) -> Batch:
    """Return the record that prepares a run of the positions ``[first, end)``. Its index becomes the id of the run."""
    return _record(Kind.PREPARE_RUN, topic=topic, first=first, end=end)


def encode_commit_run(
    run: RunId,
    *,
    records: int,
    size: int,
    digest: bytes,
    first_index: int,
    end_index: int,
    first_time: int,
    last_time: int,
    delay: int,
    first_global: int = 0,
    end_global: int = 0,
) -> Batch:
    """Return the record that commits a run. ``streams.runs.RunContent`` describes the arguments.

    ``delay``: microseconds of log time from this record on in which the log keeps its copy of the records.
    """
    order = {"first_global": first_global, "end_global": end_global} if end_global else {}
    return _record(
        Kind.COMMIT_RUN,
        run=run,
        records=records,
        size=size,
        digest=digest,
        first_index=first_index,
        end_index=end_index,
        first_time=first_time,
        last_time=last_time,
        delay=delay,
        **order,
    )


def encode_drop_run(run: RunId) -> Batch:
    """Return the record that drops a run, so that its object is not read any more."""
    return _record(Kind.DROP_RUN, run=run)


def encode_forget_run(run: RunId) -> Batch:
    """Return the record that forgets a dropped run, whose object is gone."""
    return _record(Kind.FORGET_RUN, run=run)


def _record(kind: Kind, **fields: object) -> Batch:
    return build_batch([msgpack.packb(fields)], kind=kind)
