"""The results of a client's calls about runs: files with archived records, and files with the last records of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["KeyRunInfo", "RunInfo", "key_run_info", "run_info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run of archived records: an immutable file with consecutive records of one topic.

    Attributes:
      id: its id, which is never used again.
      topic: the name of its topic.
      first_position: the position of its first record.
      last_position: the position of its last record.
      state: "committed" = its file is complete and was read back; "prepared" = it is being written, or was abandoned;
        "dropped" = it is not needed any more.
      origin: the id of the cluster that wrote the file; "" = this one.
      bytes: the size of its file; 0 until it is committed.
      digest: the digest of its records, in hexadecimal digits; "" until it is committed.
      first_time: the log time of its earliest record, in microseconds since 1970; 0 until it is committed.
      last_time: the log time of its latest record; 0 until it is committed.
      delay_seconds: the archive delay: for so long the log keeps its copy too, from the commit on; None = for ever, or
        the run is not committed.
    """

    id: int
    topic: str
    first_position: int
    last_position: int
    state: str
    origin: str
    bytes: int
    digest: str
    first_time: int
    last_time: int
    delay_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRunInfo:
    """A run of keys: an immutable file with the last records of the keys of a keyed topic, sorted by key.

    Attributes:
      id: its id, which is never used again, and which no :class:`RunInfo` has.
      topic: the name of its topic.
      first_position: the first position that it covers.
      last_position: the last position that it covers; it has the last one of the records of each key between them.
      state: as of :class:`RunInfo`; a merge drops the runs that it replaces.
      is_merge: whether it was merged from other runs; False = it was dumped from the log.
      records: the number of its keys; 0 until it is committed.
      bytes: the size of its file; 0 until it is committed.
      digest: the digest of its rows, in hexadecimal digits; "" until it is committed.
    """

    id: int
    topic: str
    first_position: int
    last_position: int
    state: str
    is_merge: bool
    records: int
    bytes: int
    digest: str


def run_info(run: Mapping[str, Any]) -> RunInfo:
    """Return the run that a node described."""
    return RunInfo(
        id=run["id"],
        topic=run["topic"],
        first_position=run["first"],
        last_position=run["last"],
        state=run["state"],
        origin=run["origin"],
        bytes=run.get("size", 0),
        digest=run.get("digest", ""),
        first_time=run.get("first_time", 0),
        last_time=run.get("last_time", 0),
        delay_seconds=run["delay"] / 1e6 if "delay" in run else None,
    )


def key_run_info(run: Mapping[str, Any]) -> KeyRunInfo:
    """Return the run of keys that a node described."""
    return KeyRunInfo(
        id=run["id"],
        topic=run["topic"],
        first_position=run["first"],
        last_position=run["end"] - 1,
        state=run["state"],
        is_merge=run["is_merge"],
        records=run["records"],
        bytes=run["size"],
        digest=run["digest"],
    )
