"""A drill: restores a backup into a temporary directory, starts it, and compares it with its source.

The cluster of the drill has one node on the loopback interface, in this process. It has another cluster id than the
source and than every other drill, so it can neither reach the source nor be taken for it.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from viewstamp.backup.manifest import LogCopy, Manifest
from viewstamp.backup.store import BackupStore
from viewstamp.client import SpreadTopicInfo
from viewstamp.client.aio import Client
from viewstamp.config import node_file
from viewstamp.embed.actor_classes import Actors
from viewstamp.embed.open_node import open_node
from viewstamp.errors import ConfigError, TrimmedError
from viewstamp.fork import FORK_RECORDS, judge_source
from viewstamp.host.clock import RealClock
from viewstamp.host.disk import RealDisk
from viewstamp.ids import GROUP_0, GroupId, Position, Stream
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.restore import RestorePlan, restore_cluster
from viewstamp.node.applier import Applier
from viewstamp.node.placement_queries import SpreadTopic
from viewstamp.node.replay import point_of
from viewstamp.node.snapshots.file import read_header, read_pieces
from viewstamp.streams.joint_cut import contradictions
from viewstamp.streams.machine import Streams
from viewstamp.streams.state import State
from viewstamp.terminal.loop import run_async
from viewstamp.wal.offline import read_batches
from viewstamp.wire.batch import Batch, Record
from viewstamp.wire.spreading import stream_name

__all__ = ["DrillResult", "drill"]

_PENDING_MAX: Final = 1000


@dataclass(slots=True)
class DrillResult:
    """The result of a drill. ``differences`` is empty if the restored state is that of the source.

    ``is_state_compared``: whether the source's checksum of the state of group 0 is known and was computed by the same
    code of actors; those of the other groups are compared if they are known. ``records`` counts those that the started
    node returned, by topic. ``archived`` has the last archived position of each topic, and of each stream by its name,
    up to which nothing was read, because the started node has no archive.
    """

    backup: str
    is_state_compared: bool = False
    records: dict[str, int] = field(default_factory=dict)
    archived: dict[str, int] = field(default_factory=dict)
    sinks: int = 0
    actors: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Ordered:
    """The records of a topic with streams that have global positions and are not archived.

    ``count`` is their number. From the global position ``start`` on no record of any stream is archived. ``streams``
    has, by number, the records of each stream before that which are not archived: positions in the stream, half-open.
    """

    count: int = 0
    start: int = 1
    streams: dict[int, tuple[int, int]] = field(default_factory=dict)


def drill(
    store: BackupStore,
    manifest: Manifest,
    actors: Actors,
    *,
    on_step: Callable[[str, int], None] = lambda text, size: None,
    on_bytes: Callable[[int], None] = lambda _: None,
    temporary: str | None = None,
) -> DrillResult:
    """Restore a backup, start it, compare it, stop it and remove it; blocking.

    Args:
      store: with the backup.
      manifest: of the backup.
      actors: the classes of all actors in it: name to class.
      on_step: called with a text and a number of bytes when a long step begins.
      on_bytes: called with the bytes that were done since the last call.
      temporary: the directory in which a temporary one is made; None = that of the system.

    Raises:
      ConfigError: the class of an actor is not given.
      ViewstampError: the backup is damaged, or the restored cluster does not start.
    """
    missing = sorted({str(each["name"]) for each in manifest.actors} - actors.keys())
    if missing:
        raise ConfigError(
            f"the classes of {', '.join(missing)} are not known here, and the node has to run them",
            remedy="name each one: --actor NAME=module:Class, as in the settings [actors]",
        )
    result = DrillResult(manifest.id)
    with tempfile.TemporaryDirectory(prefix="viewstamp-drill-", dir=temporary) as directory:
        cluster = f"{directory}/cluster"
        plan = RestorePlan(target=store.where, backup=manifest.id, nodes=1)
        restore_cluster(store, cluster, plan, on_step=on_step, on_bytes=on_bytes)
        on_step("computing the state", manifest.size)
        _compare_state(f"{cluster}/n1", manifest.group_0, actors, result, on_bytes)
        for log in manifest.groups:
            _compare_state(f"{cluster}/n1/groups/{log.group}", log, actors, result, on_bytes)
        ordered = _compare_groups(f"{cluster}/n1", manifest, result) if manifest.groups else {}
        on_step("reading from the started cluster", manifest.size)
        run_async(_compare_answers(node_file(cluster, "n1"), manifest, ordered, actors, result, on_bytes))
    return result


def _compare_state(
    directory: str, log: LogCopy, actors: Actors, result: DrillResult, on_bytes: Callable[[int], None]
) -> None:
    """Apply the log of a group up to the end of the backup, and compare the checksum of the state."""
    machine, what = Streams(classes=actors), f" of group {log.group}" if log.group else ""
    if log.group:
        machine.follow(GroupId(log.group), Streams(classes=actors))
    disk, applier = RealDisk(), Applier(machine, RealClock())
    for name in sorted(disk.list_directory(f"{directory}/snapshots"), reverse=True)[:1]:
        file = disk.open_read(f"{directory}/snapshots/{name}")
        try:
            header = read_header(file)
            applier.adopt(machine.prepare(read_pieces(file, header)), point_of(header.meta))
        finally:
            file.close()
    pending: deque[Batch] = deque()
    for batch in read_batches(disk, directory):
        if batch.first_index >= applier.applied_end + sum(each.count for each in pending):
            if batch.end > log.end:
                break
            pending.append(batch)
        on_bytes(batch.size)
        if len(pending) >= _PENDING_MAX:
            applier.apply_to(pending, log.end)
    applier.apply_to(pending, log.end)
    if applier.applied_end != log.end:
        result.differences.append(
            f"the restored log{what} ends at index {applier.applied_end - 1}, the backup at {log.end - 1}"
        )
    elif log.chain is not None and log.lineage == machine.lineage:
        result.is_state_compared = result.is_state_compared or not log.group
        if log.chain != machine.chain:
            result.differences.append(
                f"the checksum of the state{what} at index {log.end - 1} is {machine.chain:016x}, in the source it was"
                f" {log.chain:016x}"
            )


def _compare_groups(directory: str, manifest: Manifest, result: DrillResult) -> dict[str, _Ordered]:
    """Compare the ends of the logs of all groups, and the order of group 0 with the streams.

    Returns:
      The records that the started node must return, by spread topic.
    """
    source = judge_source(RealDisk(), [directory], with_groups=True)
    ends = {group: each.end - FORK_RECORDS for group, each in source.logs.items()}
    if ends != (backup := {log.group: log.end for log in manifest.logs}):
        result.differences.append(f"the restored logs end before the indices {ends}, those of the backup {backup}")
    plans = {GroupId(group): each.plan for group, each in source.logs.items()}
    groups = {group: plan.state for group, plan in plans.items() if plan is not None and plan.state is not None}
    home = groups.pop(GROUP_0)
    result.differences += contradictions(home, groups)
    return {each.name: _ordered(home, groups, each, result) for each in home.spread.topics.values()}


def _ordered(home: State, groups: Mapping[GroupId, State], spread: SpreadTopic, result: DrillResult) -> _Ordered:
    """Return the records of a topic that the logs have, and note the archived ones in ``result``."""
    found, begins = _Ordered(), dict[int, tuple[State, str, int]]()
    for number, group in enumerate(spread.groups, 1):
        name = stream_name(spread.name, number)
        state = groups.get(group)
        topic = state.names.get(name) if state is not None else None
        if state is None or topic is None:
            continue
        begin = state.runs.archived_end(topic)
        found.count += max(0, home.order.ordered_end(Stream(group, name)) - begin)
        begins[number] = state, name, begin
        if begin > topic.first_position:
            result.archived[name] = begin - 1
            run = state.runs.find(topic.id, begin - 1)
            assert run is not None, "the last archived record is in a run"
            assert run.content is not None, "the run is committed"
            found.start = max(found.start, run.content.end_global)
    if found.start > 1:
        ends = {number: state.maps.first_from(name, found.start) for number, (state, name, _) in begins.items()}
        found.streams = {number: (each[2], ends[number]) for number, each in begins.items() if each[2] < ends[number]}
    return found


async def _compare_answers(
    file: str,
    manifest: Manifest,
    ordered: Mapping[str, _Ordered],
    actors: Actors,
    result: DrillResult,
    on_bytes: Callable[[int], None],
) -> None:
    """Start the node, and compare its answers with the description of the source.

    ``ordered`` has the records with global positions by spread topic.
    """
    cluster = LocalCluster.open(os.path.dirname(file))
    async with open_node(file, actors=actors), cluster.target.connect() as client:
        await _compare_topics(client, manifest, result, on_bytes)
        await _compare_spread_topics(client, ordered, result, on_bytes)
        sinks = {sink.name: sink.batch for sink in await client.list_sinks()}
        result.sinks = len(sinks)
        for sink in manifest.sinks:
            if sinks.get(sink["name"]) != sink["batch"]:
                result.differences.append(
                    f"sink {sink['name']} has batch {sinks.get(sink['name'])}, in the source {sink['batch']}"
                )
        listed: dict[str, Any] = {each.name: each for each in await client.list_actors()}
        for actor in manifest.actors:
            found = listed.get(actor["name"])
            result.actors[actor["name"]] = found.instances if found is not None else 0
            if found is not None and found.groups:  # The states of its groups were compared, and group 0 has none.
                if found.missing:
                    groups = ", ".join(map(str, found.missing))
                    result.differences.append(f"groups {groups} do not count the instances of actor {actor['name']}")
            elif found is None or (found.instances, found.digest) != (actor["instances"], actor["digest"]):
                result.differences.append(f"the state of actor {actor['name']} is not that of the source")


async def _compare_topics(
    client: Client, manifest: Manifest, result: DrillResult, on_bytes: Callable[[int], None]
) -> None:
    source: dict[str, Mapping[str, Any]] = {each["name"]: each for each in manifest.topics}
    for topic in await client.list_topics():
        count = 0
        described = source.pop(topic.name, None)
        # Archived records may be in the files of the archive only, which this cluster does not have.
        start = topic.first_position
        if (last := (described or {}).get("archived_last", 0)) >= start:
            result.archived[topic.name], start = last, Position(last + 1)
        async for batch in client.read_batches(topic.name, start):
            count += batch.count
            on_bytes(batch.size)
        result.records[topic.name] = topic.last_position - start + 1
        if count < result.records[topic.name]:
            result.differences.append(f"topic {topic.name} returns {count} of {result.records[topic.name]} records")
        # Records may have been deleted by age since, so the first position may be higher.
        if described is not None and (
            topic.last_position != described["last_position"] or topic.first_position < described["first_position"]
        ):
            result.differences.append(
                f"topic {topic.name} has positions {topic.first_position} to {topic.last_position}, in the source"
                f" {described['first_position']} to {described['last_position']}"
            )
    result.differences += [f"topic {name} is missing" for name in source]


async def _in_order(client: Client, topic: SpreadTopicInfo, begin: int) -> AsyncGenerator[Record, None]:
    """Yield the records of a topic with streams, over positions that were lost before the backup was taken."""
    start: int | None = begin if begin > 1 else None
    while True:
        try:
            async for record in client.read(topic.name, start):
                yield record
            return
        except TrimmedError as error:
            first, end = topic.lost_positions
            if not first < error.first <= end or error.first == start:
                raise
            start = error.first


async def _compare_spread_topics(
    client: Client, ordered: Mapping[str, _Ordered], result: DrillResult, on_bytes: Callable[[int], None]
) -> None:
    """Read each topic with streams in its order. Records that had no position yet may have got one since.

    The order begins behind the archived records. What a stream has before that, and is not archived, is read by stream.
    """
    topics = {topic.name: topic for topic in await client.list_spread_topics()}
    for name, expected in ordered.items():
        found, last = 0, 0
        for stream, (begin, end) in expected.streams.items():
            async for record in client.read(name, begin, end=end, stream=stream):
                found += 1
                on_bytes(len(record.value))
        async for record in _in_order(client, topics[name], expected.start):
            if record.position <= last:
                result.differences.append(f"topic {name} returns position {record.position} after {last}")
            found, last = found + 1, int(record.position)
            on_bytes(len(record.value))
        result.records[name] = found
        if found < expected.count and not topics[name].retain_seconds:
            result.differences.append(f"topic {name} returns {found} of {expected.count} records in its order")
