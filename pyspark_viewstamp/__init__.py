"""Where Spark finds ``format("viewstamp")`` by itself: of every module named ``pyspark_*`` it takes ``DefaultSource``.

Spark imports them in a process of its own before the first use of any data source written in Python, and gives all of
them up when one cannot be imported. So this imports nothing that can fail, and nothing that takes time.

Spark registers one data source for each such top-level module, under the name that the source gives itself, so the
second format needs a second module: ``pyspark_viewstamp_wal``.
"""

from viewstamp.spark.data_source import ViewstampDataSource as DefaultSource

__all__ = ["DefaultSource"]
