"""``format("viewstamp")``: checks the options, and passes Spark's calls to the sink and the sources.

Spark imports this module before any read or write, also for jobs that do not use viewstamp. So the parts are imported
only when they are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from viewstamp.errors import ConfigError
from viewstamp.spark.installed import check_installed
from viewstamp.spark.options import SinkOptions, SourceOptions, is_table
from viewstamp.spark.remedies import remedies

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

__all__ = ["ViewstampDataSource"]


class ViewstampDataSource(DataSource):
    """A topic of a cluster as a table that can be read and appended to. Runs on the driver."""

    def __init__(self, options: dict[str, str]) -> None:
        check_installed()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "viewstamp"

    def schema(self) -> StructType:
        """Return the columns that a read gives: all, or those of the option ``columns``; with ``rows`` the fields too.

        Raises:
          ConfigError: an option is wrong.
        """
        from viewstamp.spark.records import spark_schema

        with remedies():
            if (rows := SourceOptions.rows_of(self.options)) is not None:
                from viewstamp.spark.typed_rows import row_columns

                return row_columns(rows)
            table = SourceOptions.table_of(self.options) if is_table(self.options) else None
            return spark_schema(SourceOptions.columns_of(self.options), table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the records that are in the topics now.

        Raises:
          ConfigError: an option is wrong, or the requested schema is not the topic's.
        """
        from viewstamp.spark.records import table_options
        from viewstamp.spark.source import batch_reader

        with remedies():
            options = SourceOptions.parse(self.options, streaming=False, table=table_options(schema))
            options = _check_columns(schema, options)
            return batch_reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return a reader that continues with later records.

        Raises:
          ConfigError: an option is wrong, or the requested schema is not the topic's.
        """
        from viewstamp.spark.records import table_options
        from viewstamp.spark.stream_source import stream_reader

        with remedies():
            options = SourceOptions.parse(self.options, streaming=True, table=table_options(schema))
            options = _check_columns(schema, options)
            return stream_reader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer of one atomic, durable batch.

        Raises:
          ConfigError: an option is wrong, or the mode is not append.
        """
        from viewstamp.spark.records import table_options
        from viewstamp.spark.sink import batch_writer

        with remedies():
            _check_appends(overwrite, 'write .mode("append")')
            return batch_writer(SinkOptions.parse(self.options, streaming=False, table=table_options(schema)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802  # Spark's
        """Return a writer of micro-batches, each of which is written exactly once.

        Raises:
          ConfigError: an option is wrong, or the output mode is complete.
        """
        from viewstamp.spark.records import table_options
        from viewstamp.spark.sink import stream_writer

        with remedies():
            _check_appends(overwrite, 'write .outputMode("append"), or "update"')
            return stream_writer(SinkOptions.parse(self.options, streaming=True, table=table_options(schema)), schema)


def _check_columns(schema: StructType, options: SourceOptions) -> SourceOptions:
    """Return the options, with the schema of the rows if they are read. Raises ConfigError for columns of the user."""
    from viewstamp.spark.records import spark_schema, without_metadata

    if options.rows:
        from viewstamp.spark.typed_rows import with_rows

        return with_rows(options, schema)
    asked, ours = without_metadata(schema), spark_schema(options.columns)
    if asked != ours:
        raise ConfigError(
            f"the requested schema is {asked.simpleString()}, but a topic has {ours.simpleString()}",
            remedy="leave out .schema(...), or the columns of CREATE TABLE; choose columns with the option columns,"
            " and change them with select(...) and cast(...)",
        )
    return options


def _check_appends(overwrite: bool, remedy: str) -> None:
    if overwrite:
        raise ConfigError("a topic can be appended to, but not overwritten", remedy=remedy)
