"""Planted mistakes in the archives of topics with streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.archive import run_file
from viewstamp.archive.run_file import RunReader
from viewstamp.ids import GROUP_0, ClusterId, GroupId, RunId, TopicId
from viewstamp.node import archived
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.archived import ArchivedReads
from viewstamp.node.placement_queries import SpreadTopic
from viewstamp.streams import cut, runs, spread
from viewstamp.streams.machine import Streams
from viewstamp.streams.runs import RunCatalogue, TopicRun
from viewstamp.streams.state import State
from viewstamp.streams.stream_map import StreamMaps
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch

__all__ = ["STREAM_ARCHIVE_MUTANTS"]


def stream_run_beyond_the_map() -> AbstractContextManager[None]:
    original = RunCatalogue._check_prepare

    def check(self: RunCatalogue, batch: Batch, topics: Mapping[TopicId, Topic], maps: StreamMaps) -> TopicRun:
        return original(self, batch, topics, StreamMaps())

    return patched(RunCatalogue, _check_prepare=check)


def stream_run_with_any_order() -> AbstractContextManager[None]:
    return patched(runs, _check_order=lambda run, name, content, maps: None)


def stream_run_in_an_old_snapshot() -> AbstractContextManager[None]:
    original = cut._version_of

    def version_of(state: State) -> int:
        return min(original(state), 20)

    return patched(cut, _version_of=version_of)


def group_lost_with_a_snapshot() -> AbstractContextManager[None]:
    """The files of streams are looked for among those of group 0 after a member has adopted a snapshot."""
    original = Streams.adopt

    def adopt(self: Streams, prepared: object) -> None:
        original(self, prepared)
        self._state.runs.group = GROUP_0

    return patched(Streams, adopt=adopt)


def one_folder_for_all_groups() -> AbstractContextManager[None]:
    original = run_file.run_name

    def name(cluster: ClusterId, run: RunId, group: GroupId = GROUP_0) -> str:
        return original(cluster, run)

    return everywhere(original, name)


def digest_without_order() -> AbstractContextManager[None]:
    return everywhere(run_file.ordered_digest, lambda digest, order: digest)


def global_positions_unread() -> AbstractContextManager[None]:
    return patched(RunReader, _check_positions=lambda self, number, group, order: None)


def groups_forget_each_other() -> AbstractContextManager[None]:
    """A look for one group forgets the runs that were read for another one, so no log is ever deleted."""
    original = ArchivedReads.held

    def held(self: ArchivedReads, runs: Sequence[ArchivedRun]) -> Any:
        keys = {archived._key(run) for run in runs}
        self._verified &= keys
        return original(self, runs)

    return patched(ArchivedReads, held=held)


def late_archive_settings() -> AbstractContextManager[None]:
    original = spread._reconfigured

    def reconfigured(batch: Batch, topic: SpreadTopic, wanted: SpreadTopic, since: int) -> SpreadTopic | None:
        return original(batch, topic, wanted, topic.configured)

    return patched(spread, _reconfigured=reconfigured)


def retention_without_the_archive() -> AbstractContextManager[None]:
    """Archived records of streams are deleted by a retention that is given when the archive is off."""
    original = spread._reconfigured

    def reconfigured(batch: Batch, topic: SpreadTopic, wanted: SpreadTopic, since: int) -> SpreadTopic | None:
        if wanted == topic:
            return None
        bare = original(batch, topic, replace(wanted, retain_bytes=0, retain_seconds=0.0, archive=None), since)
        assert bare is not None, "its archive has changed"
        return replace(wanted, configured=bare.configured)

    return patched(spread, _reconfigured=reconfigured)


STREAM_ARCHIVE_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "stream-run-beyond-the-map",
            "a run has records whose global positions nobody knows",
            stream_run_beyond_the_map,
            rule="§5a",
        ),
        Mutant(
            "stream-run-with-any-order",
            "the catalogue has other global positions than the map",
            stream_run_with_any_order,
            rule="§5a",
        ),
        Mutant(
            "stream-run-in-an-old-snapshot",
            "an older release reads the runs of a stream",
            stream_run_in_an_old_snapshot,
            rule="§5a",
        ),
        Mutant(
            "group-lost-with-a-snapshot",
            "the files of a stream are looked for among those of group 0",
            group_lost_with_a_snapshot,
            rule="§5a",
        ),
        Mutant("one-folder-for-all-groups", "runs of two groups have one name", one_folder_for_all_groups, rule="B4 1"),
        Mutant("digest-without-order", "a file with another order is taken", digest_without_order, rule="§5a"),
        Mutant("global-positions-unread", "other programs get wrong positions", global_positions_unread, rule="§5a"),
        Mutant("groups-forget-each-other", "no log of streams is ever deleted", groups_forget_each_other, rule="§5a"),
        Mutant("late-archive-settings", "an old request undoes a later one", late_archive_settings, rule="§5a"),
        Mutant(
            "retention-without-the-archive",
            "a retention deletes archived records of streams",
            retention_without_the_archive,
            rule="§5a",
        ),
    )
}
"""The mutants by name."""
