"""Measurements: ``python -m benchmarks``, from the repository's root, measures the whole table against peers.

``rows/`` has the rows of the table, one kind of work in each file. ``peers/`` has the measured systems. ``table.py``
prints the table, ``results.py`` stores the results, and ``chart.py`` draws them. The other modules are programs, for
example ``python -m benchmarks.commands``.

Each program states its question, its unit, and the result to expect from a few known costs. Compare ratios within one
run, because the disk and other work on the machine change absolute figures by half from hour to hour. Data is written
to ``viewstamp-data/`` under the current directory, on a real disk, and removed at the end.

| program | question |
| --- | --- |
| calls | how many Python calls does one append on three nodes make, by package; without a clock, in the simulator |
| commands | how many commands a second does a replicated counter take, against raw appends and against PySyncObj |
| parts | how long do the parts of an append take by themselves, warm |
| growth | does the cost of an append rise with topics, sessions, members or records |
| latency | how long do appends take at a given load, in viewstamp and in the peers |
| rounds | how much processor time does a commit take, by process |
| snapshot | how much slower are appends during a snapshot of a gigabyte |
| backup | how much slower are appends during a backup of a gigabyte |
| sync_threads | which threads should sync the log |
| spark | how fast are the Spark sink, the source and the replay, compared with what Spark does itself |
"""
