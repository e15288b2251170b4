"""Makes ``format("viewstamp")`` known to Spark, which uses ``DefaultSource`` of each module named ``pyspark_*``.

Spark imports these modules in a process of its own before the first use of any data source written in Python. If one of
them cannot be imported, Spark uses none. So this module imports nothing that can fail or that takes long.

Spark registers one data source for each such top-level module, under the name that the source gives itself, so the
second format needs a second module: ``pyspark_viewstamp_wal``.
"""

from viewstamp.spark.data_source import ViewstampDataSource as DefaultSource

__all__ = ["DefaultSource"]
