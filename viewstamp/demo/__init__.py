"""``viewstamp demo``, ``demo-spark`` and ``demo-archive``: real processes, real kills, and a proof that none is lost.

The pieces of ``demo``: ``run.py`` is one run; ``source.py`` provides the lines to append: a file, the flights, or
generated lines; ``proof.py`` compares the output of readers with the input; ``result.py`` is the result.

With streams: ``streams_run.py`` is one run, ``streams_proof.py`` compares the order that readers return with the
receipts, and ``streams_result.py`` is the result.

The pieces of ``demo-spark``: ``spark_run.py`` is one run, and writes the files that Spark reads;
``spark_job.py`` is the job, in a process that ``spark_driver.py`` starts and kills; ``spark_watch.py`` looks for parts
of a micro-batch; ``spark_delays.py`` is the table that Spark computed, and its picture; ``spark_result.py`` is the
result.

The pieces of ``demo-archive``: ``archive_run.py`` is one run, which appends as ``demo`` does; ``archive_sizes.py`` has
the sizes of logs and archive over time, and draws them; ``archive_result.py`` is the result.

All take their directory with ``directory.py``, which deletes the files of a demo and no others.
"""
