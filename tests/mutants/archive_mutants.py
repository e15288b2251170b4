"""Planted mistakes in the catalogue of runs, and in the steps of the archivist."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, patched
from viewstamp.archive import run_store
from viewstamp.archive.run_store import RunObjects
from viewstamp.ids import Position, RunId, TopicId
from viewstamp.node import archivist
from viewstamp.node.archivist import Archivist
from viewstamp.node.state_machine import ArchivableTopic
from viewstamp.streams import runs
from viewstamp.streams.runs import RunCatalogue, RunRule, RunState, TopicRun
from viewstamp.wire.batch import Batch, Kind

__all__ = ["ARCHIVE_MUTANTS"]


def without(rule: RunRule) -> Callable[[], AbstractContextManager[None]]:
    """Accept what one rule forbids."""
    original: Any = runs._refuse

    def refuse(found: RunRule, why: str, *remedy: str) -> None:
        if found is not rule:
            original(found, why, *remedy)

    return lambda: patched(runs, _refuse=refuse)


def read_while_prepared() -> AbstractContextManager[None]:
    """A run is read from its PREPARE_RUN on."""
    original = RunCatalogue.committed

    def committed(self: RunCatalogue, topic: Any) -> list[TopicRun]:
        prepared = self.prepared(topic)
        return [*original(self, topic), *([] if prepared is None else [prepared])]

    def find(self: RunCatalogue, topic: Any, position: int) -> TopicRun | None:
        return next((run for run in committed(self, topic) if run.first <= position < run.end), None)

    return patched(RunCatalogue, committed=committed, find=find)


def end_by_prepare() -> AbstractContextManager[None]:
    """The archived end moves before the object is durable."""
    original = RunCatalogue.apply

    def apply(self: RunCatalogue, batch: Batch, topics: Any) -> TopicRun:
        run = original(self, batch, topics)
        if batch.kind is Kind.PREPARE_RUN:
            self.ends[run.topic] = run.end
        return run

    return patched(RunCatalogue, apply=apply)


def end_falls_with_drop() -> AbstractContextManager[None]:
    """The archived end moves back when a run is dropped."""
    original = RunCatalogue.apply

    def apply(self: RunCatalogue, batch: Batch, topics: Any) -> TopicRun:
        run = original(self, batch, topics)
        if batch.kind is Kind.DROP_RUN and run.content is not None:
            self.ends[run.topic] = Position(run.first)
        return run

    return patched(RunCatalogue, apply=apply)


def remove_what_is_known() -> AbstractContextManager[None]:
    """Objects of runs that are not committed are taken for orphans, also those that are being written."""

    def orphans(self: RunCatalogue, ids: Collection[int], applied_end: int) -> list[int]:
        own = {int(run.id) for run in self.runs.values() if run.state is RunState.COMMITTED and not run.origin}
        return sorted(each for each in ids if each < applied_end and each not in own)

    return patched(RunCatalogue, orphans=orphans)


def remove_what_comes() -> AbstractContextManager[None]:
    """A leader that lags takes the object of a run for an orphan whose PREPARE_RUN it has not applied."""
    original = RunCatalogue.orphans
    return patched(RunCatalogue, orphans=lambda self, ids, applied_end: original(self, ids, 1 << 62))


def snapshot_without_runs() -> AbstractContextManager[None]:
    return patched(RunCatalogue, image=lambda self: [[], list(map(list, self.ends.items()))])


def fork_owns_the_objects() -> AbstractContextManager[None]:
    """A new cluster takes the objects of the old one for its own, so it may remove them."""
    return patched(RunCatalogue, fork=lambda self, source, log_time: None)


def commit_unread() -> AbstractContextManager[None]:
    async def pass_over(self: Archivist, pieces: Any) -> None:
        pieces.close()

    return patched(Archivist, _go_through=pass_over)


def archive_unprobed() -> AbstractContextManager[None]:
    async def probe(self: Archivist) -> None:
        pass

    return patched(Archivist, _probe=probe)


def probe_for_groups_only() -> AbstractContextManager[None]:
    """Releases with groups and without runs pass the probe."""
    original = archivist.find_unfit
    return patched(archivist, find_unfit=lambda network, cluster, members, _: original(network, cluster, members))


def keep_prepared_runs() -> AbstractContextManager[None]:
    """The run of an earlier leader stays PREPARED, so the topic cannot be archived any more."""
    original = Archivist._clean

    async def clean(self: Archivist, topic: ArchivableTopic) -> None:
        runs = tuple(run for run in topic.runs if run.state != "prepared")
        await original(self, replace(topic, runs=runs))

    return patched(Archivist, _clean=clean)


def forget_what_is_there() -> AbstractContextManager[None]:
    """A run is forgotten although its object could not be removed."""
    original = Archivist._remove

    async def remove(self: Archivist, run: RunId) -> bool:
        await original(self, run)
        return True

    return patched(Archivist, _remove=remove)


def write_when_deposed() -> AbstractContextManager[None]:
    return patched(Archivist, _check_leads=lambda self, term: None)


def replace_objects() -> AbstractContextManager[None]:
    """An object of the same name is replaced."""
    original = RunObjects.begin

    def begin(self: RunObjects, run: RunId, topic: TopicId, first: Position) -> Any:
        RunObjects.remove(self, run)
        return original(self, run, topic, first)

    return patched(RunObjects, begin=begin)


def run_with_a_gap() -> AbstractContextManager[None]:
    """Batches are written as they come, so the positions in the file are not those of the records."""

    def add(self: Any, batch: Batch, end: int) -> None:
        self._writer.add(batch.term, batch.first_index, batch.log_time, batch.columns())

    return patched(run_store._RunObject, _add=add)


ARCHIVE_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "commit-after-drop",
            "a deposed leader commits a run whose object is being removed",
            without(RunRule.COMMIT_AFTER_DROP),
            rule="B4 2",
        ),
        Mutant(
            "forget-before-drop",
            "a run is forgotten while its object is there",
            without(RunRule.FORGET_BEFORE_DROP),
            rule="B4 3",
        ),
        Mutant(
            "drop-what-is-kept",
            "a run is dropped whose records the topic keeps",
            without(RunRule.STILL_NEEDED),
            rule="B4 3",
        ),
        Mutant(
            "two-runs-at-once",
            "two leaders prepare runs of the same records",
            without(RunRule.PREPARED_TWICE),
            rule="B4 6",
        ),
        Mutant("run-behind-a-gap", "a run begins behind a gap", without(RunRule.GAP), rule="B4 9"),
        Mutant("run-over-a-run", "two runs hold one position", without(RunRule.OVERLAP), rule="B4 9"),
        Mutant(
            "archive-what-is-deleted", "deleted records get into a run", without(RunRule.DELETED_RECORDS), rule="§5a"
        ),
        Mutant(
            "commit-a-part",
            "a run is committed with other contents",
            without(RunRule.WRONG_CONTENT),
            rule="B4 8",
        ),
        Mutant("read-while-prepared", "a run is read before it is committed", read_while_prepared, rule="B4 2"),
        Mutant("end-by-prepare", "the archived end moves before the object is durable", end_by_prepare, rule="§5a"),
        Mutant("commit-unread", "a run is committed that was not read back", commit_unread, rule="§5a"),
        Mutant("archive-unprobed", "a record is proposed that a member cannot read", archive_unprobed, rule="§5a"),
        Mutant("probe-for-groups", "the probe does not look for runs", probe_for_groups_only, rule="§5a"),
        Mutant("keep-prepared-runs", "the run of an earlier leader stays prepared", keep_prepared_runs, rule="B4 2"),
        Mutant("forget-what-is-there", "a run is forgotten whose object is there", forget_what_is_there, rule="B4 3"),
        Mutant("write-when-deposed", "a deposed leader goes on writing", write_when_deposed, rule="B4 2"),
        Mutant("replace-objects", "the object of another run is replaced", replace_objects, rule="B4 6"),
        Mutant("run-with-a-gap", "records of a run have other positions", run_with_a_gap, rule="B4 9"),
        Mutant("end-falls-with-drop", "the archived end moves back", end_falls_with_drop, rule="§5a"),
        Mutant("remove-what-is-known", "the object of a known run is an orphan", remove_what_is_known, rule="B4 11"),
        Mutant("remove-what-comes", "the object of a later run is an orphan", remove_what_comes, rule="B4 11"),
        Mutant("snapshot-without-runs", "a snapshot holds no runs", snapshot_without_runs, rule="B4 5"),
        Mutant(
            "fork-owns-the-objects",
            "a new cluster removes objects of the old one",
            fork_owns_the_objects,
            rule="B4 11",
        ),
    )
}
"""The mutants by name."""
