"""Planted mistakes in the recognition of the store of a group, whose directory may be away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from heapq import nlargest

from tests.mutants.mutants import Mutant, patched
from viewstamp.archive.store import DirectoryObjects, ObjectCreation
from viewstamp.errors import RequestError
from viewstamp.ids import GROUP_0
from viewstamp.node import store_identity
from viewstamp.node.archive_queries import ArchivedRun, ArchiveQuery, NewestRunsQuery, RunsQuery
from viewstamp.node.archivist import Archivist
from viewstamp.node.store_identity import StoreIdentity
from viewstamp.streams.runs import RunCatalogue

__all__ = ["STORE_IDENTITY_MUTANTS"]

_Recognise = Callable[[list[ArchivedRun]], Awaitable[bool]]


def take_any_store() -> AbstractContextManager[None]:
    """Each store counts as new."""
    return patched(StoreIdentity, _runs=lambda self: [])


def create_the_folder_again() -> AbstractContextManager[None]:
    """The folder of an object is created with the object, so also in an empty mount point."""
    original = DirectoryObjects.begin

    def begin(self: DirectoryObjects, name: str) -> ObjectCreation:
        self.prepare(name.rpartition("/")[0])
        return original(self, name)

    return patched(DirectoryObjects, begin=begin)


def forget_unasked() -> AbstractContextManager[None]:
    """Deleted runs are removed and forgotten before the store is recognised."""
    original = Archivist._recognise

    async def recognise(self: Archivist) -> None:
        for name in {str(run["topic"]) for run in self._group.machine.query(RunsQuery())}:
            await self._clean(self._group.machine.query(ArchiveQuery(name)))
        await original(self)

    return patched(Archivist, _recognise=recognise)


def ask_for_one_run() -> AbstractContextManager[None]:
    """The newest file is asked for only, so its loss ends the archive."""
    return patched(store_identity, _PROOFS=1)


def ask_for_deleted_runs() -> AbstractContextManager[None]:
    """Runs whose records were deleted are asked for too, so a lost store can never be given up."""

    def newest(self: RunCatalogue, topics: object, count: int) -> list[ArchivedRun]:
        runs = (run for run in self.runs.values() if run.state.name == "COMMITTED" and not run.origin)
        return [self.archived(run) for run in nlargest(count, runs)]

    return patched(RunCatalogue, newest=newest)


def ask_once() -> AbstractContextManager[None]:
    """A leader that lags behind takes the runs that others have removed for lost."""

    async def check(self: StoreIdentity, where: str, recognise: _Recognise) -> None:
        if not await recognise(self._runs()):
            raise RequestError(f"{where} is empty")

    return patched(StoreIdentity, check=check)


def forget_the_home() -> AbstractContextManager[None]:
    """The first run of a group is written into any store, although group 0 has runs."""

    def runs(self: StoreIdentity) -> list[ArchivedRun]:
        return self._group.machine.query(NewestRunsQuery(16))

    return patched(StoreIdentity, _runs=runs)


def forget_the_other_groups() -> AbstractContextManager[None]:
    """The first run of group 0 is written into any store, although other groups have runs."""

    def runs(self: StoreIdentity) -> list[ArchivedRun]:
        of_group = self._group.machine.query(NewestRunsQuery(16))
        return of_group or self._hosted[GROUP_0].machine.query(NewestRunsQuery(16))

    return patched(StoreIdentity, _runs=runs)


def ask_before_only() -> AbstractContextManager[None]:
    """The store is not asked again before the object is read back."""
    return patched(Archivist, read_back=lambda self, pieces: self._go_through(pieces))


def keep_silent() -> AbstractContextManager[None]:
    """The status does not say that the store is away."""
    return patched(StoreIdentity, trouble=property(lambda self: None))


STORE_IDENTITY_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("take-any-store", "runs are written into an empty mount point", take_any_store, rule="§5a"),
        Mutant(
            "create-the-folder-again",
            "an object gets its folder in an empty mount point",
            create_the_folder_again,
            rule="§5a",
        ),
        Mutant("forget-unasked", "runs are forgotten while the store is away", forget_unasked, rule="B4 3"),
        Mutant("ask-for-one-run", "one lost file ends the archive", ask_for_one_run, rule="§5a"),
        Mutant("ask-for-deleted-runs", "a lost store ends the archive for ever", ask_for_deleted_runs, rule="§5a"),
        Mutant("ask-the-store-once", "a leader that lags behind takes its store for another", ask_once, rule="§5a"),
        Mutant("forget-the-home", "the first run of a group is written into any store", forget_the_home, rule="§5a"),
        Mutant(
            "forget-the-other-groups",
            "the first run of group 0 is written into any store",
            forget_the_other_groups,
            rule="§5a",
        ),
        Mutant("ask-before-only", "a run is committed that another store has", ask_before_only, rule="§5a"),
        Mutant("lost-store-unnamed", "no status names a store that is away", keep_silent, rule="§5a"),
    )
}
"""The mutants by name."""
