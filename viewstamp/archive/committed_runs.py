"""Which archived records a reader takes from which file: the rules for every reader that opens the store itself.

Spark's tasks and :class:`ArrowReader` follow them. A reader plans against the catalogue of runs, which the nodes have,
and never against a list of the store: an object that is there may be an orphan. Only a *committed* run counts, and of
it only the records that the reader asks for. Records below the first position of the topic were deleted, also if the
file of a run still has them, so a reader asks the topic where it begins before it plans.

| between plan and read | effect |
| --- | --- |
| records of the log are archived | they are in no run of the plan: nodes are asked |
| a run is dropped, because its records were deleted | its file is gone: :func:`kept_behind` has its end |
| the file is lost, damaged, or replaced | the same call returns None: it is a ``CorruptionError`` |
| the store is away, or is another one | the same, with an error that says so |

The runs of a stream divide its records by ``client/archived_ranges.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from viewstamp.archive.identity import check_content
from viewstamp.archive.run_file import RunFooter, RunReader, run_name
from viewstamp.archive.store import ObjectFile, ObjectStore
from viewstamp.client.aio import Client
from viewstamp.client.runs import RunInfo
from viewstamp.client.stream_archives import StreamRunInfo
from viewstamp.client.stream_ranges import DividedTopic
from viewstamp.errors import CorruptionError, UnavailableError
from viewstamp.ids import GROUP_0, ClusterId, GroupId, RunId

__all__ = [
    "RunFile",
    "RunShare",
    "borders",
    "committed_runs",
    "committed_stream_runs",
    "divide_by_positions",
    "kept_behind",
    "open_run",
    "own_id",
    "stream_kept_behind",
]


class RunFile(NamedTuple):
    """The file of a committed run.

    Attributes:
      run: the id of the run.
      cluster: the cluster that wrote the file.
      size: of the file, in bytes.
      digest: as in the catalogue.
      group: the group of the topic, or of the stream.
    """

    run: int
    cluster: str
    size: int
    digest: str
    group: int = GROUP_0

    @classmethod
    def of(cls, run: RunInfo, own: str, group: int = GROUP_0) -> RunFile:
        """Return the file of a run of the catalogue; ``own`` is the id of the cluster that was asked."""
        return cls(run.id, run.origin or own, run.bytes, run.digest, group)

    @property
    def name(self) -> str:
        """The name of the object."""
        return run_name(ClusterId(self.cluster), RunId(self.run), GroupId(self.group))


def open_run(store: ObjectStore, file: RunFile) -> RunReader:
    """Open the file of a run, and compare its description with the catalogue.

    Raises:
      CorruptionError: they differ, or the file is not there. If the store has no file of its folder at all, the message
        says so, because then the store is away, or is another one.
    """
    try:
        reader = RunReader(ObjectFile(store, file.name, file.size), file.name)
    except CorruptionError as error:
        folder, _, _ = file.name.rpartition("/")
        if store.list_sizes(f"{folder}/"):
            raise
        raise CorruptionError(
            f"the archive at {store.where} is away, or is another one: it has no file in {folder}, so not"
            f" {file.name} either",
            path=file.name,
            expected=f"{file.size} bytes",
            found="no file in its folder",
            remedy="mount it on this machine; or name the directory or the URL that [archive] of the nodes has",
        ) from error
    reader.check_identity(ClusterId(file.cluster), RunId(file.run), GroupId(file.group))
    check_content(file.name, f"records with digest {reader.footer.digest}", f"records with digest {file.digest}")
    return reader


def borders(footer: RunFooter, start: int, end: int, groups: int) -> list[int]:
    """Return positions between ``start`` and ``end`` that cut a run into pieces of about so many row groups."""
    inside = [group.first for group in footer.groups if start < group.first < end]
    return inside[groups - 1 :: groups] if footer.groups[0].first <= start else inside


async def own_id(client: Client) -> str:
    """Return the id of the cluster. Raises UnavailableError."""
    own = next((str(each["cluster_id"]) for each in await client.status() if each.get("cluster_id")), "")
    if not own:
        raise UnavailableError("no node has told the id of its cluster", remedy="try again")
    return own


async def committed_runs(client: Client, topics: Sequence[str]) -> dict[str, list[RunInfo]]:
    """Return the runs of topics that may be read, as the catalogue has them now, by position.

    Raises:
      AccessDeniedError: access control is on, and the token may read nothing.
      RequestError: the nodes run a release without runs.
    """
    found: dict[str, list[RunInfo]] = {topic: [] for topic in topics}
    for run in await client.list_runs():
        if run.topic in found and run.state == "committed":
            found[run.topic].append(run)
    return {topic: sorted(runs, key=lambda run: run.first_position) for topic, runs in found.items()}


async def committed_stream_runs(client: Client, topic: str) -> dict[int, list[StreamRunInfo]]:
    """Return the runs of a topic that may be read, as the catalogues of its groups have them now, by stream.

    Raises as ``Client.list_stream_runs``.
    """
    found: dict[int, list[StreamRunInfo]] = {}
    for run in await client.list_stream_runs(topic):  # By position.
        if run.state == "committed":
            found.setdefault(run.stream, []).append(run)
    return found


class RunShare(NamedTuple):
    """The positions of a range that run number ``run`` of the caller has: ``start`` to ``end``, half-open."""

    run: int
    start: int
    end: int


def divide_by_positions(
    start: int, end: int, runs: Sequence[tuple[int, int]]
) -> tuple[list[RunShare], list[tuple[int, int]]]:
    """Divide positions into the shares of runs, and the rest, which only the nodes have. Each is in one of them. Pure.

    Args:
      start: the first position.
      end: the position after the last one.
      runs: the first position of each run, and that after its last one, by position.
    """
    shares, rest, at = [], [], start
    for number, (first, behind) in enumerate(runs):
        if at < min(behind, end) and first < end:
            if at < first:
                rest.append((at, first))
            low, at = max(at, first), min(behind, end)
            shares.append(RunShare(number, low, at))
    if at < end:
        rest.append((at, end))
    return shares, rest


async def kept_behind(client: Client, topic: str, end: int) -> int | None:
    """Return the first kept position of a topic if its records before ``end`` were all deleted; None = some are kept.

    If the file of a run cannot be read, this tells a run that was dropped from a file that is lost.
    """
    first = (await client.describe_topic(topic)).first_position
    return first if first >= end else None


async def stream_kept_behind(client: Client, topic: DividedTopic, stream: int, last_end: int) -> int | None:
    """Return, as :func:`kept_behind`, a position of the topic from which on all streams keep their records.

    ``last_end`` is a position in the stream; None = the stream keeps records before it. ``topic`` is described anew.
    """
    if stream in topic.found.kept_streams:
        kept = await client.describe_stream(topic.name, stream)
        if kept.first_position < last_end:
            return None
    return topic.first_position
