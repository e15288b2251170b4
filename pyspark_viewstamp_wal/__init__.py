"""Makes ``format("viewstamp-wal")`` known to Spark, by the same rules as ``pyspark_viewstamp``."""

from viewstamp.spark.wal_source import ViewstampWalDataSource as DefaultSource

__all__ = ["DefaultSource"]
