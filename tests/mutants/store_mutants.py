"""Planted mistakes in the store of runs in S3, in the calls to a store of another machine, and in Iceberg tables."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from tests.mutants.mutants import Mutant, patched
from viewstamp.archive import s3_store
from viewstamp.archive.exported_topic import ExportedTopic
from viewstamp.archive.iceberg import FIRST, NEXT, TableOfTopic
from viewstamp.archive.s3_client import S3Client
from viewstamp.archive.s3_store import S3Objects, _S3Creation
from viewstamp.errors import TrimmedError
from viewstamp.host import attempts
from viewstamp.host.attempts import Attempts

__all__ = ["STORE_MUTANTS"]


def put_unconditionally() -> AbstractContextManager[None]:
    original = S3Client.call

    def call(self: S3Client, action: str, request: str, **arguments: Any) -> dict[str, Any]:
        arguments.pop("IfNoneMatch", None)
        return original(self, action, request, **arguments)

    return patched(S3Client, call=call)


def believe_the_store() -> AbstractContextManager[None]:
    return patched(S3Objects, prove=lambda self: None)


def claim_what_is_there() -> AbstractContextManager[None]:
    """After an attempt without an answer, whatever object has the name is taken for the own one."""
    return patched(S3Objects, _holds=lambda self, name, size, digest: True)


def deny_what_was_done() -> AbstractContextManager[None]:
    """An object that was created, with an answer that was lost, is taken for that of another process."""
    return patched(S3Objects, _holds=lambda self, name, size, digest: False)


def read_one_page() -> AbstractContextManager[None]:
    original = S3Objects._objects

    def objects(self: S3Objects, prefix: str) -> Iterator[Mapping[str, Any]]:
        return islice(original(self, prefix), self._page)

    return patched(S3Objects, _objects=objects)


def keep_parts() -> AbstractContextManager[None]:
    """The parts of a removed object stay, so a deposed leader can complete it."""
    return patched(S3Objects, end_uploads=lambda self, name, upload="", *, attempts=0: None)


def abandon_the_name() -> AbstractContextManager[None]:
    """The object of another process is removed with what was written."""
    return patched(_S3Creation, abandon=lambda self: self._objects.remove(self._name))


def believe_the_range() -> AbstractContextManager[None]:
    """Other bytes than those that were asked for are returned, if the store ignores the range."""

    def read(self: S3Client, action: str, size: int, **arguments: Any) -> tuple[str, bytes]:
        answer = self.call(action, "get_object", **arguments)
        first, last = arguments["Range"].removeprefix("bytes=").split("-")
        return f"bytes {first}-", answer["Body"].read()[: int(last) - int(first) + 1]

    return patched(S3Client, read=read)


def read_all_that_is_sent() -> AbstractContextManager[None]:
    """A store that sends more than it was asked for fills the memory of the process."""
    original = S3Client.read

    def read(self: S3Client, action: str, size: int, **arguments: Any) -> tuple[str, bytes]:
        return original(self, action, 1 << 40, **arguments)

    return patched(S3Client, read=read)


def ask_once() -> AbstractContextManager[None]:
    original = s3_store._judge
    return patched(s3_store, _judge=lambda action, error: original(action, error) or error)


def ask_for_ever() -> AbstractContextManager[None]:
    def within(seconds: float, work: Callable[[], Any]) -> Any:
        return work()

    return patched(attempts, _within=within)


def ask_a_silent_store() -> AbstractContextManager[None]:
    """The breaker never opens."""
    return patched(Attempts, _admit=lambda self, action: False)


def repeat_secrets() -> AbstractContextManager[None]:
    return patched(S3Client, _clean=lambda self, error: str(error))


def read_dropped_runs_as_empty() -> AbstractContextManager[None]:
    """A run that was dropped after the plan gives no records and no error."""
    from viewstamp.spark import archived  # Needs Spark, as the tests that find the mistake.

    return patched(archived, _explain=lambda options, part, position, error: part.end)


def read_the_whole_run() -> AbstractContextManager[None]:
    """A piece of a run is the whole run, so positions are read twice, or although nobody asked for them."""
    from viewstamp.spark import archived

    original = archived.divide

    def divide(part: Any, runs: Any) -> tuple[list[Any], list[Any]]:
        pieces, rest = original(part, runs)
        return [next(run for run in runs if run.file == piece.file) for piece in pieces], rest

    return patched(archived, divide=divide)


def end_with_the_runs() -> AbstractContextManager[None]:
    """Of a range with runs, the part that is in the log only is left out."""
    from viewstamp.spark import archived

    original = archived.divide

    def divide(part: Any, runs: Any) -> tuple[list[Any], list[Any]]:
        pieces, rest = original(part, runs)
        return pieces, [] if pieces else rest

    return patched(archived, divide=divide)


def repeat_a_lost_commit() -> AbstractContextManager[None]:
    """The commit of pyiceberg is used, which repeats an append that lost a race on the snapshot of the winner."""

    def commit(self: TableOfTopic, files: Any, first: int, end: int) -> int:
        transaction = self._table.transaction().set_properties({NEXT: str(end)})
        append = transaction.update_snapshot({FIRST: str(first), NEXT: str(end)}).fast_append()
        for each in files:
            append.append_data_file(each)
        append.commit()
        self._table = transaction.commit_transaction()
        self.end = end
        return int(append.snapshot_id)

    return patched(TableOfTopic, commit=commit)


def believe_the_property() -> AbstractContextManager[None]:
    """The end of a table is the one in its properties, which a rollback leaves as it is."""

    def find_end(self: TableOfTopic) -> int | None:
        stored = self._table.properties.get(NEXT)
        return None if stored is None else int(stored)

    return patched(TableOfTopic, _find_end=find_end)


def believe_the_files() -> AbstractContextManager[None]:
    """The end of a table is behind the newest position in its files, so rows that somebody deleted come back."""

    def find_end(self: TableOfTopic) -> int | None:
        newest = self._newest_position()
        return None if newest is None else newest + 1

    return patched(TableOfTopic, _find_end=find_end)


def archived_end_of_the_first_stream() -> AbstractContextManager[None]:
    """The archived end of a topic with streams is that of the stream that is ahead."""
    original = ExportedTopic.archived_end

    async def archived_end(self: ExportedTopic, info: Any) -> int:
        end = await original(self, info)
        return info.last_position + 1 if self.has_streams else end

    return patched(ExportedTopic, archived_end=archived_end)


def pass_over_what_is_deleted() -> AbstractContextManager[None]:
    """An export goes on behind records that were deleted while it ran, although nobody asked for that."""
    original = ExportedTopic.tables

    async def tables(self: ExportedTopic, first: int, end: int, *more: Any) -> AsyncGenerator[Any, None]:
        try:
            async for table in original(self, first, end, *more):
                yield table
        except TrimmedError as error:
            async for table in original(self, error.first, end, *more):
                yield table

    return patched(ExportedTopic, tables=tables)


STORE_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("put-unconditionally", "a deposed leader replaces an object", put_unconditionally, rule="B4 6"),
        Mutant("believe-the-store", "a store that replaces objects is used", believe_the_store, rule="B4 6"),
        Mutant("claim-what-is-there", "another process' object is taken for ours", claim_what_is_there, rule="§5a"),
        Mutant("deny-what-was-done", "an object that was created is denied", deny_what_was_done, rule="§5a"),
        Mutant("read-one-page", "a list ends behind its first page", read_one_page, rule="B4 11"),
        Mutant("keep-parts", "parts of a removed object stay", keep_parts, rule="B4 3"),
        Mutant("abandon-the-name", "the object of another process is removed", abandon_the_name, rule="B4 6"),
        Mutant("believe-the-range", "other bytes than those asked for are returned", believe_the_range, rule="§5a"),
        Mutant(
            "read-all-that-is-sent", "an answer of any length is taken into memory", read_all_that_is_sent, rule="§5a"
        ),
        Mutant("ask-once", "a store that fails for a moment fails the call", ask_once, rule="§5a"),
        Mutant("ask-for-ever", "a call to a silent store does not end", ask_for_ever, rule="§5a"),
        Mutant("ask-a-silent-store", "each call waits for a store that is away", ask_a_silent_store, rule="§5a"),
        Mutant("dropped-run-is-empty", "a dropped run gives no error", read_dropped_runs_as_empty, rule="§5a"),
        Mutant("read-the-whole-run", "positions are read that are not in the plan", read_the_whole_run, rule="B4 9"),
        Mutant("end-with-the-runs", "records behind the runs of a query are left out", end_with_the_runs, rule="B4 9"),
        Mutant("repeat-a-lost-commit", "two exports add the same records", repeat_a_lost_commit, rule="§5a"),
        Mutant("believe-the-property", "a table that was rolled back lacks records", believe_the_property, rule="§5a"),
        Mutant("believe-the-files", "deleted rows of a table come back", believe_the_files, rule="§5a"),
        Mutant(
            "archived-end-of-one-stream",
            "a table has records that are not archived",
            archived_end_of_the_first_stream,
            rule="§5a",
        ),
        Mutant(
            "pass-over-what-is-deleted",
            "an export leaves deleted records out without an error",
            pass_over_what_is_deleted,
            rule="§5a",
        ),
        Mutant("repeat-secrets", "an error has the text of the store's answer", repeat_secrets, rule="§5a"),
    )
}
"""The mutants by name."""
