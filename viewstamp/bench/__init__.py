"""The library for measurements: ``viewstamp bench`` and the programs in ``benchmarks/`` of a checkout use it.

Promises
  * The callers are in this process, the nodes in processes of their own. ``client_cores`` beside each figure is the
    share of a processor that this process used. Near 1, the figure is the limit of the callers and not of the nodes.
  * Every output has ``durability`` and ``filesystem``. If the data is in memory, the output contains a warning or the
    measurement does not start, because the figures of a disk would differ.
  * The files of a cluster that is made for a measurement are in the current directory, on its disk. They are removed
    when the measurement ends, also if it fails.

| module | holds |
| --- | --- |
| ``load.py`` | callers that await each call, calls in flight, calls at a fixed rate; the figures that they yield |
| ``histogram.py`` | latencies, in buckets |
| ``cluster.py`` | a cluster of its own, one that exists already, or one whose leader is in this process |
| ``fill.py`` | records for a topic |
| ``conditions.py``, ``interpreter.py`` | machine, commit, disk, and the speed of the interpreter |
| ``plot.py``, ``report.py`` | pictures and tables |
"""
