"""Planted mistakes in keyed topics: in the catalogue of runs of keys, in dumps and merges, and in reads by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.archive import key_file, key_rows, key_store
from viewstamp.archive.key_columns import KeyColumns
from viewstamp.archive.key_rows import GroupReader, GroupRows, KeyFilter, KeyRunReader
from viewstamp.errors import UnavailableError
from viewstamp.ids import Position, RunId, TopicId
from viewstamp.node import keyed_reads
from viewstamp.node.archivist import Archivist
from viewstamp.node.keyed_archivist import KeyArchivist, WrittenKeys
from viewstamp.node.keyed_queries import DueKeys, DueKeysQuery, KeyedView
from viewstamp.node.keyed_reads import KeyedReads
from viewstamp.node.keyed_rows import KeyRow
from viewstamp.node.keyed_table import KeyTable
from viewstamp.streams import key_plan, key_runs
from viewstamp.streams.key_runs import KeyCatalogue, KeyedTopic, KeyRule, KeyRun
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Buffer, Kind

__all__ = ["KEYED_MUTANTS"]


def oldest_wins() -> AbstractContextManager[None]:
    original = key_rows.merge_rows

    def merge_rows(newest_first: Sequence[Iterable[KeyRow]], *, drops_tombstones: bool) -> Iterator[KeyRow]:
        return original(list(reversed(newest_first)), drops_tombstones=drops_tombstones)

    return patched(key_store, merge_rows=merge_rows)


def deletions_vanish() -> AbstractContextManager[None]:
    original = key_rows.merge_rows

    def merge_rows(newest_first: Sequence[Iterable[KeyRow]], *, drops_tombstones: bool) -> Iterator[KeyRow]:
        return original(newest_first, drops_tombstones=True)

    return patched(key_store, merge_rows=merge_rows)


def tail_unread() -> AbstractContextManager[None]:
    async def catch_up(self: KeyedReads, view: KeyedView) -> None:
        self._table(view)

    return patched(KeyedReads, _catch_up=catch_up)


def log_is_a_run() -> AbstractContextManager[None]:
    """A damaged log is reported as a damaged run of keys, which people have to put back."""
    original = KeyedReads._catch_up

    async def catch_up(self: KeyedReads, view: KeyedView) -> None:
        try:
            await original(self, view)
        except UnavailableError as error:
            raise error.__cause__ or error from error

    return patched(KeyedReads, _catch_up=catch_up)


def read_stale() -> AbstractContextManager[None]:
    """The table ends where an earlier read ended."""
    original = KeyedReads._catch_up

    async def catch_up(self: KeyedReads, view: KeyedView) -> None:
        if self._table(view).end == view.dumped_end:
            await original(self, view)

    return patched(KeyedReads, _catch_up=catch_up)


def table_beyond_the_dump() -> AbstractContextManager[None]:
    """A dump takes records from the table that are in no run."""

    def discard(self: KeyTable, below: int) -> None:
        if below > self.first:
            self.generations = [type(self.generations[0])(self.end)]

    return patched(KeyTable, discard=discard)


def commit_unread() -> AbstractContextManager[None]:
    async def read_back(self: KeyArchivist, run: RunId, written: WrittenKeys) -> None:
        pass

    return patched(KeyArchivist, _read_back=read_back)


def forget_unremoved() -> AbstractContextManager[None]:
    original = Archivist.remove

    async def remove(self: Archivist, run: RunId) -> bool:
        await original(self, run)
        return True

    return patched(Archivist, remove=remove)


def trim_undumped() -> AbstractContextManager[None]:
    def kept_from(self: KeyCatalogue, topic: Topic, position: Position) -> Position:
        return position

    return patched(KeyCatalogue, kept_from=kept_from, check_trim=lambda self, topic, position: None)


def keep_replaced() -> AbstractContextManager[None]:
    def change(self: KeyCatalogue, changed: KeyedTopic) -> None:
        self.topics[changed.topic] = changed

    return patched(KeyCatalogue, _change=change)


def unprobed() -> AbstractContextManager[None]:
    async def probe(self: Archivist, kind: Kind = Kind.CONFIGURE_ARCHIVE) -> None:
        pass

    return patched(Archivist, probe_settings=probe)


def filter_without_a_key() -> AbstractContextManager[None]:
    original = KeyFilter.add

    def add(self: KeyFilter, key: bytes) -> None:
        if not key.endswith(b"7"):
            original(self, key)

    return patched(KeyFilter, add=add)


def read_every_run() -> AbstractContextManager[None]:
    return patched(KeyFilter, passes=lambda self, key: True)


def dumps_first() -> AbstractContextManager[None]:
    """A dump that is due comes before each merge."""
    return patched(key_plan, _OVERDUE=1 << 30)


def merge_in_a_full_log() -> AbstractContextManager[None]:
    """An overdue merge comes before a dump also if the log is nearly full."""
    original = key_plan.due_keys

    def due_keys(topic: Topic, keys: KeyCatalogue, query: DueKeysQuery) -> DueKeys | None:
        return original(topic, keys, replace(query, is_pressed=False)) or original(topic, keys, query)

    return everywhere(original, due_keys)


def group_unverified() -> AbstractContextManager[None]:
    """Rows of a group are returned without a look at its checksum."""

    def verified(self: KeyRunReader, groups: GroupReader, number: int) -> GroupRows:
        group = self.footer.groups[number]
        return groups.read(number, group.begin, group.end)

    return patched(KeyRunReader, _verified=verified)


def checksum_without_nulls() -> AbstractContextManager[None]:
    """The checksum of a group does not tell a deleted key from one with an empty value."""
    original = KeyColumns.content

    def content(self: KeyColumns) -> Iterator[Buffer]:
        pieces = list(original(self))
        for at, column in enumerate(self._columns):
            if column.nulls:
                start = sum(3 if each.offsets is None else 4 for each in self._columns[:at])
                pieces[start : start + 2] = []
        return iter(pieces)

    return patched(KeyColumns, content=content)


def request_for_each_column() -> AbstractContextManager[None]:
    """A get asks the store for each column of its group."""
    return patched(key_file._Part, fetch=lambda self, begin, end: None)


def groups_unbounded() -> AbstractContextManager[None]:
    """The groups in memory are not counted by their bytes."""
    return patched(key_store, _GROUPS_BYTES=1 << 40)


def page_without_its_end() -> AbstractContextManager[None]:
    """The table adds keys behind the page, so the next page has them again."""
    original = keyed_reads.overlay

    def overlay(generations: Any, rows: Any, start: bytes, end: bytes | None) -> list[KeyRow]:
        return original(generations, rows, start, None)

    return patched(keyed_reads, overlay=overlay)


def without(rule: KeyRule) -> Callable[[], AbstractContextManager[None]]:
    """Accept what one rule forbids."""
    original: Any = key_runs._refuse

    def refuse(found: KeyRule, why: str, *remedy: str) -> None:
        if found is not rule:
            original(found, why, *remedy)

    return lambda: patched(key_runs, _refuse=refuse)


def reuse_ids() -> AbstractContextManager[None]:
    original = KeyCatalogue._check_prepare

    def check_prepare(self: KeyCatalogue, batch: Batch, topics: Mapping[TopicId, Topic]) -> KeyRun:
        return original(self, batch, topics)._replace(id=RunId(max(self.runs, default=0) + 1))

    return patched(KeyCatalogue, _check_prepare=check_prepare)


def snapshot_without_keys() -> AbstractContextManager[None]:
    """A snapshot has the views without their runs."""

    def image(self: KeyCatalogue) -> list[object]:
        return [[[each.topic, each.first, each.first, [[b"", []]]] for each in self.topics.values()], []]

    return patched(KeyCatalogue, image=image)


def ahead_of_topics() -> AbstractContextManager[None]:
    return patched(KeyCatalogue, check_topics=lambda self, topics: None)


def keys_are_orphans() -> AbstractContextManager[None]:
    return patched(KeyCatalogue, orphans=lambda self, ids: list(ids))


def fork_owns_keys() -> AbstractContextManager[None]:
    """A new cluster goes on with the runs of the old one, and removes them after its merges."""
    return patched(KeyCatalogue, fork=lambda self, topics: None)


def fork_loses_keys() -> AbstractContextManager[None]:
    """The view of a new cluster begins with what the topic keeps, without keys that only runs had."""

    def fork(self: KeyCatalogue, topics: Mapping[TopicId, Topic]) -> None:
        self.topics = {
            each.topic: each._replace(end=each.first, ranges=(key_runs.KeyRange(b""),)) for each in self.topics.values()
        }
        self.runs = {}

    return patched(KeyCatalogue, fork=fork)


KEYED_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("keys-oldest-wins", "a merge keeps the oldest record of a key", oldest_wins, rule="B4 1"),
        Mutant("keys-dumps-first", "a topic with steady writes is never merged", dumps_first, rule="§10"),
        Mutant("keys-merge-in-a-full-log", "a full log waits for a merge", merge_in_a_full_log, rule="§10"),
        Mutant("keys-deletions-vanish", "a merge drops deletions of older keys", deletions_vanish, rule="B4 1"),
        Mutant("keys-tail-unread", "a get does not see the log", tail_unread, rule="§5a"),
        Mutant("keys-log-is-a-run", "a damaged log is called a damaged run", log_is_a_run, rule="§5a"),
        Mutant("keys-read-stale", "a get sees the log as an earlier one did", read_stale, rule="§5a"),
        Mutant("keys-table-lost", "a dump takes later records from the table", table_beyond_the_dump, rule="§5a"),
        Mutant("keys-commit-unread", "a run of keys is committed without a look", commit_unread, rule="B4 2"),
        Mutant("keys-forget-unremoved", "a run of keys is forgotten with its file", forget_unremoved, rule="B4 3"),
        Mutant("keys-trim-undumped", "a trim deletes records that are in no run", trim_undumped, rule="§5a"),
        Mutant("keys-keep-replaced", "a merge leaves the runs that it replaces", keep_replaced, rule="B4 4"),
        Mutant("keys-unprobed", "a member gets records of keys that it cannot read", unprobed, rule="§5a"),
        Mutant("keys-filter-gap", "a filter lacks keys", filter_without_a_key, rule="§5a"),
        Mutant("keys-read-every-run", "a get reads every run", read_every_run, rule="§10"),
        Mutant("keys-group-unverified", "a get returns rows of a damaged group", group_unverified, rule="§5a"),
        Mutant("keys-checksum-blind", "the checksum of a group ignores deletions", checksum_without_nulls, rule="§5a"),
        Mutant("keys-request-a-column", "a get makes a request for each column", request_for_each_column, rule="§10"),
        Mutant("keys-groups-unbounded", "a node keeps any number of groups", groups_unbounded, rule="§10"),
        Mutant("keys-page-unbounded", "a page of a scan has keys of the next one", page_without_its_end, rule="§5a"),
        Mutant("keys-id-reused", "a run of keys gets the id of an earlier one", reuse_ids, rule="B4 1"),
        Mutant("keys-in-no-snapshot", "a snapshot has no runs of keys", snapshot_without_keys, rule="B4 5"),
        Mutant(
            "keys-two-at-once",
            "two leaders prepare runs of the same keys",
            without(KeyRule.PREPARED_TWICE),
            rule="B4 6",
        ),
        Mutant(
            "keys-commit-after-drop",
            "a deposed leader commits a run of keys whose file is being removed",
            without(KeyRule.COMMIT_AFTER_DROP),
            rule="B4 7",
        ),
        Mutant(
            "keys-wrong-content",
            "a run of keys is committed with other contents",
            without(KeyRule.WRONG_CONTENT),
            rule="B4 8",
        ),
        Mutant("keys-behind-a-gap", "a dump begins behind a gap", without(KeyRule.GAP), rule="B4 9"),
        Mutant("keys-ahead-of-topics", "a view has records that its topic lacks", ahead_of_topics, rule="B4 10"),
        Mutant("keys-are-orphans", "the file of a run of keys is an orphan", keys_are_orphans, rule="B4 11"),
        Mutant("keys-fork-owns", "a new cluster removes runs of keys of the old one", fork_owns_keys, rule="B4 11"),
        Mutant("keys-fork-loses", "the view of a new cluster lacks keys", fork_loses_keys, rule="B4 11"),
    )
}
"""The mutants by name."""
