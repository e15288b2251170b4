"""Exports the records of a topic into an Iceberg table: each position once, whatever fails in between.

The table itself says where an export begins (``iceberg.py``), so nothing is stored elsewhere. An export reads the
records from the nodes, which have them in their logs or get them from runs, verified as for any reader. It writes data
files of about 128 MiB of records, and adds up to sixteen of them in one commit.

The positions of a topic with streams are those over all streams. Its records are read in this order, up to a position
that was given when the export began, so the table is a part of the topic without gaps after each commit.

| it ends | the table has | left over |
| --- | --- | --- |
| before the table is created | nothing | nothing |
| after the table is created | no records | nothing |
| while a data file is written, or before the commit | what earlier commits added | data files that no snapshot names |
| in the commit, before the catalogue has it | the same | the same, and metadata that the catalogue does not name |
| after the catalogue has it, before its answer | the new records | nothing |
| between two commits | the records of the first one | nothing |
| two exports at once | the records of the one whose commit came first | nothing: the other removes its files |

Files that no snapshot names are never read. Iceberg's removal of orphan files finds them. An export does not remove
those of others, because another export may be about to commit them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from viewstamp.archive.columns import load_arrow
from viewstamp.archive.committed_runs import own_id
from viewstamp.archive.exported_topic import ExportedTopic
from viewstamp.archive.iceberg import TableOfTopic, TablePlace
from viewstamp.client.aio import Client
from viewstamp.errors import CorruptionError, TrimmedError

__all__ = ["Exported", "export_topic"]

FILE_BYTES: Final = 128 * 1024 * 1024
"""Bytes of records of one data file, which are in memory until it is written."""
COMMIT_FILES: Final = 16
"""Data files of one commit. A failed export repeats them at most; each commit makes the table's metadata longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export added to a table.

    Attributes:
      location: the directory or the URL of the table.
      first: the first position that was added.
      end: the position after the last one that the table has; equal to ``first`` if nothing was added.
      records: the number of records that were added.
      files: the data files that were added.
      bytes: their size.
      snapshots: the ids of the snapshots, the oldest first.
      skipped: records that the topic had deleted before they were exported.
    """

    location: str
    first: int
    end: int
    records: int = 0
    files: int = 0
    bytes: int = 0
    snapshots: tuple[int, ...] = ()
    skipped: int = 0


async def export_topic(
    client: Client,
    topic: str,
    place: TablePlace,
    *,
    entropy: Random,
    until: int | str = "committed",
    skip_deleted: bool = False,
    on_begin: Callable[[int, int, int], None] = lambda _first, _end, _bytes: None,
    on_bytes: Callable[[int], None] = lambda _bytes: None,
    file_bytes: int = FILE_BYTES,
    commit_files: int = COMMIT_FILES,
) -> Exported:
    """Add the records to a table that it does not have yet. Safe to repeat, also after any failure.

    Cancelled: the table has the records of the commits so far; the next export goes on behind them.

    Args:
      client: of the cluster.
      topic: its name.
      place: the table. It is created by the first export.
      entropy: for the names of files, for example ``random.SystemRandom()``.
      until: ``"committed"``: all records that are committed now. ``"archived"``: those that are in committed runs. A
        number: those before this position.
      skip_deleted: go on behind records that the topic deleted before they were exported.
      on_begin: called once with the first and the end position, and the approximate bytes of the records.
      on_bytes: called with the bytes of records that were read.
      file_bytes: as ``FILE_BYTES``.
      commit_files: as ``COMMIT_FILES``.

    Raises:
      ConfigError: pyiceberg or pyarrow is missing, or the place is wrong.
      UnknownTopicError: there is no such topic. RequestError: the table has other records.
      TrimmedError: records were deleted that the table does not have, and ``skip_deleted`` is off.
      CorruptionError: the table has positions that the topic does not have, or does not say which ones it has.
      UnavailableError: another export was faster, or no node answers. Nothing was added by the failed commit.
      OutcomeUnknownError: the catalogue did not answer; export again.
      StorageError: the store or the catalogue failed.
    """
    place.check()
    source = ExportedTopic(client, topic)
    await source.describe()  # Before a table is created for a topic that does not exist.
    load_arrow()
    cluster = await own_id(client)
    # The table before the topic is described again, so that the topic has all positions that the table has.
    table = await asyncio.to_thread(TableOfTopic, place, cluster, topic, entropy, has_streams=source.has_streams)
    info = await source.describe()
    # The rows before the end of the topic are of the schema that it has then, or of an earlier one.
    while await asyncio.to_thread(table.evolve, info.schema):
        info = await source.describe()  # Again, because the end of the table was read again.
    first = info.first_position if table.end is None else table.end
    end = max(first, await source.end(info, until))
    if first > info.last_position + 1:
        raise CorruptionError(
            f"table {place.name} has positions up to {first - 1}, but topic {topic} ends at {info.last_position},"
            " so it has lost records; nothing was added",
            remedy="look for the reason, then export into a new table",
        )
    skipped = max(0, min(end, info.first_position) - first)
    if skipped and not skip_deleted:
        raise _deleted(topic, first, first + skipped, info.first_position, "nothing was added")
    first += skipped
    on_begin(first, end, -(-info.bytes * (end - first) // max(1, info.last_position + 1 - info.first_position)))
    added = _Added(table, first)
    while added.end < end:
        try:
            async with aclosing(source.tables(added.end, end, file_bytes, on_bytes)) as tables:
                async for records in tables:
                    await added.write(records)
                    if len(added.files) >= commit_files:
                        await added.commit()
        except TrimmedError as error:
            # Deleted since the topic was described, or lost with a majority of the nodes of a group.
            await added.commit()
            if not skip_deleted:
                raise _deleted(topic, added.end, error.first, error.first, "the records before were added") from error
            skipped += added.skip_to(min(error.first, end))
    await added.commit()
    return Exported(
        location=table.location,
        first=first,
        end=added.end,
        records=added.records,
        files=added.files_total,
        bytes=added.bytes_total,
        snapshots=tuple(added.snapshots),
        skipped=skipped,
    )


def _deleted(topic: str, first: int, end: int, kept_from: int, effect: str) -> TrimmedError:
    return TrimmedError(
        f"the positions {first} to {end - 1} of topic {topic} were deleted before they were exported; {effect}",
        first=kept_from,
        remedy="--skip-deleted goes on behind them; export more often, or keep records for longer",
    )


class _Added:
    """The data files that were written, and the commits of an export."""

    def __init__(self, table: TableOfTopic, first: int) -> None:
        self._table = table
        self._first = first
        self.end = first
        self.files: list[Any] = []
        """Written, and not committed yet."""
        self.files_total = self.bytes_total = self.records = 0
        self.snapshots: list[int] = []

    async def write(self, records: Any) -> None:
        """Write the next records as a data file."""
        self.files.append(await asyncio.to_thread(self._table.write, records))
        self.end += records.num_rows
        self.records += records.num_rows

    def skip_to(self, position: int) -> int:
        """Go on at a later position, when everything is committed; return the number of positions between."""
        assert not self.files, "the records before are committed"
        skipped, self.end, self._first = position - self.end, position, position
        return skipped

    async def commit(self) -> None:
        """Commit the files that were written, if there are any."""
        if self.files:
            files, self.files = self.files, []
            self.snapshots.append(await asyncio.to_thread(self._table.commit, files, self._first, self.end))
            self.files_total += len(files)
            self.bytes_total += sum(each.file_size_in_bytes for each in files)
            self._first = self.end
