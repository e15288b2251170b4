"""Where Spark finds ``format("viewstamp-wal")`` by itself: as ``pyspark_viewstamp``, and under the same rules."""

from viewstamp.spark.wal_source import ViewstampWalDataSource as DefaultSource

__all__ = ["DefaultSource"]
