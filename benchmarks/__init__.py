"""Measurements, each a program of its own: ``python -m benchmarks.commands``, from the repository's root.

Each says what it asks, in which unit, and what one should expect from a few known costs, beside what it found. Compare
ratios within one run: this machine's disk and its other work change absolute figures by half from hour to hour.
Data goes to ``viewstamp-data/`` under the current directory, on a real disk, and is removed again.

| program | question |
| --- | --- |
| commands | how many commands a second does a replicated counter take, against raw appends and against PySyncObj |
| snapshot | what does a snapshot of a gigabyte cost the appends beside it |
| sync_threads | which threads should sync the log |
"""
