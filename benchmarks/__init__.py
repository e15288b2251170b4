"""Measurements: the whole table against peers by ``python -m benchmarks``, from the repository's root.

``rows/`` has the table's rows, one kind of work a file, ``peers/`` who is measured, ``table.py`` how it is shown,
``results.py`` what is kept, and ``chart.py`` draws that. Beside them are programs of their own, such as
``python -m benchmarks.commands``.

Each says what it asks, in which unit, and what one should expect from a few known costs, beside what it found. Compare
ratios within one run: this machine's disk and its other work change absolute figures by half from hour to hour.
Data goes to ``viewstamp-data/`` under the current directory, on a real disk, and is removed again.

| program | question |
| --- | --- |
| calls | how many Python calls does one append on three nodes make, by package; without a clock, in the simulator |
| commands | how many commands a second does a replicated counter take, against raw appends and against PySyncObj |
| parts | what do the parts of an append cost by themselves, warm |
| growth | does an append get dearer with more topics, sessions, members or records |
| latency | how long do appends take at a given load, ours and the peers' |
| rounds | what does a commit cost, whatever is in it |
| snapshot | what does a snapshot of a gigabyte cost the appends beside it |
| sync_threads | which threads should sync the log |
"""
