"""Planted mistakes in the rules for archived records that a reader takes from files, and in the order of streams."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import viewstamp.archive.committed_runs as rules
from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.archive.store import ObjectStore
from viewstamp.client.aio import Client

__all__ = ["ARROW_MUTANTS"]


def read_runs_of_any_state() -> AbstractContextManager[None]:
    """A run that is prepared or dropped counts like a committed one."""

    async def committed_runs(client: Client, topics: Sequence[str]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {topic: [] for topic in topics}
        for run in await client.list_runs():
            if run.topic in found:
                found[run.topic].append(run)
        return {topic: sorted(runs, key=lambda run: run.first_position) for topic, runs in found.items()}

    return everywhere(rules.committed_runs, committed_runs)


def take_whole_runs() -> AbstractContextManager[None]:
    """The share of a run is the whole run."""
    original = rules.divide_by_positions

    def divide_by_positions(start: int, end: int, runs: Sequence[tuple[int, int]]) -> Any:
        shares, rest = original(start, end, runs)
        return [rules.RunShare(each.run, *runs[each.run]) for each in shares], rest

    return everywhere(rules.divide_by_positions, divide_by_positions)


def take_lost_files_for_deleted_records() -> AbstractContextManager[None]:
    """A file that is lost is taken for that of a run that was dropped."""

    async def kept_behind(client: Client, topic: str, end: int) -> int | None:
        return end

    return everywhere(rules.kept_behind, kept_behind)


def call_an_away_store_damaged() -> AbstractContextManager[None]:
    """Each error of the opening is about the file, also if the store has no file of its folder."""

    def open_run(store: ObjectStore, file: rules.RunFile) -> Any:
        return rules.RunReader(rules.ObjectFile(store, file.name, file.size), file.name)

    return everywhere(rules.open_run, open_run)


def merge_too_early() -> AbstractContextManager[None]:
    """The rows of a table are given out although another stream may have rows before them."""
    from viewstamp.archive.ordered_merge import OrderedMerge  # Needs pyarrow, as the tests that find the mistake.

    def take(self: OrderedMerge) -> Any:
        if not self._tables:
            return None
        lane = min(self._tables)
        self.wanted.add(lane)
        return self._tables.pop(lane)

    return patched(OrderedMerge, take=take)


ARROW_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("read-runs-of-any-state", "records of no run are read", read_runs_of_any_state, rule="§5a"),
        Mutant("take-whole-runs", "records are read twice", take_whole_runs, rule="§5a"),
        Mutant("excuse-lost-files", "lost records count as deleted", take_lost_files_for_deleted_records, rule="§5a"),
        Mutant("away-is-damaged", "a store that is away is a damaged file", call_an_away_store_damaged, rule="§5a"),
        Mutant("merge-streams-early", "records of streams are out of order", merge_too_early, rule="§5a"),
    )
}
"""The mutants by name."""
