"""Where Spark finds ``format("viewstamp")`` by itself: of every module named ``pyspark_*`` it takes ``DefaultSource``.

Spark imports them in a process of its own before the first use of any data source written in Python, and gives all of
them up when one cannot be imported. So this imports nothing that can fail, and nothing that takes time.
"""

from viewstamp.spark.data_source import ViewstampDataSource as DefaultSource

__all__ = ["DefaultSource"]
