"""What ``viewstamp demo`` and ``viewstamp demo-spark`` do: real processes, real kills, and a proof.

The pieces of ``demo``: ``run.py`` is one run; ``source.py`` has the lines to append: a file, the flights, or lines that
it makes; ``proof.py`` compares what readers return with the input; ``result.py`` is what came out.

The pieces of ``demo-spark``: ``spark_run.py`` is one run; ``spark_input.py`` writes the files that Spark reads;
``spark_job.py`` is the job, in a process that ``spark_driver.py`` starts and kills; ``spark_watch.py`` looks for a part
of a micro-batch; ``spark_delays.py`` is what Spark computed, and draws it; ``spark_result.py`` is what came out.

Both take their directory by ``directory.py``, which removes what a demo made and nothing else.
"""
