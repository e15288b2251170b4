"""``format("viewstamp")``: hands what Spark asks for over to the sink and the sources, once the options are right.

Imported by Spark before anything is read or written, also for jobs that have nothing to do with viewstamp: what the
parts need is imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """A topic of a cluster as a table that can be read, and appended to. Runs on the driver."""

    def __init__(self, options: dict[str, str]) -> None:
        check_installed()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format(...)``."""
        return "viewstamp"

    def schema(self) -> StructType:
        """Return the columns that reading gives; fewer where the option ``columns`` says so.

        Raises:
          ConfigError: an option is wrong.
        """
        from viewstamp.spark.records import spark_schema

        with remedies():
            table = SourceOptions.table_of(self.options) if is_table(self.options) else None
            return spark_schema(SourceOptions.columns_of(self.options), table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of what stands in the topics now.

        Raises:
          ConfigError: an option is wrong, or the schema is not ours.
        """
        from viewstamp.spark.records import table_options
        from viewstamp.spark.source import batch_reader

        with remedies():
            options = SourceOptions.parse(self.options, streaming=False, table=table_options(schema))
            _check_columns(schema, options.columns)
            return batch_reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return a reader that goes on with what is appended later.

        Raises:
          ConfigError: an option is wrong, or the schema is not ours.
        """
        from viewstamp.spark.records import table_options
        from viewstamp.spark.stream_source import stream_reader

        with remedies():
            options = SourceOptions.parse(self.options, streaming=True, table=table_options(schema))
            _check_columns(schema, options.columns)
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
        """Return a writer of micro-batches, each of which lands exactly once.

        Raises:
          ConfigError: an option is wrong, or the output mode is complete.
        """
        from viewstamp.spark.records import table_options
        from viewstamp.spark.sink import stream_writer

        with remedies():
            _check_appends(overwrite, 'write .outputMode("append"), or "update"')
            return stream_writer(SinkOptions.parse(self.options, streaming=True, table=table_options(schema)), schema)


def _check_columns(schema: StructType, columns: Sequence[str]) -> None:
    from viewstamp.spark.records import spark_schema, without_metadata

    asked, ours = without_metadata(schema), spark_schema(columns)
    if asked != ours:
        raise ConfigError(
            f"the schema {asked.simpleString()} was asked for; a topic gives {ours.simpleString()}",
            remedy="leave .schema(...), or the columns of CREATE TABLE, out; option columns chooses among them,"
            " select(...) and cast(...) change",
        )


def _check_appends(overwrite: bool, remedy: str) -> None:
    if overwrite:
        raise ConfigError("a topic is only appended to, never overwritten", remedy=remedy)
