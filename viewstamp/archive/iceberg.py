"""An Iceberg table with the records of one topic. Blocking; needs pyiceberg.

Each commit adds data files, and stores in the same atomic step how far the table has come: the summary of its snapshot
has ``viewstamp.first-position`` and ``viewstamp.end-position``, and so have the properties of the table.

| the table | the next export begins |
| --- | --- |
| the current snapshot, or the newest of its ancestors with these keys, is known | at the end that it says |
| it was rolled back to an older snapshot | the same: at the end of that one, so the missing records come again |
| other programs have added snapshots, for example a compaction | the same: theirs have no such keys |
| the snapshot with the keys was expired | at the end in the properties, if the newest position in the files agrees |
| that disagrees | not: CorruptionError, because it would be a guess |

The table of a topic with a schema has one more column, ``row``: a struct with the fields of the rows, which may all be
null. It changes with the schema of the topic, before records are added, by an atomic step of its own. A record that is
no row has null there, and so have records that were exported before the topic had the schema, or the field.

A commit is tried once, and only on the snapshot from which the position was read. pyiceberg would repeat an append that
lost a race on the snapshot of the winner, and if the winner has added the same records, they would be there twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from viewstamp.archive.columns import header_maps, load_arrow
from viewstamp.archive.exported_topic import STREAM
from viewstamp.archive.run_rows import ROW, row_structs
from viewstamp.errors import (
    ConfigError,
    CorruptionError,
    OutcomeUnknownError,
    RequestError,
    StorageError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.wire.row_schema import RowSchema

__all__ = ["FIRST", "NEXT", "TableOfTopic", "TablePlace"]

FIRST: Final = "viewstamp.first-position"
NEXT: Final = "viewstamp.end-position"
_CLUSTER: Final = "viewstamp.cluster"
_TOPIC: Final = "viewstamp.topic"
_CATALOGUE: Final = "viewstamp"
"""The name of the catalogue in the SQLite file of a directory; readers give the same name."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is: ``name`` is ``NAMESPACE.TABLE``.

    Exactly one of the others is given. ``directory``: the table and its catalogue, a SQLite file ``catalog.db``, are
    there. ``catalogue``: the name of a catalogue in the configuration of pyiceberg.
    """

    name: str
    directory: Path | None = None
    catalogue: str = ""

    def check(self) -> None:
        """Check the name and the place. Raises ConfigError."""
        parts = self.name.split(".")
        if len(parts) < 2 or not all(part and part.replace("_", "a").replace("-", "a").isalnum() for part in parts):
            raise ConfigError(
                f"{self.name!r} is no name of a table", remedy="write NAMESPACE.TABLE, for example lake.orders"
            )
        if (self.directory is None) == (not self.catalogue):
            given = (
                "both a directory and a catalogue are" if self.catalogue else "neither a directory nor a catalogue is"
            )
            raise ConfigError(
                f"{given} given for table {self.name}",
                remedy="give --warehouse DIR, or --catalog NAME for a catalogue that pyiceberg is configured for",
            )


class TableOfTopic:
    """The table of one topic of one cluster.

    Attributes:
      end: the position after the last one that the table has; None = nothing was exported yet.
      location: the directory or the URL of the table.
    """

    def __init__(
        self, place: TablePlace, cluster: str, topic: str, entropy: Random, *, has_streams: bool = False
    ) -> None:
        """Open a table, or create it without records. ``entropy`` is for the names of files.

        Raises:
          ConfigError: the place is wrong, or a package is missing.
          RequestError: the table exists, and has not the records of this topic of this cluster.
          StorageError: the catalogue or the table cannot be read, or the table cannot be created.
        """
        place.check()
        self._arrow = load_arrow()
        self._name = place.name
        self._entropy = entropy
        try:
            import pyiceberg.catalog as catalogs
        except ImportError as error:
            raise ConfigError(
                f"an Iceberg table needs pyiceberg, which is not installed ({error})",
                remedy="pip install 'viewstamp[iceberg]'",
            ) from error
        self._rows: RowSchema | None = None
        self._owner = cluster, topic
        self._has_streams = has_streams
        with self._storing("opened"):
            self._catalog: Any = catalogs.load_catalog(*_settings(place)[0], **_settings(place)[1])
            self._table: Any = self._open(cluster, topic)
            self._check_owner(cluster, topic)
            self.end = self._find_end()
        self.location = str(self._table.location())

    def evolve(self, text: str) -> bool:
        """Give the table the columns of a schema of rows, "" = none; return whether it was changed, and read again.

        The schemas of a topic become wider only, and so does the table. If the process dies behind this step, the table
        has columns without values.

        Raises:
          RequestError: the table has another column with the name of the struct.
          UnavailableError: another program has changed the columns meanwhile.
          StorageError: the catalogue or the table failed.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.types import NestedField, StructType

        self._rows = RowSchema.parse(text) if text else None
        if self._rows is None:
            return False
        kinds = {field.name: _row_types()[field.type] for field in self._rows.fields}
        with self._storing("changed"):
            update = self._table.update_schema()
            is_changed = False
            row = next((field for field in self._table.schema().fields if field.name == ROW), None)
            if row is None:
                is_changed = True
                fields = [NestedField(at, name, kind) for at, (name, kind) in enumerate(kinds.items(), 1)]
                update.add_column(ROW, StructType(*fields))
            elif not isinstance(row.field_type, StructType):
                raise RequestError(
                    f"table {self._name} has a column {ROW} of type {row.field_type}, where an export has the fields of"
                    " rows; nothing was added",
                    remedy="name another table",
                )
            else:
                stored = {field.name: field.field_type for field in row.field_type.fields}
                for name, kind in kinds.items():
                    if name not in stored:
                        is_changed = True
                        update.add_column((ROW, name), kind)
                    elif stored[name] != kind:
                        is_changed = True
                        update.update_column((ROW, name), kind)
            if not is_changed:
                return False
            try:
                update.commit()
            except CommitFailedException as error:
                raise UnavailableError(
                    f"another program changed the columns of table {self._name} ({error}); nothing was added",
                    remedy="run the export again",
                ) from error
            # Another export may have added records before this step, so the end is read again too.
            self._table = self._reload()
            self._check_owner(*self._owner)
            self.end = self._find_end()
        return True

    def write(self, records: Any) -> Any:
        """Write an Arrow table of records, as runs have them, as a data file, and return its description.

        No reader sees it before :meth:`commit`. Raises StorageError.
        """
        from pyiceberg.io.pyarrow import write_file
        from pyiceberg.table import WriteTask

        if self._rows is not None:
            records = records.append_column(ROW, row_structs(self._rows, records["value"]))
        headers = header_maps(f"table {self._name}", records["headers"].combine_chunks())
        at = records.schema.get_field_index("headers")
        records = records.set_column(at, "headers", self._arrow.chunked_array([headers]))
        with self._storing("written"):
            metadata = self._table.metadata
            schema = self._file_schema()
            task = WriteTask(UUID(bytes=self._entropy.randbytes(16)), 0, schema, records.to_batches())
            return next(write_file(self._table.io, metadata, iter([task])))

    def commit(self, files: Sequence[Any], first: int, end: int) -> int:
        """Add files with the records at the positions ``[first, end)`` in one atomic step; return the snapshot's id.

        Raises:
          UnavailableError: another program has changed the table since it was opened. Nothing was added, and the files
            were removed.
          OutcomeUnknownError: the catalogue did not answer. The records are in the table, or not; the next export finds
            out.
          StorageError: it has failed before the catalogue was asked. Nothing was added.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertTableUUID

        assert (self.end or 1) <= first < end, f"the table ends at {self.end}, and {first} to {end} are added"
        table = self._table
        with self._storing("changed"):
            transaction = table.transaction().set_properties({NEXT: str(end)})
            append = transaction.update_snapshot({FIRST: str(first), NEXT: str(end)}).fast_append()
            for each in files:
                append.append_data_file(each)
            append.commit()  # Into the transaction: nothing is visible yet.
            requirements = (*transaction._requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
        try:
            self._catalog.commit_table(table, requirements, transaction._updates)
        except CommitFailedException as error:
            append._clean_all_uncommitted()
            self.discard(files)
            raise UnavailableError(
                f"another program changed table {self._name} during the export ({error}); nothing was added",
                remedy="if it was another export, let it end; then run this one again: it begins where the table ends",
            ) from error
        except Exception as error:
            if not self._has(append.snapshot_id):
                raise OutcomeUnknownError(
                    f"the catalogue of table {self._name} did not confirm the positions {first} to {end - 1}: {error}",
                    token=None,
                    remedy="run the export again: it reads from the table whether they are there",
                ) from error
        self._table = self._reload()
        self.end = end
        return int(append.snapshot_id)

    def discard(self, files: Sequence[Any]) -> None:
        """Remove files that were not committed. One that cannot be removed stays; no reader sees it."""
        for each in files:
            try:
                self._table.io.delete(each.file_path)
            except Exception:  # It was the last step, and nothing depends on it.
                continue

    def _open(self, cluster: str, topic: str) -> Any:
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            return self._reload()
        except NoSuchTableError:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        try:
            properties = {_CLUSTER: cluster, _TOPIC: topic, "write.parquet.compression-codec": "zstd"}
            return self._catalog.create_table(self._name, _table_schema(self._has_streams), properties=properties)
        except TableAlreadyExistsError:  # Another export has created it meanwhile.
            return self._reload()

    def _reload(self) -> Any:
        return self._catalog.load_table(self._name)

    def _file_schema(self) -> Any:
        """Return the schema of a data file: the columns of records, and the fields that the rows have."""
        from pyiceberg.schema import Schema
        from pyiceberg.types import NestedField, StructType

        plain = _table_schema(self._has_streams)
        if self._rows is None:
            return plain
        row = self._table.schema().find_field(ROW)
        names = {field.name for field in self._rows.fields}
        fields = [field for field in row.field_type.fields if field.name in names]
        return Schema(*plain.fields, NestedField(row.field_id, ROW, StructType(*fields), required=False))

    def _has(self, snapshot: int) -> bool:
        try:
            return self._reload().metadata.snapshot_by_id(snapshot) is not None
        except Exception:
            return False

    def _check_owner(self, cluster: str, topic: str) -> None:
        properties = self._table.properties
        if (properties.get(_CLUSTER), properties.get(_TOPIC)) != (cluster, topic):
            found = "other records than those of an export"
            if _TOPIC in properties:
                found = f"topic {properties[_TOPIC]} of cluster {properties.get(_CLUSTER)}"
            raise RequestError(
                f"table {self._name} has {found}, not topic {topic} of cluster {cluster}; nothing was added",
                remedy="name another table",
            )
        if not self._table.spec().is_unpartitioned():
            raise RequestError(
                f"table {self._name} is divided into partitions, and an export writes files without; nothing was added",
                remedy="name another table; readers choose files by the positions and times in them",
            )

    def _find_end(self) -> int | None:
        """Return the end of the newest export that the current snapshot contains; None = it contains none.

        Raises CorruptionError: the snapshots that would say it were expired, and the files do not confirm the property.
        """
        metadata = self._table.metadata
        snapshot = metadata.current_snapshot()
        while snapshot is not None:
            if snapshot.summary is not None and (end := snapshot.summary.get(NEXT)) is not None:
                return int(end)
            # After an expiry the oldest one that is left names none, or one that is gone: that depends on the program.
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        stored = self._table.properties.get(NEXT)
        if stored is None:
            return None
        newest = self._newest_position()
        if newest is None or newest + 1 != int(stored):
            raise CorruptionError(
                f"table {self._name} does not say which positions it has: the snapshot of its last export was expired,"
                f" its properties have the end {stored}, and its files the last position {newest}; nothing was added",
                remedy="export into a new table",
            )
        return int(stored)

    def _newest_position(self) -> int | None:
        """Return the upper bound of the positions in the files of the current snapshot; None = there is none."""
        from pyiceberg.conversions import from_bytes
        from pyiceberg.types import LongType

        field = self._table.schema().find_field("position").field_id
        bounds = [(task.file.upper_bounds or {}).get(field) for task in self._table.scan().plan_files()]
        if not bounds or None in bounds:
            return None
        return max(int(from_bytes(LongType(), bound)) for bound in bounds)

    @contextmanager
    def _storing(self, verb: str) -> Iterator[None]:
        """Convert the errors of pyiceberg, the store and the catalogue into StorageError."""
        try:
            yield
        except ViewstampError:
            raise
        except Exception as error:
            text = str(error).partition("\n")[0] or repr(error)
            raise StorageError(
                f"table {self._name} cannot be {verb}: {text}; nothing was added",
                remedy="look at the warehouse and the catalogue, then run the export again",
            ) from error


def _settings(place: TablePlace) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the arguments of ``load_catalog``; the directory exists then."""
    if place.directory is None:
        return (place.catalogue,), {}
    directory = place.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{directory / 'catalog.db'}"
    return (_CATALOGUE,), {"type": "sql", "uri": uri, "warehouse": directory.as_uri()}


def _table_schema(has_streams: bool) -> Any:
    """Return the schema of the table: the columns of a run, but headers that are a map, and the stream if it has one.

    A catalogue gives the columns their ids in this order, then the parts of columns, so these are the ids in files.
    """
    from pyiceberg.schema import Schema
    from pyiceberg.types import BinaryType, IntegerType, LongType, MapType, NestedField, StringType, TimestamptzType

    stream = [NestedField(8, STREAM, IntegerType(), required=True, doc="the number of its stream, from 1")]
    part = 9 if has_streams else 8
    headers = MapType(part, StringType(), part + 1, BinaryType(), value_required=True)
    return Schema(
        NestedField(1, "position", LongType(), required=True, doc="its place in the topic, from 1"),
        NestedField(2, "term", LongType(), required=True),
        NestedField(3, "index", LongType(), required=True, doc="its place in the log"),
        NestedField(4, "timestamp", TimestamptzType(), required=True, doc="log time"),
        NestedField(5, "key", BinaryType()),
        NestedField(6, "value", BinaryType(), required=True),
        NestedField(7, "headers", headers),
        *(stream if has_streams else ()),
    )


def _row_types() -> dict[str, Any]:
    """Return the type of a column for each type of fields."""
    from pyiceberg import types

    return {
        "bool": types.BooleanType(),
        "int32": types.IntegerType(),
        "int64": types.LongType(),
        "float32": types.FloatType(),
        "float64": types.DoubleType(),
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "timestamp": types.TimestamptzType(),
    }
